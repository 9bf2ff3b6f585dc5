//! Where a configuration is read from, all of it injected, so that a test needs no file or variable of the machine.
//!
//! Built on the standard library. [`Config::load`](super::Config::load) uses it.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, FileType, Metadata, OpenOptions},
    io::{self, ErrorKind, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{Problem, Warning, schema::CONFIG_VARIABLE};
use crate::sys::trust::{self, Trust};

/// The largest configuration file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

const FOUND: &str = "found by the search";

/// Which file is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileSource {
    /// None.
    #[default]
    None,
    /// This one; it is an error if it is not there.
    Path(PathBuf),
    /// The first there is of: the one that `UCT_CONFIG` names (an error if it is not there; empty is as not set),
    /// `uct.toml` in `directory`, `uct/uct.toml` in `$XDG_CONFIG_HOME` or else `$HOME/.config`, and `uct.toml` in
    /// `system`. None of them is fine, and so is a directory that this user may not look into.
    ///
    /// The one in `directory` neither sets [security keys](super::Field::security) nor hides them: they are those of the first of the files
    /// behind it.
    ///
    /// A file that was not named explicitly counts only if it is a plain file of this user or of root (see [`Trust`]) that no other
    /// user may write to; otherwise the search continues, with a warning.
    Search {
        /// The current directory, or what takes its place.
        directory: PathBuf,
        /// `/etc/uct`, or what takes its place.
        system: PathBuf,
    },
    /// `uct.toml` in this directory, if there is one, as in a search.
    System(PathBuf),
}

/// Where a configuration is read from. `Sources::default()` is nowhere: all values are defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file.
    pub file: FileSource,
    /// The environment, as pairs of name and value. The last of a name counts.
    pub env: Vec<(OsString, OsString)>,
    /// What the program sets itself: pairs of key (`tcp.tx_seg_size`, or `tls` for a global one) and value. The
    /// last of a key counts.
    pub overrides: Vec<(String, String)>,
}

impl Sources {
    /// The file that is found by searching from the current directory, and the environment of this process.
    ///
    /// In a process with privileges that its caller lacks (set-uid) neither the environment nor a file of the caller's:
    /// `/etc/uct/uct.toml` alone.
    pub fn from_process() -> Self {
        if trust::is_privileged() {
            return Sources { file: FileSource::System(PathBuf::from("/etc/uct")), ..Sources::default() };
        }
        let file = FileSource::Search { directory: PathBuf::from("."), system: PathBuf::from("/etc/uct") };
        Sources { file, env: env::vars_os().collect(), overrides: Vec::new() }
    }

    /// Reads this file instead of any other.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = FileSource::Path(path.into());
        self
    }

    /// Adds variables to the environment.
    #[must_use]
    pub fn env<K: Into<OsString>, V: Into<OsString>>(
        mut self,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.env.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Sets a key, `tcp.tx_seg_size` or a global one such as `tls`.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.overrides.push((key.into(), value.into()));
        self
    }

    /// The directory for files of this user that can be made again: `$XDG_CACHE_HOME`, or else `$HOME/.cache`. `None` without either.
    pub fn cache_directory(&self) -> Option<PathBuf> {
        self.user_directory("XDG_CACHE_HOME", ".cache")
    }

    /// The directory that a variable names, or else the one in the home directory.
    fn user_directory(&self, variable: &str, in_home: &str) -> Option<PathBuf> {
        match self.variable(variable).map(Path::new) {
            // Its specification has relative paths ignored.
            Some(path) if path.is_absolute() => Some(path.to_owned()),
            _ => self.variable("HOME").map(|home| Path::new(home).join(in_home)),
        }
    }

    /// The value of a variable, unless it is not set or empty.
    fn variable(&self, name: &str) -> Option<&OsStr> {
        let last = self.env.iter().rev().find(|(own, _)| own == name);
        last.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }

    /// The files to read: at most one, and behind one of the working directory, where any user may have left it, the one that it would
    /// hide. What was found and does not count goes to `warnings`. Blocks as reading a plain file does.
    pub(super) fn read_files(&self, warnings: &mut Vec<Warning>) -> Result<Vec<Text>, Problem> {
        let all = |file: Option<(PathBuf, String)>| file.map(|file| Text::new(file, Counts::All)).into_iter();
        let (directory, system) = match &self.file {
            FileSource::None => return Ok(Vec::new()),
            FileSource::Path(path) => {
                return Ok(all(Some(required(path, "named by the program")?)).collect());
            }
            FileSource::System(system) => {
                return Ok(all(first_of([system.join("uct.toml")], warnings)?).collect());
            }
            FileSource::Search { directory, system } => (directory, system),
        };
        if let Some(path) = self.variable(CONFIG_VARIABLE) {
            return Ok(all(Some(required(Path::new(path), "named by UCT_CONFIG")?)).collect());
        }
        let user = self.user_directory("XDG_CONFIG_HOME", ".config");
        let here = first_of([plain(directory).join("uct.toml")], warnings)?;
        let others = [user.map(|user| user.join("uct/uct.toml")), Some(system.join("uct.toml"))];
        let other = first_of(others.into_iter().flatten(), warnings)?;
        let Some(here) = here else { return Ok(all(other).collect()) };
        let other = other.map(|other| Text::new(other, Counts::SecurityKeys));
        Ok([Text::new(here, Counts::OtherKeys)].into_iter().chain(other).collect())
    }
}

/// A file that was read.
pub(super) struct Text {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) counts: Counts,
}

/// Which keys of a file count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    All,
    SecurityKeys,
    /// All but security keys.
    OtherKeys,
}

impl Text {
    fn new((path, text): (PathBuf, String), counts: Counts) -> Text {
        Text { path, text, counts }
    }
}

/// The first of `paths` that is there and counts.
fn first_of(
    paths: impl IntoIterator<Item = PathBuf>,
    warnings: &mut Vec<Warning>,
) -> Result<Option<(PathBuf, String)>, Problem> {
    for path in paths {
        match read_if_there(&path) {
            Ok(Some(bytes)) => return text_of(path, bytes, FOUND).map(Some),
            Ok(None) => {}
            Err(Unread::NotTaken(reason)) => warnings.push(Warning::FileNotTaken { path, reason }),
            Err(Unread::System(error)) => return Err(unreadable(&path, FOUND, &error.to_string())),
        }
    }
    Ok(None)
}

/// Reads a file as one that the search finds: a plain file of at most 1 MiB, in UTF-8, that only users of this process's [`Trust`] may have
/// written. `None` if there is none. Blocks as reading a plain file does.
///
/// # Errors
/// The reason why it is not read, as text.
pub fn read_trusted(path: &Path) -> Result<Option<String>, String> {
    match read_if_there(path) {
        Ok(Some(bytes)) => String::from_utf8(bytes).map(Some).map_err(|_| "it is not UTF-8".to_owned()),
        Ok(None) => Ok(None),
        Err(Unread::NotTaken(reason)) => Err(reason),
        Err(Unread::System(error)) => Err(error.to_string()),
    }
}

/// The bytes of a file that was not named explicitly; `None` if it is not there, or where this user may not look.
fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, Unread> {
    match read(path, Some(&Trust::of_process())) {
        Err(Unread::System(error)) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
            // For example another user's home that the environment still names: its contents cannot be seen.
            ErrorKind::PermissionDenied if is_hidden(path) => Ok(None),
            _ => Err(Unread::System(error)),
        },
        other => other.map(Some),
    }
}

/// Whether the directory of a file does not even let us look for it.
fn is_hidden(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// `.` as nothing, so that messages name `uct.toml` and not `./uct.toml`.
fn plain(directory: &Path) -> &Path {
    if directory == Path::new(".") { Path::new("") } else { directory }
}

fn required(path: &Path, why: &'static str) -> Result<(PathBuf, String), Problem> {
    let bytes = read(path, None).map_err(|error| match error {
        Unread::NotTaken(reason) => unreadable(path, why, &reason),
        Unread::System(error) => unreadable(path, why, &error.to_string()),
    })?;
    text_of(path.to_owned(), bytes, why)
}

fn unreadable(path: &Path, why: &'static str, reason: &str) -> Problem {
    Problem::File { path: path.to_owned(), why, reason: reason.to_owned() }
}

/// Why there are no bytes of a file.
enum Unread {
    /// It is not to be read: why.
    NotTaken(String),
    /// The system's word.
    System(io::Error),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        Unread::System(error)
    }
}

/// At most [`LARGEST`] bytes, so that a wrong name such as `/dev/zero` does not eat the memory. With `trust`, of a file that
/// was not named explicitly.
///
/// Checks the file before it is opened, since to open a device may have an effect, and again afterwards, since it may be another file.
/// It does not block: to open a FIFO would, until another process writes to it.
fn read(path: &Path, trust: Option<&Trust>) -> Result<Vec<u8>, Unread> {
    // A link chooses which of this user's files is read.
    if let Some(trust) = trust
        && let Some((at, writer)) = trust.objection_to_links(path)?
    {
        return Err(Unread::NotTaken(format!("it is reached by {}: {writer}", at.display())));
    }
    check(&fs::metadata(path)?, trust)?;
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check(&file.metadata()?, trust)?;
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other("it is larger than 1 MiB, which is no configuration").into());
    }
    Ok(bytes)
}

/// Whether a file is of a kind to be read, and, if it was not named explicitly, whether only trusted users may have written it.
fn check(metadata: &Metadata, trust: Option<&Trust>) -> Result<(), Unread> {
    let kind = metadata.file_type();
    // A device that was named explicitly is permitted: /dev/null is an empty configuration.
    let is_kind = kind.is_file() || trust.is_none() && kind.is_char_device();
    if !is_kind {
        return Err(Unread::NotTaken(format!("it is {}, not a file", name_of(kind))));
    }
    match trust.and_then(|trust| trust.objection(metadata)) {
        Some(writer) => Err(Unread::NotTaken(writer.to_string())),
        None => Ok(()),
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

fn text_of(path: PathBuf, bytes: Vec<u8>, why: &'static str) -> Result<(PathBuf, String), Problem> {
    match String::from_utf8(bytes) {
        Ok(text) => Ok((path, text)),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count();
            Err(unreadable(&path, why, &format!("line {line} is not UTF-8")))
        }
    }
}
