//! When progress takes its slow path, and which parts of it have work.
//!
//! Used by progress, and by endpoints and channels, which leave work to it. Built on nothing.

use std::cell::Cell;
use std::rc::Rc;

/// Sources of work, as bits.
pub(crate) mod source {
    /// A channel has work: it is broken or closed, or can resume an operation.
    pub(crate) const CHANNEL: u8 = 1;
    /// More than one ring is active.
    pub(crate) const SEVERAL_ACTIVE: u8 = 2;
    /// Requests are pending.
    pub(crate) const PENDING: u8 = 4;
    /// A flush of the interface is in progress.
    pub(crate) const FLUSH: u8 = 8;
    /// A channel waits for room in the ring to its peer. The peer does not report it.
    pub(crate) const ROOM: u8 = 16;
}

/// Which [`source`]s have work. Shared by the interface and its channels.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingWork(Rc<Cell<u8>>);

impl PendingWork {
    /// Adds work. Progress does it when it takes its slow path the next time, a few calls later.
    pub(crate) fn raise(&self, sources: u8) {
        self.0.set(self.0.get() | sources);
    }

    fn lower(&self, sources: u8) {
        self.0.set(self.0.get() & !sources);
    }

    fn has(&self, sources: u8) -> bool {
        self.0.get() & sources != 0
    }
}

/// Calls of progress until the slow path, and the pending work.
///
/// Progress counts calls down and takes the slow path at zero. Work that cannot wait sets the count to one. An idle call therefore
/// tests one number for all reasons.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Calls until the slow path.
    countdown: Cell<u32>,
    /// The count at its start.
    from: Cell<u32>,
    work: PendingWork,
}

impl Schedule {
    /// The first call takes the slow path.
    pub(crate) fn new() -> Schedule {
        Schedule { countdown: Cell::new(1), from: Cell::new(1), work: PendingWork::default() }
    }

    /// The pending work, for a channel.
    pub(crate) fn work(&self) -> PendingWork {
        self.work.clone()
    }

    /// Adds work. The next call takes the slow path.
    pub(crate) fn raise(&self, sources: u8) {
        self.work.raise(sources);
        self.schedule_slow_path();
    }

    /// The next call takes the slow path.
    pub(crate) fn schedule_slow_path(&self) {
        self.shorten(1);
    }

    /// The slow path is taken within so many calls, at least one.
    #[inline(always)]
    pub(crate) fn shorten(&self, calls: u32) {
        let left = self.countdown.get();
        if left > calls {
            // As if the count had started later, so that the number of passed calls stays the same.
            self.from.set(self.from.get() - (left - calls));
            self.countdown.set(calls);
        }
    }

    /// Removes work that is done.
    pub(crate) fn lower(&self, sources: u8) {
        self.work.lower(sources);
    }

    /// Whether any of these sources has work.
    #[inline(always)]
    pub(crate) fn has(&self, sources: u8) -> bool {
        self.work.has(sources)
    }

    /// Counts a call. Returns whether it takes the slow path.
    #[inline(always)]
    pub(crate) fn count_down(&self) -> bool {
        self.countdown.set(self.countdown.get() - 1);
        self.countdown.get() == 0
    }

    /// Calls until the slow path.
    #[inline(always)]
    pub(crate) fn left(&self) -> u32 {
        self.countdown.get()
    }

    /// Calls that have passed since the count started.
    #[inline(always)]
    pub(crate) fn passed(&self) -> u32 {
        self.from.get() - self.countdown.get()
    }

    /// Counts so many calls in addition. The next call is not skipped.
    ///
    /// Messages of a burst count as calls: their handlers take time, and events of sockets, such as the death of a peer, must not wait
    /// for a thousand bursts.
    #[inline(always)]
    pub(crate) fn skip(&self, calls: u32) {
        let left = self.countdown.get();
        if calls < left {
            self.countdown.set(left - calls);
        } else {
            // As if the count had started earlier, so that all skipped calls have passed.
            self.from.set(self.from.get() + (calls + 1 - left));
            self.countdown.set(1);
        }
    }

    /// Starts a count: the slow path is taken after so many calls, at least one.
    #[inline(always)]
    pub(crate) fn start(&self, calls: u32) {
        self.from.set(calls);
        self.countdown.set(calls);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn skipped_calls_have_passed_and_calls_ahead_of_a_shortened_count_have_not() {
        let schedule = Schedule::new();
        for (calls, left) in [(0, 9), (3, 6), (8, 1), (9, 1), (500, 1)] {
            schedule.start(10);
            assert!(!schedule.count_down());
            schedule.skip(calls);
            assert_eq!((schedule.left(), schedule.passed()), (left, 1 + calls));
        }
        schedule.start(10);
        assert!(!schedule.count_down());
        schedule.raise(source::CHANNEL);
        assert_eq!(schedule.passed(), 1);
        assert!(schedule.count_down() && schedule.passed() == 2 && schedule.has(source::CHANNEL));
    }
}
