//! Kinds of values: what a field accepts, as data, because transports that are loaded at run time have kinds of their own.
//!
//! Built on [`units`](crate::units). The [`Schema`](super::Schema) and all of parsing use it.

use std::{borrow::Cow, fmt, path::PathBuf, str::FromStr};

use super::Value;
use crate::units::{Bandwidth, Count, MemSize, NameList, Range, Ternary, Time, UnitError, parse_bool, shown};

/// What a field accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Yes or no.
    Bool,
    /// Yes, no, `try` or `auto`.
    Ternary,
    /// A whole number in bounds, both included.
    Int {
        /// The smallest accepted.
        min: i64,
        /// The largest accepted.
        max: i64,
    },
    /// A whole number in bounds, both included, not negative.
    UInt {
        /// The smallest accepted.
        min: u64,
        /// The largest accepted.
        max: u64,
    },
    /// A number of things, `inf` or `auto`.
    Count,
    /// A number of bytes in bounds, both included. A largest below `u64::MAX` rules out `inf`, one below
    /// `u64::MAX - 1` rules out `auto` too.
    MemSize {
        /// The smallest accepted, in bytes.
        min: u64,
        /// The largest accepted, in bytes.
        max: u64,
    },
    /// A duration or `inf`.
    Time,
    /// Bytes a second, `inf` or `auto`.
    Bandwidth,
    /// A finite number.
    Real,
    /// Any text.
    Text,
    /// A path.
    Path,
    /// Texts with commas between; none if the whole is empty.
    List,
    /// Names and patterns that permit or exclude.
    NameList,
    /// A range of whole numbers.
    Range,
    /// One of some words, in either case.
    Enum(Cow<'static, [Cow<'static, str>]>),
}

/// A text that a [`Kind`] does not accept.
#[derive(Clone, PartialEq, Eq)]
pub struct BadValue {
    /// What was given, quoted and cut where it is long.
    pub given: String,
    /// What is accepted, as text.
    pub expected: String,
    /// A text that would have been accepted.
    pub example: String,
}

crate::debug_as_display!(BadValue);

impl fmt::Display for BadValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadValue { given, expected, example } = self;
        write!(out, "{given}: expected {expected}, for example {example}")
    }
}

impl std::error::Error for BadValue {}

impl Kind {
    /// A size without bounds.
    pub const MEM_SIZE: Kind = Kind::MemSize { min: 0, max: u64::MAX };
    /// A whole number without bounds, not negative.
    pub const UINT: Kind = Kind::UInt { min: 0, max: u64::MAX };
    /// A whole number without bounds.
    pub const INT: Kind = Kind::Int { min: i64::MIN, max: i64::MAX };

    /// One of some words.
    pub fn words<W: Into<Cow<'static, str>>>(choices: impl IntoIterator<Item = W>) -> Kind {
        Kind::Enum(choices.into_iter().map(Into::into).collect())
    }

    /// The value of `text`.
    ///
    /// # Errors
    ///
    /// The text is not of this kind or out of its bounds.
    pub fn parse(&self, text: &str) -> Result<Value, BadValue> {
        let value = match self {
            Kind::Bool => parse_bool(text).ok().map(Value::Bool),
            Kind::Ternary => unit::<Ternary>(text).map(Value::Ternary),
            Kind::Int { min, max } => {
                let number = text.trim().parse().ok();
                number.filter(|number| (min..=max).contains(&number)).map(Value::Int)
            }
            Kind::UInt { min, max } => {
                let number = text.trim().parse().ok();
                number.filter(|number| (min..=max).contains(&number)).map(Value::UInt)
            }
            Kind::Count => unit::<Count>(text).map(Value::Count),
            Kind::MemSize { min, max } => {
                let size = unit::<MemSize>(text);
                size.filter(|size| (*min..=*max).contains(&size.bytes())).map(Value::MemSize)
            }
            Kind::Time => unit::<Time>(text).map(Value::Time),
            Kind::Bandwidth => unit::<Bandwidth>(text).map(Value::Bandwidth),
            Kind::Real => text.trim().parse().ok().filter(|real: &f64| real.is_finite()).map(Value::Real),
            Kind::Text => Some(Value::Text(text.to_owned())),
            Kind::Path => (!text.is_empty()).then(|| Value::Path(PathBuf::from(text))),
            Kind::List => Some(Value::List(split_list(text))),
            Kind::NameList => unit::<NameList>(text).map(Value::NameList),
            Kind::Range => unit::<Range>(text).map(Value::Range),
            Kind::Enum(choices) => {
                let index = choices.iter().position(|choice| choice.eq_ignore_ascii_case(text.trim()));
                index.map(|index| Value::Enum { index, name: choices[index].clone().into_owned() })
            }
        };
        value.ok_or_else(|| self.refuse(shown(text)))
    }

    /// The error with the reason why `given`, as it is to be shown, is not accepted.
    pub(super) fn refuse(&self, given: String) -> BadValue {
        BadValue { given, expected: self.expected(), example: self.example() }
    }

    /// What is accepted, as text, with the bounds.
    pub fn expected(&self) -> String {
        let plain = match self {
            Kind::Bool => unit_expected::<bool>(parse_bool),
            Kind::Ternary => unit_expected(Ternary::from_str),
            Kind::Int { min, max } if (*min, *max) == (i64::MIN, i64::MAX) => "a whole number",
            Kind::Int { min, max } => return format!("a whole number from {min} to {max}"),
            Kind::UInt { min: 0, max: u64::MAX } => "a whole number, not negative",
            Kind::UInt { min, max: u64::MAX } => return format!("a whole number, at least {min}"),
            Kind::UInt { min, max } => return format!("a whole number from {min} to {max}"),
            Kind::Count => unit_expected(Count::from_str),
            Kind::MemSize { min: 0, max: u64::MAX } => unit_expected(MemSize::from_str),
            Kind::MemSize { min, max } => {
                let (min, max) = (MemSize::new(*min), MemSize::new(*max));
                let units = "a whole number with an optional k, m, g or t (powers of 1024)";
                return match (max.is_inf(), max.is_auto()) {
                    (true, _) => format!("{units}, at least {min}, or `inf`, or `auto`"),
                    (_, true) => format!("{units}, at least {min}, or `auto`"),
                    _ => format!("{units}, from {min} to {max}"),
                };
            }
            Kind::Time => unit_expected(Time::from_str),
            Kind::Bandwidth => unit_expected(Bandwidth::from_str),
            Kind::Real => "a number",
            Kind::Text => "a text",
            Kind::Path => "a path, not empty",
            Kind::List => "texts with commas between",
            Kind::NameList => unit_expected(NameList::from_str),
            Kind::Range => unit_expected(Range::from_str),
            Kind::Enum(choices) => return format!("one of {}", choices.join(", ")),
        };
        plain.to_owned()
    }

    /// A text that is accepted.
    pub fn example(&self) -> String {
        match self {
            Kind::Bool => "yes".to_owned(),
            Kind::Ternary => "try".to_owned(),
            Kind::Int { min, max } => 1.clamp(*min, (*max).max(*min)).to_string(),
            Kind::UInt { min, max } => 16.clamp(*min, (*max).max(*min)).to_string(),
            Kind::Count => "16".to_owned(),
            Kind::MemSize { min, max } => MemSize::new(65536.clamp(*min, (*max).max(*min))).to_string(),
            Kind::Time => "10ms".to_owned(),
            Kind::Bandwidth => "10Gbps".to_owned(),
            Kind::Real => "0.5".to_owned(),
            Kind::Text => "text".to_owned(),
            Kind::Path => "/usr/lib/uct".to_owned(),
            Kind::List => "one,two".to_owned(),
            Kind::NameList => "mlx5_*,eth0".to_owned(),
            Kind::Range => "8-64".to_owned(),
            Kind::Enum(choices) => choices.first().cloned().unwrap_or_default().into_owned(),
        }
    }

    /// Its name in documents: "memory size".
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Bool => "yes or no",
            Kind::Ternary => "yes, no, try or auto",
            Kind::Int { .. } | Kind::UInt { .. } => "whole number",
            Kind::Count => "count",
            Kind::MemSize { .. } => "memory size",
            Kind::Time => "time",
            Kind::Bandwidth => "bandwidth",
            Kind::Real => "number",
            Kind::Text => "text",
            Kind::Path => "path",
            Kind::List => "list",
            Kind::NameList => "list of names",
            Kind::Range => "range",
            Kind::Enum(_) => "choice",
        }
    }
}

impl fmt::Display for Kind {
    /// Its name with its bounds or choices: "memory size, 1 to 64k".
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Kind::Int { min, max } if (*min, *max) != (i64::MIN, i64::MAX) => {
                write!(out, "{name}, {min} to {max}")
            }
            Kind::UInt { min, max: u64::MAX } if *min > 0 => write!(out, "{name}, at least {min}"),
            Kind::UInt { min, max } if *max < u64::MAX => write!(out, "{name}, {min} to {max}"),
            Kind::MemSize { min, max } if (*min, *max) != (0, u64::MAX) => {
                write!(out, "{name}, {} to {}", MemSize::new(*min), MemSize::new(*max))
            }
            Kind::Enum(choices) => write!(out, "one of {}", choices.join(", ")),
            _ => out.write_str(name),
        }
    }
}

fn unit<T: FromStr<Err = UnitError>>(text: &str) -> Option<T> {
    text.parse().ok()
}

/// The words of the parser for what it accepts, so that they exist once.
fn unit_expected<T>(parse: impl Fn(&str) -> Result<T, UnitError>) -> &'static str {
    // No unit accepts an empty text.
    parse("").err().map_or("", |error| error.expected())
}

/// The texts of a list, trimmed; none if the whole is empty.
pub(super) fn split_list(text: &str) -> Vec<String> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    text.split(',').map(|element| element.trim().to_owned()).collect()
}
