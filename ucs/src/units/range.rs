//! Ranges of whole numbers: `8-64`, `8-inf`, `7`.
//!
//! No dependencies. Port ranges and size classes use it.

use std::{fmt, str::FromStr};

use super::UnitError;

/// A range of whole numbers with both ends in it; `inf` as its end means no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    first: u64,
    last: u64,
}

impl Range {
    /// The range from `first` to `last`; `None` if `last` is less than `first`. `u64::MAX` is `inf`.
    pub const fn new(first: u64, last: u64) -> Option<Self> {
        if first <= last { Some(Range { first, last }) } else { None }
    }

    /// The first number in it.
    pub const fn first(self) -> u64 {
        self.first
    }

    /// The last number in it, `u64::MAX` if it has no end.
    pub const fn last(self) -> u64 {
        self.last
    }

    /// Whether `number` is in it.
    pub const fn contains(self, number: u64) -> bool {
        self.first <= number && number <= self.last
    }
}

impl FromStr for Range {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text).ok_or_else(|| {
            UnitError::new(
                "range",
                text,
                "one number, or two with a `-` between, the second not the smaller one, or `inf`",
                "8-64",
            )
        })
    }
}

fn parse(text: &str) -> Option<Range> {
    match text.split_once('-') {
        None => end(text).and_then(|number| Range::new(number, number)),
        Some((first, last)) => Range::new(end(first)?, end(last)?),
    }
}

fn end(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("inf") { Some(u64::MAX) } else { text.parse().ok() }
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |number| if number == u64::MAX { "inf".to_owned() } else { u64::to_string(&number) };
        if self.first == self.last {
            out.pad(&end(self.first))
        } else {
            out.pad(&format!("{}-{}", end(self.first), end(self.last)))
        }
    }
}
