//! How often the device's thread looks whether the application still drives the device.
//!
//! For the thread. An application that polls all the time is disturbed once a millisecond; one that polls in bursts, and waits by
//! reading its memory in between, is relieved within microseconds.

use crate::engine::Nanos;

/// The shortest interval between two looks, and how long an application has to be silent at least until it counts as stopped.
const SHORTEST_INTERVAL: Nanos = 10_000;
/// The longest interval.
pub const LONGEST_INTERVAL: Nanos = 1_000_000;

/// The interval, which doubles while the application drives the device. Each time that it has stopped, a quarter is left: one that
/// stops all the time is soon looked at often, and one that has only lost its processor once is not.
pub struct StandBack {
    /// The next one.
    interval: Nanos,
    /// When the thread took over, if it has.
    taken_over: Option<Nanos>,
}

impl Default for StandBack {
    fn default() -> StandBack {
        StandBack { interval: SHORTEST_INTERVAL, taken_over: None }
    }
}

impl StandBack {
    /// After how long to look again, or `None` if the thread takes over from an application that last drove the device at
    /// `driven`.
    pub fn look(&mut self, now: Nanos, driven: Nanos) -> Option<Nanos> {
        // What wakes the thread that has taken over is a packet, whose sender may have had the application's processor.
        let is_back = self.taken_over.take().is_some_and(|since| driven > since);
        let patience = (self.interval / 4).max(SHORTEST_INTERVAL);
        if !is_back && now.saturating_sub(driven) >= patience {
            self.interval = (self.interval / 4).max(SHORTEST_INTERVAL);
            self.taken_over = Some(now);
            return None;
        }
        let interval = self.interval;
        self.interval = (interval * 2).min(LONGEST_INTERVAL);
        Some(interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// An application that drives the device in bursts, and is silent between them, until when a packet arrives.
    struct Bursts {
        length: Nanos,
        silence: Nanos,
    }

    impl Bursts {
        fn driven(&self, now: Nanos) -> Nanos {
            let period = self.length + self.silence;
            now - (now % period).saturating_sub(self.length)
        }

        /// Looks within a second, and how long the packets of the second half of it wait for the thread on average.
        fn watch(&self) -> (usize, Nanos) {
            let period = self.length + self.silence;
            let (mut stand_back, mut now, mut looks) = (StandBack::default(), 0, 0);
            let (mut waited, mut packets) = (0, 0);
            while now < SECOND {
                looks += 1;
                let packet = now - now % period + period;
                let next = stand_back.look(now, self.driven(now)).map_or(packet, |interval| now + interval);
                // Those that arrive while it stands back wait.
                let mut arrived = packet;
                while arrived <= next && now > SECOND / 2 {
                    waited += next - arrived;
                    packets += 1;
                    arrived += period;
                }
                now = next;
            }
            (looks, waited / packets.max(1))
        }
    }

    #[test]
    fn the_interval_doubles_up_to_the_longest_and_of_one_that_ends_a_quarter_is_left() {
        let (mut stand_back, mut now) = (StandBack::default(), SECOND);
        let mut drive = || {
            let interval = stand_back.look(now, now).expect("it drives the device");
            now += interval;
            interval
        };
        let intervals = [(); 9].map(|()| drive() / 10_000);
        assert_eq!(intervals, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        assert_eq!(
            stand_back.look(now, now - 249_999),
            Some(LONGEST_INTERVAL),
            "silent for less than a quarter"
        );
        assert_eq!(stand_back.look(now, now - 250_000), None);
        // It has driven the device since the thread took over, if only at once.
        assert_eq!(stand_back.look(now + SECOND, now + 1), Some(250_000));
        let later = now + 2 * SECOND;
        assert_eq!(stand_back.look(later, now + 1), None);
        assert_eq!(stand_back.look(later + SECOND, later), None, "it has not since");
        for second in 2..9 {
            assert_eq!(stand_back.look(later + second * SECOND, later), None);
        }
        assert_eq!(stand_back.look(later + 9 * SECOND, later + 9 * SECOND), Some(SHORTEST_INTERVAL));
    }

    #[test]
    fn an_application_that_polls_all_the_time_is_seldom_disturbed() {
        let (looks, _) = Bursts { length: 2 * SECOND, silence: 0 }.watch();
        assert!((1_000..1_010).contains(&looks), "{looks}");
    }

    #[test]
    fn an_application_that_polls_in_bursts_is_relieved_soon_after_each() {
        for length in [1_000, 5_000, 9_000, 15_000] {
            let (looks, waited) = Bursts { length, silence: 30_000 }.watch();
            assert!(waited <= 10_000, "{length}: {waited} ns");
            assert!(looks <= 4 * SECOND as usize / (length + 30_000) as usize, "{length}: {looks}");
        }
    }

    #[test]
    fn an_application_that_shares_its_processor_with_its_peer_is_seldom_disturbed() {
        let (looks, _) = Bursts { length: 14_000, silence: 12_000 }.watch();
        assert!(looks < 2_000, "{looks}");
    }
}
