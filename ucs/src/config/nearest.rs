//! The name that was probably meant.
//!
//! Built on `strsim`. Errors and warnings about unknown names use it.

use super::Schema;

/// The name among `known` that is nearest to `given`, if one is near enough to be a slip of the fingers: at most a third of
/// its letters differ. Case and `-` for `_` do not count.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 128;
    if given.len() > LONGEST {
        return None;
    }
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let given = plain(given);
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&given, &plain(name)), name))
        .filter(|(distance, name)| *distance <= (name.len().max(given.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// What to do about a `key` that `section` (empty for the global keys) does not have.
pub(super) fn hint_for_key(schema: &Schema, section: &str, key: &str) -> String {
    let elsewhere: Vec<String> = schema
        .keys()
        .filter(|(_, field)| field.name == key)
        .map(|(owner, _)| match &*owner.name {
            "" => "it is a global key: write it ahead of the first section".to_owned(),
            owner => format!("it is a key of section [{owner}]"),
        })
        .collect();
    if !elsewhere.is_empty() {
        return elsewhere.join(", ");
    }
    let own = schema.section(section).map_or(&[][..], |section| &section.fields);
    match nearest(key, own.iter().map(|field| &*field.name)) {
        Some(name) => format!("did you mean {name:?}?"),
        None if own.is_empty() => "there are no keys here".to_owned(),
        None if own.len() <= 8 => {
            let names: Vec<&str> = own.iter().map(|field| &*field.name).collect();
            format!("the keys here are {}", names.join(", "))
        }
        None => "`uct_info -c` lists all keys".to_owned(),
    }
}

/// What to do about a `section` that the schema does not have.
pub(super) fn hint_for_section(schema: &Schema, section: &str) -> String {
    let names = || schema.sections().iter().map(|section| &*section.name).filter(|name| !name.is_empty());
    match nearest(section, names()) {
        Some(name) => format!("did you mean [{name}]?"),
        None => {
            let names: Vec<String> = names().map(|name| format!("[{name}]")).collect();
            match names.is_empty() {
                true => "there are no sections; is the transport that has it loaded?".to_owned(),
                false => {
                    format!("the sections are {}; is the transport that has it loaded?", names.join(", "))
                }
            }
        }
    }
}
