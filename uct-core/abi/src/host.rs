//! Calls of the host that a plugin may use.

use core::ffi::c_void;

use crate::{UctHostIface, UctStatus, UctStr, UctWorker};

/// Log level: error.
pub const UCT_LOG_ERROR: u32 = 1;
/// Log level: warning.
pub const UCT_LOG_WARN: u32 = 2;
/// Log level: information.
pub const UCT_LOG_INFO: u32 = 3;
/// Log level: debugging.
pub const UCT_LOG_DEBUG: u32 = 4;
/// Log level: tracing.
pub const UCT_LOG_TRACE: u32 = 5;

/// Event on a file descriptor: readable.
pub const UCT_FD_READ: u32 = 1 << 0;
/// Event on a file descriptor: writable.
pub const UCT_FD_WRITE: u32 = 1 << 1;
/// Event on a file descriptor: error or hang-up; always reported.
pub const UCT_FD_ERROR: u32 = 1 << 2;

/// Called for an event of the asynchronous context. `events` is 0 for a timer.
pub type UctAsyncHandler = unsafe extern "C" fn(argument: *mut c_void, id: u64, events: u32);

/// Called by worker progress; returns how many events it handled.
pub type UctProgress = unsafe extern "C" fn(argument: *mut c_void) -> u32;

/// One log record.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctLogRecord {
    /// Size of this table in bytes.
    pub size: usize,
    /// `UCT_LOG_*`.
    pub level: u32,
    /// Line in `file`; 0 where unknown.
    pub line: u32,
    /// Module that logs.
    pub target: UctStr,
    /// Source file.
    pub file: UctStr,
    /// The message with its fields.
    pub message: UctStr,
}

/// The host's calls. The host fills every slot it knows of; a plugin checks `size` before it uses one that is newer
/// than the plugin's ABI. Valid for ever.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UctHost {
    /// Size of this table in bytes.
    pub size: usize,
    /// ABI version of the host: `major << 16 | minor`.
    pub abi_version: u32,
    /// Writes a log record. Any thread.
    pub log: unsafe extern "C" fn(record: *const UctLogRecord),
    /// The most verbose level that is in use (`UCT_LOG_*`, 0 for none). Any thread; cheap.
    pub log_level: unsafe extern "C" fn() -> u32,
    /// Monotonic time in nanoseconds. Any thread.
    pub now: unsafe extern "C" fn() -> u64,
    /// Watches a file descriptor for `UCT_FD_*`. The handler runs in the worker's asynchronous context: from progress
    /// in poll mode, from a thread of its own otherwise.
    pub async_add_fd: unsafe extern "C" fn(
        worker: *mut UctWorker,
        fd: i32,
        events: u32,
        handler: UctAsyncHandler,
        argument: *mut c_void,
        id: *mut u64,
    ) -> UctStatus,
    /// Changes what a watched file descriptor is watched for.
    pub async_modify: unsafe extern "C" fn(worker: *mut UctWorker, id: u64, events: u32) -> UctStatus,
    /// Calls the handler every `interval` nanoseconds.
    pub async_add_timer: unsafe extern "C" fn(
        worker: *mut UctWorker,
        interval: u64,
        handler: UctAsyncHandler,
        argument: *mut c_void,
        id: *mut u64,
    ) -> UctStatus,
    /// Ends a watch or a timer. When it returns the handler is not running, unless the call came from inside it.
    pub async_remove: unsafe extern "C" fn(worker: *mut UctWorker, id: u64) -> UctStatus,
    /// Keeps handlers of the asynchronous context from running; nests. Handlers that were due meanwhile run at the last unblock.
    pub async_block: unsafe extern "C" fn(worker: *mut UctWorker),
    /// Undoes one `async_block`.
    pub async_unblock: unsafe extern "C" fn(worker: *mut UctWorker),
    /// Adds a progress callback besides the interface's own, for work that is not permanent. Any thread.
    pub progress_add: unsafe extern "C" fn(
        worker: *mut UctWorker,
        callback: UctProgress,
        argument: *mut c_void,
        id: *mut u64,
    ) -> UctStatus,
    /// Removes a progress callback. Any thread.
    pub progress_remove: unsafe extern "C" fn(worker: *mut UctWorker, id: u64) -> UctStatus,
    /// Wakes a worker that sleeps on its event descriptor. Any thread.
    pub worker_wake: unsafe extern "C" fn(worker: *mut UctWorker),
    /// Has the worker's next progress call that of the interface. Progress of several interfaces calls one that has had no event for a
    /// while only now and then, so a transport that leaves something to progress asks for it. The worker's thread; cheap.
    pub progress_request: unsafe extern "C" fn(iface: *mut UctHostIface),
}
