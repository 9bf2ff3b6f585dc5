//! Loading: default < file < environment < program, all errors at once.
//!
//! Built on the readers of each source. Programs and the host use it.

use std::path::PathBuf;

use super::{
    ConfigError, Field, Origin, Problem, Schema, Section, Setting, Sources, UnknownSections, Warning,
    environment, file, key_name,
    nearest::hint_for_key,
    nearest::hint_for_section,
    sources::{Counts, Text},
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
    /// The file that was read, if any. A file behind it, of which only the security keys count, is the origin of those.
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
        match sources.read_files(&mut warnings) {
            Ok(files) => {
                for file in files {
                    config.read(schema, &file, (&mut problems, &mut warnings));
                    path.get_or_insert(file.path);
                }
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

    /// Takes the keys of a file that count.
    fn read(
        &mut self,
        schema: &Schema,
        Text { path, text, counts }: &Text,
        (problems, warnings): (&mut Vec<Problem>, &mut Vec<Warning>),
    ) {
        let content = file::parse(path, text, schema);
        for own in content.settings {
            let field = schema.section(&own.section).and_then(|section| section.field(&own.key));
            match (*counts, field.is_some_and(|field| field.security)) {
                (Counts::All, _) | (Counts::SecurityKeys, true) | (Counts::OtherKeys, false) => {
                    let setting = Setting { value: own.value, origin: own.origin, text: own.text };
                    self.set(&own.section, &own.key, setting);
                }
                (Counts::SecurityKeys, false) => {}
                (Counts::OtherKeys, true) => {
                    let key = key_name(&own.section, &own.key);
                    warnings.push(Warning::SecurityKey { at: own.origin, key });
                }
            }
        }
        problems.extend(content.problems);
        warnings.extend(content.warnings);
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
