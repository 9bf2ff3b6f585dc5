//! A key is written once, in a macro; from it come the struct, the schema and the documents.

#![deny(missing_docs)]

use std::{collections::BTreeMap, path::PathBuf};

use ucs::{
    config::{
        AbiParts, Config, ConfigError, ConfigType, Defaults, Field, Kind, Reader, Schema, Section, Sources,
        Value,
    },
    config_enum, config_struct,
    units::{Bandwidth, Count, MemSize, NameList, Range, Ternary, Time},
};

config_enum! {
    /// What becomes of a fallback.
    pub enum Fallback {
        /// An error.
        Error = "error",
        /// A line in the log.
        Warn = "warn",
        /// Nothing.
        Allow = "allow",
    }
}

config_struct! {
    /// Keys of no section.
    pub struct GlobalConfig in "" {
        /// Transports to use.
        ///
        /// A `^` excludes.
        pub tls: NameList = "all",
        /// What becomes of a fallback.
        pub fallback: Fallback = "warn",
    }
}

config_struct! {
    /// One of each type,
    /// over two lines.
    #[derive(PartialEq)]
    struct EveryConfig in "every" {
        /// A yes or no.
        bool: bool = "y",
        /// A switch.
        ternary: Ternary = "try",
        /// A byte.
        byte: u8 = "255",
        /// A small number.
        small: u16 = "8" in 1..=64,
        /// A number.
        number: u32 = "8",
        /// A large number.
        large: u64 = "18446744073709551615",
        /// A size in memory.
        native: usize = "1",
        /// A signed number.
        signed: i32 = "-5" in -8..=8,
        /// Sizes.
        size: MemSize = "8k" in 64..=1 << 20,
        /// Any size.
        any_size: MemSize = "inf",
        /// Things.
        count: Count = "auto",
        /// Patience.
        time: Time = "10ms",
        /// Speed.
        bandwidth: Bandwidth = "10Gbps",
        /// Ratio.
        real: f64 = "0.5",
        /// Words.
        text: String = "",
        /// A place.
        path: PathBuf = "/tmp",
        /// Several.
        list: Vec<String> = "a, b",
        /// Names.
        names: NameList = "^tcp",
        /// From, to.
        range: Range = "8-inf",
        /// Choice.
        choice: Fallback = "allow"
    }
}

config_struct! {
    /// None.
    pub struct EmptyConfig in "empty" {}
}

fn schema() -> Schema {
    let mut schema = Schema::new();
    for section in [GlobalConfig::section(), EveryConfig::section(), EmptyConfig::section()] {
        schema.add_section(section).unwrap();
    }
    schema
}

#[test]
fn the_defaults_are_those_of_the_macro() {
    let every = EveryConfig::from_settings(&Defaults).unwrap();
    assert!(every.bool && every.ternary == Ternary::Try);
    assert_eq!((every.byte, every.small, every.number, every.large), (255, 8, 8, u64::MAX));
    assert_eq!((every.native, every.signed, every.size.bytes()), (1, -5, 8192));
    assert!(every.any_size.is_inf() && every.count.is_auto());
    assert_eq!((every.time.seconds(), every.bandwidth.bytes_per_second(), every.real), (0.01, 1.25e9, 0.5));
    assert_eq!((every.text.as_str(), every.path.to_str()), ("", Some("/tmp")));
    assert_eq!(every.list, ["a", "b"]);
    assert!(!every.names.contains("tcp") && every.range.contains(9));
    assert_eq!(every.choice, Fallback::Allow);
    EmptyConfig::from_settings(&Defaults).unwrap();
}

#[test]
fn the_schema_is_that_of_the_macro() {
    assert_eq!((GlobalConfig::SECTION, EveryConfig::SECTION), ("", "every"));
    let section = EveryConfig::section();
    assert_eq!(section.doc, "One of each type,\nover two lines.");
    assert_eq!(section.fields.len(), 20);
    let size = Field::new("size", Kind::MemSize { min: 64, max: 1 << 20 }, "8k", "Sizes.");
    assert_eq!(section.field("size"), Some(&size));
    assert_eq!(section.field("small").unwrap().kind, Kind::UInt { min: 1, max: 64 });
    assert_eq!(section.field("byte").unwrap().kind, Kind::UInt { min: 0, max: 255 });
    assert_eq!(section.field("signed").unwrap().kind, Kind::Int { min: -8, max: 8 });
    assert_eq!(GlobalConfig::fields()[0].doc, "Transports to use.\n\nA `^` excludes.");
    assert_eq!(GlobalConfig::fields()[1].kind, Kind::words(["error", "warn", "allow"]));
}

#[test]
fn a_struct_is_read_from_a_loaded_configuration() {
    let sources = Sources::default()
        .env([("UCT_EVERY_SIZE", "64"), ("UCT_FALLBACK", "ERROR")])
        .set("every.list", "x,y,z");
    let config = Config::load(&schema(), &sources).unwrap().config;
    let every = EveryConfig::from_settings(&config).unwrap();
    assert_eq!((every.size.bytes(), every.list.len()), (64, 3));
    assert_eq!(GlobalConfig::from_settings(&config).unwrap().fallback, Fallback::Error);
}

/// What a plugin does: the host loads, hands over texts, and the plugin makes its struct of them.
#[test]
fn a_struct_made_of_texts_alone_equals_the_one_made_of_the_configuration() {
    let sources = Sources::default().env([
        ("UCT_EVERY_BOOL", "off"),
        ("UCT_EVERY_TIME", "7us"),
        ("UCT_EVERY_NAMES", " mlx5_*,eth0 "),
        ("UCT_EVERY_SIGNED", "+3"),
        ("UCT_EVERY_CHOICE", "Warn"),
    ]);
    let config = Config::load(&schema(), &sources).unwrap().config;
    let texts: BTreeMap<(String, String), String> = config
        .iter()
        .map(|(section, key, setting)| ((section.into(), key.into()), setting.text.clone()))
        .collect();
    let lookup = |section: &str, key: &str| texts.get(&(section.to_owned(), key.to_owned())).cloned();
    assert_eq!(EveryConfig::from_settings(&lookup).unwrap(), EveryConfig::from_settings(&config).unwrap());
}

#[test]
fn a_text_from_the_host_is_checked_again_bounds_and_all() {
    let lookup = |_: &str, key: &str| match key {
        "size" => Some("2m".to_owned()),
        "small" => Some("65".to_owned()),
        "byte" => Some("256".to_owned()),
        "choice" => Some("never".to_owned()),
        _ => None,
    };
    let error = EveryConfig::from_settings(&lookup).unwrap_err();
    let lines = error.to_string();
    assert_eq!(error.problems().len(), 4, "{lines}");
    assert!(lines.contains("program: every.small = \"65\": expected a whole number from 1 to 64"), "{lines}");
    assert!(lines.contains("every.byte = \"256\": expected a whole number from 0 to 255"), "{lines}");
    assert!(lines.contains("every.choice = \"never\": expected one of error, warn, allow"), "{lines}");
}

#[test]
fn nothing_is_built_of_values_of_which_one_is_refused() {
    let lookup = |_: &str, key: &str| (key == "bad").then(|| "x".to_owned());
    let kind = Kind::UInt { min: 1, max: 8 };
    let mut reader = Reader::new("every", &lookup);
    assert_eq!(reader.read::<u32>("good", &kind, "8"), Some(8));
    assert_eq!(reader.read::<u32>("bad", &kind, "8"), None);
    let error = reader.finish(|| Some(())).unwrap_err();
    assert!(error.to_string().contains("every.bad = \"x\""), "{error}");
    assert_eq!(Reader::new("every", &lookup).finish(|| Some(7)).unwrap(), 7);
}

#[test]
fn an_error_of_a_struct_names_the_origin_of_the_value() {
    // A schema whose key has a wider kind than the struct's.
    let mut schema = Schema::new();
    let wide = Field::new("small", Kind::UINT, "8", "");
    schema.add_section(Section::new("every", "", vec![wide])).unwrap();
    let sources = Sources::default().env([("UCT_EVERY_SMALL", "99")]);
    let config = Config::load(&schema, &sources).unwrap().config;
    let error: ConfigError = EveryConfig::from_settings(&config).unwrap_err();
    assert!(error.to_string().starts_with("environment UCT_EVERY_SMALL: every.small = \"99\""), "{error}");
}

#[test]
fn a_default_that_its_kind_refuses_is_an_error_of_the_schema_and_of_the_struct() {
    config_struct! {
        /// Wrong.
        struct WrongConfig in "wrong" {
            /// Out of bounds.
            _size: MemSize = "8k" in 1..=16,
        }
    }
    let error = WrongConfig::from_settings(&Defaults).unwrap_err().to_string();
    assert!(error.starts_with("default: wrong._size = \"8k\": expected"), "{error}");
    let mut section = WrongConfig::section();
    section.fields[0].name = "size".into();
    let error = Schema::new().add_section(section).unwrap_err().to_string();
    assert!(error.contains("\"wrong\"") && error.contains("the default is \"8k\""), "{error}");
}

#[test]
fn choices_are_words_in_either_case() {
    assert_eq!(Fallback::ALL.len(), 3);
    for choice in Fallback::ALL {
        assert_eq!(Fallback::parse(&choice.to_string().to_uppercase()), Ok(*choice));
        assert_eq!(choice.name().parse(), Ok(*choice));
    }
    let error = "x".parse::<Fallback>().unwrap_err().to_string();
    assert_eq!(error, "\"x\": expected one of error, warn, allow, for example error");
}

#[test]
fn every_value_has_its_numbers_for_the_boundary() {
    let parts = |kind: &Kind, text: &str| {
        let value = kind.parse(text).unwrap();
        let AbiParts { text: same, integer, real } = value.as_abi_parts(text);
        assert_eq!(same, text);
        (integer, real)
    };
    assert_eq!(parts(&Kind::Bool, "y"), (1, 0.0));
    assert_eq!(parts(&Kind::Ternary, "try"), (2, 0.0));
    assert_eq!(parts(&Kind::Ternary, "auto"), (3, 0.0));
    assert_eq!(parts(&Kind::INT, "-1"), (u64::MAX, 0.0));
    assert_eq!(parts(&Kind::UINT, "7"), (7, 0.0));
    assert_eq!(parts(&Kind::Count, "inf"), (u64::MAX, 0.0));
    assert_eq!(parts(&Kind::Count, "auto"), (u64::MAX - 1, 0.0));
    assert_eq!(parts(&Kind::MEM_SIZE, "8k"), (8192, 0.0));
    assert_eq!(parts(&Kind::MEM_SIZE, "inf"), (u64::MAX, 0.0));
    assert_eq!(parts(&Kind::MEM_SIZE, "auto"), (u64::MAX - 1, 0.0));
    assert_eq!(parts(&Kind::Time, "10ms"), (0, 0.01));
    assert_eq!(parts(&Kind::Time, "inf"), (0, f64::INFINITY));
    assert_eq!(parts(&Kind::Bandwidth, "8kbps"), (0, 1000.0));
    assert_eq!(parts(&Kind::Bandwidth, "auto"), (0, -1.0));
    assert_eq!(parts(&Kind::Real, "-2.5"), (0, -2.5));
    assert_eq!(parts(&Kind::List, "a,b"), (2, 0.0));
    assert_eq!(parts(&Kind::List, ""), (0, 0.0));
    assert_eq!(parts(&Fallback::kind(), "allow"), (2, 0.0));
    assert_eq!(parts(&Kind::Text, "5"), (0, 0.0));
    let config = Config::load(&schema(), &Sources::default()).unwrap().config;
    let parts = config.value("every", "size").unwrap().as_abi_parts();
    assert_eq!(parts, AbiParts { text: "8k", integer: 8192, real: 0.0 });
}

#[test]
fn the_accessor_of_a_value_is_that_of_its_kind_only() {
    let config = Config::load(&schema(), &Sources::default()).unwrap().config;
    let answers = |value: &Value| {
        [
            value.as_bool().is_some(),
            value.as_ternary().is_some(),
            value.as_u64().is_some(),
            value.as_i64().is_some(),
            value.as_mem_size().is_some(),
            value.as_count().is_some(),
            value.as_time().is_some(),
            value.as_bandwidth().is_some(),
            value.as_f64().is_some(),
            value.as_str().is_some(),
            value.as_path().is_some(),
            value.as_list().is_some(),
            value.as_name_list().is_some(),
            value.as_range().is_some(),
        ]
        .into_iter()
        .filter(|answer| *answer)
        .count()
    };
    for (section, key, setting) in config.iter() {
        assert_eq!(answers(&setting.value), 1, "{section}.{key}");
    }
    let choice = &config.value("every", "choice").unwrap().value;
    assert_eq!((choice.as_str(), choice.as_enum_index()), (Some("allow"), Some(2)));
}

#[test]
fn every_value_is_written_so_that_its_kind_reads_it_back() {
    let config = Config::load(&schema(), &Sources::default()).unwrap().config;
    let schema = schema();
    for ((section, field), (_, _, setting)) in schema.keys().zip(config.iter()) {
        let written = setting.value.to_string();
        assert_eq!(
            field.kind.parse(&written).as_ref(),
            Ok(&setting.value),
            "{}.{}",
            section.name,
            field.name
        );
    }
}
