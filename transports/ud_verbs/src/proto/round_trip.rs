//! The round trip's estimate and the retransmission timeout that follows from it (RFC 6298's arithmetic).
//!
//! Built on nothing else; used by the [sender](super::sender).

/// Estimate of a connection's round trip, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    /// Mean; 0 while there is no sample.
    smoothed: u32,
    deviation: u32,
    minimum: u32,
    has_changed: bool,
}

impl RoundTrip {
    /// Takes a measured round trip in, free of the peer's delay.
    pub(super) fn sample(&mut self, nanos: u64) {
        let sample = u32::try_from(nanos).unwrap_or(u32::MAX).max(1);
        if self.smoothed == 0 {
            *self = RoundTrip { smoothed: sample, deviation: sample / 2, minimum: sample, has_changed: true };
            return;
        }
        self.has_changed = true;
        let error = self.smoothed.abs_diff(sample);
        self.deviation = self.deviation - self.deviation / 4 + error / 4;
        self.smoothed = (self.smoothed - self.smoothed / 8 + sample / 8).max(1);
        self.minimum = self.minimum.min(sample);
    }

    /// Takes a round trip in that may hold a delay of the peer's: it counts only where it improves the estimate.
    #[inline]
    pub(super) fn sample_at_most(&mut self, nanos: u64) {
        if nanos < u64::from(self.smoothed) {
            self.sample(nanos);
        }
    }

    /// The mean, or `None` while there is no sample.
    pub(super) fn smoothed(&self) -> Option<u64> {
        (self.smoothed != 0).then_some(u64::from(self.smoothed))
    }

    /// The shortest seen, 0 while there is no sample.
    pub(super) fn minimum(&self) -> u64 {
        u64::from(self.minimum)
    }

    /// How long to wait for an acknowledgement that the peer may hold back for `ack_delay`; `None` without a sample.
    pub(super) fn timeout(&self, ack_delay: u64) -> Option<u64> {
        self.smoothed().map(|smoothed| smoothed + 4 * u64::from(self.deviation) + ack_delay)
    }

    /// Whether the estimate has changed since the last call.
    #[inline]
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }
}

#[cfg(test)]
mod tests {
    use super::RoundTrip;

    #[test]
    fn the_timeout_settles_above_a_steady_round_trip_and_widens_with_jitter() {
        let mut steady = RoundTrip::default();
        let mut jittery = RoundTrip::default();
        for turn in 0..200u64 {
            steady.sample(50_000);
            jittery.sample(20_000 + turn % 2 * 60_000);
        }
        let (steady, jittery) = (steady.timeout(0).unwrap_or(0), jittery.timeout(0).unwrap_or(0));
        assert!((50_000..60_000).contains(&steady), "{steady}");
        assert!(jittery > 2 * steady, "{jittery}");
    }

    #[test]
    fn extreme_samples_do_not_overflow() {
        let mut trip = RoundTrip::default();
        for sample in [0, u64::MAX, 0, u64::MAX, 1] {
            trip.sample(sample);
        }
        assert!(trip.smoothed().is_some());
        assert!(trip.timeout(u64::from(u32::MAX)).is_some());
    }

    #[test]
    fn a_change_is_reported_once_and_only_where_there_is_one() {
        let mut trip = RoundTrip::default();
        assert!(!trip.take_change());
        trip.sample_at_most(1000);
        assert!(!trip.take_change(), "without a sample there is nothing to improve");
        trip.sample(1000);
        assert!(trip.take_change() && !trip.take_change());
        trip.sample(1000);
        assert!(trip.take_change() && !trip.take_change());
        trip.sample_at_most(1000);
        assert!(!trip.take_change());
        trip.sample_at_most(999);
        assert!(trip.take_change() && !trip.take_change());
    }

    #[test]
    fn each_sample_has_an_eighth_of_the_mean_and_a_quarter_of_the_deviation() {
        let mut trip = RoundTrip::default();
        assert_eq!((trip.smoothed(), trip.minimum(), trip.timeout(7)), (None, 0, None));
        trip.sample(8000);
        assert_eq!((trip.smoothed(), trip.minimum(), trip.timeout(7)), (Some(8000), 8000, Some(24_007)));
        trip.sample(16_000);
        // An error of 8000: the deviation is 4000 - 1000 + 2000.
        assert_eq!((trip.smoothed(), trip.minimum(), trip.timeout(0)), (Some(9000), 8000, Some(29_000)));
        trip.sample(1000);
        // One of 8000 to the other side: 5000 - 1250 + 2000.
        assert_eq!((trip.smoothed(), trip.minimum(), trip.timeout(0)), (Some(8000), 1000, Some(31_000)));
    }

    #[test]
    fn a_delayed_answer_does_not_raise_the_estimate() {
        let mut trip = RoundTrip::default();
        trip.sample(1000);
        trip.sample_at_most(1_000_000);
        assert_eq!(trip.smoothed(), Some(1000));
        trip.sample_at_most(200);
        assert!(trip.smoothed() < Some(1000));
        assert_eq!(trip.minimum(), 200);
    }
}
