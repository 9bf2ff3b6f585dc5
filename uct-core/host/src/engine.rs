//! The part of a worker that plugins use: timers and watches, progress from other threads, and the wake-up.
//!
//! A plugin knows it as `UctWorker`; the functions are those of [`host`](crate::host).

use std::sync::Arc;

use ucs::async_context::AsyncContext;
use ucs::datastruct::callbackq::CallbackQHandle;
use ucs::event_set::EventFd;

/// One for each worker, and part of it.
pub(crate) struct Engine {
    pub(crate) remote: CallbackQHandle,
    pub(crate) async_context: AsyncContext,
    pub(crate) wake: Arc<EventFd>,
}
