//! How many calls pass between two looks at something that a call cannot afford each time: a clock, a socket.
//!
//! Used by what is called steadily: the asynchronous context, progress of a worker and of transports, `uct-net`. Built on the clock. A
//! bound in calls alone is no bound in time, because a program may call as rarely as it likes; a bound in time alone takes a read of the
//! clock in each call. So the clock is read at each look, and the number of calls to the next one follows from it.

use std::cell::Cell;
use std::time::Duration;

use crate::clock;

/// How long it is from one look to the next at most, if calls come steadily: this time, or one call.
pub const INTERVAL: Duration = Duration::from_millis(1);

/// The number of calls to the next look, at most `most`, when the last ones were `stride` calls and `elapsed` apart: doubled while looks
/// come in less than a quarter of `interval`, and as many as fit in it if that was exceeded.
pub(crate) fn adapted(stride: u32, most: u32, elapsed: u64, interval: u64) -> u32 {
    if elapsed > interval {
        u64::from(stride).saturating_mul(interval).checked_div(elapsed).map_or(1, |calls| calls.max(1) as u32)
    } else if elapsed < interval / 4 {
        stride.saturating_mul(2).min(most)
    } else {
        stride.min(most)
    }
}

/// The calls from one look to the next, adapted so that looks are at most [`INTERVAL`] apart. A program that has called fast and begins
/// to call slowly needs one look as many calls later as fast calls have.
#[derive(Debug)]
pub struct Stride {
    calls: Cell<u32>,
    looked_at: Cell<u64>,
}

impl Default for Stride {
    fn default() -> Stride {
        Stride { calls: Cell::new(1), looked_at: Cell::new(0) }
    }
}

impl Stride {
    /// A look, now. Returns after how many calls the next one follows, at most `most`.
    pub fn look(&self, most: u32) -> u32 {
        self.look_at(clock::ticks(), clock::duration_to_ticks(INTERVAL), most)
    }

    /// As [`Stride::look`], at the tick `now`, and with this interval in ticks instead of [`INTERVAL`].
    pub fn look_at(&self, now: u64, interval: u64, most: u32) -> u32 {
        let elapsed = now.saturating_sub(self.looked_at.replace(now));
        let calls = adapted(self.calls.get(), most, elapsed, interval);
        self.calls.set(calls);
        calls
    }

    /// A look at the tick `now` that changes nothing, because calls are fast: the stride is `most` already, and the last look was less than
    /// `fast` ticks ago, a quarter of the interval. Returns the stride. Otherwise `None`, and [`Stride::look_at`] follows.
    #[inline]
    pub fn look_again(&self, now: u64, fast: u64, most: u32) -> Option<u32> {
        let is_same = now.wrapping_sub(self.looked_at.get()) < fast && self.calls.get() == most;
        if is_same {
            self.looked_at.set(now);
        }
        is_same.then_some(most)
    }

    /// After how many calls the last look said that the next one follows.
    pub fn calls(&self) -> u32 {
        self.calls.get()
    }
}

/// Counts the calls to the next look, which are as many as a [`Stride`] has.
#[derive(Debug, Default)]
pub struct Countdown {
    left: Cell<u32>,
    stride: Stride,
}

impl Countdown {
    /// Counts a call. Returns whether it looks: the first one does, and one that comes `most` calls behind the last look, or earlier.
    #[inline]
    pub fn is_over(&self, most: u32) -> bool {
        let left = self.left.get().min(most);
        if left > 1 {
            self.left.set(left - 1);
            return false;
        }
        self.begin(most);
        true
    }

    #[inline(never)]
    fn begin(&self, most: u32) {
        self.left.set(self.stride.look(most));
    }

    /// Makes the next call look.
    pub fn end(&self) {
        self.left.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u32 = 64;
    const INTERVAL: u64 = 1000;

    /// The ticks of the looks of a program whose calls are `pause` ticks apart, from `begin` on.
    fn looks(stride: &Stride, begin: u64, pause: u64, count: usize) -> Vec<u64> {
        let mut now = begin;
        let look = |_| {
            now += u64::from(stride.look_at(now, INTERVAL, MOST)) * pause;
            now
        };
        (0..count).map(look).collect()
    }

    #[test]
    fn looks_are_at_most_an_interval_apart_or_a_call_if_that_is_longer() {
        for pause in [1, 3, 15, 16, 40, 200, 333, 600, 1000, 1001, 50_000] {
            let stride = Stride::default();
            let looks = looks(&stride, 1_000_000, pause, 40);
            for pair in looks[20..].windows(2) {
                let apart = pair[1] - pair[0];
                let bound = INTERVAL.max(2 * pause) + 2 * pause;
                assert!(apart <= bound, "{apart} ticks at a call each {pause}");
            }
        }
    }

    #[test]
    fn fast_calls_have_the_most_calls_between_looks() {
        let stride = Stride::default();
        looks(&stride, 1_000_000, 1, 10);
        assert_eq!(stride.calls.get(), MOST);
        // Without a clock that moves, too.
        let stride = Stride::default();
        looks(&stride, 0, 0, 10);
        assert_eq!(stride.calls.get(), MOST);
    }

    #[test]
    fn one_long_stride_is_enough_to_notice_that_calls_have_become_slow() {
        let stride = Stride::default();
        let fast = looks(&stride, 1_000_000, 1, 10);
        let slow = looks(&stride, *fast.last().unwrap(), 200, 3);
        assert!(slow[1] - slow[0] <= 2 * INTERVAL, "{slow:?}");
        assert_eq!(
            looks(&stride, *slow.last().unwrap(), 50_000, 4).windows(2).last().map(|two| two[1] - two[0]),
            Some(50_000)
        );
    }

    #[test]
    fn the_stride_stays_while_looks_are_between_a_quarter_and_all_of_the_interval_apart() {
        for (elapsed, stride) in [(0, 16), (249, 16), (250, 8), (1000, 8), (1001, 7), (2000, 4), (9000, 1)] {
            assert_eq!(adapted(8, MOST, elapsed, 1000), stride, "{elapsed}");
        }
        assert_eq!((adapted(1, MOST, 1001, 1000), adapted(MOST, MOST, 0, 1000)), (1, MOST));
        assert_eq!((adapted(MOST, 4, 500, 1000), adapted(MOST, 4, 0, 1000)), (4, 4), "the most may change");
    }

    #[test]
    fn a_countdown_looks_in_its_first_call_and_whenever_it_is_ended() {
        let countdown = Countdown::default();
        assert!(countdown.is_over(MOST));
        for (left, expected) in [(1, true), (2, false), (0, true), (MOST, false)] {
            countdown.left.set(left);
            assert_eq!(countdown.is_over(MOST), expected, "{left} left");
        }
        countdown.end();
        assert!(countdown.is_over(MOST));
    }

    #[test]
    fn looks_are_never_more_calls_apart_than_the_most() {
        let countdown = Countdown::default();
        for most in [1, 4, 64] {
            countdown.end();
            let mut since = 0;
            for _ in 0..1000 {
                since += 1;
                if countdown.is_over(most) {
                    since = 0;
                }
                assert!(since < most, "{since} calls without a look, of {most}");
            }
        }
    }
}
