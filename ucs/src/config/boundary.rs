//! Kinds as the plugin boundary has them: numbers and a text.
//!
//! Stands on [`Kind`]. The host stands on it where it takes a plugin's fields, `uct-plugin` where it hands them over; the
//! codes are those of the boundary's header.

use std::borrow::Cow;

use super::Kind;

/// A [`Kind`] in the form in which it crosses the plugin boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindParts {
    /// Which kind: 0 yes or no, 1 switch, 2 whole number, 3 whole number that is not negative, 4 count, 5 memory
    /// size, 6 time, 7 bandwidth, 8 number, 9 text, 10 path, 11 list, 12 list of names, 13 range, 14 choice.
    pub code: u32,
    /// For 2, 3 and 5 the smallest accepted. With `maximum` also 0, there are no bounds.
    pub minimum: i64,
    /// For 2, 3 and 5 the largest accepted. For 3 and 5, `i64::MAX` is no bound.
    pub maximum: i64,
    /// For 14 the choices, with `|` between.
    pub choices: String,
}

impl Kind {
    /// The kind in the form in which it crosses the plugin boundary. A bound above `i64::MAX` becomes none.
    pub fn to_parts(&self) -> KindParts {
        let saturated = |bound: u64| i64::try_from(bound).unwrap_or(i64::MAX);
        let code = match self {
            Kind::Bool => 0,
            Kind::Ternary => 1,
            Kind::Int { .. } => 2,
            Kind::UInt { .. } => 3,
            Kind::Count => 4,
            Kind::MemSize { .. } => 5,
            Kind::Time => 6,
            Kind::Bandwidth => 7,
            Kind::Real => 8,
            Kind::Text => 9,
            Kind::Path => 10,
            Kind::List => 11,
            Kind::NameList => 12,
            Kind::Range => 13,
            Kind::Enum(_) => 14,
        };
        let (minimum, maximum) = match *self {
            Kind::Int { min: i64::MIN, max: i64::MAX } => (0, 0),
            Kind::Int { min, max } => (min, max),
            Kind::UInt { min: 0, max: u64::MAX } | Kind::MemSize { min: 0, max: u64::MAX } => (0, 0),
            Kind::UInt { min, max } | Kind::MemSize { min, max } => (saturated(min), saturated(max)),
            _ => (0, 0),
        };
        let choices = match self {
            Kind::Enum(choices) => choices.join("|"),
            _ => String::new(),
        };
        KindParts { code, minimum, maximum, choices }
    }

    /// The kind that crossed the plugin boundary as `parts`.
    ///
    /// # Errors
    ///
    /// A code that this version does not know, or bounds that nothing meets; the text says which and what would do.
    pub fn from_parts(parts: &KindParts) -> Result<Kind, String> {
        let KindParts { code, minimum, maximum, choices } = parts;
        let unbounded = (*minimum, *maximum) == (0, 0);
        if matches!(code, 2 | 3 | 5) && minimum > maximum {
            return Err(format!("the minimum {minimum} is above the maximum {maximum}: exchange them"));
        }
        let unsigned = || {
            let max = if unbounded || *maximum == i64::MAX { u64::MAX } else { maximum.cast_unsigned() };
            match u64::try_from(*minimum) {
                Ok(min) => Ok((min, max)),
                Err(_) => {
                    Err(format!("the minimum {minimum} is negative where no value is: expected 0 or more"))
                }
            }
        };
        Ok(match code {
            0 => Kind::Bool,
            1 => Kind::Ternary,
            2 if unbounded => Kind::INT,
            2 => Kind::Int { min: *minimum, max: *maximum },
            3 => unsigned().map(|(min, max)| Kind::UInt { min, max })?,
            4 => Kind::Count,
            5 => unsigned().map(|(min, max)| Kind::MemSize { min, max })?,
            6 => Kind::Time,
            7 => Kind::Bandwidth,
            8 => Kind::Real,
            9 => Kind::Text,
            10 => Kind::Path,
            11 => Kind::List,
            12 => Kind::NameList,
            13 => Kind::Range,
            14 => Kind::Enum(choices.split('|').map(|word| Cow::Owned(word.trim().to_owned())).collect()),
            _ => {
                return Err(format!(
                    "kind {code} of a value is not known: expected 0 to 14; is the plugin newer?"
                ));
            }
        })
    }
}
