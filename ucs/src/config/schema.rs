//! The schema: every key once, with its kind, default and doc; and how a key is spelt in each source.
//!
//! Built on [`Kind`]. Parsing, listings and documents use it.

use std::{borrow::Cow, collections::BTreeSet};

use super::{Kind, SchemaError};
use crate::units::glob_matches;

/// What the names of all environment variables that are settings start with.
pub const ENV_PREFIX: &str = "UCT_";

/// The variable that names the configuration file.
pub(super) const CONFIG_VARIABLE: &str = "UCT_CONFIG";

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name within its section: lower case letters, digits and `_`.
    pub name: Cow<'static, str>,
    /// What it accepts.
    pub kind: Kind,
    /// The text of its default; its kind accepts it.
    pub default: Cow<'static, str>,
    /// What it is for, one sentence or a few lines.
    pub doc: Cow<'static, str>,
    /// Whether it decides which code runs, which peers may connect, or how far a peer is trusted. Such a key is taken from no file
    /// that was found in the working directory.
    pub security: bool,
}

impl Field {
    /// A key of this name, kind, default and doc.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        default: impl Into<Cow<'static, str>>,
        doc: impl Into<Cow<'static, str>>,
    ) -> Self {
        Field { name: name.into(), kind, default: default.into(), doc: doc.into(), security: false }
    }

    /// Sets [`Field::security`].
    #[must_use]
    pub fn security(mut self, security: bool) -> Self {
        self.security = security;
        self
    }
}

/// Some keys that belong together: the global ones, or those of one transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name: lower case letters, digits and `_`; empty for the global keys.
    pub name: Cow<'static, str>,
    /// What it is for.
    pub doc: Cow<'static, str>,
    /// Its keys.
    pub fields: Vec<Field>,
}

impl Section {
    /// A section of this name, doc and keys.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        doc: impl Into<Cow<'static, str>>,
        fields: Vec<Field>,
    ) -> Self {
        Section { name: name.into(), doc: doc.into(), fields }
    }

    /// The key of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// What becomes of a section in a file (and of a variable in the environment) that the schema does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownSections {
    /// In a file it is an error, in the environment a warning. A section without keys passes: it sets nothing.
    #[default]
    Error,
    /// In a file, too, it is a warning: for a file that serves machines with other transports than this one.
    Warn,
    /// It is passed over: the schema is known not to be complete yet.
    Ignore,
}

/// All keys that a program has.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    sections: Vec<Section>,
    unknown_sections: UnknownSections,
    foreign_variables: Vec<Cow<'static, str>>,
}

impl Schema {
    /// A schema without a key.
    pub fn new() -> Self {
        Schema::default()
    }

    /// Its sections, in the order in which they were added.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The section of this name; the empty name is that of the global keys.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Adds a section. One that is there already, equal in all, may be added again: two transports may share one.
    ///
    /// # Errors
    ///
    /// A name that cannot be spelt in all sources, a default that its kind does not accept, a key twice, two keys
    /// with the same environment variable, or another section of the same name. The schema is as before.
    pub fn add_section(&mut self, section: Section) -> Result<(), SchemaError> {
        if self.section(&section.name) == Some(&section) {
            return Ok(());
        }
        match self.objection(&section) {
            Some(reason) => Err(SchemaError { section: section.name.into_owned(), reason }),
            None => {
                self.sections.push(section);
                Ok(())
            }
        }
    }

    /// Sets what becomes of sections that it does not have.
    pub fn set_unknown_sections(&mut self, unknown: UnknownSections) {
        self.unknown_sections = unknown;
    }

    /// What becomes of sections that it does not have.
    pub fn unknown_sections(&self) -> UnknownSections {
        self.unknown_sections
    }

    /// Names variables that start with [`ENV_PREFIX`] and are not settings, by name or by pattern as in
    /// [`glob_matches`]: `UCT_TEST_*`. `UCT_CONFIG` is always one.
    pub fn add_foreign_variable(&mut self, pattern: impl Into<Cow<'static, str>>) {
        self.foreign_variables.push(pattern.into());
    }

    pub(super) fn is_foreign_variable(&self, name: &str) -> bool {
        name == CONFIG_VARIABLE || self.foreign_variables.iter().any(|pattern| glob_matches(pattern, name))
    }

    /// Every key with its section.
    pub fn keys(&self) -> impl Iterator<Item = (&Section, &Field)> {
        self.sections.iter().flat_map(|section| section.fields.iter().map(move |field| (section, field)))
    }

    /// Why `section` cannot be added.
    fn objection(&self, section: &Section) -> Option<String> {
        if self.section(&section.name).is_some() {
            return Some("there is another section of this name, with other keys".to_owned());
        }
        if !section.name.is_empty() && !is_name(&section.name) {
            return Some(NAME_RULE.to_owned());
        }
        let mut variables: BTreeSet<String> =
            self.keys().map(|(section, field)| env_name(&section.name, &field.name)).collect();
        for field in &section.fields {
            if !is_name(&field.name) {
                return Some(format!("key {:?}: {NAME_RULE}", field.name));
            }
            if let Kind::Enum(choices) = &field.kind
                && let Some(reason) = objection_to(choices)
            {
                return Some(format!("key {:?}: {reason}", field.name));
            }
            if let Err(bad) = field.kind.parse(&field.default) {
                return Some(format!("key {:?}: the default is {bad}", field.name));
            }
            let variable = env_name(&section.name, &field.name);
            if variable == CONFIG_VARIABLE || !variables.insert(variable.clone()) {
                return Some(format!(
                    "key {:?}: its environment variable {variable} is taken; give the key another name",
                    field.name
                ));
            }
        }
        // In a file, a global key and a section of the same name would be the same key.
        let is_global_key = |name: &str| self.section("").is_some_and(|global| global.field(name).is_some());
        if is_global_key(&section.name) {
            return Some("there is a global key of this name".to_owned());
        }
        let clash = section.fields.iter().find(|field| self.section(&field.name).is_some());
        match clash {
            Some(field) if section.name.is_empty() => {
                Some(format!("key {:?}: there is a section of this name", field.name))
            }
            _ => None,
        }
    }
}

const NAME_RULE: &str =
    "a name is 1 to 64 lower case letters, digits and `_`, and starts with a letter, for example tx_seg_size";

fn is_name(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
}

/// Why `choices` cannot be those of a key.
fn objection_to(choices: &[Cow<'static, str>]) -> Option<String> {
    if choices.is_empty() {
        return Some("a choice without choices".to_owned());
    }
    let is_word = |word: &str| {
        !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || c.is_control() || ",|".contains(c))
    };
    let bad = choices.iter().find(|choice| !is_word(choice))?;
    Some(format!("the choice {bad:?} is not one word without `,` and `|`"))
}

/// The environment variable of a key: `UCT_TCP_TX_SEG_SIZE`, or `UCT_TLS` for a global one.
pub fn env_name(section: &str, key: &str) -> String {
    let middle = if section.is_empty() { "" } else { "_" };
    format!("{ENV_PREFIX}{}{middle}{}", section.to_ascii_uppercase(), key.to_ascii_uppercase())
}

/// The key with its section, as a program names it: `tcp.tx_seg_size`, or `tls` for a global one.
pub fn key_name(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}
