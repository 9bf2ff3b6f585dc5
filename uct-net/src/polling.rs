//! How long an adaptive thread polls before it sleeps, as it has learned from what came of both. Pure state: times are passed in.
//!
//! Polling pays while the peer runs on another processor and answers soon. It delays a peer that waits for this thread's processor, and the
//! thread cannot tell the two apart: in both cases nothing comes. So the outcome decides. An event soon after the thread has fallen asleep is a
//! miss. After a miss it polls longer, since a peer that sleeps too needs time to wake up. If that is a miss as well, it polls
//! for a moment only, and makes the next attempt after 1, 2, 4, … misses.

use std::time::Duration;

/// Longest time between two events that longer polling is to bridge.
pub(crate) const LONGEST: Duration = Duration::from_micros(250);
/// An event that comes so long after the last one is no miss: polling is neither useful nor in the way.
const MISS: Duration = Duration::from_millis(1);
/// How long it polls between attempts. There is often a second event behind the one that ended a sleep.
const GLANCE: Duration = Duration::from_micros(1);
/// Events without a sleep between them that show that polling is useful, in spite of the miss behind them.
const SOME: u32 = 4;
/// The same, so many that earlier failures are forgotten.
const MANY: u32 = 64;
/// Most misses from one attempt to the next.
const MOST_GLANCES: u32 = 256;

/// What was learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Polling {
    /// How long it polls if that is longer than the options say.
    stretched: Duration,
    /// Events while it polled, since the last sleep.
    hits: u32,
    /// Misses to the next attempt.
    glances: u32,
    /// The same, after an attempt that fails.
    next_glances: u32,
}

impl Polling {
    /// How long to poll after an event; `usual` is what the options say. At most the longer one of `usual` and [`LONGEST`].
    pub(crate) fn limit(&self, usual: Duration) -> Duration {
        if self.glances > 0 { usual.min(GLANCE) } else { usual.max(self.stretched) }
    }

    /// An event came while it polled.
    pub(crate) fn hit(&mut self) {
        self.hits = self.hits.saturating_add(1);
        if self.hits == MANY {
            (self.glances, self.next_glances) = (0, 0);
        }
    }

    /// An event ended a sleep, at `gap` after the event before it.
    pub(crate) fn slept(&mut self, gap: Duration) {
        let hits = std::mem::take(&mut self.hits);
        if gap > MISS {
            self.stretched /= 2;
        } else if self.glances > 0 {
            self.glances -= 1;
        } else {
            self.stretched = if gap > LONGEST { self.stretched / 2 } else { (2 * gap).min(LONGEST) };
            if hits < SOME {
                self.glances = self.next_glances;
                self.next_glances = (2 * self.next_glances).clamp(1, MOST_GLANCES);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_micros(20);
    const ANSWER: Duration = Duration::from_micros(1);

    /// An event comes `gap` after the last one. Returns how long the thread polled, and whether the event found it asleep.
    fn event(polling: &mut Polling, gap: Duration) -> (Duration, bool) {
        let limit = polling.limit(USUAL);
        let is_asleep = gap > limit;
        if is_asleep {
            polling.slept(gap)
        } else {
            polling.hit()
        }
        (gap.min(limit), is_asleep)
    }

    /// Two threads on two processors that answer each other. One that was asleep takes `wake_up` longer. Both are asleep at first. Returns how
    /// many of `count` messages found their receiver asleep.
    fn ping_pong(count: usize, wake_up: Duration, mut delay: impl FnMut(usize) -> Duration) -> usize {
        let mut sides = [Polling::default(); 2];
        let mut asleep = 0;
        // From the last event of the next receiver to now.
        let mut gap = wake_up;
        for number in 0..count {
            let (_, is_asleep) = event(&mut sides[number % 2], gap);
            asleep += usize::from(is_asleep);
            gap = ANSWER + delay(number) + if is_asleep { wake_up } else { Duration::ZERO };
        }
        asleep
    }

    #[test]
    fn two_sides_that_sleep_wake_each_other_for_good_however_long_that_takes() {
        for wake_up in [10, 40, 80, 120, 200].map(Duration::from_micros) {
            let asleep = ping_pong(10_000, wake_up, |_| Duration::ZERO);
            assert!(asleep <= 12, "{asleep} of 10000 at {wake_up:?}");
        }
    }

    #[test]
    fn a_peer_that_loses_its_processor_now_and_then_is_polled_for_again_soon() {
        let slice = Duration::from_millis(3);
        let lost = |number: usize| if number % 1000 == 999 { slice } else { Duration::ZERO };
        let asleep = ping_pong(100_000, Duration::from_micros(80), lost);
        // A hundred times it is gone; each time a few messages later both are awake.
        assert!((100..=1000).contains(&asleep), "{asleep} of 100000");
    }

    #[test]
    fn a_peer_that_waits_for_this_processor_gets_it() {
        let mut polling = Polling::default();
        let (mut polled, switch) = (Duration::ZERO, Duration::from_micros(5));
        for _ in 0..10_000 {
            // It runs, and sends, when this thread sleeps. A second event is there soon.
            let gap = polling.limit(USUAL) + switch;
            let (time, is_asleep) = event(&mut polling, gap);
            assert!(is_asleep);
            event(&mut polling, Duration::from_nanos(500));
            polled += time;
        }
        assert!(polled / 10_000 <= 2 * GLANCE, "{:?} a message", polled / 10_000);
    }

    #[test]
    fn polling_is_useful_again_when_the_peer_has_a_processor_of_its_own() {
        let mut polling = Polling::default();
        for _ in 0..10_000 {
            let gap = polling.limit(USUAL) + Duration::from_micros(5);
            event(&mut polling, gap);
        }
        let answers = |polling: &mut Polling, gap| (0..400).filter(|_| event(polling, gap).1).count();
        let asleep = answers(&mut polling, Duration::from_micros(15));
        assert!(asleep <= MOST_GLANCES as usize, "{asleep} of 400");
        assert_eq!(answers(&mut polling, Duration::from_micros(15)), 0);
        assert_eq!(polling.limit(USUAL), USUAL.max(polling.stretched));
    }

    #[test]
    fn a_miss_among_events_that_polling_finds_does_not_end_it() {
        let mut polling = Polling::default();
        for _ in 0..1000 {
            for _ in 0..SOME {
                assert!(!event(&mut polling, ANSWER).1);
            }
            event(&mut polling, LONGEST);
            assert!(polling.limit(USUAL) >= USUAL, "{polling:?}");
            polling.stretched = Duration::ZERO;
        }
    }

    #[test]
    fn many_events_in_a_row_end_a_time_of_glances_at_once() {
        let mut polling = Polling::default();
        while polling.glances < MOST_GLANCES {
            event(&mut polling, LONGEST + ANSWER);
        }
        assert_eq!(polling.limit(USUAL), GLANCE);
        for _ in 0..MANY {
            event(&mut polling, GLANCE);
        }
        assert!(polling.limit(USUAL) >= USUAL, "{polling:?}");
    }

    #[test]
    fn a_thread_without_events_polls_no_longer_than_the_options_say() {
        let mut polling = Polling::default();
        event(&mut polling, LONGEST);
        assert_eq!(polling.limit(USUAL), LONGEST);
        for _ in 0..4 {
            event(&mut polling, Duration::from_secs(1));
        }
        assert_eq!(polling.limit(USUAL), USUAL);
    }

    #[test]
    fn no_sequence_of_events_makes_it_poll_longer_than_the_longest() {
        let mut polling = Polling::default();
        let mut state = 1_u32;
        for _ in 0..100_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            event(&mut polling, Duration::from_nanos(1 << (state >> 27).min(30)));
            assert!(polling.limit(USUAL) <= LONGEST, "{polling:?}");
            assert!(polling.glances <= MOST_GLANCES && polling.next_glances <= MOST_GLANCES, "{polling:?}");
        }
    }
}
