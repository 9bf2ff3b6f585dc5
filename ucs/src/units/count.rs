//! Numbers of things: queue lengths, retries, limits.
//!
//! No dependencies. Configuration keys that count use it.

use std::{fmt, str::FromStr};

use super::UnitError;

/// A number of things, or `inf` (no limit), or `auto` (decided by the user of the value).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count(u64);

impl Count {
    /// No limit: `inf`.
    pub const INF: Count = Count(u64::MAX);
    /// Decided by the user of the value: `auto`.
    pub const AUTO: Count = Count(u64::MAX - 1);
    /// The largest count that is a number.
    pub const MAX: Count = Count(u64::MAX - 2);

    /// A count of so many. `u64::MAX` is [`INF`](Self::INF) and `u64::MAX - 1` is [`AUTO`](Self::AUTO).
    pub const fn new(number: u64) -> Self {
        Count(number)
    }

    /// The number, `u64::MAX` for `inf`, `u64::MAX - 1` for `auto`.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Whether it is `inf`.
    pub const fn is_inf(self) -> bool {
        self.0 == Self::INF.0
    }

    /// Whether it is `auto`.
    pub const fn is_auto(self) -> bool {
        self.0 == Self::AUTO.0
    }
}

impl FromStr for Count {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let word = text.trim();
        if word.eq_ignore_ascii_case("inf") {
            return Ok(Count::INF);
        }
        if word.eq_ignore_ascii_case("auto") {
            return Ok(Count::AUTO);
        }
        let number = word.parse().ok().map(Count).filter(|count| *count <= Count::MAX);
        number.ok_or_else(|| {
            UnitError::new("count", text, "a whole number, not negative, or `inf`, or `auto`", "16")
        })
    }
}

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Count::INF => out.pad("inf"),
            Count::AUTO => out.pad("auto"),
            Count(number) => fmt::Display::fmt(&number, out),
        }
    }
}
