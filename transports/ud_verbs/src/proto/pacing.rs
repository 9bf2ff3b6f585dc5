//! How many peers send at the same time, and what follows for each of them if there is no room for a packet of each.
//!
//! Built on `time`; [output](super::output) counts a peer when it acknowledges packets of it, and the acknowledgement carries the result.

use super::time::Time;

/// Peers that send in the same period do so at the same time: 134 ms, as a power of two of nanoseconds.
const PERIOD_SHIFT: u32 = 27;

/// The number of peers that send.
#[derive(Default)]
pub(super) struct Pacing {
    period: u64,
    /// Peers in this period so far, and in the one before.
    peers: u32,
    before: u32,
}

impl Pacing {
    /// Counts a peer that sends, once in a period, which it stores in `counted`. Returns how many round trips it is to wait between
    /// packets, so that all together fill three quarters of `room` packets.
    pub(super) fn pace(&mut self, now: Time, counted: &mut u8, room: u32) -> u32 {
        let period = now.as_nanos() >> PERIOD_SHIFT;
        if period != self.period {
            self.before = if period == self.period + 1 { self.peers } else { 0 };
            (self.period, self.peers) = (period, 0);
        }
        if *counted != period as u8 {
            *counted = period as u8;
            self.peers += 1;
        }
        self.peers.max(self.before) / (room - room / 4).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_wait_as_long_as_there_are_too_many_of_them() {
        let mut pacing = Pacing::default();
        let mut counted = vec![0; 1000];
        let mut period = |number: u64, peers: usize| {
            let now = Time::from_nanos(number << PERIOD_SHIFT);
            (0..2 * peers).map(|turn| pacing.pace(now, &mut counted[turn % peers], 100)).last()
        };
        assert_eq!(period(1, 74), Some(0), "there is room");
        assert_eq!(period(2, 75), Some(1), "twice in a period is once");
        assert_eq!(period(3, 1000), Some(13));
        assert_eq!(period(4, 10), Some(13), "they were many a moment ago");
        assert_eq!(period(5, 10), Some(0));
        assert_eq!(period(6, 1000), Some(13));
        assert_eq!(period(9, 10), Some(0));
    }
}
