//! Sizes of memory and messages: `64k` is 65536 bytes.
//!
//! No dependencies. Configuration keys such as segment sizes and thresholds use it.

use std::{fmt, str::FromStr};

use super::{UnitError, number::split_whole};

/// A size in bytes, or `inf` (no limit), or `auto` (decided by the user of the value).
///
/// Reads a whole number with an optional `k`, `m`, `g` or `t` in either case, each 1024 times the one before, and an
/// optional `B` or `iB`: `8192`, `64k`, `64K`, `64KB` and `64KiB` are what they seem, and never powers of 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemSize(u64);

const UNITS: [(&str, u32); 5] = [("t", 40), ("g", 30), ("m", 20), ("k", 10), ("", 0)];

impl MemSize {
    /// No limit: `inf`.
    pub const INF: MemSize = MemSize(u64::MAX);
    /// Decided by the user of the value: `auto`.
    pub const AUTO: MemSize = MemSize(u64::MAX - 1);
    /// The largest size that is a number.
    pub const MAX: MemSize = MemSize(u64::MAX - 2);

    /// A size of so many bytes. `u64::MAX` is [`INF`](Self::INF) and `u64::MAX - 1` is [`AUTO`](Self::AUTO).
    pub const fn new(bytes: u64) -> Self {
        MemSize(bytes)
    }

    /// The number of bytes, `u64::MAX` for `inf`, `u64::MAX - 1` for `auto`.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// The number of bytes as a `usize`; what does not fit (`inf`, `auto`) is `usize::MAX`.
    pub const fn to_usize(self) -> usize {
        if self.0 > MemSize::MAX.0 || self.0 > usize::MAX as u64 { usize::MAX } else { self.0 as usize }
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

impl FromStr for MemSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text.trim()).ok_or_else(|| {
            UnitError::new(
                "memory size",
                text,
                "a whole number below 2^64 with an optional k, m, g or t (powers of 1024), or `inf`, or `auto`",
                "64k",
            )
        })
    }
}

fn parse(text: &str) -> Option<MemSize> {
    if text.eq_ignore_ascii_case("inf") {
        return Some(MemSize::INF);
    }
    if text.eq_ignore_ascii_case("auto") {
        return Some(MemSize::AUTO);
    }
    let (number, unit) = split_whole(text)?;
    let unit = unit.to_ascii_lowercase();
    let (_, shift) = UNITS.iter().find(|(letter, _)| {
        let rest = unit.strip_prefix(letter);
        matches!(rest, Some("" | "b")) || (!letter.is_empty() && rest == Some("ib"))
    })?;
    let size = MemSize(number.checked_mul(1 << shift)?);
    (size <= MemSize::MAX).then_some(size)
}

impl fmt::Display for MemSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            MemSize::INF => out.pad("inf"),
            MemSize::AUTO => out.pad("auto"),
            MemSize(bytes) => {
                let (letter, shift) = UNITS
                    .iter()
                    .find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift)
                    .unwrap_or(&("", 0));
                out.pad(&format!("{}{letter}", bytes >> shift))
            }
        }
    }
}
