//! How long an event loop polls for what its tasks wait for, before it leaves that to the net's thread.

/// Rounds of the loop without an event after which it stops.
const ROUNDS: u32 = 8;
/// Most waits in a row that do without polling.
const MOST_SKIPPED: u32 = 256;

/// Polling that brings nothing is tried again after 1, 2, 4, … waits.
#[derive(Default)]
pub(crate) struct Patience {
    is_polling: bool,
    /// Rounds without an event.
    rounds: u32,
    /// Waits that do without from now on, and after the next failure.
    skips: u32,
    penalty: u32,
}

impl Patience {
    /// A task begins to wait. Returns whether polling begins with it.
    pub(crate) fn begins(&mut self) -> bool {
        if self.is_polling {
            return false;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return false;
        }
        self.is_polling = true;
        self.rounds = 0;
        true
    }

    /// Whether a round follows.
    pub(crate) fn is_polling(&self) -> bool {
        self.is_polling
    }

    /// A round has ended. Returns whether another one follows. What an event wakes mostly waits again, and so begins
    /// again.
    pub(crate) fn ended(&mut self, has_event: bool) -> bool {
        if has_event {
            *self = Patience::default();
            return false;
        }
        self.rounds += 1;
        if self.rounds < ROUNDS {
            return true;
        }
        self.is_polling = false;
        self.penalty = (self.penalty * 2).clamp(1, MOST_SKIPPED);
        self.skips = self.penalty;
        false
    }
}
