//! The host's table: what plugins may call.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ucs::async_context::{AsyncError, HandlerId, RawHandler, Schedule};
use ucs::datastruct::callbackq::CallbackId;
use ucs::event_set::Events;
use ucs::{Error, Status};
use uct_abi::*;

use crate::engine::Engine;
use crate::log;

static HOST: UctHost = UctHost {
    size: size_of::<UctHost>(),
    abi_version: UCT_ABI_MAJOR << 16 | UCT_ABI_MINOR,
    log: log::log,
    log_level: log::level,
    now,
    async_add_fd,
    async_modify,
    async_add_timer,
    async_remove,
    async_block,
    async_unblock,
    progress_add,
    progress_remove,
    worker_wake,
    progress_request: crate::worker::driven::request,
};

/// The table.
pub(crate) fn table() -> &'static UctHost {
    ucs::log::receive::claim_image();
    &HOST
}

unsafe extern "C" fn now() -> u64 {
    ucs::clock::now()
}

/// # Safety
/// `worker` is the pointer that the interface was opened with, and the interface is open: it keeps the worker alive.
unsafe fn worker<'a>(worker: *mut UctWorker) -> &'a Engine {
    // SAFETY: the caller's promise.
    unsafe { &*worker.cast::<Engine>() }
}

unsafe extern "C" fn async_add_fd(
    raw: *mut UctWorker,
    fd: i32,
    events: u32,
    handler: UctAsyncHandler,
    argument: *mut c_void,
    id: *mut u64,
) -> UctStatus {
    // SAFETY: a plugin names the worker of its open interface.
    let context = &unsafe { worker(raw) }.async_context;
    // SAFETY: the plugin's descriptor is open until it removes the watch.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // SAFETY: handler and argument belong together until they are removed (`UctHost::async_add_fd`).
    answer(unsafe { context.add_fd_raw(fd, to_events(events), RawHandler { handler, argument }) }, id)
}

unsafe extern "C" fn async_add_timer(
    raw: *mut UctWorker,
    interval: u64,
    handler: UctAsyncHandler,
    argument: *mut c_void,
    id: *mut u64,
) -> UctStatus {
    // SAFETY: a plugin names the worker of its open interface.
    let context = &unsafe { worker(raw) }.async_context;
    let schedule = Schedule::Every(Duration::from_nanos(interval.max(1)));
    // SAFETY: handler and argument belong together until they are removed (`UctHost::async_add_timer`).
    answer(unsafe { context.add_timer_raw(schedule, RawHandler { handler, argument }) }, id)
}

unsafe extern "C" fn async_modify(raw: *mut UctWorker, id: u64, events: u32) -> UctStatus {
    // SAFETY: a plugin names the worker of its open interface.
    let context = &unsafe { worker(raw) }.async_context;
    status(context.modify_fd(HandlerId::from_raw(id), to_events(events)))
}

unsafe extern "C" fn async_remove(raw: *mut UctWorker, id: u64) -> UctStatus {
    // SAFETY: a plugin names the worker of its open interface.
    let context = &unsafe { worker(raw) }.async_context;
    status(context.remove(HandlerId::from_raw(id)))
}

unsafe extern "C" fn async_block(raw: *mut UctWorker) {
    // SAFETY: a plugin names the worker of its open interface.
    unsafe { worker(raw) }.async_context.block_raw();
}

unsafe extern "C" fn async_unblock(raw: *mut UctWorker) {
    // SAFETY: a plugin names the worker of its open interface.
    unsafe { worker(raw) }.async_context.unblock_raw();
}

unsafe extern "C" fn progress_add(
    raw: *mut UctWorker,
    callback: UctProgress,
    argument: *mut c_void,
    id: *mut u64,
) -> UctStatus {
    // SAFETY: a plugin names the worker of its open interface.
    let remote = &unsafe { worker(raw) }.remote;
    // SAFETY: callback and argument belong together until they are removed (`UctHost::progress_add`).
    match unsafe { remote.add(callback, argument) } {
        Ok(added) => {
            // SAFETY: `id` is the plugin's place for the answer.
            unsafe { id.write(added.get()) };
            UCT_OK
        }
        Err(_closed) => UCT_ERR_CANCELED,
    }
}

unsafe extern "C" fn progress_remove(raw: *mut UctWorker, id: u64) -> UctStatus {
    // SAFETY: a plugin names the worker of its open interface.
    let remote = &unsafe { worker(raw) }.remote;
    let Some(id) = CallbackId::new(id) else { return UCT_ERR_NO_ELEM };
    // A queue that is gone has no callbacks.
    let _ = remote.remove(id);
    UCT_OK
}

unsafe extern "C" fn worker_wake(raw: *mut UctWorker) {
    // SAFETY: a plugin names the worker of its open interface.
    unsafe { worker(raw) }.wake.signal();
}

fn to_events(events: u32) -> Events {
    let mut wanted = Events::empty();
    wanted.set(Events::READ, events & UCT_FD_READ != 0);
    wanted.set(Events::WRITE, events & UCT_FD_WRITE != 0);
    wanted
}

fn answer(result: Result<HandlerId, AsyncError>, id: *mut u64) -> UctStatus {
    status(result.map(|added| {
        // SAFETY: `id` is the plugin's place for the answer.
        unsafe { id.write(added.to_raw()) };
    }))
}

fn status(result: Result<(), AsyncError>) -> UctStatus {
    Status::from(result.map_err(Error::from)).raw()
}
