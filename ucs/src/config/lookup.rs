//! From settings to a typed struct; the same on the host's side and in a plugin, which has texts only.
//!
//! Built on [`ConfigType`]. What [`config_struct!`](crate::config_struct) makes uses it.

use std::borrow::Cow;

use super::{Config, ConfigError, ConfigType, Kind, Origin, Problem, key_name};

/// Something that has the texts of settings: a [`Config`], or in a plugin what the host handed over. Any function
/// from section and key to a text is one.
pub trait Lookup {
    /// The text of a key; `None` if there is none, which means its default.
    fn text(&self, section: &str, key: &str) -> Option<Cow<'_, str>>;

    /// Where that text came from, for errors.
    fn origin(&self, _section: &str, _key: &str) -> Origin {
        Origin::Override
    }
}

impl Lookup for Config {
    fn text(&self, section: &str, key: &str) -> Option<Cow<'_, str>> {
        self.value(section, key).map(|setting| Cow::Borrowed(setting.text.as_str()))
    }

    fn origin(&self, section: &str, key: &str) -> Origin {
        self.value(section, key).map_or(Origin::Default, |setting| setting.origin.clone())
    }
}

impl<F: Fn(&str, &str) -> Option<String>> Lookup for F {
    fn text(&self, section: &str, key: &str) -> Option<Cow<'_, str>> {
        self(section, key).map(Cow::Owned)
    }
}

/// The lookup that has nothing: every key has its default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Defaults;

impl Lookup for Defaults {
    fn text(&self, _section: &str, _key: &str) -> Option<Cow<'_, str>> {
        None
    }
}

/// Reads the keys of one section and collects what is wrong with them.
#[derive(Debug)]
pub struct Reader<'a, L> {
    section: &'a str,
    lookup: &'a L,
    problems: Vec<Problem>,
}

impl<'a, L: Lookup> Reader<'a, L> {
    /// Reads keys of `section` from `lookup`.
    pub fn new(section: &'a str, lookup: &'a L) -> Self {
        Reader { section, lookup, problems: Vec::new() }
    }

    /// The value of `key`, or of `default` if the lookup has none; `None` if `kind` or the type does not accept it,
    /// which [`finish`](Self::finish) reports.
    pub fn read<T: ConfigType>(&mut self, key: &str, kind: &Kind, default: &str) -> Option<T> {
        let given = self.lookup.text(self.section, key);
        let text = given.as_deref().unwrap_or(default);
        // The kind knows the field's bounds, the type does not.
        match kind.parse(text).and_then(|_| T::parse(text)) {
            Ok(value) => Some(value),
            Err(bad) => {
                let bad = Box::new(bad);
                let at = match given {
                    Some(_) => self.lookup.origin(self.section, key),
                    None => Origin::Default,
                };
                self.problems.push(Problem::Value { at, key: key_name(self.section, key), bad });
                None
            }
        }
    }

    /// What `build` makes of the values read.
    ///
    /// # Errors
    ///
    /// All values that were not accepted.
    pub fn finish<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, ConfigError> {
        // A value is absent only if there is a problem, so that an empty error does not occur.
        match build() {
            Some(built) if self.problems.is_empty() => Ok(built),
            _ => Err(ConfigError::new(self.problems)),
        }
    }
}
