//! When progress does more than to look at one word, and how many messages a call of it takes.

use std::cell::Cell;

/// Calls of progress until it takes its slow path, and until sockets are looked at.
///
/// Progress counts down and takes the slow path at zero. What cannot wait shortens the count: so a look at nothing tests one number
/// for all reasons. The calls that were left then are still counted until sockets are looked at.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Calls until the slow path.
    left: Cell<u32>,
    /// Calls from there until sockets are looked at.
    beyond: Cell<u32>,
}

impl Schedule {
    /// The first call takes the slow path; sockets are looked at after `interval` calls.
    pub(crate) fn new(interval: u32) -> Schedule {
        Schedule { left: Cell::new(1), beyond: Cell::new(interval.saturating_sub(1)) }
    }

    /// Counts a call; whether it is to take the slow path.
    #[inline]
    pub(crate) fn count_down(&self) -> bool {
        self.left.set(self.left.get() - 1);
        self.left.get() == 0
    }

    /// Calls until the slow path.
    #[inline]
    pub(crate) fn left(&self) -> u32 {
        self.left.get()
    }

    /// The slow path begins: calls from inside it, which handlers may make, take it as well.
    pub(crate) fn begin(&self) {
        self.left.set(1);
    }

    /// Whether sockets are to be looked at now.
    pub(crate) fn is_due(&self) -> bool {
        self.beyond.get() == 0
    }

    /// Sockets are looked at again after so many calls.
    pub(crate) fn set_due_in(&self, calls: u32) {
        self.beyond.set(calls);
    }

    /// The slow path ends: it is taken again after so many calls, at least one, or when sockets are due.
    pub(crate) fn end(&self, calls: u32) {
        let left = calls.min(self.beyond.get()).max(1);
        self.left.set(left);
        self.beyond.set(self.beyond.get().saturating_sub(left));
    }

    /// Has progress take the slow path within so many calls, at least one.
    #[inline]
    pub(crate) fn shorten(&self, calls: u32) {
        let left = self.left.get();
        if left > calls {
            self.left.set(calls);
            self.beyond.set(self.beyond.get() + (left - calls));
        }
    }

    /// Counts messages as calls: their handlers take time, and what comes over sockets, such as the news of a peer's death, is not to
    /// wait for a thousand bursts. The next call is not skipped.
    #[inline]
    pub(crate) fn skip(&self, messages: u32) {
        let skipped = messages.min(self.left.get() - 1);
        self.left.set(self.left.get() - skipped);
        self.beyond.set(self.beyond.get().saturating_sub(messages - skipped));
    }
}

/// Calls for which a ring is left alone behind a burst.
pub(crate) const BURST_BACKOFF: u32 = 2;

/// How many messages a call of progress takes.
///
/// The first message after a look at nothing is taken alone: to look for a second one means to wait for a cache line that the sender
/// may be about to write, and what the handler sends would leave only behind that. In a burst each call takes as many as there are.
/// When a burst has ended, its ring is left alone for [`BURST_BACKOFF`] calls: to look for the next message is to take the line that its
/// sender is about to write, and a receiver that is the faster one would do so for each of them.
#[derive(Debug)]
pub(crate) struct BurstPacing {
    /// Calls that were left until the slow path when messages were received last.
    received_at: Cell<u32>,
}

impl BurstPacing {
    /// Nothing was received.
    pub(crate) fn new() -> BurstPacing {
        BurstPacing { received_at: Cell::new(0) }
    }

    /// How many messages a call takes, of at most `most`, with `left` calls until the slow path: the call before it has received some if
    /// it had one more left.
    #[inline]
    pub(crate) fn limit(&self, left: u32, most: u32) -> u32 {
        if self.received_at.get() == left + 1 { most } else { 1 }
    }

    /// Messages were received, with `left` calls until the slow path.
    #[inline]
    pub(crate) fn received(&self, left: u32) {
        self.received_at.set(left);
    }

    /// The count to the slow path begins again, in a call that may receive.
    pub(crate) fn restart(&self, left: u32) {
        self.received_at.set(if self.received_at.get() == 1 { left + 1 } else { 0 });
    }

    /// Whether a burst has ended with `count` messages where `limit` could have been taken.
    #[inline]
    pub(crate) fn has_ended(count: u32, limit: u32) -> bool {
        1 < count && count < limit
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_due_after_as_many_calls_whatever_shortens_the_count() {
        for (interval, shortened) in [(1, 1), (5, 2), (100, 1), (1024, 7), (1024, 900)] {
            let schedule = Schedule::new(interval);
            let mut calls = 0;
            loop {
                calls += 1;
                if calls % 5 == 0 {
                    schedule.shorten(shortened);
                }
                if schedule.count_down() {
                    if schedule.is_due() {
                        break;
                    }
                    schedule.begin();
                    schedule.end(64);
                }
            }
            assert_eq!(calls, interval, "shortened to {shortened}");
        }
    }

    #[test]
    fn messages_count_as_calls_and_the_next_call_is_not_skipped() {
        for (messages, left, calls) in [(0, 64, 1024), (3, 61, 1021), (63, 1, 961), (64, 1, 960), (5000, 1, 1)] {
            let schedule = Schedule::new(1025);
            assert!(schedule.count_down() && !schedule.is_due());
            schedule.begin();
            schedule.end(64);
            schedule.skip(messages);
            assert_eq!((schedule.left(), schedule.left() + schedule.beyond.get()), (left, calls), "{messages}");
        }
    }

    #[test]
    fn the_first_message_is_taken_alone_and_those_of_a_burst_together() {
        let pacing = BurstPacing::new();
        assert_eq!(pacing.limit(63, 16), 1);
        pacing.received(63);
        assert_eq!(pacing.limit(62, 16), 16);
        // A call that has found nothing.
        assert_eq!(pacing.limit(61, 16), 1);
        // The count begins again behind a call that has received, and behind one that has not.
        pacing.received(1);
        pacing.restart(64);
        assert_eq!(pacing.limit(64, 16), 16);
        pacing.restart(64);
        assert_eq!(pacing.limit(64, 16), 1);
        let ended = [0, 1, 2, 15, 16].map(|count| BurstPacing::has_ended(count, 16));
        assert_eq!(ended, [false, false, true, true, false]);
    }
}
