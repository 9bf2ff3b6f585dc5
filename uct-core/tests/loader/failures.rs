//! Each way in which a plugin can be bad has an error of its own, and the good plugin beside it is there.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    process::Command,
};

use crate::loader_support::{self, Modules, compile, names, plugin};
use ucs::Status;
use uct_abi::{UCT_ABI_MAJOR, UCT_MAGIC, UctEpOps, UctIfaceOps, UctPlugin};
use uct_core::loader::{LoadFailureKind as Kind, LoadStage, LoaderSettings, load};

macro_rules! assert_kind {
    ($kind:expr, $pattern:pat $(if $guard:expr)?, $stage:ident) => {{
        let kind = $kind;
        assert!(matches!(&kind, $pattern $(if $guard)?), "{kind:?}");
        assert_eq!(kind.stage(), LoadStage::$stage);
    }};
}

#[test]
fn a_text_file_is_not_a_library() {
    let modules = Modules::new();
    fs::write(modules.path("notes"), "to do: write a plugin\n").unwrap();
    assert_kind!(modules.only_failure_of("notes"), Kind::NotElf, Open);
}

#[test]
fn an_empty_file_is_not_a_library() {
    let modules = Modules::new();
    fs::write(modules.path("empty"), "").unwrap();
    assert_kind!(modules.only_failure_of("empty"), Kind::NotElf, Open);
}

#[test]
fn an_object_file_is_not_a_library() {
    let modules = Modules::new();
    compile(
        &[loader_support::plugins().join("bad.c")],
        &["-DNAME=object".into(), "-c".into()],
        &modules.path("object"),
    );
    let kind = modules.only_failure_of("object");
    assert_kind!(kind, Kind::WrongElf { problem } if problem.contains("another kind"), Open);
}

#[test]
fn a_library_of_another_machine_is_told_by_its_number() {
    let modules = Modules::new();
    modules.bad("foreign", &[]);
    let mut bytes = fs::read(modules.path("foreign")).unwrap();
    bytes[18..20].copy_from_slice(&0x1234_u16.to_ne_bytes());
    fs::write(modules.path("foreign"), bytes).unwrap();
    let kind = modules.only_failure_of("foreign");
    assert_kind!(kind, Kind::WrongElf { problem } if problem.contains("4660"), Open);
}

#[test]
fn a_library_that_was_cut_off_anywhere_is_an_error_or_complete_enough() {
    let modules = Modules::new();
    modules.bad("cut", &[]);
    let whole = fs::read(modules.path("cut")).unwrap();
    let mut refused = 0;
    for length in (0..whole.len()).step_by(whole.len() / 50) {
        let modules = Modules::new();
        fs::write(modules.path("cut"), &whole[..length]).unwrap();
        let loaded = modules.load();
        match loaded.failures.as_slice() {
            // What comes last in the file is for debuggers only.
            [] => assert_eq!(names(&loaded), ["cut"]),
            [failure] => {
                assert!(matches!(failure.kind, Kind::NotElf | Kind::Truncated { .. }), "{length}: {failure}");
                refused += 1;
            }
            more => panic!("{more:?}"),
        }
    }
    assert!(refused > 10, "only {refused} lengths were refused");
}

#[test]
fn a_directory_with_a_plugins_name_is_an_error() {
    let modules = Modules::new();
    fs::create_dir(modules.path("folder")).unwrap();
    assert_kind!(modules.only_failure_of("folder"), Kind::NotAFile { found: "a directory" }, Search);
}

#[test]
fn a_socket_with_a_plugins_name_is_an_error() {
    let modules = Modules::new();
    let _listener = UnixListener::bind(modules.path("socket")).unwrap();
    assert_kind!(modules.only_failure_of("socket"), Kind::NotAFile { found: "a socket" }, Search);
}

#[test]
fn a_pipe_with_a_plugins_name_does_not_block() {
    let modules = Modules::new();
    assert!(Command::new("mkfifo").arg(modules.path("pipe")).status().unwrap().success());
    assert_kind!(modules.only_failure_of("pipe"), Kind::NotAFile { found: "a pipe" }, Search);
}

#[test]
fn a_link_to_nothing_says_where_it_points() {
    let modules = Modules::new();
    symlink("/nowhere/libuct_link.so", modules.path("link")).unwrap();
    let kind = modules.only_failure_of("link");
    assert_kind!(kind, Kind::DanglingLink { target } if target.ends_with("nowhere/libuct_link.so"), Search);
}

#[test]
fn a_link_to_itself_is_an_error() {
    let modules = Modules::new();
    symlink(modules.path("circle"), modules.path("circle")).unwrap();
    assert_kind!(modules.only_failure_of("circle"), Kind::Unreadable { .. }, Open);
}

#[test]
fn a_missing_library_is_named() {
    let modules = Modules::new();
    let (source, library) =
        (modules.directory.path().join("stub.c"), modules.directory.path().join("libuctstub.so"));
    fs::write(&source, "int provided_by_a_library(void);\nint provided_by_a_library(void) { return 0; }\n")
        .unwrap();
    compile(&[source], &[], &library);
    let link = [format!("-L{}", modules.directory.path().display()), "-luctstub".into()];
    let options = [["-DNAME=needy".to_owned(), "-DMISSING_LIBRARY".to_owned()], link].concat();
    compile(&[loader_support::plugins().join("bad.c")], &options, &modules.path("needy"));
    fs::remove_file(library).unwrap();
    let kind = modules.only_failure_of("needy");
    assert!(kind.hint().contains("libuctstub.so"), "{}", kind.hint());
    assert_kind!(kind, Kind::MissingLibrary { library, .. } if library == "libuctstub.so", Open);
}

#[test]
fn a_symbol_that_nobody_provides_is_named() {
    let modules = Modules::new();
    modules.bad("unresolved", &["MISSING_LIBRARY"]);
    let kind = modules.only_failure_of("unresolved");
    assert_kind!(kind, Kind::Refused { message } if message.contains("provided_by_a_library"), Open);
}

#[test]
fn a_library_without_the_symbol_is_told_which() {
    let modules = Modules::new();
    modules.bad("mute", &["NO_SYMBOL"]);
    let kind = modules.only_failure_of("mute");
    assert_kind!(kind, Kind::NoSymbol { symbol } if symbol == "uct_plugin_mute", Symbol);
}

#[test]
fn a_plugin_that_answers_no_table_is_refused() {
    let modules = Modules::new();
    modules.bad("tableless", &["NULL_TABLE"]);
    assert_kind!(modules.only_failure_of("tableless"), Kind::NoTable { table: "UctPlugin", .. }, Handshake);
}

#[test]
fn a_wrong_magic_comes_ahead_of_everything_else() {
    let modules = Modules::new();
    modules.bad("magic", &["WRONG_MAGIC", "MAJOR=77", "SIZE=0"]);
    let kind = modules.only_failure_of("magic");
    assert_kind!(kind, Kind::Magic { expected: UCT_MAGIC, found } if *found == UCT_MAGIC + 1, Handshake);
}

#[test]
fn another_major_version_comes_ahead_of_the_size_and_says_both() {
    let modules = Modules::new();
    modules.bad("future", &["MAJOR=77", "SIZE=0"]);
    let kind = modules.only_failure_of("future");
    let text = kind.to_string();
    assert!(text.contains("77.") && text.contains(&format!("{UCT_ABI_MAJOR}.x")), "{text}");
    assert_kind!(kind, Kind::AbiMajor { expected_major: UCT_ABI_MAJOR, found_major: 77, .. }, Handshake);
}

#[test]
fn a_table_that_ends_ahead_of_a_mandatory_slot_is_too_short() {
    let modules = Modules::new();
    modules.bad("stub", &["SIZE=32"]);
    let minimum = std::mem::offset_of!(UctPlugin, config);
    let kind = modules.only_failure_of("stub");
    assert_kind!(kind, Kind::TableTooShort { offered: 32, minimum: least, .. } if *least == minimum, Handshake);
}

#[test]
fn a_mandatory_slot_that_is_null_is_named() {
    let modules = Modules::new();
    modules.bad("hollow", &["NULL_SLOT"]);
    let kind = modules.only_failure_of("hollow");
    assert!(kind.to_string().contains("transport hollow"), "{kind}");
    assert_kind!(kind, Kind::MissingSlot { table: "UctEpOps", slot: "destroy", .. }, Tables);
}

#[test]
fn a_list_that_is_null_is_refused() {
    let modules = Modules::new();
    modules.bad("listless", &["NULL_LIST"]);
    let kind = modules.only_failure_of("listless");
    assert_kind!(kind, Kind::Text { what, .. } if what.contains("configuration"), Tables);
}

#[test]
fn names_that_are_too_long_say_how_long_they_may_be() {
    let modules = Modules::new();
    modules.bad("wordy", &["TRANSPORT=\"eleven_char\""]);
    let kind = modules.only_failure_of("wordy");
    assert_kind!(kind, Kind::Text { problem, .. } if problem.contains("11") && problem.contains("10"), Tables);
    let modules = Modules::new();
    modules.bad("seventeen_letters", &["TRANSPORT=\"t\""]);
    let kind = modules.only_failure_of("seventeen_letters");
    assert_kind!(kind, Kind::Text { what, problem } if what.contains("component") && problem.contains("16"), Tables);
}

#[test]
fn a_name_that_nobody_can_type_is_refused() {
    let modules = Modules::new();
    modules.bad("spaced", &["TRANSPORT=\"a b\""]);
    assert_kind!(modules.only_failure_of("spaced"), Kind::Text { problem, .. } if problem.contains("\"a b\""), Tables);
}

#[test]
fn a_name_that_is_not_text_is_refused() {
    let modules = Modules::new();
    modules.bad("binary", &["BINARY_NAME"]);
    assert_kind!(modules.only_failure_of("binary"), Kind::Text { problem, .. } if problem.contains("UTF-8"), Tables);
}

#[test]
fn a_plugin_that_calls_itself_otherwise_than_its_file_is_refused() {
    let modules = Modules::new();
    modules.bad("renamed", &["CALLS_ITSELF=\"original\""]);
    let kind = modules.only_failure_of("renamed");
    assert_kind!(kind, Kind::OtherName { expected, found } if expected == "renamed" && found == "original", Tables);
}

#[test]
fn two_plugins_with_a_transport_of_the_same_name_leave_the_first() {
    let modules = Modules::new();
    modules.bad("second", &["TRANSPORT=\"good\""]);
    let kind = modules.only_failure_of("second");
    assert!(kind.to_string().contains("libuct_good.so"), "{kind}");
    assert_kind!(kind, Kind::DuplicateName { what: "transport", name, .. } if name == "good", Tables);
}

#[test]
fn a_configuration_key_with_an_impossible_default_is_named() {
    let modules = Modules::new();
    modules.bad("keyed", &["BAD_KEY"]);
    let kind = modules.only_failure_of("keyed");
    assert_kind!(kind, Kind::ConfigKey { key, problem } if key.contains("bad") && problem.contains("eleven"), Tables);
}

#[test]
fn two_plugins_with_different_sections_of_the_same_name_leave_the_first() {
    let modules = Modules::new();
    modules.bad("a_keyed", &["SECTION=\"cself\""]).cself();
    let loaded = modules.load();
    assert_eq!(names(&loaded), ["a_keyed"]);
    let kind = loaded.failures[0].kind.clone();
    assert_kind!(kind, Kind::ConfigKey { key, .. } if key.contains("cself"), Tables);
}

#[test]
fn two_plugins_may_share_a_section() {
    let modules = Modules::new();
    modules.bad("a_sharer", &["SECTION=\"shared\""]).bad("b_sharer", &["SECTION=\"shared\""]);
    let loaded = modules.load();
    assert_eq!(names(&loaded), ["a_sharer", "b_sharer"]);
}

#[test]
fn a_plugin_that_refuses_to_start_says_why_on_one_line() {
    let modules = Modules::new();
    modules.bad("shy", &["REFUSES"]);
    let kind = modules.only_failure_of("shy");
    let words = r"there is no such hardware\nin this machine";
    assert_kind!(kind, Kind::Init { status: Status::NO_DEVICE, reason } if reason == words, Init);
}

#[test]
fn a_plugin_starts_once_however_often_it_is_loaded() {
    let modules = Modules::new();
    modules.bad("once", &["COUNTS"]);
    let first = modules.load();
    let again = modules.load();
    assert_eq!((names(&first), names(&again)), (vec!["once"], vec!["once"]), "{:?}", again.failures);
    let tables = [&first, &again].map(|loaded| plugin(loaded, "once").components[0].ops);
    assert!(std::ptr::eq(tables[0], tables[1]));
}

#[test]
fn a_refusal_is_remembered() {
    let modules = Modules::new();
    modules.bad("sorry", &["REFUSES"]);
    let [first, again] = [modules.load(), modules.load()].map(|loaded| loaded.failures[0].to_string());
    assert_eq!(first, again);
}

#[test]
fn old_tables_work_and_what_they_lack_is_unsupported() {
    let modules = Modules::new();
    modules.bad("old", &["OLD_TABLES", "SIZE=(offsetof(UctPlugin,config))"]);
    let loaded = modules.load();
    let transport = &plugin(&loaded, "old").components[0].transports[0];
    let (iface, ep): (&UctIfaceOps, &UctEpOps) = (transport.iface_ops, transport.ep_ops);
    let (iface_pointer, ep_pointer) = (std::ptr::null_mut(), std::ptr::null_mut());
    let nothing = std::ptr::null();
    let Some(am_short) = ep.am_short else { panic!("no am_short") };
    // SAFETY: the functions of `bad.c` and those that stand in touch nothing that they are given.
    assert_eq!(Status::from_raw(unsafe { am_short(ep_pointer, 0, 0, nothing, 0) }), Status::NO_RESOURCE);
    let Some(put_short) = ep.put_short else { panic!("no put_short") };
    // SAFETY: as above.
    let status = unsafe { put_short(ep_pointer, nothing, 0, 0, std::ptr::null_mut()) };
    assert_eq!(Status::from_raw(status), Status::UNSUPPORTED);
    let Some(fence) = iface.fence else { panic!("no fence") };
    // SAFETY: as above.
    assert_eq!(Status::from_raw(unsafe { fence(iface_pointer, 0) }), Status::UNSUPPORTED);
}

#[test]
fn a_directory_that_was_asked_for_and_is_not_there_is_an_error() {
    let modules = Modules::new();
    modules.bad("good", &[]);
    let mut settings = modules.settings();
    settings.module_dirs.insert(0, "/nowhere/at/all".into());
    let loaded = load(&settings, &[], &loader_support::HOST);
    assert_eq!(names(&loaded), ["good"]);
    let [failure] = loaded.failures.as_slice() else { panic!("{:?}", loaded.failures) };
    assert!(failure.to_string().starts_with("/nowhere/at/all: cannot list"), "{failure}");
    assert_kind!(failure.kind.clone(), Kind::Directory { .. }, Search);
}

#[test]
fn all_bad_plugins_together_take_no_good_one_down() {
    let modules = Modules::new();
    modules.bad("a_refuses", &["REFUSES"]).bad("b_good", &[]).bad("c_magic", &["WRONG_MAGIC"]);
    modules.bad("d_good", &[]).bad("e_hollow", &["NULL_SLOT"]).cself();
    fs::write(modules.path("f_text"), "text").unwrap();
    let loaded = load(&LoaderSettings { ..modules.settings() }, &[], &loader_support::HOST);
    assert_eq!(names(&loaded), ["b_good", "cself", "d_good"]);
    let failed: Vec<&str> = loaded.failures.iter().map(|failure| failure.name.as_str()).collect();
    assert_eq!(failed, ["a_refuses", "c_magic", "e_hollow", "f_text"]);
}
