//! Messages that are for no connection: what still came for one that has ended, or guesses of a token.

use std::cell::Cell;
use std::time::{Duration, Instant};

use ucs::log::Limited;

/// Strays of one [`PERIOD`] that are only counted; more are a warning. Connections that end leave fewer, and so many guesses find none of
/// 64 bits in two hundred million years.
const MAX_STRAYS: u64 = 1 << 16;
const PERIOD: Duration = Duration::from_secs(60);

/// Those of a net.
pub(crate) struct Strays {
    count: Cell<u64>,
    /// When the count was last a multiple of [`MAX_STRAYS`].
    since: Cell<Instant>,
    lines: Limited,
}

impl Strays {
    pub(crate) fn new() -> Strays {
        Strays { count: Cell::new(0), since: Cell::new(Instant::now()), lines: Limited::new(1) }
    }

    /// Counts one. Runs inside a transport, which does not tell its source.
    #[cold]
    pub(crate) fn add(&self, why: &str) {
        let count = self.count.get() + 1;
        self.count.set(count);
        // A closed connection may still be sent to for a moment.
        if count.is_power_of_two() {
            ucs::log::debug!(count, "a message was dropped: {why}");
        }
        if count.is_multiple_of(MAX_STRAYS)
            && self.since.replace(Instant::now()).elapsed() < PERIOD
            && let Some(left_out) = self.lines.admit()
        {
            ucs::log::warn!(
                count,
                "{count} messages were for no connection of this side, {MAX_STRAYS} of them within {PERIOD:?}: a peer may be guessing tokens \
                 of connections, of which each has 64 random bits{left_out}"
            );
        }
    }
}
