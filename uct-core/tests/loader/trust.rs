//! Code is loaded only from files and directories that nobody else may write to.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, lchown, symlink},
    path::{Path, PathBuf},
};

use crate::loader_support::{HOST, Modules, names};
use crate::skip;
use tempfile::TempDir;
use ucs::sys::trust::Writer;
use uct_core::{
    Context,
    configuration::Sources,
    loader::{LoadFailureKind, LoadStage, LoaderSettings, load},
};

/// A user, and a group, that is not this one's.
const NOBODY: u32 = 65_534;
const GIVE: &str = "give a file to another user";

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
}

fn plugin() -> (Modules, PathBuf) {
    let modules = Modules::new();
    modules.bad("bait", &[]);
    let path = modules.path("bait");
    (modules, path)
}

/// Asserts that the file is refused, beside a good one that is not.
#[track_caller]
fn file_is_refused(modules: &Modules, expected: Writer) -> String {
    let failure = modules.only_failure();
    let LoadFailureKind::NotTrusted { writer, .. } = &failure.kind else { panic!("{failure}") };
    assert_eq!((*writer, failure.name.as_str(), failure.stage()), (expected, "bait", LoadStage::Search));
    assert!(failure.to_string().contains("is not trusted"), "{failure}");
    assert!(failure.hint().contains("or root"), "{}", failure.hint());
    failure.to_string()
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
    if !skip::is_root(GIVE) {
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
            matches!(failure.kind, LoadFailureKind::NotTrusted { writer, .. } if writer == expected),
            "{failure}"
        );
        assert_eq!(failure.path.as_ref(), Some(&directory), "one line about the directory");
    };
    mode(&directory, 0o777);
    refused(Writer::Everybody);
    // As /tmp is: others may add files, each of which is looked at, and replace none.
    mode(&directory, 0o1777);
    assert_eq!(names(&modules.load()), ["bait"]);
    if skip::is_root(GIVE) {
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
    if !skip::is_root(GIVE) {
        return;
    }
    let (_elsewhere, target) = plugin();
    let modules = Modules::new();
    mode(modules.directory.path(), 0o1777);
    symlink(&target, modules.path("bait")).expect("a link");
    lchown(modules.path("bait"), Some(NOBODY), None).expect("its owner");
    file_is_refused(&modules, Writer::Owner(NOBODY));
}

/// A plugin, a directory to search, and one in which another user has left `link`, which leads to `target`.
struct Chain {
    _target: Modules,
    between: TempDir,
    modules: Modules,
}

impl Chain {
    /// `to_directory`: the other user's link leads to the directory of the plugin, not to its file.
    fn new(to_directory: bool) -> Chain {
        let (target, file) = plugin();
        let between = tempfile::tempdir().expect("a directory");
        let end = if to_directory { target.directory.path() } else { &file };
        symlink(end, between.path().join("link")).expect("a link");
        Chain { _target: target, between, modules: Modules::new() }
    }

    fn link(&self) -> PathBuf {
        self.between.path().join("link")
    }

    /// Asserts that the plugin is found by the chain, until the link belongs to another user.
    #[track_caller]
    fn is_refused_for_its_link(&self) {
        assert_eq!(names(&self.modules.load()), ["bait"], "every link is this user's");
        lchown(self.link(), Some(NOBODY), None).expect("its owner");
        let text = file_is_refused(&self.modules, Writer::Owner(NOBODY));
        assert!(text.contains(&format!("because of {}", self.link().display())), "{text}");
    }
}

#[test]
fn each_link_of_a_chain_has_to_be_a_trusted_users() {
    if !skip::is_root(GIVE) {
        return;
    }
    let chain = Chain::new(false);
    symlink(chain.link(), chain.modules.path("bait")).expect("a link");
    chain.is_refused_for_its_link();
}

#[test]
fn a_link_on_the_way_to_the_target_of_a_link_counts() {
    if !skip::is_root(GIVE) {
        return;
    }
    let chain = Chain::new(true);
    symlink(chain.link().join("libuct_bait.so"), chain.modules.path("bait")).expect("a link");
    chain.is_refused_for_its_link();
}

#[test]
fn a_link_is_as_good_as_the_directory_that_it_lies_in() {
    let chain = Chain::new(false);
    symlink(chain.link(), chain.modules.path("bait")).expect("a link");
    mode(chain.between.path(), 0o777);
    file_is_refused(&chain.modules, Writer::Everybody);
    // As in /tmp: nobody else can replace a link of this user's.
    mode(chain.between.path(), 0o1777);
    assert_eq!(names(&chain.modules.load()), ["bait", "good"]);
}

#[test]
fn a_directory_that_another_users_link_chooses_is_not_searched() {
    if !skip::is_root(GIVE) {
        return;
    }
    let chain = Chain::new(true);
    let named = chain.modules.directory.path().join("named");
    symlink(chain.link(), &named).expect("a link");
    let settings = LoaderSettings { module_dirs: vec![named], ..chain.modules.settings() };
    let load = || load(&settings, &[], &HOST);
    assert_eq!(names(&load()), ["bait"]);
    lchown(chain.link(), Some(NOBODY), None).expect("its owner");
    let loaded = load();
    assert!(loaded.plugins.is_empty(), "{:?}", names(&loaded));
    let [failure] = &loaded.failures[..] else { panic!("{:?}", loaded.failures) };
    assert!(failure.to_string().contains(&format!("because of {}", chain.link().display())), "{failure}");
}

#[test]
fn a_user_that_module_owners_names_is_trusted() {
    let with_owners = |modules: &Modules, owners: &str| {
        let directory = modules.directory.path().to_str().expect("a plain path");
        let sources = Sources::default().set("module_dir", directory).set("module_owners", owners);
        Context::builder().sources(sources).build()
    };
    let (modules, path) = plugin();
    let error = with_owners(&modules, "0,nobody").expect_err("it is no number").to_string();
    assert!(
        error.contains("module_owners") && error.contains("\"nobody\"") && error.contains("id -u"),
        "{error}"
    );
    if !skip::is_root(GIVE) {
        return;
    }
    for path in [&path, modules.directory.path()] {
        chown(path, Some(NOBODY), None).expect("its owner");
    }
    let failure = &modules.load().failures[0];
    assert!(
        failure.hint().contains("add 65534 to `module_owners` (UCT_MODULE_OWNERS)"),
        "{}",
        failure.hint()
    );
    let has_plugin = |owners: &str| {
        let context = with_owners(&modules, owners).expect("a context");
        context.plugins().iter().any(|plugin| plugin.name == "bait")
    };
    assert!(!has_plugin("1"));
    assert!(has_plugin("1,65534"));
    mode(&path, 0o757);
    assert!(!has_plugin("1,65534"), "everybody may write to it");
}
