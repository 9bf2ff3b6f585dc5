//! Whether a context has a thread: starting it once, and ending it in time.
//!
//! Used by `shared`. What the thread does is `thread`'s.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use crate::event_set::EventFd;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sys::SystemError;

/// How long dropping a context waits for a handler that is running.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// Enough for a thread that calls handlers; address space only, until it is used.
const STACK_SIZE: usize = 1 << 20;

/// Where the thread is, if there is one.
pub(super) struct Slot {
    state: Mutex<State>,
    ended: Condvar,
    must_stop: AtomicBool,
}

enum State {
    NotStarted,
    Running(ThreadId),
    Ended,
}

impl Slot {
    pub(super) fn new() -> Slot {
        Slot {
            state: Mutex::new(State::NotStarted),
            ended: Condvar::new(),
            must_stop: AtomicBool::new(false),
        }
    }

    /// Starts the thread, unless it was started before. `run` ends with [`Slot::note_ended`].
    pub(super) fn start(&self, run: impl FnOnce() + Send + 'static) -> Result<(), SystemError> {
        let mut state = self.state();
        if !matches!(*state, State::NotStarted) {
            return Ok(());
        }
        let handle = std::thread::Builder::new()
            .name("uct-async".to_owned())
            .stack_size(STACK_SIZE)
            .spawn(run)
            .map_err(|error| SystemError::new("start the thread of an asynchronous context", error))?;
        *state = State::Running(handle.thread().id());
        Ok(())
    }

    /// Stops the thread and waits for it, for `limit` at most. The thread itself does not wait.
    pub(super) fn stop(&self, wake: &EventFd, limit: Duration) {
        // SYNC: Release pairs with the Acquire in `must_stop`.
        self.must_stop.store(true, Ordering::Release);
        wake.signal();
        let here = std::thread::current().id();
        let state = self.state();
        if matches!(*state, State::Running(id) if id == here) {
            return;
        }
        let still_running = |state: &mut State| matches!(state, State::Running(_));
        let wait = self.ended.wait_timeout_while(state, limit, still_running);
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }

    /// The thread does nothing more.
    pub(super) fn note_ended(&self) {
        *self.state() = State::Ended;
        self.ended.notify_all();
    }

    /// Whether [`Slot::stop`] was called.
    pub(super) fn must_stop(&self) -> bool {
        // SYNC: Acquire pairs with the Release in `stop`.
        self.must_stop.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
