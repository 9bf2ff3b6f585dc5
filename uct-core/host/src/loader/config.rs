//! Turns the configuration keys that a plugin describes into a section of the schema.
//!
//! Used by [`handshake`](super::handshake). Built on `ucs::config`, whose rules for names and defaults hold for plugins
//! too.

use std::borrow::Cow;

use ucs::config::{Field, Kind, Schema, Section, key_name};
use uct_abi::{
    UCT_CONFIG_BANDWIDTH, UCT_CONFIG_BOOL, UCT_CONFIG_COUNT, UCT_CONFIG_ENUM, UCT_CONFIG_INT,
    UCT_CONFIG_LIST, UCT_CONFIG_MEMSIZE, UCT_CONFIG_NAMES, UCT_CONFIG_PATH, UCT_CONFIG_RANGE,
    UCT_CONFIG_REAL, UCT_CONFIG_SECURITY, UCT_CONFIG_TERNARY, UCT_CONFIG_TEXT, UCT_CONFIG_TIME,
    UCT_CONFIG_UINT, UctConfigField, UctConfigSection,
};

use super::{
    array::array,
    failure::LoadFailureKind,
    text::{name, text},
};

/// Most keys of one section.
const FIELD_LIMIT: usize = 256;
/// The minor version whose keys have flags.
const FLAGS_SINCE: u32 = 1;
/// Longest name of a section or key, in bytes.
const NAME_LIMIT: usize = 64;

/// The section that a plugin of this minor version describes.
///
/// # Safety
/// The strings and the fields of the section are readable.
pub(super) unsafe fn section(
    described: &UctConfigSection,
    abi_minor: u32,
) -> Result<Section, LoadFailureKind> {
    // SAFETY: the caller promises that the strings are readable.
    let section_name = unsafe { name(described.name, "name of a configuration section", NAME_LIMIT) }?;
    // SAFETY: as above.
    let doc = unsafe { text(described.doc, "documentation of a configuration section") }?;
    // SAFETY: the caller promises that the fields are readable.
    let fields = unsafe { array(described.fields, described.count, "configuration keys", FIELD_LIMIT) }?;
    let mut section = Section::new(section_name, doc, Vec::with_capacity(fields.len()));
    for described in fields {
        // SAFETY: the caller promises that the strings of the fields are readable.
        let field = unsafe { field(described, &section.name) }?;
        let flags = if abi_minor < FLAGS_SINCE { 0 } else { described.flags };
        section.fields.push(field.security(flags & UCT_CONFIG_SECURITY != 0));
    }
    // The schema knows what a section may be; the one that the program makes in the end has more of them.
    let checked = Schema::new().add_section(section.clone());
    checked.map_err(|error| wrong(&section.name, "", error.reason))?;
    Ok(section)
}

/// # Safety
/// The strings of the field are readable.
unsafe fn field(described: &UctConfigField, section: &str) -> Result<Field, LoadFailureKind> {
    // SAFETY: the caller promises that the strings are readable.
    let name = unsafe { name(described.name, "name of a configuration key", NAME_LIMIT) }?;
    // SAFETY: as above.
    let choices = unsafe { text(described.choices, "choices of a configuration key") }?;
    // SAFETY: as above.
    let default = unsafe { text(described.default_text, "default of a configuration key") }?;
    // SAFETY: as above.
    let doc = unsafe { text(described.doc, "documentation of a configuration key") }?;
    let kind = kind(described, &choices).map_err(|problem| wrong(section, &name, problem))?;
    Ok(Field::new(name, kind, default, doc))
}

fn kind(field: &UctConfigField, choices: &str) -> Result<Kind, String> {
    Ok(match field.kind {
        UCT_CONFIG_BOOL => Kind::Bool,
        UCT_CONFIG_TERNARY => Kind::Ternary,
        UCT_CONFIG_INT if unlimited(field) => Kind::INT,
        UCT_CONFIG_INT if field.minimum <= field.maximum => {
            Kind::Int { min: field.minimum, max: field.maximum }
        }
        UCT_CONFIG_INT => return Err(empty_range(field)),
        UCT_CONFIG_UINT => {
            let (min, max) = unsigned_bounds(field)?;
            Kind::UInt { min, max }
        }
        UCT_CONFIG_COUNT => Kind::Count,
        UCT_CONFIG_MEMSIZE => {
            let (min, max) = unsigned_bounds(field)?;
            Kind::MemSize { min, max }
        }
        UCT_CONFIG_TIME => Kind::Time,
        UCT_CONFIG_BANDWIDTH => Kind::Bandwidth,
        UCT_CONFIG_REAL => Kind::Real,
        UCT_CONFIG_TEXT => Kind::Text,
        UCT_CONFIG_PATH => Kind::Path,
        UCT_CONFIG_LIST => Kind::List,
        UCT_CONFIG_NAMES => Kind::NameList,
        UCT_CONFIG_RANGE => Kind::Range,
        UCT_CONFIG_ENUM => Kind::words(choices.split('|').filter(|choice| !choice.is_empty()).map(owned)),
        unknown => return Err(format!("kind {unknown} is not known; expected 0 to {UCT_CONFIG_ENUM}")),
    })
}

fn owned(choice: &str) -> Cow<'static, str> {
    Cow::Owned(choice.to_owned())
}

fn unlimited(field: &UctConfigField) -> bool {
    field.minimum == 0 && field.maximum == 0
}

/// The bounds of a kind that is never negative. The greatest `i64` means "no upper bound".
fn unsigned_bounds(field: &UctConfigField) -> Result<(u64, u64), String> {
    if unlimited(field) {
        return Ok((0, u64::MAX));
    }
    match (u64::try_from(field.minimum), u64::try_from(field.maximum)) {
        (Ok(min), Ok(_)) if field.maximum == i64::MAX => Ok((min, u64::MAX)),
        (Ok(min), Ok(max)) if min <= max => Ok((min, max)),
        _ => Err(empty_range(field)),
    }
}

fn empty_range(field: &UctConfigField) -> String {
    format!("no value lies between minimum {} and maximum {}", field.minimum, field.maximum)
}

fn wrong(section: &str, key: &str, problem: String) -> LoadFailureKind {
    let key = if key.is_empty() {
        format!("section [{section}]")
    } else {
        format!("key {}", key_name(section, key))
    };
    LoadFailureKind::ConfigKey { key, problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uct_abi::UctStr;

    fn read(kind: u32, minimum: i64, maximum: i64) -> Result<Kind, String> {
        let none = UctStr { data: std::ptr::null(), length: 0 };
        let field = UctConfigField {
            name: none,
            kind,
            flags: 0,
            minimum,
            maximum,
            choices: none,
            default_text: none,
            doc: none,
        };
        super::kind(&field, "")
    }

    #[test]
    fn whole_numbers_have_the_bounds_that_the_plugin_names() {
        assert_eq!(read(UCT_CONFIG_INT, 0, 0), Ok(Kind::INT));
        assert_eq!(read(UCT_CONFIG_INT, -3, 5), Ok(Kind::Int { min: -3, max: 5 }));
        assert_eq!(read(UCT_CONFIG_INT, 0, 5), Ok(Kind::Int { min: 0, max: 5 }));
        assert_eq!(read(UCT_CONFIG_INT, -5, 0), Ok(Kind::Int { min: -5, max: 0 }));
        assert_eq!(read(UCT_CONFIG_INT, 5, 5), Ok(Kind::Int { min: 5, max: 5 }));
        assert_eq!(read(UCT_CONFIG_UINT, 0, 0), Ok(Kind::UInt { min: 0, max: u64::MAX }));
        assert_eq!(read(UCT_CONFIG_UINT, 3, i64::MAX), Ok(Kind::UInt { min: 3, max: u64::MAX }));
        assert_eq!(read(UCT_CONFIG_UINT, 3, 3), Ok(Kind::UInt { min: 3, max: 3 }));
        assert_eq!(read(UCT_CONFIG_MEMSIZE, 1, 9), Ok(Kind::MemSize { min: 1, max: 9 }));
    }

    #[test]
    fn a_range_without_a_value_and_an_unknown_kind_are_refused() {
        for kind in [UCT_CONFIG_INT, UCT_CONFIG_UINT, UCT_CONFIG_MEMSIZE] {
            let refused = read(kind, 6, 5).unwrap_err();
            assert!(refused.contains("between minimum 6 and maximum 5"), "{refused}");
        }
        for (minimum, maximum) in [(-1, 5), (-5, -1)] {
            assert!(read(UCT_CONFIG_UINT, minimum, maximum).is_err());
        }
        let refused = read(UCT_CONFIG_ENUM + 1, 0, 0).unwrap_err();
        assert!(refused.contains("expected 0 to"), "{refused}");
    }
}
