//! Whether another thread polls the engine often enough that a driver's thread need not.

use std::time::{Duration, Instant};

/// Time from one poll to the next up to which a driver leaves the engine to that thread. One that comes less often would do a turn's work at each, so
/// that long transfers take as many of its pauses.
pub(super) const OFTEN: Duration = Duration::from_micros(500);
/// Polls that say how often.
const ENOUGH: u64 = 4;

/// The polls that a driver has seen.
#[derive(Debug)]
pub(super) struct Polls {
    seen: u64,
    since: Instant,
    /// The time between two.
    often: Duration,
}

impl Polls {
    /// `polls` were there `now`.
    pub(super) fn new(polls: u64, now: Instant, often: Duration) -> Polls {
        Polls { seen: polls, since: now, often }
    }

    /// Whether polls come often: enough of them since the last answer, or since they came rarely.
    pub(super) fn are_often(&mut self, polls: u64, now: impl FnOnce() -> Instant) -> bool {
        // They begin anew when a thread hands over.
        let Some(count) = polls.checked_sub(self.seen) else {
            (self.seen, self.since) = (polls, now());
            return false;
        };
        if count == 0 {
            return false;
        }
        let now = now();
        let is_often = now.duration_since(self.since) <= self.often * count.min(u64::from(u32::MAX)) as u32;
        if is_often && count < ENOUGH {
            return false;
        }
        (self.seen, self.since) = (polls, now);
        is_often
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a driver that looks after each poll, and one that looks after a hundred, would leave the engine to such a thread.
    fn are_often(pause: Duration) -> [bool; 2] {
        [1, 100].map(|looks| {
            let start = Instant::now();
            let mut polls = Polls::new(0, start, OFTEN);
            let mut looked = (1..=1000).filter(|count| count % looks == 0);
            looked.any(|count| polls.are_often(count, || start + pause * count as u32))
        })
    }

    #[test]
    fn a_thread_that_comes_every_millisecond_does_not_count() {
        assert_eq!(are_often(Duration::from_micros(1)), [true; 2]);
        assert_eq!(are_often(Duration::from_micros(400)), [true; 2]);
        assert_eq!(are_often(Duration::from_micros(600)), [false; 2]);
        assert_eq!(are_often(Duration::from_millis(1)), [false; 2]);
    }

    #[test]
    fn none_and_one_after_a_long_time_are_not_often() {
        let start = Instant::now();
        let mut polls = Polls::new(5, start, OFTEN);
        assert!(!polls.are_often(5, || unreachable!("there is no need to look")));
        assert!(!polls.are_often(6, || start + Duration::from_secs(1)));
        // The long time does not count against those that follow.
        assert!(polls.are_often(10, || start + Duration::from_secs(1) + OFTEN));
    }

    #[test]
    fn those_from_before_a_hand_over_do_not_count() {
        let start = Instant::now();
        let mut polls = Polls::new(0, start, OFTEN);
        assert!(polls.are_often(100, || start));
        assert!(!polls.are_often(3, || start));
        assert!(!polls.are_often(3 + ENOUGH - 1, || start));
        assert!(polls.are_often(3 + ENOUGH, || start));
    }
}
