//! What can be wrong with a configuration, in sentences that say where, what was expected and what to do.
//!
//! Built on [`Origin`]. Loading returns them; programs print them.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{BadValue, Origin};
use crate::units::shown;

/// All that is wrong with a configuration. `Display` gives one line for each [`Problem`].
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// What is wrong, in the order in which it was found; never empty.
    problems: Vec<Problem>,
}

crate::debug_as_display!(ConfigError);

impl ConfigError {
    /// The error of these `problems`, at least one.
    pub(super) fn new(problems: Vec<Problem>) -> Self {
        ConfigError { problems }
    }

    /// `Ok` if there are no `problems`.
    pub(super) fn check(problems: Vec<Problem>) -> Result<(), ConfigError> {
        if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
    }

    /// What is wrong, at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        ConfigError { problems: vec![problem] }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            let end = if at == 0 { "" } else { "\n" };
            write!(out, "{end}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A file that was named explicitly cannot be read, or one that was found cannot.
    File {
        /// The file.
        path: PathBuf,
        /// Why this one: "named by UCT_CONFIG", "named by the program", "found by the search".
        why: &'static str,
        /// The message of the system.
        reason: String,
    },
    /// A file is not TOML.
    Syntax {
        /// The place in the file.
        at: Origin,
        /// The message of the parser.
        message: String,
    },
    /// A key that the schema does not have.
    UnknownKey {
        /// The place, [`Origin::File`] or [`Origin::Override`].
        at: Origin,
        /// The key.
        key: String,
        /// The section it is in; empty for the global one.
        section: String,
        /// What to do: "did you mean …", "it belongs into …"; empty if nothing is near.
        hint: String,
    },
    /// A section that the schema does not have.
    UnknownSection {
        /// The place, [`Origin::File`] or [`Origin::Override`].
        at: Origin,
        /// The section.
        section: String,
        /// What to do; empty if nothing is near.
        hint: String,
    },
    /// A section's name with a value instead of a table.
    NotASection {
        /// The place of the value.
        at: Origin,
        /// The section.
        section: String,
    },
    /// A value that its field does not accept.
    Value {
        /// The place of the value.
        at: Origin,
        /// The key with its section, as in `tcp.tx_seg_size`.
        key: String,
        /// What was given, what was expected, an example.
        bad: Box<BadValue>,
    },
    /// More problems of a file that has very many.
    More {
        /// The file.
        path: PathBuf,
        /// How many more.
        count: usize,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::File { path, why, reason } => {
                write!(out, "{}: cannot read this configuration file ({why}): {reason}", path.display())
            }
            Problem::Syntax { at, message } => write!(out, "{}: not TOML: {message}", Place(at)),
            Problem::UnknownKey { at, key, section, hint } if section.is_empty() => {
                write!(out, "{}: unknown key {}{}", Place(at), shown(key), Hint(hint))
            }
            Problem::UnknownKey { at, key, section, hint } => {
                let (at, key, hint) = (Place(at), shown(key), Hint(hint));
                write!(out, "{at}: unknown key {key} in section [{section}]{hint}")
            }
            Problem::UnknownSection { at, section, hint } => {
                write!(out, "{}: unknown section {}{}", Place(at), shown(section), Hint(hint))
            }
            Problem::NotASection { at, section } => write!(
                out,
                "{}: {section} is a section, not a key: expected a line [{section}] with the section's keys below it",
                Place(at)
            ),
            Problem::Value { at, key, bad } => write!(out, "{}: {key} = {bad}", Place(at)),
            Problem::More { path, count } => write!(out, "{}: and {count} more errors", path.display()),
        }
    }
}

/// Something that has no effect, which may or may not be meant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// An environment variable that looks like a setting and is none.
    UnknownVariable {
        /// The variable.
        name: String,
        /// The variable that was probably meant.
        nearest: Option<String>,
    },
    /// A section of a file that nothing here has; see [`UnknownSections::Warn`](super::UnknownSections::Warn).
    UnknownSection {
        /// The place in the file.
        at: Origin,
        /// The section.
        section: String,
        /// What to do; empty if nothing is near.
        hint: String,
    },
    /// A file that the search found and does not take: no plain file, or another user's.
    FileNotTaken {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A [security key](super::Field::security) in a file of the working directory that was not named explicitly.
    SecurityKey {
        /// The place in the file.
        at: Origin,
        /// The key with its section.
        key: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::UnknownVariable { name, nearest } => {
                let hint = nearest.as_ref().map_or(String::new(), |name| format!("did you mean {name}?"));
                let (name, hint) = (name.escape_debug(), Hint(&hint));
                write!(out, "environment {name}: not a known setting, without effect{hint}")
            }
            Warning::UnknownSection { at, section, hint } => {
                let (at, section, hint) = (Place(at), shown(section), Hint(hint));
                write!(out, "{at}: unknown section {section}, without effect{hint}")
            }
            Warning::FileNotTaken { path, reason } => {
                let path = path.display();
                write!(
                    out,
                    "{path}: this configuration file is ignored: {reason}; UCT_CONFIG can name another"
                )
            }
            Warning::SecurityKey { at, key } => write!(
                out,
                "{}: {key} is ignored: it is a security key, which a file found in the working directory cannot set; set it in \
                 the environment, or name the file with UCT_CONFIG",
                Place(at)
            ),
        }
    }
}

/// An error in a section: a mistake of the transport's author, not of its user.
#[derive(Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// The section.
    pub section: String,
    /// What is wrong with it.
    pub reason: String,
}

crate::debug_as_display!(SchemaError);

impl fmt::Display for SchemaError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SchemaError { section, reason } = self;
        write!(out, "configuration section {section:?} is not usable: {reason}")
    }
}

impl std::error::Error for SchemaError {}

/// An origin at the start of an error: with the column, where there is one.
struct Place<'a>(&'a Origin);

impl fmt::Display for Place<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Origin::File { path, line, column } => {
                let path: &Path = path;
                write!(out, "{}:{line}:{column}", path.display())
            }
            origin => origin.fmt(out),
        }
    }
}

/// A hint at the end of an error, if there is one.
struct Hint<'a>(&'a str);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(out, "; {}", self.0) }
    }
}
