//! Switches: yes or no, and the four-way kind that may also be tried or left to the library.
//!
//! No dependencies. Configuration keys that turn something on use it.

use std::{fmt, str::FromStr};

use super::UnitError;

/// A switch with two more values: `try` (yes where it is possible, silently no where not) and `auto` (the library
/// decides).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ternary {
    /// Off. The number 0.
    No,
    /// On; it is an error where it is not possible. The number 1.
    Yes,
    /// On where it is possible. The number 2.
    Try,
    /// Decided by the user of the value. The number 3.
    Auto,
}

impl Ternary {
    /// Its number at the plugin boundary.
    pub const fn number(self) -> u64 {
        match self {
            Ternary::No => 0,
            Ternary::Yes => 1,
            Ternary::Try => 2,
            Ternary::Auto => 3,
        }
    }

    /// The inverse of [`number`](Self::number).
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Ternary::No),
            1 => Some(Ternary::Yes),
            2 => Some(Ternary::Try),
            3 => Some(Ternary::Auto),
            _ => None,
        }
    }

    /// What is left to decide: `Some(true)` for yes, `Some(false)` for no, `None` for `try` and `auto`.
    pub const fn decided(self) -> Option<bool> {
        match self {
            Ternary::No => Some(false),
            Ternary::Yes => Some(true),
            Ternary::Try | Ternary::Auto => None,
        }
    }
}

impl From<bool> for Ternary {
    fn from(on: bool) -> Self {
        if on { Ternary::Yes } else { Ternary::No }
    }
}

impl FromStr for Ternary {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "try" => Ok(Ternary::Try),
            "auto" => Ok(Ternary::Auto),
            word => word_to_bool(word).map(Ternary::from).ok_or_else(|| {
                UnitError::new(
                    "switch",
                    text,
                    "y, n, yes, no, on, off, true, false, 1, 0, try or auto",
                    "try",
                )
            }),
        }
    }
}

impl fmt::Display for Ternary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Ternary::No => "no",
            Ternary::Yes => "yes",
            Ternary::Try => "try",
            Ternary::Auto => "auto",
        })
    }
}

/// Reads a yes or no: `y`, `n`, `yes`, `no`, `on`, `off`, `true`, `false`, `1` or `0`, in either case.
///
/// # Errors
///
/// Any other text.
pub fn parse_bool(text: &str) -> Result<bool, UnitError> {
    word_to_bool(&text.trim().to_ascii_lowercase()).ok_or_else(|| {
        UnitError::new("yes or no", text, "y, n, yes, no, on, off, true, false, 1 or 0", "yes")
    })
}

fn word_to_bool(word: &str) -> Option<bool> {
    match word {
        "y" | "yes" | "on" | "true" | "1" => Some(true),
        "n" | "no" | "off" | "false" | "0" => Some(false),
        _ => None,
    }
}
