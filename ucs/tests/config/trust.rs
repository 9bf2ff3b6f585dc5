//! A configuration file that was not named explicitly: when it counts, and which of its keys.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    time::Duration,
};

use crate::skip;
use tempfile::TempDir;
use ucs::{
    config::{Config, ConfigError, FileSource, Loaded, Origin, Schema, Sources, Warning},
    config_struct,
};

config_struct! {
    /// Keys.
    pub struct Keys in "tcp" {
        /// A key that any user may set.
        pub max_poll: u32 = "16",
        /// A key that decides which users are trusted.
        #[security = true]
        pub peers: u32 = "1" in 0..=9,
    }
}

/// A user that is not this one.
const NOBODY: u32 = 65_534;
const GIVE: &str = "give a file to another user";
const SET: &str = "[tcp]\nmax_poll = 1\npeers = 9\n";

/// A working directory, with a home and a system directory beside it.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let root = tempfile::tempdir().expect("a directory");
        for directory in ["here", "home/.config/uct", "etc"] {
            fs::create_dir_all(root.path().join(directory)).expect("a directory");
        }
        Machine { root }
    }

    fn here(&self) -> PathBuf {
        self.root.path().join("here/uct.toml")
    }

    fn write(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.root.path().join(name);
        fs::write(&path, SET).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        path
    }

    fn sources(&self) -> Sources {
        let file = FileSource::Search {
            directory: self.root.path().join("here"),
            system: self.root.path().join("etc"),
        };
        Sources { file, ..Sources::default() }.env([("HOME", self.root.path().join("home"))])
    }

    fn found(&self) -> Loaded {
        load(self.sources()).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Loads within some seconds.
fn load(sources: Sources) -> Result<Loaded, ConfigError> {
    let (sender, answer) = mpsc::channel();
    std::thread::spawn(move || {
        let mut schema = Schema::new();
        schema.add_section(Keys::section()).expect("a section");
        let _ = sender.send(Config::load(&schema, &sources));
    });
    answer.recv_timeout(Duration::from_secs(20)).expect("reading a configuration file blocks")
}

fn keys(loaded: &Loaded) -> (u32, u32) {
    let keys = Keys::from_settings(&loaded.config).expect("they were checked");
    (keys.max_poll, keys.peers)
}

/// Asserts that the file of the working directory is left out with one line, and the search goes on.
#[track_caller]
fn is_passed_over(machine: &Machine, words: &str) {
    let loaded = machine.found();
    assert_eq!((keys(&loaded), &loaded.file), ((16, 1), &None));
    let [Warning::FileNotTaken { path, reason }] = &loaded.warnings[..] else {
        panic!("{:?}", loaded.warnings)
    };
    assert_eq!(*path, machine.here());
    assert!(reason.contains(words), "{reason}");
    let line = loaded.warnings[0].to_string();
    assert!(line.contains("is ignored") && line.contains("UCT_CONFIG") && !line.contains('\n'), "{line}");
    let system = machine.write("etc/uct.toml", 0o644);
    let loaded = machine.found();
    assert_eq!((keys(&loaded), loaded.file), ((1, 9), Some(system)));
    assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
}

fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo is there");
    assert!(made.success());
}

#[test]
fn a_fifo_blocks_nobody() {
    let machine = Machine::new();
    make_fifo(&machine.here());
    is_passed_over(&machine, "it is a FIFO");
    let words = load(Sources::default().file(machine.here())).unwrap_err().to_string();
    assert!(words.contains("named by the program") && words.contains("it is a FIFO"), "{words}");
}

#[test]
fn a_socket_is_no_file() {
    let machine = Machine::new();
    let _socket = UnixListener::bind(machine.here()).expect("a socket");
    is_passed_over(&machine, "it is a socket");
}

#[test]
fn a_link_to_a_fifo_blocks_nobody() {
    let machine = Machine::new();
    let fifo = machine.root.path().join("fifo");
    make_fifo(&fifo);
    symlink(fifo, machine.here()).expect("a link");
    is_passed_over(&machine, "it is a FIFO");
}

#[test]
fn a_directory_is_no_file() {
    let machine = Machine::new();
    fs::create_dir(machine.here()).expect("a directory");
    is_passed_over(&machine, "it is a directory");
    let words = load(Sources::default().file(machine.here())).unwrap_err().to_string();
    assert!(words.contains("it is a directory"), "{words}");
}

#[test]
fn a_device_that_was_found_is_no_file() {
    let machine = Machine::new();
    symlink("/dev/zero", machine.here()).expect("a link");
    is_passed_over(&machine, "it is a device");
}

#[test]
fn a_file_that_everybody_may_write_does_not_count() {
    let machine = Machine::new();
    machine.write("here/uct.toml", 0o666);
    is_passed_over(&machine, "every user may write to it");
}

#[test]
fn a_file_of_another_user_does_not_count() {
    if !skip::is_root(GIVE) {
        return;
    }
    // A mode that only its owner can read: that it cannot be read is no error either.
    let machine = Machine::new();
    chown(machine.write("here/uct.toml", 0o600), Some(NOBODY), None).expect("its owner");
    is_passed_over(&machine, "it belongs to user 65534");
}

#[test]
fn another_users_link_does_not_choose_a_file() {
    if !skip::is_root(GIVE) {
        return;
    }
    let machine = Machine::new();
    symlink(machine.write("mine.toml", 0o600), machine.here()).expect("a link");
    assert_eq!(keys(&machine.found()), (1, 1), "a link of this user's");
    std::os::unix::fs::lchown(machine.here(), Some(NOBODY), None).expect("its owner");
    is_passed_over(&machine, &format!("{}: it belongs to user 65534", machine.here().display()));
}

#[test]
fn each_link_of_a_chain_has_to_be_a_trusted_users() {
    if !skip::is_root(GIVE) {
        return;
    }
    let machine = Machine::new();
    let between = machine.root.path().join("link");
    symlink(machine.write("mine.toml", 0o600), &between).expect("a link");
    symlink(&between, machine.here()).expect("a link");
    assert_eq!(keys(&machine.found()), (1, 1), "links of this user's");
    std::os::unix::fs::lchown(&between, Some(NOBODY), None).expect("its owner");
    is_passed_over(&machine, &format!("{}: it belongs to user 65534", between.display()));
}

#[test]
fn a_file_of_the_working_directory_sets_no_security_key() {
    let machine = Machine::new();
    let path = machine.write("here/uct.toml", 0o644);
    let loaded = machine.found();
    assert_eq!((keys(&loaded), loaded.file), ((1, 1), Some(path.clone())));
    let [warning @ Warning::SecurityKey { at: Origin::File { line: 3, .. }, key }] = &loaded.warnings[..]
    else {
        panic!("{:?}", loaded.warnings)
    };
    assert_eq!(key, "tcp.peers");
    let line = warning.to_string();
    assert!(line.starts_with(&format!("{}:3:", path.display())) && line.contains("UCT_CONFIG"), "{line}");
}

#[test]
fn a_file_of_the_working_directory_hides_no_security_key_of_the_home_or_the_system() {
    let machine = Machine::new();
    let system = machine.write("etc/uct.toml", 0o644);
    let here = machine.here();
    // What another user's data may come with: a file that sets nothing, a harmless one, and one that tries.
    for (text, max_poll, warnings) in
        [("", 16, 0), ("[tcp]\nmax_poll = 3\n", 3, 0), ("[tcp]\npeers = 2\n", 16, 1)]
    {
        fs::write(&here, text).expect("a file");
        let loaded = machine.found();
        assert_eq!((keys(&loaded), loaded.warnings.len()), ((max_poll, 9), warnings), "{text:?}");
        assert_eq!(loaded.file.as_deref(), Some(&*here));
        let origin = &loaded.config.value("tcp", "peers").expect("a key").origin;
        assert!(matches!(origin, Origin::File { path, line: 3, .. } if *path == system), "{origin:?}");
    }
    // The home's file comes before the system's, as without the one here.
    let home = machine.write("home/.config/uct/uct.toml", 0o644);
    fs::write(&home, "[tcp]\npeers = 5\n").expect("a file");
    assert_eq!(keys(&machine.found()), (16, 5));
    fs::write(&home, "[tcp]\nmax_poll = 4\n").expect("a file");
    assert_eq!(keys(&machine.found()), (16, 1), "as if only the home's file were there");
    // What cannot be read could have had security keys.
    fs::write(&home, "[tcp\n").expect("a file");
    let words = load(machine.sources()).unwrap_err().to_string();
    assert!(words.contains(&home.display().to_string()), "{words}");
}

#[test]
fn a_file_that_is_named_or_of_the_home_or_the_system_sets_all_keys() {
    let machine = Machine::new();
    for name in ["etc/uct.toml", "home/.config/uct/uct.toml"] {
        let path = machine.write(name, 0o644);
        let loaded = machine.found();
        assert_eq!((keys(&loaded), loaded.file, loaded.warnings), ((1, 9), Some(path), vec![]));
    }
    let path = machine.write("here/uct.toml", 0o644);
    let named = machine.sources().env([("UCT_CONFIG", &path)]);
    for sources in [named, Sources::default().file(&path)] {
        let loaded = load(sources).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((keys(&loaded), loaded.warnings), ((1, 9), vec![]));
    }
}

#[test]
fn what_the_user_names_is_theirs_to_choose() {
    let machine = Machine::new();
    let shared = machine.write("shared.toml", 0o666);
    let loaded = load(Sources::default().file(shared)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(keys(&loaded), (1, 9));
    let loaded = load(Sources::default().file("/dev/null")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(keys(&loaded), (16, 1));
}

#[test]
fn the_system_alone_is_a_source() {
    let machine = Machine::new();
    machine.write("here/uct.toml", 0o644);
    let system = machine.root.path().join("etc");
    let sources = Sources { file: FileSource::System(system), ..Sources::default() };
    let loaded = load(sources.clone()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((keys(&loaded), &loaded.file), ((16, 1), &None));
    let path = machine.write("etc/uct.toml", 0o644);
    let loaded = load(sources).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((keys(&loaded), loaded.file, loaded.warnings), ((1, 9), Some(path), vec![]));
}
