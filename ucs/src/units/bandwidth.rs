//! Bandwidths: `100MB/s`, `10Gbps`.
//!
//! No dependencies. The cost model's configuration uses it.

use std::{fmt, str::FromStr};

use super::{UnitError, number};

/// Bytes a second, or `inf` (no limit), or `auto` (decided by the user of the value).
///
/// Reads a number with a unit: `B` for bytes or `b` for bits, a `k`, `M`, `G` or `T` (either case) before it, and
/// `/s`, `ps` or `s` behind it. Without a unit it is bytes a second.
///
/// With bytes the prefix is a power of 1024 as in [`MemSize`](super::MemSize), so that one second at `1MB/s` moves
/// `1M`. With bits it is a power of 1000, because links are named so: `10Gbps` is 1.25e9 bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Bandwidth(f64);

const PREFIXES: [(char, i32); 4] = [('k', 1), ('m', 2), ('g', 3), ('t', 4)];

impl Bandwidth {
    /// No limit: `inf`.
    pub const INF: Bandwidth = Bandwidth(f64::INFINITY);
    /// Decided by the user of the value: `auto`.
    pub const AUTO: Bandwidth = Bandwidth(-1.0);

    /// So many bytes a second; what is negative or not a number becomes zero.
    pub const fn from_bytes_per_second(bytes: f64) -> Self {
        if bytes > 0.0 { Bandwidth(bytes) } else { Bandwidth(0.0) }
    }

    /// Bytes a second, `f64::INFINITY` for `inf`, -1 for `auto`.
    pub const fn bytes_per_second(self) -> f64 {
        self.0
    }

    /// Whether it is `inf`.
    pub const fn is_inf(self) -> bool {
        self.0 == f64::INFINITY
    }

    /// Whether it is `auto`.
    pub const fn is_auto(self) -> bool {
        self.0 < 0.0
    }
}

impl FromStr for Bandwidth {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text.trim()).ok_or_else(|| {
            UnitError::new(
                "bandwidth",
                text,
                "a number, not negative, of bytes (MB/s, powers of 1024) or bits (Mbps, powers of 1000) a second, \
                 or `inf`, or `auto`",
                "10Gbps",
            )
        })
    }
}

fn parse(text: &str) -> Option<Bandwidth> {
    if text.eq_ignore_ascii_case("inf") {
        return Some(Bandwidth::INF);
    }
    if text.eq_ignore_ascii_case("auto") {
        return Some(Bandwidth::AUTO);
    }
    let (number, unit) = number::split_real(text)?;
    let bytes = number * factor(unit)?;
    bytes.is_finite().then_some(Bandwidth(bytes))
}

/// Bytes per second of one `unit`.
fn factor(unit: &str) -> Option<f64> {
    if unit.is_empty() {
        return Some(1.0);
    }
    let unit = ["/s", "ps", "s"].iter().find_map(|end| unit.strip_suffix(end))?;
    let (unit, bits) = match unit.strip_suffix('b') {
        Some(unit) => (unit, true),
        None => (unit.strip_suffix('B')?, false),
    };
    let (unit, binary) = match unit.strip_suffix('i') {
        Some(unit) if !bits && !unit.is_empty() => (unit, true),
        _ => (unit, !bits),
    };
    let power = match unit {
        "" => 0,
        _ => {
            PREFIXES.iter().find(|(letter, _)| unit.eq_ignore_ascii_case(letter.encode_utf8(&mut [0; 4])))?.1
        }
    };
    let scale: f64 = if binary { 1024.0 } else { 1000.0 };
    Some(scale.powi(power) / if bits { 8.0 } else { 1.0 })
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_inf() {
            return out.pad("inf");
        }
        if self.is_auto() {
            return out.pad("auto");
        }
        const UNITS: [&str; 8] = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "Mbps", "Gbps", "Tbps"];
        let numbers = UNITS.iter().filter_map(|unit| Some((self.0 / factor(unit)?, *unit)));
        let text = number::shortest(numbers, |text| parse(text) == Some(*self));
        out.pad(&text.unwrap_or_else(|| format!("{}B/s", self.0)))
    }
}
