//! Why a plugin is not there.
//!
//! Used by the log, `uct_info` and the explanation of a choice. Built on `thiserror`. Every failure contains what was
//! found, what was expected, and ([`LoadFailure::hint`]) what to do.

#![forbid(unsafe_code)]

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use ucs::Status;
use ucs::sys::trust::Writer;

/// One plugin, or one directory to search, that failed.
#[derive(Clone)]
pub struct LoadFailure {
    /// Name of the plugin; empty for a directory.
    pub name: String,
    /// The file or directory; `None` for a plugin that is linked into the program.
    pub path: Option<PathBuf>,
    /// What went wrong.
    pub kind: LoadFailureKind,
}

ucs::debug_as_display!(LoadFailure);

impl LoadFailure {
    /// How far loading had come.
    pub fn stage(&self) -> LoadStage {
        self.kind.stage()
    }

    /// What to do about it, as one sentence.
    pub fn hint(&self) -> String {
        self.kind.hint()
    }
}

impl std::error::Error for LoadFailure {}

impl fmt::Display for LoadFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(out, "{}: {}", path.display(), self.kind),
            None => write!(out, "built-in plugin {}: {}", self.name, self.kind),
        }
    }
}

/// The steps of loading, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LoadStage {
    /// Looking for files in directories.
    Search,
    /// Opening a file as a shared library.
    Open,
    /// Looking for the exported function.
    Symbol,
    /// Magic, major version and size of the plugin's table.
    Handshake,
    /// The tables behind it: sizes, mandatory slots, names, configuration keys.
    Tables,
    /// The plugin's own `init`.
    Init,
}

impl fmt::Display for LoadStage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            LoadStage::Search => "search",
            LoadStage::Open => "open",
            LoadStage::Symbol => "symbol",
            LoadStage::Handshake => "handshake",
            LoadStage::Tables => "tables",
            LoadStage::Init => "init",
        })
    }
}

/// What went wrong.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LoadFailureKind {
    /// A directory that was asked for cannot be listed.
    #[error("cannot list this directory of plugins: {error}")]
    Directory {
        /// The system's word.
        error: Arc<io::Error>,
    },
    /// Another user may write to the file, its directory, or a link that leads to it, and so could have any code run.
    #[error("is not trusted to hold code{}: {writer}", because_of(at.as_deref()))]
    NotTrusted {
        /// The link or directory; `None` if it is the file, or directory to search, itself.
        at: Option<PathBuf>,
        /// The users that may write to it.
        writer: Writer,
    },
    /// The name ends in `.so`, but something else has it.
    #[error("is {found}, not a file")]
    NotAFile {
        /// "a directory", "a socket", …
        found: &'static str,
    },
    /// A symbolic link to nothing.
    #[error("is a symbolic link to {}, which does not exist", target.display())]
    DanglingLink {
        /// Where it points.
        target: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot be read: {error}")]
    Unreadable {
        /// The system's word.
        error: Arc<io::Error>,
    },
    /// Not in the format of shared libraries.
    #[error("is not a shared library: it does not begin with the ELF magic")]
    NotElf,
    /// ELF, but not of a kind that this process can load.
    #[error("is not a shared library for this program: {problem}")]
    WrongElf {
        /// What is there, and what was expected.
        problem: String,
    },
    /// The file ends too early.
    #[error("is cut off: it has {length} bytes, its headers name {expected}")]
    Truncated {
        /// Length in bytes.
        length: u64,
        /// Length that the headers need, in bytes.
        expected: u64,
    },
    /// A library that the plugin is linked to is not there.
    #[error("needs the library {library}, which cannot be loaded: {message}")]
    MissingLibrary {
        /// Its name.
        library: String,
        /// The loader's words.
        message: String,
    },
    /// The system's loader refused.
    #[error("cannot be loaded: {message}")]
    Refused {
        /// The loader's words.
        message: String,
    },
    /// The exported function is missing.
    #[error("does not export the symbol {symbol}")]
    NoSymbol {
        /// Its name.
        symbol: String,
    },
    /// A table is not there.
    #[error("offers no table {table} for {subject} (the pointer is null or not aligned)")]
    NoTable {
        /// Type of the table.
        table: &'static str,
        /// What it should describe.
        subject: String,
    },
    /// The table of the plugin does not begin as it should.
    #[error("does not begin with the magic: expected {expected:#018x}, found {found:#018x}")]
    Magic {
        /// [`uct_abi::UCT_MAGIC`].
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// Made for another, incompatible host.
    #[error("has ABI {found_major}.{found_minor}; this host wants {expected_major}.x")]
    AbiMajor {
        /// The host's major version.
        expected_major: u32,
        /// The plugin's major version.
        found_major: u32,
        /// The plugin's minor version.
        found_minor: u32,
    },
    /// A table ends ahead of its last mandatory slot.
    #[error("table {table} of {subject} is too short: {offered} bytes, at least {minimum} are needed")]
    TableTooShort {
        /// Type of the table.
        table: &'static str,
        /// What it describes.
        subject: String,
        /// The size it claims, in bytes.
        offered: usize,
        /// The least size, in bytes.
        minimum: usize,
    },
    /// A mandatory slot is null.
    #[error("table {table} of {subject} lacks the mandatory slot {slot}")]
    MissingSlot {
        /// Type of the table.
        table: &'static str,
        /// What it describes.
        subject: String,
        /// The slot.
        slot: &'static str,
    },
    /// A list is longer than any real one.
    #[error("claims {count} {what}; at most {limit} are taken")]
    TooMany {
        /// "components", "transports", …
        what: &'static str,
        /// The claim.
        count: usize,
        /// The bound.
        limit: usize,
    },
    /// A name or another string of the plugin cannot be used.
    #[error("the {what} is not usable: {problem}")]
    Text {
        /// "name of a transport", …
        what: String,
        /// What was expected and what was found.
        problem: String,
    },
    /// The plugin in `libuct_X.so` calls itself something else.
    #[error("calls itself {found:?}, but its file name and its symbol say {expected:?}")]
    OtherName {
        /// By its file.
        expected: String,
        /// By its table.
        found: String,
    },
    /// Something of that name is there already.
    #[error("its {what} {name} has the name of one that {taken_by} offers")]
    DuplicateName {
        /// "component" or "transport".
        what: &'static str,
        /// The name.
        name: String,
        /// The plugin that was first.
        taken_by: String,
    },
    /// A configuration key is described wrongly, or its name is taken.
    #[error("its configuration {key} cannot be used: {problem}")]
    ConfigKey {
        /// Section, or section and key.
        key: String,
        /// What was expected and what was found.
        problem: String,
    },
    /// `init` returned an error, or panicked.
    #[error("refused to start: {status}{}{reason}", if reason.is_empty() { "" } else { ": " })]
    Init {
        /// Its answer.
        status: Status,
        /// Its words; may be empty.
        reason: String,
    },
}

ucs::debug_as_display!(LoadFailureKind);

fn because_of(at: Option<&Path>) -> String {
    at.map_or_else(String::new, |at| format!(", because of {}", at.display()))
}

impl LoadFailureKind {
    /// How far loading had come.
    pub fn stage(&self) -> LoadStage {
        use LoadFailureKind as Kind;
        match self {
            Kind::Directory { .. }
            | Kind::NotTrusted { .. }
            | Kind::NotAFile { .. }
            | Kind::DanglingLink { .. } => LoadStage::Search,
            Kind::Unreadable { .. } | Kind::NotElf | Kind::WrongElf { .. } | Kind::Truncated { .. } => {
                LoadStage::Open
            }
            Kind::MissingLibrary { .. } | Kind::Refused { .. } => LoadStage::Open,
            Kind::NoSymbol { .. } => LoadStage::Symbol,
            Kind::Magic { .. } | Kind::AbiMajor { .. } => LoadStage::Handshake,
            Kind::NoTable { table, .. } | Kind::TableTooShort { table, .. } if *table == "UctPlugin" => {
                LoadStage::Handshake
            }
            Kind::NoTable { .. }
            | Kind::TableTooShort { .. }
            | Kind::MissingSlot { .. }
            | Kind::TooMany { .. }
            | Kind::Text { .. }
            | Kind::OtherName { .. }
            | Kind::DuplicateName { .. }
            | Kind::ConfigKey { .. } => LoadStage::Tables,
            Kind::Init { .. } => LoadStage::Init,
        }
    }

    /// What to do about it, as one sentence.
    pub fn hint(&self) -> String {
        use LoadFailureKind as Kind;
        match self {
            Kind::Directory { .. } => {
                "correct `module_dir` (UCT_MODULE_DIR), or create the directory".to_owned()
            }
            Kind::NotTrusted { writer: Writer::Owner(user), .. } => {
                format!(
                    "make it this user's or root's (chown -h), copy the plugin to a directory of this user's, or add {user} to \
                     `module_owners` (UCT_MODULE_OWNERS) if all files of that user are to be trusted"
                )
            }
            Kind::NotTrusted { .. } => {
                "make it writable for nobody but this user or root, or copy the plugin to a directory that is"
                    .to_owned()
            }
            Kind::NotAFile { .. } | Kind::DanglingLink { .. } => {
                "remove it, or put the plugin's shared library in its place".to_owned()
            }
            Kind::Unreadable { .. } => "make the file readable for this user".to_owned(),
            Kind::NotElf | Kind::WrongElf { .. } | Kind::Truncated { .. } => {
                "build the plugin again for this machine and copy it anew".to_owned()
            }
            Kind::MissingLibrary { library, .. } => {
                format!("install the package that has {library}, or put its directory into LD_LIBRARY_PATH")
            }
            Kind::Refused { .. } => "build the plugin on this system, against its libraries".to_owned(),
            Kind::NoSymbol { symbol } => format!("export {symbol}, or name the file after the plugin in it"),
            Kind::AbiMajor { .. } => "build the plugin again against this version's headers".to_owned(),
            Kind::DuplicateName { .. } => "leave one of the two out with `modules` (UCT_MODULES)".to_owned(),
            Kind::Init { .. } => {
                "see the plugin's reason, or leave it out with `modules` (UCT_MODULES)".to_owned()
            }
            Kind::NoTable { .. }
            | Kind::Magic { .. }
            | Kind::TableTooShort { .. }
            | Kind::MissingSlot { .. }
            | Kind::TooMany { .. }
            | Kind::Text { .. }
            | Kind::OtherName { .. }
            | Kind::ConfigKey { .. } => {
                "report this to the author of the plugin: its table is invalid".to_owned()
            }
        }
    }
}
