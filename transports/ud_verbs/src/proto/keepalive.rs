//! The pace of keepalive: in each interval every place of the table gets its turn, at a moment of its own.
//!
//! Built on `time`; the [timers](super::timer) examine the connections whose turn it is.

use std::ops::Range;

use super::time::Time;

/// Places that get their turn together, so that few peers cost a sleeper few wakes.
const BATCH: u64 = 16;
/// Steps in an interval at most: beyond it, more places get their turn together.
const STEPS: u64 = 1 << 14;
/// If the caller is late by more than this part of the interval, what it has missed is not made up for.
const BACKLOG: u64 = 32;

/// Whose turn it is.
pub(super) struct Keepalive {
    interval: u64,
    /// The place whose turn is next.
    cursor: u64,
    /// All turns up to this time have been given.
    last: Time,
    at: Time,
}

impl Keepalive {
    /// `interval` in nanoseconds; `None`: no place gets a turn.
    pub(super) fn new(interval: Option<u64>) -> Keepalive {
        Keepalive { interval: interval.unwrap_or(0), cursor: 0, last: Time::default(), at: Time::NEVER }
    }

    /// When [`Keepalive::advance`] is to be called.
    #[inline]
    pub(super) fn at(&self) -> Time {
        self.at
    }

    /// A connection that was silent for so long is probed in its turn: the other side may be the one that probes.
    pub(super) fn idle_limit(&self) -> u64 {
        self.interval / 2
    }

    /// There are now so many places.
    pub(super) fn grow(&mut self, now: Time, places: usize) {
        if self.interval == 0 {
            return;
        }
        if self.at == Time::NEVER {
            self.last = now;
        }
        self.plan(places as u64);
    }

    /// The places whose turn it is: first those of the first range, whose end is at most `places`. No turns follow if `places` is 0.
    pub(super) fn advance(&mut self, now: Time, places: usize) -> [Range<usize>; 2] {
        if now < self.at {
            return [0..0, 0..0];
        }
        let places = places as u64;
        if places == 0 {
            self.at = Time::NEVER;
            return [0..0, 0..0];
        }
        let passed = u128::from(now.since(self.last)) * u128::from(places) / u128::from(self.interval);
        let most = (places / BACKLOG).max(2 * BATCH).min(places);
        let count = u64::try_from(passed).unwrap_or(u64::MAX).min(most);
        self.last = if count == most { now } else { self.last.plus(self.time_of(count, places)) };
        let begin = self.cursor % places;
        let end = begin + count;
        self.cursor = end % places;
        self.plan(places);
        [begin as usize..end.min(places) as usize, 0..end.saturating_sub(places) as usize]
    }

    fn plan(&mut self, places: u64) {
        let batch = (places / STEPS).max(BATCH).min(places.div_ceil(4));
        self.at = self.last.plus(self.time_of(batch, places));
    }

    /// The time in which so many of the places get their turn, rounded up.
    fn time_of(&self, count: u64, places: u64) -> u64 {
        let time = (u128::from(self.interval) * u128::from(count)).div_ceil(u128::from(places));
        u64::try_from(time).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = 20_000_000_000;

    /// Turns in four intervals, and the largest number of them at once, with calls `late` ns after they are due.
    fn turns(places: usize, late: u64) -> (Vec<u32>, usize) {
        let mut keepalive = Keepalive::new(Some(INTERVAL));
        keepalive.grow(Time::from_nanos(5), places);
        let (mut turns, mut largest) = (vec![0; places], 0);
        while keepalive.at() <= Time::from_nanos(5 + 4 * INTERVAL) {
            let now = keepalive.at().plus(late);
            let ranges = keepalive.advance(now, places);
            largest = largest.max(ranges.iter().map(Range::len).sum());
            ranges.into_iter().flatten().for_each(|place| turns[place] += 1);
        }
        (turns, largest)
    }

    #[test]
    fn every_place_gets_a_turn_in_each_interval_and_few_get_it_at_once() {
        for (places, most) in [(1, 1), (3, 1), (7, 2), (100, 17), (10_000, 17), (1_000_000, 62)] {
            let (turns, largest) = turns(places, 0);
            assert!(turns.iter().all(|count| (3..=4).contains(count)), "{places} places");
            assert!(largest <= most, "{largest} of {places} places at once");
        }
    }

    #[test]
    fn a_caller_that_is_late_gets_more_turns_at_once_up_to_a_limit() {
        let (turns, largest) = turns(100_000, 100_000_000);
        assert!(turns.iter().all(|count| (3..=5).contains(count)));
        assert!((400..600).contains(&largest), "{largest}");
        let mut keepalive = Keepalive::new(Some(INTERVAL));
        keepalive.grow(Time::from_nanos(5), 100_000);
        let ranges = keepalive.advance(Time::from_nanos(100 * INTERVAL), 100_000);
        assert_eq!(ranges.iter().map(Range::len).sum::<usize>(), 100_000 / 32);
        assert!(keepalive.at() > Time::from_nanos(100 * INTERVAL), "what was missed is not made up for");
    }

    #[test]
    fn turns_follow_one_another_at_their_times_however_the_number_of_places_changes() {
        let at = |nanos| Time::from_nanos(nanos);
        let mut keepalive = Keepalive::new(Some(INTERVAL));
        assert_eq!(keepalive.idle_limit(), INTERVAL / 2);
        keepalive.grow(at(5), 1);
        assert_eq!(keepalive.at(), at(5 + INTERVAL));
        // More places have their turns earlier, counted from the same time.
        keepalive.grow(at(INTERVAL / 10), 1000);
        assert_eq!(keepalive.at(), at(5 + 16 * INTERVAL / 1000));
        assert_eq!(keepalive.advance(at(4 + 16 * INTERVAL / 1000), 1000), [0..0, 0..0]);
        assert_eq!(keepalive.advance(at(5 + 25 * INTERVAL / 1000), 1000), [0..25, 0..0]);
        assert_eq!(keepalive.at(), at(5 + 41 * INTERVAL / 1000));
        assert_eq!(keepalive.advance(at(5 + 41 * INTERVAL / 1000), 1000), [25..41, 0..0]);
        // With fewer places it goes on among those that there are.
        assert_eq!(keepalive.advance(at(5 + 241 * INTERVAL / 1000), 50), [41..50, 0..1]);
        assert_eq!(keepalive.advance(at(5 + 541 * INTERVAL / 1000), 50), [1..16, 0..0]);
        assert_eq!(keepalive.advance(at(5 + 20 * INTERVAL), 10), [6..10, 0..6], "all, and none twice");
    }

    #[test]
    fn without_an_interval_or_places_nothing_is_due() {
        let mut keepalive = Keepalive::new(None);
        keepalive.grow(Time::from_nanos(5), 100);
        assert_eq!(keepalive.at(), Time::NEVER);
        let mut keepalive = Keepalive::new(Some(INTERVAL));
        keepalive.grow(Time::from_nanos(5), 1);
        assert_eq!(keepalive.advance(Time::from_nanos(2 * INTERVAL), 0), [0..0, 0..0]);
        assert_eq!(keepalive.at(), Time::NEVER);
    }
}
