//! Serving a context in [`Mode::Poll`], from inside the application's progress.
//!
//! Used by workers, which call it with every progress, so it has to cost next to nothing. Built on `shared`
//! and on `pace`, which rations readings of the clock (9 ns). Asking the kernel (100 ns) is rationed by the clock. Both come cold into
//! the caches of a caller whose other work is long.

use std::time::Duration;

pub use super::pace::{CLOCK_INTERVAL, MAX_STRIDE};

use super::Mode;
use super::handler::HandlerId;
use super::shared::{Io, Shared};
use crate::clock;
use crate::event_set::{Event, EventBuffer, Events};

/// How often the kernel is asked for ready descriptors: with the first read of the clock after this time, if `poll` is
/// called steadily. Their events are rare ones (a port goes down): a program that polls for messages must not pay for them.
pub const FD_CHECK_INTERVAL: Duration = Duration::from_millis(1);

impl Shared {
    #[inline]
    pub(super) fn poll(&self) -> usize {
        if self.pace.has_handlers() { self.poll_registered() } else { 0 }
    }

    #[inline(never)]
    fn poll_registered(&self) -> usize {
        if self.pace.is_time() { self.poll_now() } else { 0 }
    }

    pub(super) fn poll_now(&self) -> usize {
        if self.mode() != Mode::Poll {
            return 0;
        }
        if self.block.is_entered_here() || !self.block.try_enter() {
            // A thread that runs a handler checks again afterwards; a thread that has blocked checks at its unblock.
            let is_blocked = self.registry().running.is_none();
            if is_blocked && self.block.note_missed() && self.block.try_enter() {
                self.unblock();
            }
            return 0;
        }
        let ran = self.run_ready();
        self.unblock();
        ran
    }

    /// Runs every timer that is due and every descriptor that is ready, once; the block is entered.
    pub(super) fn run_ready(&self) -> usize {
        let now = clock::ticks();
        let mut ran = 0;
        loop {
            let due = self.registry().take_due(now);
            let Some(id) = due else { break };
            ran += usize::from(self.run(id, Events::TIMER));
            self.registry().continue_timer(id);
        }
        let has_descriptors = self.registry().fd_count > 0;
        if has_descriptors {
            ran += self.run_ready_descriptors();
        }
        let registry = self.registry();
        let next_fd_check = if has_descriptors {
            now.saturating_add(clock::duration_to_ticks(FD_CHECK_INTERVAL))
        } else {
            u64::MAX
        };
        self.pace.set_next_check(registry.next_due().min(next_fd_check));
        ran
    }

    fn run_ready_descriptors(&self) -> usize {
        let Some(io) = self.io() else { return 0 };
        let mut buffer = EventBuffer::<16>::new();
        let events = match io.set.wait(&mut buffer, Some(Duration::ZERO)) {
            Ok(events) => events,
            Err(error) => {
                crate::log::error!(%error, "an asynchronous context cannot look for events");
                return 0;
            }
        };
        let mut ran = 0;
        for Event { events, data } in events {
            match data {
                // Its time has come or gone; the timers have been looked at already.
                Io::TIMER => {
                    io.timer.drain();
                    self.registry().programmed = u64::MAX;
                }
                Io::WAKE => {
                    io.wake.drain();
                }
                id => ran += usize::from(self.run(HandlerId(id), events)),
            }
        }
        ran
    }
}
