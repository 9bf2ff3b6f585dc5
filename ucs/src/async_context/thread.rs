//! The thread of a context in the thread modes: waits for descriptors and timers, and delivers what happens.
//!
//! Used by `shared`, which starts it with the first registration. Built on `event_set`. It never waits for the
//! application: what it cannot deliver it puts aside.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use super::handler::HandlerId;
use super::shared::{Io, Shared};
use crate::clock;
use crate::event_set::{Event, EventBuffer, EventFd, Events};
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

    /// Starts the thread unless it runs.
    pub(super) fn start(&self, shared: &Arc<Shared>) -> Result<(), SystemError> {
        let mut state = self.state();
        if !matches!(*state, State::NotStarted) {
            return Ok(());
        }
        let context = Arc::clone(shared);
        let handle = std::thread::Builder::new()
            .name("uct-async".to_owned())
            .stack_size(STACK_SIZE)
            .spawn(move || {
                serve(&context);
                *context.thread.state() = State::Ended;
                context.thread.ended.notify_all();
            })
            .map_err(|error| SystemError::new("start the thread of an asynchronous context", error))?;
        *state = State::Running(handle.thread().id());
        Ok(())
    }

    /// Tells the thread to end and waits for it, for `limit` at most. The thread itself does not wait.
    pub(super) fn stop(&self, wake: &EventFd, limit: Duration) {
        // SYNC: Release pairs with the Acquire in `serve`.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(shared: &Shared) {
    let Some(io) = shared.io() else { return };
    let mut buffer = EventBuffer::<16>::new();
    // SYNC: Acquire pairs with the Release in `stop`; the wake-up that follows it ends the wait.
    while !shared.thread.must_stop.load(Ordering::Acquire) {
        let events = match io.set.wait(&mut buffer, None) {
            Ok(events) => events,
            Err(error) => {
                tracing::error!(%error, "the thread of an asynchronous context ends");
                return;
            }
        };
        for Event { events, data } in events {
            match data {
                Io::WAKE => {
                    io.wake.drain();
                }
                Io::TIMER => {
                    io.timer.drain();
                    shared.registry().programmed = u64::MAX;
                }
                id => {
                    shared.deliver(HandlerId(id), events);
                }
            }
        }
        deliver_timers(shared);
    }
}

fn deliver_timers(shared: &Shared) {
    let now = clock::ticks();
    loop {
        let due = shared.registry().take_due(now);
        let Some(id) = due else { break };
        shared.deliver(id, Events::TIMER);
    }
    shared.program_timer(&mut shared.registry());
}
