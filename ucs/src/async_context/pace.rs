//! When a call of `poll` has to do more than to return: most of them end at once.
//!
//! Used by `shared` and `poll`. Reading the clock (9 ns) is rationed by counting calls.

use std::time::Duration;

use crate::clock;
use crate::pending_work::{PendingWork, WorkSource};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How late a timer is at most, if `poll` is called steadily: the longest time between two reads of the clock.
pub const CLOCK_INTERVAL: Duration = Duration::from_millis(1);

/// The most calls of `poll` between two reads of the clock.
pub const MAX_STRIDE: u32 = 64;

/// Counts calls so that most of them end at once.
///
/// All of it is advice: when calls from several threads mix up the counts, a look comes a little early or
/// late. So every access is relaxed.
pub(super) struct Pace {
    /// [`WorkSource::Async`] is set while handlers are registered, except in the thread modes.
    pending_work: PendingWork,
    /// Registered handlers; stays 0 in the thread modes.
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
        let stride = adapted(self.stride.load(Ordering::Relaxed), elapsed, interval);
        self.last_check.store(now, Ordering::Relaxed);
        self.stride.store(stride, Ordering::Relaxed);
        self.calls_left.store(stride - 1, Ordering::Relaxed);
        now >= self.next_check.load(Ordering::Relaxed)
    }
}

/// A stride after which looks are between a quarter of the interval and all of it apart, approached by
/// halves and doubles.
fn adapted(stride: u32, elapsed: u64, interval: u64) -> u32 {
    if elapsed > interval {
        (stride / 2).max(1)
    } else if elapsed < interval / 4 {
        (stride * 2).min(MAX_STRIDE)
    } else {
        stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stride_grows_for_fast_callers_and_shrinks_for_slow_ones() {
        let interval = 1000;
        let stride_for = |ticks_per_call: u64| {
            let mut stride = 1;
            for _ in 0..20 {
                stride = adapted(stride, ticks_per_call * u64::from(stride), interval);
            }
            stride
        };
        assert_eq!(stride_for(1), MAX_STRIDE);
        assert!((250..=1000).contains(&(stride_for(20) * 20)), "{}", stride_for(20));
        assert_eq!(stride_for(100_000), 1);
    }

    #[test]
    fn the_stride_stays_while_looks_are_between_a_quarter_and_all_of_the_interval_apart() {
        for (elapsed, stride) in [(0, 16), (249, 16), (250, 8), (1000, 8), (1001, 4)] {
            assert_eq!(adapted(8, elapsed, 1000), stride, "{elapsed}");
        }
        assert_eq!((adapted(1, 1001, 1000), adapted(MAX_STRIDE, 0, 1000)), (1, MAX_STRIDE));
    }

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
        // The last look was long ago, so that the stride is halved.
        pace.stride.store(8, Ordering::Relaxed);
        assert!(pace.is_time());
        assert_eq!([pace.passes(), pace.passes(), pace.passes(), pace.passes()], [true, true, true, false]);
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
