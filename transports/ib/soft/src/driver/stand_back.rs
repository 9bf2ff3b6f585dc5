//! How often the device's thread looks whether the application still drives the device.
//!
//! For the thread. An application that polls all the time is disturbed once a millisecond; one that polls in bursts, and waits by
//! reading its memory in between, is relieved within microseconds.

use crate::engine::Nanos;

/// An application that has not driven the device for so long has stopped.
const STOPPED_AFTER: Nanos = 10_000;
/// The first interval between two looks.
const FIRST_INTERVAL: Nanos = 10_000;
/// The longest interval.
pub const LONGEST_INTERVAL: Nanos = 1_000_000;

/// The interval, which doubles while the application drives the device.
pub struct StandBack {
    interval: Nanos,
}

impl Default for StandBack {
    fn default() -> StandBack {
        StandBack { interval: FIRST_INTERVAL }
    }
}

impl StandBack {
    /// After how long to look again, or `None` if the thread takes over from an application that last drove the device so long
    /// ago.
    pub fn look(&mut self, idle: Nanos) -> Option<Nanos> {
        if idle >= STOPPED_AFTER {
            self.interval = FIRST_INTERVAL;
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

    /// The looks from `begin` on until the thread takes over from an application that drives the device until `stop`; when it does.
    fn watch(stand_back: &mut StandBack, begin: Nanos, stop: Nanos) -> (usize, Nanos) {
        let (mut now, mut looks) = (begin, 0);
        loop {
            looks += 1;
            match stand_back.look(now.saturating_sub(stop)) {
                Some(interval) => now += interval,
                None => return (looks, now),
            }
        }
    }

    #[test]
    fn an_application_that_polls_all_the_time_is_seldom_disturbed() {
        let second = 1_000_000_000;
        let (looks, end) = watch(&mut StandBack::default(), 0, second);
        assert!((1_000..1_010).contains(&looks), "{looks} looks within a second");
        assert!(end - second < LONGEST_INTERVAL + STOPPED_AFTER);
    }

    #[test]
    fn an_application_that_polls_in_bursts_is_relieved_soon_after_each() {
        let mut stand_back = StandBack::default();
        // A long burst first: its interval is not kept.
        watch(&mut stand_back, 0, 50_000_000);
        for burst in [0, 1_000, 5_000, 9_999, 15_000, 20_000] {
            let (looks, end) = watch(&mut stand_back, 0, burst);
            assert!(end <= burst + 30_000 && looks <= 3, "{burst} ns: {looks} looks, until {end}");
        }
    }
}
