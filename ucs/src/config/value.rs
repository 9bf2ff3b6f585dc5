//! Values of settings, and where each came from.
//!
//! Built on [`units`](crate::units). The loaded [`Config`](super::Config) and the plugin boundary use it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::units::{Bandwidth, Count, MemSize, NameList, Range, Ternary, Time};

/// A value of the kind of its field.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Yes or no.
    Bool(bool),
    /// Yes, no, try or auto.
    Ternary(Ternary),
    /// A whole number.
    Int(i64),
    /// A whole number, not negative.
    UInt(u64),
    /// A number of things.
    Count(Count),
    /// A number of bytes.
    MemSize(MemSize),
    /// A duration.
    Time(Time),
    /// Bytes a second.
    Bandwidth(Bandwidth),
    /// A finite number.
    Real(f64),
    /// A text.
    Text(String),
    /// A path.
    Path(PathBuf),
    /// Texts.
    List(Vec<String>),
    /// Names that are permitted or excluded.
    NameList(NameList),
    /// A range of whole numbers.
    Range(Range),
    /// One of the field's choices.
    Enum {
        /// Its position among the choices, from 0.
        index: usize,
        /// The choice as the schema spells it.
        name: String,
    },
}

/// A value as numbers for the plugin boundary, where there is no `Value`. Its text is
/// [`Setting::text`], from which [`Kind::parse`](super::Kind::parse) or
/// [`ConfigType::parse`](super::ConfigType::parse) make the value again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AbiParts<'a> {
    /// The text that the value was made of.
    pub text: &'a str,
    /// Bool: 0 or 1. Ternary: no 0, yes 1, try 2, auto 3. Whole numbers: the number, negative ones in two's
    /// complement. Counts and sizes: the number, `u64::MAX` = inf, `u64::MAX - 1` = auto. Choice: its position.
    /// List: how many. Anything else: 0.
    pub integer: u64,
    /// Time: seconds, infinite = inf. Bandwidth: bytes a second, infinite = inf, -1 = auto. Number: itself.
    /// Anything else: 0.
    pub real: f64,
}

impl Value {
    /// The value as numbers, beside the `text` it was made of.
    pub fn as_abi_parts<'a>(&self, text: &'a str) -> AbiParts<'a> {
        let (integer, real) = match self {
            Value::Bool(on) => (u64::from(*on), 0.0),
            Value::Ternary(ternary) => (ternary.number(), 0.0),
            Value::Int(number) => (number.cast_unsigned(), 0.0),
            Value::UInt(number) => (*number, 0.0),
            Value::Count(count) => (count.number(), 0.0),
            Value::MemSize(size) => (size.bytes(), 0.0),
            Value::Time(time) => (0, time.seconds()),
            Value::Bandwidth(bandwidth) => (0, bandwidth.bytes_per_second()),
            Value::Real(real) => (0, *real),
            Value::List(texts) => (texts.len() as u64, 0.0),
            Value::Enum { index, .. } => (*index as u64, 0.0),
            Value::Text(_) | Value::Path(_) | Value::NameList(_) | Value::Range(_) => (0, 0.0),
        };
        AbiParts { text, integer, real }
    }

    /// The value if it is a yes or no.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(on) = self { Some(*on) } else { None }
    }

    /// The value if it is a four-way switch.
    pub fn as_ternary(&self) -> Option<Ternary> {
        if let Value::Ternary(ternary) = self { Some(*ternary) } else { None }
    }

    /// The value if it is a signed whole number.
    pub fn as_i64(&self) -> Option<i64> {
        if let Value::Int(number) = self { Some(*number) } else { None }
    }

    /// The value if it is an unsigned whole number.
    pub fn as_u64(&self) -> Option<u64> {
        if let Value::UInt(number) = self { Some(*number) } else { None }
    }

    /// The value if it is a count.
    pub fn as_count(&self) -> Option<Count> {
        if let Value::Count(count) = self { Some(*count) } else { None }
    }

    /// The value if it is a memory size.
    pub fn as_mem_size(&self) -> Option<MemSize> {
        if let Value::MemSize(size) = self { Some(*size) } else { None }
    }

    /// The value if it is a time.
    pub fn as_time(&self) -> Option<Time> {
        if let Value::Time(time) = self { Some(*time) } else { None }
    }

    /// The value if it is a bandwidth.
    pub fn as_bandwidth(&self) -> Option<Bandwidth> {
        if let Value::Bandwidth(bandwidth) = self { Some(*bandwidth) } else { None }
    }

    /// The value if it is a number that need not be whole.
    pub fn as_f64(&self) -> Option<f64> {
        if let Value::Real(real) = self { Some(*real) } else { None }
    }

    /// The value if it is a text or a choice.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(text) | Value::Enum { name: text, .. } => Some(text),
            _ => None,
        }
    }

    /// The value if it is a path.
    pub fn as_path(&self) -> Option<&Path> {
        if let Value::Path(path) = self { Some(path) } else { None }
    }

    /// The value if it is a list of texts.
    pub fn as_list(&self) -> Option<&[String]> {
        if let Value::List(texts) = self { Some(texts) } else { None }
    }

    /// The value if it is a list of names.
    pub fn as_name_list(&self) -> Option<&NameList> {
        if let Value::NameList(names) = self { Some(names) } else { None }
    }

    /// The value if it is a range.
    pub fn as_range(&self) -> Option<Range> {
        if let Value::Range(range) = self { Some(*range) } else { None }
    }

    /// The position of the choice if it is one.
    pub fn as_enum_index(&self) -> Option<usize> {
        if let Value::Enum { index, .. } = self { Some(*index) } else { None }
    }
}

impl fmt::Display for Value {
    /// A text that the value's kind reads as the same value.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(on) => out.pad(if *on { "yes" } else { "no" }),
            Value::Ternary(ternary) => ternary.fmt(out),
            Value::Int(number) => number.fmt(out),
            Value::UInt(number) => number.fmt(out),
            Value::Count(count) => count.fmt(out),
            Value::MemSize(size) => size.fmt(out),
            Value::Time(time) => time.fmt(out),
            Value::Bandwidth(bandwidth) => bandwidth.fmt(out),
            Value::Real(real) => real.fmt(out),
            Value::Text(text) | Value::Enum { name: text, .. } => out.pad(text),
            Value::Path(path) => path.display().fmt(out),
            Value::List(texts) => out.pad(&texts.join(",")),
            Value::NameList(names) => names.fmt(out),
            Value::Range(range) => range.fmt(out),
        }
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The built-in default.
    Default,
    /// A configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line of the value, from 1.
        line: usize,
        /// The column of the value in characters, from 1.
        column: usize,
    },
    /// An environment variable.
    Env {
        /// The variable.
        name: String,
    },
    /// The program itself, or its command line.
    Override,
}

impl fmt::Display for Origin {
    /// `default`, `/etc/uct/uct.toml:12`, `environment UCT_TLS` or `program`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => out.pad("default"),
            Origin::File { path, line, .. } => out.pad(&format!("{}:{line}", path.display())),
            Origin::Env { name } => out.pad(&format!("environment {name}")),
            Origin::Override => out.pad("program"),
        }
    }
}

/// A value with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The value.
    pub value: Value,
    /// Where it came from.
    pub origin: Origin,
    /// The text that it was made of. What a file gives as a TOML number, boolean or array is in the form that the
    /// environment would have it.
    pub text: String,
}

impl Setting {
    /// The value in the form in which it crosses the plugin boundary.
    pub fn as_abi_parts(&self) -> AbiParts<'_> {
        self.value.as_abi_parts(&self.text)
    }
}

impl fmt::Display for Setting {
    /// `8k  # default`
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}  # {}", self.text, self.origin)
    }
}
