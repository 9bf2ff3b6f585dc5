//! A program with privileges that its caller lacks takes nothing from its caller: no variable, no file, no plugin.
//!
//! Needs root, to make a program that is set-uid, set-gid or has a capability, and a file system that honours it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::copy::copy_program;
use crate::support::process::{Ended, command, run};
use crate::support::{PROGRAM, skip};
use rustix::fs::{StatVfsMountFlags, XattrFlags, removexattr, setxattr, statvfs};
use tempfile::TempDir;

/// The caller: a user and a group without privileges.
const NOBODY: u32 = 65_534;

/// Plugins whose code runs as soon as they are loaded, and leaves a file that says which.
struct Stage {
    root: TempDir,
}

impl Stage {
    /// `None` where no test is possible; the reason is printed.
    fn new() -> Option<Stage> {
        if !skip::is_root("make a set-uid program") {
            return None;
        }
        let root = tempfile::tempdir().expect("a directory");
        let flags = statvfs(root.path()).expect("its file system").f_flag;
        if flags.contains(StatVfsMountFlags::NOSUID) {
            skip::skip("setuid", format_args!("{} is mounted nosuid", root.path().display()));
            return None;
        }
        let stage = Stage { root };
        mode(stage.root.path(), 0o755);
        for directory in ["bin", "lib/uct", "caller/modules", "caller/config/uct", "caller/home"] {
            fs::create_dir_all(stage.path(directory)).expect("a directory");
            // Whatever the umask is.
            for directory in stage.path(directory).ancestors().take_while(|path| path != &stage.root.path()) {
                mode(directory, 0o755);
            }
        }
        // A plugin leaves a file here when it is loaded.
        fs::create_dir(stage.path("marks")).expect("a directory");
        mode(&stage.path("marks"), 0o1777);
        copy_program(PROGRAM, stage.program());
        mode(&stage.program(), 0o755);
        stage.bait("named", "caller/modules");
        stage.config("caller/uct.toml", "chance");
        stage.config("caller/config/uct/uct.toml", "home");
        stage.config("caller/named.toml", "named");
        for path in ["caller", "caller/modules", "caller/uct.toml", "caller/modules/libuct_named.so"] {
            chown(stage.path(path), Some(NOBODY), Some(NOBODY)).expect("its owner");
        }
        Some(stage)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn program(&self) -> PathBuf {
        self.path("bin/program")
    }

    /// Gives the program one privilege after another, and passes over those that the file system does not keep.
    fn privileges(&self) -> impl Iterator<Item = Privilege> {
        let program = self.program();
        PRIVILEGES.into_iter().filter(move |privilege| grant(&program, Some(*privilege)))
    }

    /// A configuration whose search for plugins goes on in the caller's directory.
    fn config(&self, name: &str, level: &str) {
        let modules = self.path("caller/modules");
        let text = format!("module_dir = [{modules:?}]\nlog_level = \"uct_{level}=warn\"\n");
        fs::write(self.path(name), text).expect("a file");
        chown(self.path(name), Some(NOBODY), Some(NOBODY)).expect("its owner");
    }

    /// A library with a plugin's name in `directory`.
    fn bait(&self, name: &str, directory: &str) {
        let source = self.path("bait.c");
        let mark = self.path("marks").join(name);
        fs::write(
            &source,
            format!(
                "#include <fcntl.h>\n#include <unistd.h>\n\
                 __attribute__((constructor)) static void run(void) {{ close(open({mark:?}, O_CREAT | O_WRONLY, 0600)); }}\n"
            ),
        )
        .expect("a file");
        let library = self.path(directory).join(format!("libuct_{name}.so"));
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let made =
            Command::new(compiler).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(made.expect("a C compiler is needed (or set CC)").success());
        mode(&library, 0o755);
    }

    /// Which plugins' code has run; forgets it.
    fn marks(&self) -> Vec<String> {
        let marks = fs::read_dir(self.path("marks")).expect("it is there");
        let mut names: Vec<String> = marks
            .map(|entry| {
                let entry = entry.expect("an entry");
                fs::remove_file(entry.path()).expect("it is there");
                entry.file_name().to_string_lossy().into_owned()
            })
            .collect();
        names.sort();
        names
    }

    /// Runs `uct_info -c` as the caller does, with these variables.
    fn run(&self, variables: &[(&str, PathBuf)]) -> Ended {
        let mut program = command(self.program(), &["-c"]);
        program.uid(NOBODY).gid(NOBODY).current_dir(self.path("caller"));
        program.env("HOME", self.path("caller/home")).env_remove("XDG_CONFIG_HOME");
        program.envs(variables.iter().map(|(name, value)| (name, value)));
        run(&mut program)
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
}

/// What a program may have that its caller lacks.
#[derive(Clone, Copy, Debug)]
enum Privilege {
    /// Root's.
    User,
    /// Of root's group.
    Group,
    /// One of root's: CAP_NET_RAW.
    Capability,
}

const PRIVILEGES: [Privilege; 3] = [Privilege::User, Privilege::Group, Privilege::Capability];

/// The attribute of a file with its capabilities, and its value for CAP_NET_RAW, permitted and effective: `struct vfs_cap_data` of
/// revision 2, which is little-endian everywhere.
const CAPABILITIES: &str = "security.capability";
const NET_RAW: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];

/// Gives the program this privilege, or none. `false` where the file system keeps none of this kind; the reason is printed.
fn grant(program: &Path, privilege: Option<Privilege>) -> bool {
    let _ = removexattr(program, CAPABILITIES);
    mode(
        program,
        match privilege {
            Some(Privilege::User) => 0o4755,
            Some(Privilege::Group) => 0o2755,
            Some(Privilege::Capability) | None => 0o755,
        },
    );
    let Some(Privilege::Capability) = privilege else { return true };
    let value: Vec<u8> = NET_RAW.iter().flat_map(|word| word.to_le_bytes()).collect();
    let set = setxattr(program, CAPABILITIES, &value, XattrFlags::empty());
    if let Err(error) = set {
        skip::skip("file-capabilities", format_args!("{}: {error}", program.display()));
    }
    set.is_ok()
}

#[test]
fn what_the_caller_sets_has_no_effect() {
    let Some(stage) = Stage::new() else { return };
    let modules = ("UCT_MODULE_DIR", stage.path("caller/modules"));
    let sources: [&[(&str, PathBuf)]; 4] = [
        std::slice::from_ref(&modules),
        &[("UCT_CONFIG", stage.path("caller/named.toml"))],
        &[("XDG_CONFIG_HOME", stage.path("caller/config"))],
        &[],
    ];
    for variables in sources {
        // Without privileges all of it counts: so it would be seen below. A file of the working directory names no plugins.
        grant(&stage.program(), None);
        let ended = stage.run(variables);
        let shown = ended.stdout.contains("uct_") || ended.stdout.contains("environment UCT_MODULE_DIR");
        assert!(shown, "{variables:?}: {ended:?}");
        fs::remove_file(stage.path("caller/uct.toml")).expect("it is there");
        stage.run(variables);
        let expected: &[&str] = if variables.is_empty() { &[] } else { &["named"] };
        assert_eq!(stage.marks(), expected, "{variables:?}");
        stage.config("caller/uct.toml", "chance");

        for privilege in stage.privileges() {
            let ended = stage.run(variables);
            assert_eq!(stage.marks(), [""; 0], "{privilege:?} {variables:?}: code of the caller has run");
            let words = format!("{}{}", ended.stdout, ended.stderr);
            let is_named = variables.iter().any(|(name, _)| name.starts_with("UCT_"));
            assert_eq!(words.contains("UCT_* variables have no effect"), is_named, "{words}");
            let output = ended.success();
            assert!(!output.contains("environment UCT_") && !output.contains("uct.toml"), "{output}");
            assert!(!output.contains("named.toml") && output.contains("# default"), "{output}");
        }
    }
}

#[test]
fn measured_times_are_neither_taken_from_the_caller_nor_stored_for_it() {
    let Some(stage) = Stage::new() else { return };
    let file = stage.path("caller/home/.cache/uct/calibration.toml");
    fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
    // What reads it warns.
    fs::write(&file, "damaged").expect("a file");
    let run_with = |arguments: &[&str]| {
        let mut program = command(stage.program(), arguments);
        program.uid(NOBODY).gid(NOBODY).current_dir("/");
        program
            .env("HOME", stage.path("caller/home"))
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_CACHE_HOME");
        run(&mut program)
    };
    grant(&stage.program(), None);
    let ended = run_with(&["--explain", "--set", "tls=posix"]);
    assert!(ended.stderr.contains("calibration.toml"), "{ended:?}");
    for privilege in stage.privileges() {
        for arguments in [["--explain", "--set", "tls=posix"], ["--calibrate", "--set", "tls=posix"]] {
            let ended = run_with(&arguments);
            assert!(!ended.stderr.contains("calibration.toml"), "{privilege:?}: {ended:?}");
            assert!(!ended.success().contains("Stored"), "{privilege:?}");
        }
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "damaged", "{privilege:?}");
    }
}

#[test]
fn a_fifo_or_an_endless_file_of_the_caller_is_not_even_opened() {
    let Some(stage) = Stage::new() else { return };
    fs::remove_file(stage.path("caller/uct.toml")).expect("it is there");
    let made = Command::new("mkfifo").arg(stage.path("caller/uct.toml")).status();
    assert!(made.expect("mkfifo is there").success());
    for privilege in stage.privileges() {
        let ended = stage.run(&[("UCT_CONFIG", stage.path("caller/uct.toml"))]);
        assert!(!ended.stderr.contains("FIFO"), "{privilege:?}: {ended:?}");
        ended.success();
    }
    grant(&stage.program(), None);
    let ended = stage.run(&[]);
    assert!(ended.stderr.contains("it is a FIFO"), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    ended.success();
}

#[test]
fn plugins_beside_the_program_have_to_be_roots() {
    let Some(stage) = Stage::new() else { return };
    stage.bait("beside", "bin");
    stage.bait("installed", "lib/uct");
    for privilege in stage.privileges() {
        stage.run(&[]);
        assert_eq!(stage.marks(), ["beside", "installed"], "{privilege:?}: an installation of root's");
    }
    // The owner of a directory above could put others in their place.
    for directory in ["", "bin", "lib"] {
        chown(stage.path(directory), Some(NOBODY), None).expect("its owner");
        for privilege in stage.privileges() {
            let ended = stage.run(&[]);
            let expected: &[&str] = match directory {
                "bin" => &["installed"],
                "lib" => &["beside"],
                _ => &[],
            };
            assert_eq!(stage.marks(), expected, "{privilege:?} {directory:?}: {ended:?}");
            assert!(ended.stderr.contains("is not trusted to hold code"), "{ended:?}");
        }
        chown(stage.path(directory), Some(0), None).expect("its owner");
    }
    chown(stage.path("bin/libuct_beside.so"), Some(NOBODY), None).expect("its owner");
    for privilege in stage.privileges() {
        let ended = stage.run(&[]);
        assert_eq!(stage.marks(), ["installed"], "{privilege:?}: {ended:?}");
    }
}
