//! Finds the files that may be plugins.
//!
//! Used by [`load`](super::load). Built on the file system. The first directory that has a plugin of some name wins, as
//! with the search path of programs.

#![forbid(unsafe_code)]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use ucs::sys::trust::Trust;

use super::{
    Ignored, IgnoredReason, LoaderSettings, PluginOrigin, Searched, Seen,
    failure::{LoadFailure, LoadFailureKind},
    own_library,
};

/// Where an installation puts plugins for programs that live elsewhere: the directory that `UCT_BUILD_PLUGIN_DIR` named when
/// this library was compiled, otherwise those of the two usual prefixes.
const INSTALLED: &[&str] = match option_env!("UCT_BUILD_PLUGIN_DIR") {
    Some(directory) => &[directory],
    None => &["/usr/local/lib/uct", "/usr/lib/uct"],
};

/// Libraries that cargo leaves beside the plugins: this project's provider for libfabric, and those for programs in C: of UCT's vocabulary, and of connections.
const NO_PLUGINS: &[&str] = &["fi", "compat", "net_c"];

/// A file whose name is that of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PluginFile {
    /// `NAME` of `libuct_NAME.so`.
    pub name: String,
    /// The file, in a directory without symbolic links in its path.
    pub path: PathBuf,
}

/// What a search found, in order of directories and, within one, of names.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub files: Vec<PluginFile>,
    pub failures: Vec<LoadFailure>,
    pub ignored: Vec<Ignored>,
    pub searched: Vec<Searched>,
}

/// Searches the directories of the settings, each once.
pub(super) fn plugin_files(settings: &LoaderSettings) -> Found {
    let mut found = Found::default();
    let trust = &settings.trust();
    for directory in &settings.module_dirs {
        if let Err(error) = search(directory, trust, &mut found) {
            found.failures.push(directory_failure(directory, error));
        }
    }
    if settings.search_standard {
        for directory in standard_directories() {
            // These were not named explicitly, so it is no failure if one is not there.
            if let Err(error) = search(&directory, trust, &mut found) {
                ucs::log::debug!(directory = %directory.display(), %error, "no plugins here");
            }
        }
    }
    found
}

fn directory_failure(directory: &Path, error: std::io::Error) -> LoadFailure {
    LoadFailure {
        name: String::new(),
        path: Some(directory.to_owned()),
        kind: LoadFailureKind::Directory { error: Arc::new(error) },
    }
}

/// Searches a directory, unless that is done, and records what was seen there.
fn search(directory: &Path, trust: &Trust, found: &mut Found) -> std::io::Result<()> {
    let canonical = fs::canonicalize(directory);
    let place = canonical.as_deref().unwrap_or(directory);
    if found.searched.iter().any(|searched| searched.directory == place) {
        return Ok(());
    }
    let at = found.searched.len();
    found.searched.push(Searched { directory: place.to_owned(), seen: Seen::Plugins(0) });
    let seen = canonical.and_then(|canonical| look(directory, &canonical, trust, found));
    let (seen, outcome) = match seen {
        Ok(seen) => (seen, Ok(())),
        Err(error) => (Seen::Unlisted(error.kind()), Err(error)),
    };
    found.searched[at].seen = seen;
    outcome
}

/// Takes the plugins of a directory, which was named as `named`.
fn look(named: &Path, directory: &Path, trust: &Trust, found: &mut Found) -> std::io::Result<Seen> {
    let of_links = trust.objection_to_links(named)?;
    // Sorted, so that two runs see the same.
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if let Some(name) = plugin_name(&path) {
            names.insert(name.to_owned(), path);
        }
    }
    let objection = match of_links {
        Some((at, writer)) => Some((Some(at), writer)),
        None => trust.objection_to_directory(directory)?.map(|writer| (None, writer)),
    };
    let count = names.len();
    if let Some((at, writer)) = objection {
        // A directory that has none is no offence.
        if count > 0 {
            found.failures.push(LoadFailure {
                name: String::new(),
                path: Some(directory.to_owned()),
                kind: LoadFailureKind::NotTrusted { at, writer },
            });
        }
        return Ok(Seen::Untrusted);
    }
    for (name, path) in names {
        match found.files.iter().find(|file| file.name == name) {
            Some(first) => found.ignored.push(Ignored {
                reason: IgnoredReason::Shadowed { by: first.path.clone() },
                name,
                origin: PluginOrigin::File(path),
            }),
            None => found.files.push(PluginFile { name, path }),
        }
    }
    Ok(Seen::Plugins(count))
}

/// `NAME` of `libuct_NAME.so`; a name is what a symbol can contain.
fn plugin_name(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?.strip_prefix("libuct_")?.strip_suffix(".so")?;
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (plain && !NO_PLUGINS.contains(&name)).then_some(name)
}

/// What is searched without being asked for, in this order.
fn standard_directories() -> impl Iterator<Item = PathBuf> {
    let beside = executable_directory().into_iter().flat_map(|directory| {
        let installed = directory.parent().map(|prefix| prefix.join("lib/uct"));
        std::iter::once(directory).chain(installed)
    });
    let of_library = own_library::directory().map(|directory| directory.join("uct"));
    beside.chain(of_library).chain(INSTALLED.iter().map(PathBuf::from))
}

/// The directory of the executable, where plugins are that were built or installed with it.
fn executable_directory() -> Option<PathBuf> {
    Some(plugins_beside(std::env::current_exe().ok()?.parent()?))
}

/// A program that `cargo` built for a test or as an example lies one directory below the plugins that were built with it, so
/// the directory above is used instead.
fn plugins_beside(directory: &Path) -> PathBuf {
    let is_below = matches!(directory.file_name().and_then(|name| name.to_str()), Some("deps" | "examples"));
    match directory.parent() {
        Some(above) if is_below && above.join("deps").is_dir() => above.to_owned(),
        _ => directory.to_owned(),
    }
}

/// Whether a path leads to a plain file that trusted users alone may have written, by links of trusted users.
pub(super) fn check_file(path: &Path, trust: &Trust) -> Result<(), LoadFailureKind> {
    let unreadable = |error| LoadFailureKind::Unreadable { error: Arc::new(error) };
    let metadata = fs::metadata(path).map_err(|error| match fs::read_link(path) {
        Ok(target) if error.kind() == std::io::ErrorKind::NotFound => {
            LoadFailureKind::DanglingLink { target }
        }
        _ => unreadable(error),
    })?;
    let kind = metadata.file_type();
    let found = match kind {
        _ if kind.is_file() => {
            // The owner of a link chooses what is loaded, and may choose again between this and the opening.
            if let Some((at, writer)) = trust.objection_to_links(path).map_err(unreadable)? {
                return Err(LoadFailureKind::NotTrusted { at: Some(at), writer });
            }
            if let Some(writer) = trust.objection(&metadata) {
                return Err(LoadFailureKind::NotTrusted { at: None, writer });
            }
            // A link may lead to a directory that was not searched.
            let target = fs::canonicalize(path).map_err(unreadable)?;
            let directory = target.parent().unwrap_or(Path::new("/"));
            return match trust.objection_to_directory(directory).map_err(unreadable)? {
                Some(writer) => Err(LoadFailureKind::NotTrusted { at: Some(directory.to_owned()), writer }),
                None => Ok(()),
            };
        }
        _ if kind.is_dir() => "a directory",
        _ if kind.is_socket() => "a socket",
        _ if kind.is_fifo() => "a pipe",
        _ => "a device",
    };
    Err(LoadFailureKind::NotAFile { found })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_that_cargo_put_below_the_plugins_finds_them_above() {
        let directory = tempfile::tempdir().expect("a directory");
        for built in ["debug/deps", "debug/examples", "debug/bin", "prefix/examples"] {
            fs::create_dir_all(directory.path().join(built)).expect("a directory");
        }
        for (program, plugins) in [
            ("debug/deps", "debug"),
            ("debug/examples", "debug"),
            ("debug/bin", "debug/bin"),
            ("prefix/examples", "prefix/examples"),
        ] {
            assert_eq!(plugins_beside(&directory.path().join(program)), directory.path().join(plugins));
        }
    }

    #[test]
    fn a_library_for_other_programs_is_no_plugin() {
        assert_eq!(plugin_name(Path::new("/lib/libuct_tcp.so")), Some("tcp"));
        assert_eq!(plugin_name(Path::new("/lib/libuct_fi.so")), None);
        assert_eq!(plugin_name(Path::new("/lib/libuct_compat.so")), None);
        assert_eq!(plugin_name(Path::new("/lib/libuct_net_c.so")), None);
    }

    #[test]
    fn a_plugin_that_is_no_file_is_named_for_what_it_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let [socket, pipe] = ["socket", "pipe"].map(|name| directory.path().join(name));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
        assert!(made.success());
        for (path, words) in [
            (directory.path(), "a directory"),
            (&socket, "a socket"),
            (&pipe, "a pipe"),
            (Path::new("/dev/null"), "a device"),
        ] {
            match check_file(path, &Trust::of_process()) {
                Err(LoadFailureKind::NotAFile { found }) => assert_eq!(found, words),
                other => panic!("{words}: {other:?}"),
            }
        }
    }

    #[test]
    fn standard_directories_are_those_of_the_program_and_then_those_of_installations() {
        let beside = executable_directory().expect("the test has a place");
        let installed = beside.parent().expect("it is below something").join("lib/uct");
        let expected: Vec<PathBuf> =
            [beside, installed].into_iter().chain(INSTALLED.iter().map(PathBuf::from)).collect();
        assert_eq!(standard_directories().collect::<Vec<_>>(), expected);
    }
}
