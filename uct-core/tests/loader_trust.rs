//! Code is loaded only from files and directories that nobody else may write to.

mod loader_support;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, lchown, symlink},
    path::{Path, PathBuf},
};

use loader_support::{Modules, names};
use rustix::process::geteuid;
use ucs::sys::trust::Writer;
use uct_core::loader::{LoadFailureKind, LoadStage};

/// A user, and a group, that is not this one's.
const NOBODY: u32 = 65_534;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
}

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        let required = std::env::var("UCT_TEST_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "root"), "UCT_TEST_REQUIRE names root; this is not");
        eprintln!("skipped: only root can give a file to another user");
    }
    is_root
}

fn plugin() -> (Modules, PathBuf) {
    let modules = Modules::new();
    modules.bad("bait", &[]);
    let path = modules.path("bait");
    (modules, path)
}

/// Asserts that the file is refused, beside a good one that is not.
#[track_caller]
fn file_is_refused(modules: &Modules, expected: Writer) {
    let failure = modules.only_failure();
    let LoadFailureKind::NotTrusted { writer } = &failure.kind else { panic!("{failure}") };
    assert_eq!((*writer, failure.name.as_str(), failure.stage()), (expected, "bait", LoadStage::Search));
    assert!(failure.to_string().contains("is not trusted"), "{failure}");
    assert!(failure.hint().contains("root's"), "{}", failure.hint());
}

#[test]
fn a_file_that_everybody_may_write_is_not_loaded() {
    let (modules, path) = plugin();
    mode(&path, 0o757);
    file_is_refused(&modules, Writer::Everybody);
    mode(&path, 0o755);
    assert_eq!(names(&modules.load()), ["bait", "good"]);
}

#[test]
fn a_file_of_another_user_or_group_is_not_loaded() {
    if !is_root() {
        return;
    }
    let (modules, path) = plugin();
    chown(&path, None, Some(NOBODY)).expect("its group");
    mode(&path, 0o775);
    file_is_refused(&modules, Writer::Group(NOBODY));
    let (modules, path) = plugin();
    chown(&path, Some(NOBODY), None).expect("its owner");
    mode(&path, 0o755);
    file_is_refused(&modules, Writer::Owner(NOBODY));
}

#[test]
fn a_directory_that_others_may_write_is_not_searched() {
    let (modules, _) = plugin();
    let directory = fs::canonicalize(modules.directory.path()).expect("it is there");
    let refused = |expected: Writer| {
        let loaded = modules.load();
        assert!(loaded.plugins.is_empty(), "{:?}", names(&loaded));
        let [failure] = &loaded.failures[..] else { panic!("{:?}", loaded.failures) };
        assert!(
            matches!(failure.kind, LoadFailureKind::NotTrusted { writer } if writer == expected),
            "{failure}"
        );
        assert_eq!(failure.path.as_ref(), Some(&directory), "one line about the directory");
    };
    mode(&directory, 0o777);
    refused(Writer::Everybody);
    // As /tmp is: others may add files, each of which is looked at, and replace none.
    mode(&directory, 0o1777);
    assert_eq!(names(&modules.load()), ["bait"]);
    if is_root() {
        mode(&directory, 0o755);
        chown(&directory, Some(NOBODY), None).expect("its owner");
        refused(Writer::Owner(NOBODY));
    }
}

#[test]
fn a_directory_without_plugins_is_nobodys_concern() {
    let modules = Modules::new();
    mode(modules.directory.path(), 0o777);
    let loaded = modules.load();
    assert!(loaded.failures.is_empty(), "{:?}", loaded.failures);
}

#[test]
fn a_link_is_as_good_as_the_directory_that_it_leads_to() {
    let (elsewhere, target) = plugin();
    let modules = Modules::new();
    symlink(&target, modules.path("bait")).expect("a link");
    mode(elsewhere.directory.path(), 0o777);
    file_is_refused(&modules, Writer::Everybody);
    mode(elsewhere.directory.path(), 0o755);
    assert_eq!(names(&modules.load()), ["bait", "good"]);
}

#[test]
fn a_link_of_another_user_does_not_choose_what_is_loaded() {
    if !is_root() {
        return;
    }
    let (_elsewhere, target) = plugin();
    let modules = Modules::new();
    mode(modules.directory.path(), 0o1777);
    symlink(&target, modules.path("bait")).expect("a link");
    lchown(modules.path("bait"), Some(NOBODY), None).expect("its owner");
    file_is_refused(&modules, Writer::Owner(NOBODY));
}
