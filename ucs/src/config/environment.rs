//! The environment: variables that start with `UCT_` into settings. No other variable is looked at.
//!
//! Built on the [`Schema`]. [`load`](super::load) uses it.

use std::ffi::{OsStr, OsString};

use super::{ENV_PREFIX, Field, Origin, Problem, Schema, Section, UnknownSections, Value, Warning};
use super::{env_name, key_name, nearest};
use crate::units::shown;

/// The settings of the environment.
#[derive(Debug, Default)]
pub(super) struct EnvContent<'a> {
    pub settings: Vec<EnvSetting<'a>>,
    pub problems: Vec<Problem>,
    pub warnings: Vec<Warning>,
}

/// One good value of the environment.
#[derive(Debug)]
pub(super) struct EnvSetting<'a> {
    pub section: &'a Section,
    pub field: &'a Field,
    pub value: Value,
    pub text: String,
    pub origin: Origin,
}

/// Reads `variables`.
pub(super) fn parse<'a>(variables: &[(OsString, OsString)], schema: &'a Schema) -> EnvContent<'a> {
    let mut content = EnvContent::default();
    let known: Vec<_> = schema
        .keys()
        .map(|(section, field)| (env_name(&section.name, &field.name), section, field))
        .collect();
    for (name, value) in last_of_each(variables) {
        match known.iter().find(|(own, ..)| *own == name) {
            Some((_, section, field)) => content.read(section, field, name, value),
            None if schema.is_foreign_variable(name) => {}
            None if schema.unknown_sections() == UnknownSections::Ignore => {}
            None => {
                let nearest = nearest(name, known.iter().map(|(own, ..)| own.as_str()));
                let (name, nearest) = (name.to_owned(), nearest.map(str::to_owned));
                content.warnings.push(Warning::UnknownVariable { name, nearest });
            }
        }
    }
    content
}

impl<'a> EnvContent<'a> {
    fn read(&mut self, section: &'a Section, field: &'a Field, name: &str, value: &OsStr) {
        let origin = Origin::Env { name: name.to_owned() };
        let lossy = value.to_string_lossy();
        let parsed = match value.to_str() {
            Some(text) => field.kind.parse(text),
            None => Err(field.kind.refuse(format!("{} (not UTF-8)", shown(&lossy)))),
        };
        match parsed {
            Ok(value) => {
                let text = lossy.into_owned();
                self.settings.push(EnvSetting { section, field, value, text, origin });
            }
            Err(bad) => {
                let key = key_name(&section.name, &field.name);
                self.problems.push(Problem::Value { at: origin, key, bad: Box::new(bad) });
            }
        }
    }
}

/// The variables that start with the prefix, by name, each once with its last value. One that is empty counts as not set, as everywhere in
/// the environment.
fn last_of_each(variables: &[(OsString, OsString)]) -> Vec<(&str, &OsStr)> {
    let mut ours: Vec<(&str, &OsStr)> = variables
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.as_os_str())))
        .filter(|(name, _)| name.starts_with(ENV_PREFIX))
        .rev()
        .collect();
    // Stable: of equal names the last given stays the first.
    ours.sort_by_key(|(name, _)| *name);
    ours.dedup_by_key(|(name, _)| *name);
    ours.retain(|(_, value)| !value.is_empty());
    ours
}
