//! Lists of names that permit or exclude: `mlx5_0:1,eth*`, `^tcp`, `all`.
//!
//! Built on [`glob`](super::glob_matches). The configuration of transports and devices uses it.

use std::{fmt, str::FromStr};

use super::{UnitError, glob_matches};

/// Which of some names are meant: those in the list, or with a leading `^` all but those in the list.
///
/// An entry is a name or a pattern as in [`glob_matches`]; `all` is the same as `*`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NameList {
    entries: Vec<String>,
    negated: bool,
}

impl NameList {
    /// The list that contains every name: `all`.
    pub fn all() -> Self {
        NameList { entries: vec!["all".to_owned()], negated: false }
    }

    /// Whether `name` is meant.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry_matches(entry, name)) != self.negated
    }

    /// Whether it is meant to leave names out: it was written with a `^`.
    pub fn is_negated(&self) -> bool {
        self.negated
    }

    /// Whether it contains every name explicitly: `all` or `*`.
    pub fn is_all(&self) -> bool {
        !self.negated && self.entries.iter().any(|entry| is_wildcard(entry))
    }

    /// The names and patterns in it, in their order, without the `^`.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(String::as_str)
    }

    /// The entries that match none of `names`: probably misspelt. `all` and `*` are never among them.
    pub fn unmatched<'a, N: AsRef<str>>(&'a self, names: &[N]) -> Vec<&'a str> {
        self.entries()
            .filter(|entry| {
                !is_wildcard(entry) && !names.iter().any(|name| entry_matches(entry, name.as_ref()))
            })
            .collect()
    }
}

impl Default for NameList {
    /// [`NameList::all`].
    fn default() -> Self {
        NameList::all()
    }
}

fn is_wildcard(entry: &str) -> bool {
    entry == "all" || entry == "*"
}

fn entry_matches(entry: &str, name: &str) -> bool {
    entry == name || is_wildcard(entry) || glob_matches(entry, name)
}

impl FromStr for NameList {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse(text).ok_or_else(|| {
            UnitError::new(
                "list of names",
                text,
                "names or patterns with commas between, a single `^` ahead of the first for all but those, or `all`",
                "mlx5_*,eth0",
            )
        })
    }
}

fn parse(text: &str) -> Option<NameList> {
    let text = text.trim();
    let (text, negated) = match text.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let entries = text.split(',').map(|entry| {
        let entry = entry.trim();
        let plain = !entry.is_empty() && !entry.starts_with('^') && !entry.contains(char::is_whitespace);
        plain.then(|| entry.to_owned())
    });
    Some(NameList { entries: entries.collect::<Option<_>>()?, negated })
}

impl fmt::Display for NameList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negated { "^" } else { "" };
        out.pad(&format!("{sign}{}", self.entries.join(",")))
    }
}
