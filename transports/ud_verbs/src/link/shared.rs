//! What all connections of an interface share: the core behind its lock, limits, requests that wait, timers.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use uct_plugin::{PendingQueue, Worker};

use super::core::Core;
use super::lock::{Guard, Lock};
use super::timers::Timers;
use crate::proto::ConnectionId;

/// What the interface promises.
pub(crate) struct Limits {
    /// Bytes of a message.
    pub(crate) message: usize,
    /// Bytes of the header of a zero-copy message.
    pub(crate) header: usize,
    /// Pieces of the application's memory in a message.
    pub(crate) pieces: usize,
    /// Puts, gets and atomics of an endpoint that may be outstanding.
    pub(crate) operations: usize,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) lock: Arc<Lock<Core>>,
    pub(crate) limits: Limits,
    pub(crate) pending: PendingQueue,
    /// A send is blocked on something that all connections share.
    pub(crate) is_blocked: Cell<bool>,
    pub(crate) timers: Timers,
}

impl Shared {
    /// No connection yet; the fast timer ticks every `tick`.
    pub(crate) fn new(lock: Lock<Core>, limits: Limits, worker: Worker, tick: Duration) -> Shared {
        let lock = Arc::new(lock);
        let timers = Timers::new(&lock, worker, tick);
        Shared { lock, limits, pending: PendingQueue::default(), is_blocked: Cell::new(false), timers }
    }

    /// Takes hold of the state that timers work on as well.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Guard<'_, Core> {
        // SAFETY: this is not `Send` (`PendingQueue`), nor are the interface and the connections that hold it in an `Rc`: all calls
        // come from the worker's thread.
        unsafe { self.lock.enter() }
    }

    /// To be called after everything but a message that concerns a connection: progress has work.
    pub(crate) fn add_work(&self, guard: &Guard<'_, Core>) {
        guard.with(|core| core.pending_work.add());
        self.arm_retransmit_timer(guard);
    }

    /// To be called after everything that may have set a deadline.
    #[inline]
    pub(crate) fn arm_retransmit_timer(&self, guard: &Guard<'_, Core>) {
        if !guard.with(|core| core.is_ticking) {
            self.timers.keep_ticking(guard);
        }
    }

    /// Ends what is outstanding on a connection that is over.
    pub(crate) fn drain(&self, guard: &Guard<'_, Core>, id: ConnectionId) {
        while let Some((completion, result)) = guard.with(|core| core.abandon(id)) {
            completion.complete(result);
        }
    }
}
