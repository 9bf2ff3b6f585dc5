//! Loading: default < file < environment < program, all errors at once.
//!
//! Built on the readers of each source. Programs and the host use it.

use std::path::PathBuf;

use super::{
    ConfigError, Field, Origin, Problem, Schema, Section, Setting, Sources, UnknownSections, Warning,
    environment, file, key_name, nearest::hint_for_key, nearest::hint_for_section,
};

/// The settings of one context.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// In the order of the schema.
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    section: String,
    key: String,
    setting: Setting,
}

/// A configuration and what was noticed while it was loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Settings without an effect; the caller reports them once.
    pub warnings: Vec<Warning>,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
}

impl Config {
    /// Reads all of `sources`. Every key of `schema` has a value afterwards. Blocks as reading a file does.
    ///
    /// # Errors
    ///
    /// All that is wrong in any source: also what a later source would have overruled.
    pub fn load(schema: &Schema, sources: &Sources) -> Result<Loaded, ConfigError> {
        let mut problems = Vec::new();
        let mut warnings = Vec::new();
        let mut config = Config::default();
        for (section, field) in schema.keys() {
            match field.kind.parse(&field.default) {
                Ok(value) => config.entries.push(Entry {
                    section: section.name.to_string(),
                    key: field.name.to_string(),
                    setting: Setting { value, origin: Origin::Default, text: field.default.to_string() },
                }),
                Err(bad) => problems.push(value_problem(Origin::Default, section, field, bad)),
            }
        }

        let mut path = None;
        match sources.read_file(&mut warnings) {
            Ok(None) => {}
            Ok(Some((found, text))) => {
                let content = file::parse(&found, &text, schema);
                let is_found_by_chance = sources.is_found_by_chance(&found);
                for own in content.settings {
                    let section = schema.section(&own.section);
                    if is_found_by_chance
                        && section.and_then(|it| it.field(&own.key)).is_some_and(|field| field.security)
                    {
                        let key = key_name(&own.section, &own.key);
                        warnings.push(Warning::SecurityKey { at: own.origin, key });
                        continue;
                    }
                    let setting = Setting { value: own.value, origin: own.origin, text: own.text };
                    config.set(&own.section, &own.key, setting);
                }
                problems.extend(content.problems);
                warnings.extend(content.warnings);
                path = Some(found);
            }
            Err(problem) => problems.push(problem),
        }

        let content = environment::parse(&sources.env, schema);
        for own in content.settings {
            let setting = Setting { value: own.value, origin: own.origin, text: own.text };
            config.set(&own.section.name, &own.field.name, setting);
        }
        problems.extend(content.problems);
        warnings.extend(content.warnings);

        for (key, text) in &sources.overrides {
            match parse_override(schema, key, text) {
                Ok(Some((section, field, setting))) => config.set(&section.name, &field.name, setting),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }

        ConfigError::check(problems)?;
        Ok(Loaded { config, warnings, file: path })
    }

    /// The setting of a key; the section of global keys is empty. `None` if the schema has no such key.
    pub fn value(&self, section: &str, key: &str) -> Option<&Setting> {
        self.iter().find(|(own, name, _)| *own == section && *name == key).map(|(_, _, setting)| setting)
    }

    /// Every setting with its section and key, in the order of the schema.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &Setting)> {
        self.entries.iter().map(|entry| (entry.section.as_str(), entry.key.as_str(), &entry.setting))
    }

    fn set(&mut self, section: &str, key: &str, setting: Setting) {
        let own = self.entries.iter_mut().find(|entry| entry.section == section && entry.key == key);
        if let Some(entry) = own {
            entry.setting = setting;
        }
    }
}

/// What the program sets; `None` if it is for a section that is not known yet.
fn parse_override<'a>(
    schema: &'a Schema,
    key: &str,
    text: &str,
) -> Result<Option<(&'a Section, &'a Field, Setting)>, Problem> {
    let at = Origin::Override;
    let (section_name, name) = key.split_once('.').unwrap_or(("", key));
    let Some(section) = schema.section(section_name) else {
        if section_name.is_empty() {
            let hint = hint_for_key(schema, "", name);
            return Err(Problem::UnknownKey { at, key: key.to_owned(), section: String::new(), hint });
        }
        if schema.unknown_sections() == UnknownSections::Ignore {
            return Ok(None);
        }
        let hint = hint_for_section(schema, section_name);
        return Err(Problem::UnknownSection { at, section: section_name.to_owned(), hint });
    };
    let Some(field) = section.field(name) else {
        let hint = hint_for_key(schema, section_name, name);
        return Err(Problem::UnknownKey { at, key: name.to_owned(), section: section_name.to_owned(), hint });
    };
    match field.kind.parse(text) {
        Ok(value) => Ok(Some((section, field, Setting { value, origin: at, text: text.to_owned() }))),
        Err(bad) => Err(value_problem(at, section, field, bad)),
    }
}

fn value_problem(at: Origin, section: &Section, field: &Field, bad: super::BadValue) -> Problem {
    Problem::Value { at, key: key_name(&section.name, &field.name), bad: Box::new(bad) }
}
