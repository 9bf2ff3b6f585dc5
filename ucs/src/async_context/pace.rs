//! When a call of `poll` has to do more than to return: most of them end at once.
//!
//! Used by `shared` and `poll`. Reading the clock (9 ns) is rationed by counting calls.

use std::time::Duration;

use crate::clock;
use crate::pending_work::{PendingWork, WorkSource};
use crate::stride::adapted;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How late a timer is at most, if `poll` is called steadily: the longest time between two reads of the clock.
pub const CLOCK_INTERVAL: Duration = crate::stride::INTERVAL;

/// The most calls of `poll` between two reads of the clock.
pub const MAX_STRIDE: u32 = 64;

/// Counts calls so that most of them end at once.
///
/// All of it is advice: when calls from several threads mix up the counts, a look comes a little early or
/// late. So every access is relaxed.
pub(super) struct Pace {
    /// [`WorkSource::Async`] is set while handlers are registered, except in [`Mode::Thread`](super::Mode::Thread).
    pending_work: PendingWork,
    /// Registered handlers; stays 0 in `Mode::Thread`.
    registered: AtomicU32,
    /// Calls until the next read of the clock.
    calls_left: AtomicU32,
    /// Calls between two reads; adapted so that reads come once or a few times per [`CLOCK_INTERVAL`].
    stride: AtomicU32,
    /// The tick of the last look.
    last_check: AtomicU64,
    /// The tick before which there is nothing to do.
    next_check: AtomicU64,
}

impl Pace {
    pub(super) fn new(pending_work: PendingWork) -> Pace {
        Pace {
            pending_work,
            registered: AtomicU32::new(0),
            calls_left: AtomicU32::new(0),
            stride: AtomicU32::new(1),
            last_check: AtomicU64::new(0),
            next_check: AtomicU64::new(0),
        }
    }

    pub(super) fn set_registered(&self, count: usize) {
        self.registered.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
        if count > 0 {
            self.pending_work.add(WorkSource::Async);
        } else {
            self.pending_work.remove(WorkSource::Async);
        }
        self.check_soon();
    }

    /// Makes the next call of `poll` check everything.
    pub(super) fn check_soon(&self) {
        self.next_check.store(0, Ordering::Relaxed);
        self.calls_left.store(0, Ordering::Relaxed);
    }

    /// The tick of the last read of the clock.
    #[cfg(all(test, not(loom)))]
    pub(super) fn last_check(&self) -> u64 {
        self.last_check.load(Ordering::Relaxed)
    }

    /// Whether this call is one of those that check nothing, and counts it if so.
    #[inline]
    pub(super) fn passes(&self) -> bool {
        let left = self.calls_left.load(Ordering::Relaxed);
        if left > 0 {
            self.calls_left.store(left - 1, Ordering::Relaxed);
        }
        left > 0
    }

    /// Whether handlers are registered.
    #[inline]
    pub(super) fn has_handlers(&self) -> bool {
        self.registered.load(Ordering::Relaxed) > 0
    }

    /// There is nothing to do before this tick.
    pub(super) fn set_next_check(&self, tick: u64) {
        self.next_check.store(tick, Ordering::Relaxed);
    }

    /// Whether this call has to run what is ready.
    pub(super) fn is_time(&self) -> bool {
        if self.passes() {
            return false;
        }
        let now = clock::ticks();
        let elapsed = now.saturating_sub(self.last_check.load(Ordering::Relaxed));
        let interval = clock::duration_to_ticks(CLOCK_INTERVAL);
        let stride = adapted(self.stride.load(Ordering::Relaxed), MAX_STRIDE, elapsed, interval);
        self.last_check.store(now, Ordering::Relaxed);
        self.stride.store(stride, Ordering::Relaxed);
        self.calls_left.store(stride - 1, Ordering::Relaxed);
        now >= self.next_check.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_are_pending_work_while_any_is_registered() {
        let work = PendingWork::new();
        let pace = Pace::new(work.clone());
        for (count, expected) in [(0, false), (1, true), (2, true), (0, false)] {
            pace.set_registered(count);
            assert_eq!((pace.has_handlers(), work.has(WorkSource::Async)), (expected, expected), "{count}");
        }
    }

    #[test]
    fn calls_pass_between_two_looks_only() {
        let pace = Pace::new(PendingWork::new());
        assert!(!pace.passes(), "the first call looks");
        pace.calls_left.store(2, Ordering::Relaxed);
        assert_eq!([pace.passes(), pace.passes(), pace.passes()], [true, true, false]);
        pace.calls_left.store(2, Ordering::Relaxed);
        pace.check_soon();
        assert!(!pace.passes() && pace.is_time(), "what has changed is looked at");
    }

    #[test]
    fn as_many_calls_pass_as_the_stride_says() {
        let pace = Pace::new(PendingWork::new());
        pace.stride.store(8, Ordering::Relaxed);
        pace.last_check.store(clock::ticks(), Ordering::Relaxed);
        assert!(pace.is_time());
        let stride = pace.stride.load(Ordering::Relaxed);
        assert_eq!((1..).find(|_| !pace.passes()), Some(stride));
    }

    #[test]
    fn a_look_has_to_run_something_only_once_its_tick_has_come() {
        let pace = Pace::new(PendingWork::new());
        pace.set_next_check(u64::MAX);
        assert!(!pace.is_time());
        pace.calls_left.store(0, Ordering::Relaxed);
        pace.set_next_check(clock::ticks());
        assert!(pace.is_time());
    }
}
