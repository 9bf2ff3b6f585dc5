//! Time as the state machine sees it: nanoseconds that the caller passes in.
//!
//! Built on nothing else; everything in `proto` that waits uses it.

use std::time::Duration;

/// A point in time: nanoseconds since an arbitrary start. Never goes backwards between two calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(u64);

impl Time {
    /// Later than any other: "no deadline".
    pub const NEVER: Time = Time(u64::MAX);

    /// A point `nanos` ns after the start.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point `nanos` ns later.
    #[inline]
    pub fn plus(self, nanos: u64) -> Time {
        Time(self.0.saturating_add(nanos))
    }

    /// Nanoseconds since `earlier`, 0 if that is later.
    #[inline]
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This point in units of 1024 ns, cut to 32 bits: the form in which a queued packet keeps its time of sending.
    #[inline]
    pub(super) fn stamp(self) -> Stamp {
        Stamp((self.0 >> Stamp::SHIFT) as u32)
    }
}

/// A coarse point in time, in units of 1024 ns, that wraps after 73 minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp(u32);

impl Stamp {
    const SHIFT: u32 = 10;

    /// Nanoseconds since `earlier`, 0 if that is later.
    #[inline]
    pub(super) fn since(self, earlier: Stamp) -> u64 {
        let ticks = self.0.wrapping_sub(earlier.0) as i32;
        (ticks.max(0) as u64) << Self::SHIFT
    }

    /// The point as a PING carries it; 0, which means none, becomes the unit after it.
    pub(super) fn to_wire(self) -> u32 {
        self.0.max(1)
    }

    /// A point that a peer sent back; `None` for 0.
    pub(super) fn from_wire(raw: u32) -> Option<Stamp> {
        (raw != 0).then_some(Stamp(raw))
    }

    /// Whether this point comes before `other`.
    pub(super) fn is_before(self, other: Stamp) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }
}

/// A duration in whole nanoseconds; what does not fit is as long as can be.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_measures_across_its_wrap() {
        let early = Time::from_nanos((u64::from(u32::MAX) << 10) - 1024);
        let late = early.plus(10 * 1024);
        assert!(early.stamp().is_before(late.stamp()));
        assert_eq!(late.stamp().since(early.stamp()), 10 * 1024);
        assert_eq!(early.stamp().since(late.stamp()), 0);
    }

    #[test]
    fn never_stays_never() {
        assert_eq!(Time::NEVER.plus(5), Time::NEVER);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }
}
