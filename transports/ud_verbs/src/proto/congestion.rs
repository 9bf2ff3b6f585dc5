//! The congestion window: slow start, then one packet more per round trip, half at a loss.
//!
//! Built on nothing else; it limits how much the [sender](super::sender) may have outstanding. If so many send to one receiver that it has no
//! room for a packet of each, a window of one packet is still too large: the receiver then requests a pause ahead of each packet.

/// How many packets may be in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    window: u32,
    /// Below it the window doubles per round trip.
    threshold: u32,
    /// Acknowledged packets saved up towards the next one of additive growth.
    credit: u32,
    minimum: u16,
    maximum: u16,
    /// Round trips from the acknowledgement of a packet to the next one, which the receiver requests.
    pace: u16,
}

/// Round trips that a receiver may request at most.
const PACE_MAX: u32 = 1000;

impl Congestion {
    pub(super) fn new(initial: u32, minimum: u32, maximum: u32) -> Congestion {
        let maximum = maximum.max(1);
        let minimum = minimum.clamp(1, maximum);
        Congestion {
            window: initial.clamp(minimum, maximum),
            threshold: maximum,
            credit: 0,
            minimum: minimum as u16,
            maximum: maximum as u16,
            pace: 0,
        }
    }

    /// Packets that may be in flight.
    #[inline]
    pub(super) fn window(&self) -> u32 {
        self.window
    }

    /// Packets that may be outstanding, arrived ahead of others or not.
    #[inline]
    pub(super) fn maximum(&self) -> u32 {
        u32::from(self.maximum)
    }

    /// Round trips to wait ahead of each packet, after all others have been acknowledged. With any, the window is one packet.
    #[inline]
    pub(super) fn pace(&self) -> u32 {
        u32::from(self.pace)
    }

    /// The receiver requests pauses of so many round trips, or for none any more.
    pub(super) fn set_pace(&mut self, pace: u32) {
        self.pace = pace.min(PACE_MAX) as u16;
        if self.pace != 0 {
            (self.window, self.threshold, self.credit) = (1, 1, 0);
        }
    }

    /// `count` packets arrived while the window was what held the sender back.
    #[inline]
    pub(super) fn grow(&mut self, count: u32) {
        if self.window == u32::from(self.maximum) {
            return;
        }
        if self.pace != 0 {
            return;
        }
        if self.window < self.threshold {
            self.window = (self.window + count).min(self.threshold);
            return;
        }
        self.credit += count;
        if self.credit >= self.window {
            self.credit -= self.window;
            self.window += 1;
        }
    }

    /// Whether the window is still below what the last loss allows: growth goes on during recovery.
    pub(super) fn is_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// A packet was lost while others arrive.
    pub(super) fn on_loss(&mut self) {
        self.window = (self.window / 2).max(self.least());
        self.threshold = self.window;
        self.credit = 0;
    }

    /// Nothing arrives any more.
    pub(super) fn on_timeout(&mut self) {
        self.threshold = (self.window / 2).max(self.least());
        self.window = self.least();
        self.credit = 0;
    }

    /// Packets that may be in flight whatever is lost.
    fn least(&self) -> u32 {
        if self.pace == 0 { u32::from(self.minimum) } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::Congestion;

    #[test]
    fn it_doubles_to_the_threshold_and_then_adds_one_per_window() {
        let mut congestion = Congestion::new(2, 2, 64);
        congestion.grow(2);
        congestion.grow(4);
        congestion.grow(8);
        assert_eq!(congestion.window(), 16);
        congestion.on_loss();
        assert_eq!(congestion.window(), 8);
        (0..8).for_each(|_| congestion.grow(1));
        assert_eq!(congestion.window(), 9);
        // What was acknowledged beyond one window counts for the next.
        congestion.grow(8);
        assert_eq!(congestion.window(), 9);
        congestion.grow(6);
        assert_eq!(congestion.window(), 10);
        congestion.grow(4);
        assert_eq!(congestion.window(), 10);
        congestion.grow(1);
        assert_eq!(congestion.window(), 11);
    }

    #[test]
    fn it_stays_between_its_bounds() {
        let mut congestion = Congestion::new(500, 3, 64);
        assert_eq!(congestion.window(), 64);
        (0..100).for_each(|_| congestion.on_loss());
        assert_eq!(congestion.window(), 3);
        congestion.on_timeout();
        assert_eq!(congestion.window(), 3);
        (0..100_000).for_each(|_| congestion.grow(7));
        assert_eq!(congestion.window(), 64);
    }

    #[test]
    fn at_the_receivers_pace_the_window_is_one_packet_whatever_arrives() {
        let mut congestion = Congestion::new(16, 4, 64);
        congestion.set_pace(u32::MAX);
        congestion.grow(100);
        assert_eq!((congestion.window(), congestion.pace()), (1, super::PACE_MAX));
        congestion.on_loss();
        congestion.on_timeout();
        assert_eq!(congestion.window(), 1);
        congestion.set_pace(0);
        congestion.grow(1);
        assert_eq!(congestion.window(), 2, "one more in a round trip");
        congestion.on_timeout();
        assert_eq!(congestion.window(), 4);
    }

    #[test]
    fn after_a_timeout_it_starts_slowly_up_to_half_of_what_was() {
        let mut congestion = Congestion::new(64, 2, 64);
        congestion.on_timeout();
        assert_eq!(congestion.window(), 2);
        (0..6).for_each(|_| congestion.grow(5));
        assert!(congestion.window() >= 32 && !congestion.is_slow_start());
        let reached = congestion.window();
        (0..reached).for_each(|_| congestion.grow(1));
        assert_eq!(congestion.window(), reached + 1);
    }
}
