//! What the host does for a plugin: log, clock, asynchronous events, progress callbacks.

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Duration;

use ucs::log::Record;
use ucs::{Error, Status};
use uct_abi::{
    UctAsyncHandler, UctHost, UctHostIface, UctLogRecord, UctProgress, UctStatus, UctStr, UctWorker,
};

use crate::failure::Failure;

static HOST: OnceLock<&'static UctHost> = OnceLock::new();

/// Remembers the host and sends this image's `tracing` events to it. Called by the exported `init`.
///
/// A transport that is linked statically shares the host's `tracing` and keeps the subscriber that is there.
pub(crate) fn set(host: &'static UctHost) -> Result<(), Failure> {
    if host.size < size_of::<UctHost>() {
        return Err(Failure::new(
            Error::UNSUPPORTED,
            format!(
                "the host offers {} bytes of calls, this plugin needs {}",
                host.size,
                size_of::<UctHost>()
            ),
        ));
    }
    let _ = HOST.set(host);
    ucs::log::forward::install(log, log_level);
    Ok(())
}

/// Sends one log record to the host.
fn log(record: &Record<'_>) {
    let Some(host) = HOST.get() else { return };
    let record = UctLogRecord {
        size: size_of::<UctLogRecord>(),
        level: record.level,
        line: record.line,
        target: text(record.target),
        file: text(record.file),
        message: text(record.message),
    };
    // SAFETY: `log` accepts any record that is valid for the call (`UctHost`).
    unsafe { (host.log)(&raw const record) }
}

/// The most verbose level that is recorded; 0 for none.
fn log_level() -> u32 {
    // SAFETY: `log_level` takes nothing and may be called by any thread (`UctHost`).
    HOST.get().map_or(0, |host| unsafe { (host.log_level)() })
}

fn text(words: &str) -> UctStr {
    UctStr { data: words.as_ptr(), length: words.len() }
}

/// The worker that drives an interface, as far as a transport needs it. Valid for the life of the interface.
#[derive(Clone, Copy)]
pub struct Worker {
    worker: NonNull<UctWorker>,
    host: &'static UctHost,
}

// SAFETY: what may be called from other threads is said with each call; the asynchronous handlers of a transport need
// the worker in the thread of the asynchronous context.
unsafe impl Send for Worker {}

/// A watch or a timer of the asynchronous context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncId(u64);

/// A progress callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressId(u64);

impl Worker {
    /// # Safety
    /// `worker` is the host's worker and outlives the interface that gets the value.
    pub(crate) unsafe fn new(worker: *mut UctWorker) -> Option<Worker> {
        Some(Worker { worker: NonNull::new(worker)?, host: HOST.get()? })
    }

    /// Watches `fd` for `UCT_FD_*` events. The handler runs in the worker's asynchronous context: from progress in poll
    /// mode, in a thread of the host otherwise.
    ///
    /// # Safety
    /// `handler` may be called with `argument` until [`Worker::async_remove`] has returned, from another thread if the
    /// context has a thread.
    pub unsafe fn async_add_fd(
        &self,
        fd: RawFd,
        events: u32,
        handler: UctAsyncHandler,
        argument: *mut std::ffi::c_void,
    ) -> Result<AsyncId, Error> {
        let mut id = 0;
        // SAFETY: the worker is valid (`Worker::new`); the handler's contract is the caller's.
        let status = unsafe {
            (self.host.async_add_fd)(self.worker.as_ptr(), fd, events, handler, argument, &raw mut id)
        };
        result(status).map(|()| AsyncId(id))
    }

    /// Changes what a watched descriptor is watched for.
    pub fn async_modify(&self, id: AsyncId, events: u32) -> Result<(), Error> {
        // SAFETY: the worker is valid (`Worker::new`); a wrong id is an error.
        result(unsafe { (self.host.async_modify)(self.worker.as_ptr(), id.0, events) })
    }

    /// Calls `handler` every `interval`.
    ///
    /// # Safety
    /// As [`Worker::async_add_fd`].
    pub unsafe fn async_add_timer(
        &self,
        interval: Duration,
        handler: UctAsyncHandler,
        argument: *mut std::ffi::c_void,
    ) -> Result<AsyncId, Error> {
        let nanoseconds = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        let mut id = 0;
        // SAFETY: the worker is valid (`Worker::new`); the handler's contract is the caller's.
        let status = unsafe {
            (self.host.async_add_timer)(self.worker.as_ptr(), nanoseconds, handler, argument, &raw mut id)
        };
        result(status).map(|()| AsyncId(id))
    }

    /// Ends a watch or a timer; the handler is not running when this returns, unless the call came from inside it.
    pub fn async_remove(&self, id: AsyncId) {
        // SAFETY: the worker is valid (`Worker::new`); a wrong id is an error.
        let status = unsafe { (self.host.async_remove)(self.worker.as_ptr(), id.0) };
        debug_assert_eq!(status, 0, "an id is removed once");
    }

    /// Runs `body` while handlers of the asynchronous context are kept from running; what they miss runs afterwards.
    pub fn async_blocked<T>(&self, body: impl FnOnce() -> T) -> T {
        struct Unblock<'a>(&'a Worker);
        impl Drop for Unblock<'_> {
            fn drop(&mut self) {
                // SAFETY: pairs with the block below.
                unsafe { (self.0.host.async_unblock)(self.0.worker.as_ptr()) }
            }
        }
        // SAFETY: the worker is valid (`Worker::new`).
        unsafe { (self.host.async_block)(self.worker.as_ptr()) };
        let _unblock = Unblock(self);
        body()
    }

    /// Adds a progress callback besides the interface's own.
    ///
    /// # Safety
    /// `callback` may be called with `argument` from the worker's thread until it was removed.
    pub unsafe fn progress_add(
        &self,
        callback: UctProgress,
        argument: *mut std::ffi::c_void,
    ) -> Result<ProgressId, Error> {
        let mut id = 0;
        // SAFETY: the worker is valid (`Worker::new`); the callback's contract is the caller's.
        let status =
            unsafe { (self.host.progress_add)(self.worker.as_ptr(), callback, argument, &raw mut id) };
        result(status).map(|()| ProgressId(id))
    }

    /// Removes a progress callback.
    pub fn progress_remove(&self, id: ProgressId) {
        // SAFETY: the worker is valid (`Worker::new`); a wrong id is an error.
        let status = unsafe { (self.host.progress_remove)(self.worker.as_ptr(), id.0) };
        debug_assert_eq!(status, 0, "an id is removed once");
    }

    /// Wakes the worker if it sleeps on its event descriptor. Any thread.
    pub fn wake(&self) {
        // SAFETY: the worker is valid (`Worker::new`).
        unsafe { (self.host.worker_wake)(self.worker.as_ptr()) }
    }
}

/// How an interface asks for its progress. The host calls the progress of one that has had no event for a while only now and then.
#[derive(Clone, Copy)]
pub struct ProgressRequest {
    iface: *mut UctHostIface,
    host: &'static UctHost,
}

impl ProgressRequest {
    /// # Safety
    /// `iface` is the host's interface and valid as long as the value is used.
    pub(crate) unsafe fn new(iface: *mut UctHostIface) -> Option<ProgressRequest> {
        Some(ProgressRequest { iface, host: HOST.get()? })
    }

    /// Has the worker's next progress call that of the interface. For what a transport leaves to it. The worker's thread.
    #[inline]
    pub fn submit(&self) {
        // SAFETY: the interface is valid (`ProgressRequest::new`).
        unsafe { (self.host.progress_request)(self.iface) }
    }
}

fn result(status: UctStatus) -> Result<(), Error> {
    Status::from_raw(status).into_result()
}
