//! The thread of a context in `Mode::Thread`: waits for descriptors and timers, and delivers what happens.
//!
//! Built on `shared` and `event_set`. It never waits for the application: what it cannot deliver it puts aside.

use std::sync::Arc;

use super::handler::HandlerId;
use super::shared::{Io, Shared};
use crate::clock;
use crate::event_set::{Event, EventBuffer, Events};

/// Serves a context until its slot is marked as stopping.
pub(super) fn serve(shared: &Arc<Shared>) {
    let Some(io) = shared.io() else { return };
    let mut buffer = EventBuffer::<16>::new();
    // The wake-up that follows `stop` ends the wait.
    while !shared.thread.must_stop() {
        let events = match io.set.wait(&mut buffer, None) {
            Ok(events) => events,
            Err(error) => {
                crate::log::error!(%error, "the thread of an asynchronous context ends");
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
