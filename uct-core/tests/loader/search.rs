//! Which files are found, which are taken, and what becomes of the others.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use crate::copy::copy_program;
use crate::loader_support::{self, HOST, Modules, names, plugin};
use uct_abi::UctPlugin;
use uct_core::loader::{IgnoredReason, Loaded, LoaderSettings, PluginOrigin, Seen, load};

/// The table of a plugin that a program links: one from a file that was loaded before serves as well.
fn built_in(name: &str) -> &'static UctPlugin {
    let modules = Modules::new();
    modules.bad(name, &[]);
    let path = modules.path(name);
    // SAFETY: the library was just compiled and does nothing when it is loaded.
    let library = Box::leak(Box::new(unsafe { libloading::Library::new(path) }.expect("a library")));
    // SAFETY: `bad.c` exports this function.
    let entry =
        unsafe { library.get::<uct_abi::UctPluginEntry>(format!("uct_plugin_{name}")) }.expect("an entry");
    // SAFETY: it asks for nothing.
    let table = unsafe { entry() };
    // SAFETY: the library is never unloaded, and its table is immutable.
    unsafe { table.as_ref() }.expect("a table")
}

fn ignored(loaded: &Loaded) -> Vec<(&str, &IgnoredReason)> {
    loaded.ignored.iter().map(|ignored| (ignored.name.as_str(), &ignored.reason)).collect()
}

fn canonical(path: &Path) -> std::path::PathBuf {
    let directory = fs::canonicalize(path.parent().expect("a directory")).expect("it exists");
    directory.join(path.file_name().expect("a name"))
}

#[test]
fn files_of_other_names_are_not_touched() {
    let modules = Modules::new();
    modules.bad("good", &[]);
    for name in ["libuct_.so", "libuct_x.so.1", "libuct_a-b.so", "uct_x.so", "libother.so", "libuct_x.txt"] {
        fs::write(modules.directory.path().join(name), "not a plugin").unwrap();
    }
    let loaded = modules.load();
    assert_eq!(names(&loaded), ["good"]);
    assert!(loaded.failures.is_empty() && loaded.ignored.is_empty(), "{loaded:?}");
}

#[test]
fn plugins_say_which_file_they_came_from() {
    let modules = Modules::new();
    modules.bad("origin", &[]);
    let loaded = modules.load();
    assert_eq!(plugin(&loaded, "origin").origin, PluginOrigin::File(canonical(&modules.path("origin"))));
    assert_eq!(plugin(&loaded, "origin").version, "0.1");
}

#[test]
fn a_directory_that_is_named_twice_is_searched_once() {
    let modules = Modules::new();
    modules.bad("good", &[]);
    let other = Modules::new();
    let link = other.directory.path().join("link");
    symlink(modules.directory.path(), &link).unwrap();
    let mut settings = modules.settings();
    settings.module_dirs.push(modules.directory.path().join("."));
    settings.module_dirs.push(link);
    let loaded = load(&settings, &[], &HOST);
    assert_eq!(names(&loaded), ["good"]);
    assert!(loaded.failures.is_empty() && loaded.ignored.is_empty(), "{loaded:?}");
}

#[test]
fn every_directory_that_was_looked_at_is_told_once() {
    let (first, second) = (Modules::new(), Modules::new());
    first.bad("there", &[]);
    let missing = second.directory.path().join("missing");
    let mut settings = first.settings();
    settings.module_dirs.extend([second.directory.path().join("."), missing.clone(), missing.clone()]);
    let loaded = load(&settings, &[], &HOST);
    let place = |directory: &Path| fs::canonicalize(directory).unwrap();
    let wanted = [
        (place(first.directory.path()), Seen::Plugins(1)),
        (place(second.directory.path()), Seen::Plugins(0)),
        (missing, Seen::Unlisted(std::io::ErrorKind::NotFound)),
    ];
    let searched: Vec<_> = loaded.searched.iter().map(|it| (it.directory.clone(), it.seen)).collect();
    assert_eq!(searched, wanted);
    assert_eq!(loaded.searched[0].to_string(), format!("{} (1 plugin)", wanted[0].0.display()));
    assert_eq!(loaded.searched[2].to_string(), format!("{} (not there)", wanted[2].0.display()));
    assert_eq!(loaded.failures.len(), 1, "{:?}", loaded.failures);
}

#[test]
fn the_first_directory_wins_and_the_other_file_is_told() {
    let (first, second) = (Modules::new(), Modules::new());
    first.bad("twice", &[]);
    second.bad("twice", &[]).bad("other", &[]);
    let mut settings = first.settings();
    settings.module_dirs.push(second.directory.path().to_owned());
    let loaded = load(&settings, &[], &HOST);
    assert_eq!(names(&loaded), ["twice", "other"]);
    let by = canonical(&first.path("twice"));
    assert_eq!(plugin(&loaded, "twice").origin, PluginOrigin::File(by.clone()));
    assert_eq!(ignored(&loaded), [("twice", &IgnoredReason::Shadowed { by })]);
    assert_eq!(loaded.ignored[0].origin, PluginOrigin::File(canonical(&second.path("twice"))));
}

#[test]
fn plugins_that_are_excluded_are_not_even_opened() {
    let modules = Modules::new();
    modules.bad("wanted", &[]);
    fs::write(modules.path("unwanted"), "this would fail").unwrap();
    let settings = LoaderSettings { modules: "^unwanted,linked".parse().unwrap(), ..modules.settings() };
    let loaded = load(&settings, &[built_in("linked")], &HOST);
    assert_eq!(names(&loaded), ["wanted"]);
    assert!(loaded.failures.is_empty(), "{:?}", loaded.failures);
    let excluded = &IgnoredReason::Excluded;
    assert_eq!(ignored(&loaded), [("unwanted", excluded), ("linked", excluded)]);
}

#[test]
fn a_built_in_plugin_is_kept_unless_configured_otherwise() {
    let modules = Modules::new();
    modules.bad("builtin1", &[]).bad("file", &[]);
    let loaded = load(&modules.settings(), &[built_in("builtin1")], &HOST);
    assert_eq!(names(&loaded), ["builtin1", "file"]);
    assert_eq!(plugin(&loaded, "builtin1").origin, PluginOrigin::BuiltIn);
    assert_eq!(ignored(&loaded), [("builtin1", &IgnoredReason::BuiltInKept)]);
    assert_eq!(loaded.ignored[0].origin, PluginOrigin::File(canonical(&modules.path("builtin1"))));
}

#[test]
fn a_file_takes_the_place_of_a_built_in_plugin_if_configured_so() {
    let modules = Modules::new();
    modules.bad("builtin2", &[]);
    let settings = LoaderSettings { replace_builtin: "builtin*".parse().unwrap(), ..modules.settings() };
    let loaded = load(&settings, &[built_in("builtin2")], &HOST);
    let file = canonical(&modules.path("builtin2"));
    assert_eq!(plugin(&loaded, "builtin2").origin, PluginOrigin::File(file.clone()));
    assert_eq!(ignored(&loaded), [("builtin2", &IgnoredReason::ReplacedBy(file))]);
    assert_eq!(loaded.ignored[0].origin, PluginOrigin::BuiltIn);
}

#[test]
fn a_built_in_plugin_stays_if_the_file_that_is_to_replace_it_is_bad() {
    let modules = Modules::new();
    modules.bad("builtin3", &["REFUSES"]);
    let settings = LoaderSettings { replace_builtin: "all".parse().unwrap(), ..modules.settings() };
    let loaded = load(&settings, &[built_in("builtin3")], &HOST);
    assert_eq!(plugin(&loaded, "builtin3").origin, PluginOrigin::BuiltIn);
    assert_eq!(loaded.failures.len(), 1, "{:?}", loaded.failures);
}

#[test]
fn a_bad_built_in_plugin_is_told_by_its_name() {
    static LISTLESS: UctPlugin = UctPlugin {
        magic: uct_abi::UCT_MAGIC,
        abi_major: uct_abi::UCT_ABI_MAJOR,
        abi_minor: 0,
        size: size_of::<UctPlugin>(),
        name: loader_support::text("listless"),
        version: loader_support::text("1"),
        components: std::ptr::null(),
        component_count: 0,
        config: std::ptr::null(),
        config_count: 0,
        init: None,
    };
    let modules = Modules::new();
    let loaded = load(&modules.settings(), &[&LISTLESS], &HOST);
    let text = loaded.failures[0].to_string();
    assert_eq!(
        text,
        "built-in plugin listless: table UctPlugin of the plugin lacks the mandatory slot components"
    );
}

/// The name of the test that runs as a program of its own.
const BESIDE: &str = "search::what_lies_beside_the_executable_is_found_when_this_runs_alone";

#[test]
fn what_lies_beside_the_executable_and_in_lib_uct_is_found() {
    let modules = Modules::new();
    let root = modules.directory.path();
    fs::create_dir_all(root.join("target/deps")).unwrap();
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    fs::create_dir_all(root.join("usr/lib/uct")).unwrap();
    modules.bad("near", &[]).bad("installed", &[]);
    fs::copy(modules.path("near"), root.join("target/libuct_near.so")).unwrap();
    fs::copy(modules.path("near"), root.join("usr/bin/libuct_near.so")).unwrap();
    fs::copy(modules.path("installed"), root.join("usr/lib/uct/libuct_installed.so")).unwrap();
    let test = std::env::current_exe().unwrap();
    for (program, expected) in
        [("target/deps/test", "near"), ("target/test", "near"), ("usr/bin/test", "near,installed")]
    {
        copy_program(&test, root.join(program));
        let output = Command::new(root.join(program))
            .args(["--exact", BESIDE, "--nocapture"])
            .env("LOADER_TEST_EXPECTS", expected)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{program}: {text}{errors}");
    }
}

#[test]
fn what_lies_beside_the_executable_is_found_when_this_runs_alone() {
    let Ok(expected) = std::env::var("LOADER_TEST_EXPECTS") else { return };
    let loaded = load(&LoaderSettings::default(), &[], &HOST);
    assert!(loaded.failures.is_empty(), "{:?}", loaded.failures);
    assert_eq!(names(&loaded).join(","), expected);
}
