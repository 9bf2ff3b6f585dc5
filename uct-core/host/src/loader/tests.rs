//! What is read of a plugin's tables, and told of it.

use super::failure::LoadFailureKind as Kind;
use super::names::check_distinct;
use super::table::{Presence, Table, greatest};
use super::text::text;
use super::*;
use uct_abi::UctStr;

#[test]
fn two_transports_or_components_of_one_plugin_with_the_same_name_are_refused() {
    let all: Vec<Component> = crate::linked::plugins()
        .into_iter()
        // SAFETY: the tables of plugins that are linked in.
        .flat_map(|table| unsafe { registry::prepared(table) }.expect("it is one").components)
        .collect();
    // One component with a transport of each.
    let mut good = vec![all[0].clone()];
    good[0].transports = all.iter().flat_map(|component| component.transports.clone()).collect();
    assert!(good[0].transports.len() > 2);
    assert!(check_distinct(&good).is_ok());
    let refusal = |components: &[Component]| match check_distinct(components) {
        Err(Kind::DuplicateName { what, name, taken_by }) => {
            assert_eq!(taken_by, "the same plugin");
            (what, name)
        }
        other => panic!("{other:?}"),
    };
    for (first, second) in [(0, 1), (0, 2), (1, 2)] {
        let mut twice = good.clone();
        let transports = &mut twice[0].transports;
        let name = transports[first].name.clone();
        transports[second].name.clone_from(&name);
        assert_eq!(refusal(&twice), ("transport", name));
    }
    let twice = [good[0].clone(), good[0].clone()];
    assert_eq!(refusal(&twice), ("component", good[0].name.clone()));
}

#[test]
fn the_keys_of_a_plugin_are_described_although_it_is_not_started() {
    let names: Vec<String> = crate::linked::plugins()
        .into_iter()
        .flat_map(|table| described(table).expect("a plugin"))
        .map(|section| section.name.into_owned())
        .collect();
    assert!(names.iter().any(|name| name == "tcp"), "{names:?}");
}

#[test]
fn the_places_of_a_search_are_told_with_what_was_there() {
    let place = |directory: &str, seen| Searched { directory: directory.into(), seen };
    let searched = [
        place("/one", Seen::Plugins(1)),
        place("/two", Seen::Plugins(2)),
        place("/far", Seen::Unlisted(std::io::ErrorKind::NotFound)),
        place("/bad", Seen::Untrusted),
    ];
    assert_eq!(
        looked_in(&searched),
        "plugins were looked for in /one (1 plugin), /two (2 plugins), /far (not there), /bad (not trusted)"
    );
}

#[test]
fn a_table_that_is_missing_is_one_of_the_handshake_only_if_it_is_the_plugins() {
    for (table, stage) in [("UctPlugin", LoadStage::Handshake), ("UctTlOps", LoadStage::Tables)] {
        assert_eq!(Kind::NoTable { table, subject: String::new() }.stage(), stage);
        let short = Kind::TableTooShort { table, subject: String::new(), offered: 8, minimum: 16 };
        assert_eq!(short.stage(), stage);
    }
}

#[test]
fn a_table_ends_behind_the_last_of_its_mandatory_slots() {
    use std::mem::offset_of;
    assert_eq!(UctPlugin::MINIMUM, offset_of!(UctPlugin, component_count) + size_of::<usize>());
    assert_eq!(UctMdOps::MINIMUM, offset_of!(UctMdOps, query) + size_of::<usize>());
    assert_eq!(UctTlOps::MINIMUM, size_of::<UctTlOps>());
    for (values, expected) in [(&[][..], 0), (&[3], 3), (&[1, 3, 2], 3), (&[3, 1], 3), (&[1, 2, 3], 3)] {
        assert_eq!(greatest(values), expected, "{values:?}");
    }
}

#[test]
fn a_slot_is_absent_if_there_is_nothing_in_it() {
    let string = |data: &'static [u8], length| UctStr { data: data.as_ptr(), length };
    let null = |length| UctStr { data: std::ptr::null(), length };
    assert!(null(0).is_absent() && null(3).is_absent() && string(b"abc", 0).is_absent());
    assert!(!string(b"abc", 3).is_absent());
    assert!(0_usize.is_absent() && !1_usize.is_absent());
    assert!(std::ptr::null::<u8>().is_absent() && !b"a".as_ptr().is_absent());
}

#[test]
fn a_text_is_64_kib_long_at_most() {
    let read = |bytes: &str| {
        // SAFETY: the bytes are readable.
        unsafe { text(UctStr { data: bytes.as_ptr(), length: bytes.len() }, "documentation") }
    };
    let longest = "x".repeat(65536);
    assert_eq!(read(&longest).ok().as_ref(), Some(&longest));
    match read(&"x".repeat(65537)) {
        Err(Kind::Text { what, problem }) => {
            assert_eq!(what, "documentation");
            assert_eq!(problem, "65537 bytes long, at most 65536 are allowed");
        }
        other => panic!("{other:?}"),
    }
}
