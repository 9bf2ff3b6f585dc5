//! Names in the configuration that match nothing. Most of them are misspelt, and a list without a match excludes everything.
//!
//! Used by the context, which reports each once. Built on the lists of names.

#![forbid(unsafe_code)]

use ucs::config::{Config, Origin, nearest};
use ucs::units::NameList;

/// Warns of the entries of a list, where file or environment set it, that match none of `known`; `what` they are, such as
/// "transport". `places` names where more of them were searched for; it may be empty.
pub(crate) fn warn(config: &Config, key: &str, list: &NameList, what: &str, known: &[&str], places: &str) {
    let Some(setting) = config.value("", key) else { return };
    // A program that sets it checks the result, and reports it itself.
    let is_set_by_program = setting.origin == Origin::Override;
    // Where there is none at all, none of the entries need be wrong: the transports may be excluded that would have some.
    if is_set_by_program || known.is_empty() {
        return;
    }
    for entry in list.unmatched(known) {
        let place = &setting.origin;
        let mut known = known.to_vec();
        known.sort_unstable();
        known.dedup();
        let there = known.join(", ");
        let hint = nearest(entry, known).map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
        let places = if places.is_empty() { String::new() } else { format!("; {places}") };
        ucs::log::warn!("{place}: {key}: no {what} {entry:?}; there is {there}{hint}{places}");
    }
}
