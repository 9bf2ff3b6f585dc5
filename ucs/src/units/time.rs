//! Durations: `10ms`, `30s`, `inf`.
//!
//! No dependencies. Timeouts and latencies use it.

use std::{fmt, str::FromStr, time::Duration};

use super::{UnitError, number};

/// A duration in seconds, not negative, or `inf` (never).
///
/// Reads a number with an optional `ns`, `us`, `ms`, `s`, `m` (minutes) or `h`; without a unit it is seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Time(f64);

/// Unit, what the number is divided by, what it is multiplied by. Dividing by a power of ten is exact where
/// multiplying by its inverse is not.
const UNITS: [(&str, f64, f64); 9] = [
    ("s", 1.0, 1.0),
    ("ms", 1e3, 1.0),
    ("us", 1e6, 1.0),
    ("ns", 1e9, 1.0),
    ("m", 1.0, 60.0),
    ("h", 1.0, 3600.0),
    ("", 1.0, 1.0),
    ("µs", 1e6, 1.0),
    ("min", 1.0, 60.0),
];

/// How many of [`UNITS`] are written; the others are only read.
const WRITTEN: usize = 6;

impl Time {
    /// Never: `inf`.
    pub const INF: Time = Time(f64::INFINITY);
    /// No time at all.
    pub const ZERO: Time = Time(0.0);

    /// A duration of so many seconds; what is negative or not a number becomes zero.
    pub const fn from_seconds(seconds: f64) -> Self {
        if seconds > 0.0 { Time(seconds) } else { Time(0.0) }
    }

    /// Seconds, `f64::INFINITY` for `inf`.
    pub const fn seconds(self) -> f64 {
        self.0
    }

    /// Whether it is `inf`.
    pub const fn is_inf(self) -> bool {
        self.0 == f64::INFINITY
    }

    /// The same as a [`Duration`], to the nanosecond; `inf` and what is longer than it can hold is
    /// [`Duration::MAX`].
    pub fn to_duration(self) -> Duration {
        Duration::try_from_secs_f64(self.0).unwrap_or(Duration::MAX)
    }
}

impl From<Time> for Duration {
    fn from(time: Time) -> Duration {
        time.to_duration()
    }
}

impl From<Duration> for Time {
    /// [`Duration::MAX`] becomes `inf`.
    fn from(duration: Duration) -> Time {
        if duration == Duration::MAX { Time::INF } else { Time(duration.as_secs_f64()) }
    }
}

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text.trim()).ok_or_else(|| {
            UnitError::new(
                "time",
                text,
                "a number, not negative, with an optional ns, us, ms, s, m (minutes) or h, or `inf`",
                "10ms",
            )
        })
    }
}

fn parse(text: &str) -> Option<Time> {
    if text.eq_ignore_ascii_case("inf") {
        return Some(Time::INF);
    }
    let (number, unit) = number::split_real(text)?;
    let unit = unit.to_ascii_lowercase();
    let (_, divisor, factor) = UNITS.iter().find(|(name, ..)| *name == unit)?;
    let seconds = number / divisor * factor;
    seconds.is_finite().then_some(Time(seconds))
}

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_inf() {
            return out.pad("inf");
        }
        let numbers =
            UNITS[..WRITTEN].iter().map(|(unit, divisor, factor)| (self.0 * divisor / factor, *unit));
        let text = number::shortest(numbers, |text| parse(text) == Some(*self));
        out.pad(&text.unwrap_or_else(|| format!("{}s", self.0)))
    }
}
