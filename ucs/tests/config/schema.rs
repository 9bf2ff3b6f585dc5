//! What a section must be to be added, and the documents that come of a schema.

use std::fs;
use std::str::FromStr;

use tempfile::TempDir;
use ucs::config::{Config, Field, Kind, Origin, Schema, Section, Sources, env_name, key_name};
use ucs::units::MemSize;

fn field(name: &'static str) -> Field {
    Field::new(name, Kind::UINT, "1", "A number.")
}

fn section(name: &'static str, fields: Vec<Field>) -> Section {
    Section::new(name, "Some keys.", fields)
}

/// One key of each kind, in a section and without.
fn schema() -> Schema {
    let mut schema = Schema::new();
    let tcp = vec![
        Field::new(
            "tx_seg_size",
            Kind::MemSize { min: 64, max: 1 << 30 },
            "8k",
            "Largest message\nthat is copied.",
        ),
        Field::new("max_poll", Kind::UInt { min: 1, max: 1024 }, "16", "Events."),
        Field::new("at_least", Kind::UInt { min: 1, max: u64::MAX }, "18446744073709551615", "Many."),
        Field::new("offset", Kind::INT, "-3", "Offset."),
        Field::new("nodelay", Kind::Bool, "y", "No | delay."),
        Field::new("keepalive", Kind::Ternary, "auto", "First.\n\nSecond."),
        Field::new("timeout", Kind::Time, "30s", "Patience."),
        Field::new("bandwidth", Kind::Bandwidth, "10Gbps", "Speed."),
        Field::new("depth", Kind::Count, "inf", "Depth."),
        Field::new("scale", Kind::Real, "0.5", "Scale."),
    ];
    schema.add_section(Section::new("tcp", "Sockets.", tcp)).unwrap();
    // Added last and yet first in documents: TOML has no global keys behind a section.
    let global = vec![
        Field::new("tls", Kind::NameList, "all", "Transports."),
        Field::new("label", Kind::Text, "a \"b\" \\ 'c'\nd\u{7f}\t", "La\u{1}bel."),
        Field::new("module_dir", Kind::Path, "/usr/lib/uct", "Plugins."),
        Field::new("extra", Kind::List, "", "More."),
        Field::new("ports", Kind::Range, "0-inf", "Ports."),
        Field::new("fallback", Kind::words(["error", "warn"]), "warn", "Fallback."),
    ];
    schema.add_section(Section::new("", "", global)).unwrap();
    schema
}

#[test]
fn a_key_has_one_name_in_each_source() {
    assert_eq!(env_name("tcp", "tx_seg_size"), "UCT_TCP_TX_SEG_SIZE");
    assert_eq!(env_name("", "net_devices"), "UCT_NET_DEVICES");
    assert_eq!(
        (key_name("tcp", "tx_seg_size"), key_name("", "tls")),
        ("tcp.tx_seg_size".into(), "tls".into())
    );
}

#[test]
fn a_section_may_be_added_twice_if_it_is_the_same() {
    let mut schema = Schema::new();
    schema.add_section(section("ib", vec![field("mtu")])).unwrap();
    schema.add_section(section("ib", vec![field("mtu")])).unwrap();
    assert_eq!(schema.sections().len(), 1);
    let error = schema.add_section(section("ib", vec![field("gid")])).unwrap_err().to_string();
    assert!(error.contains("section \"ib\" is not usable: there is another"), "{error}");
}

#[test]
fn a_kind_says_its_bounds_as_far_as_there_are_any() {
    let (int, uint) = (|min, max| Kind::Int { min, max }, |min, max| Kind::UInt { min, max });
    let size = |min, max| Kind::MemSize { min, max };
    let units = "a whole number with an optional k, m, g or t (powers of 1024)";
    let cases = [
        (int(i64::MIN, i64::MAX), "a whole number".to_owned(), "whole number"),
        (
            int(i64::MIN, 5),
            format!("a whole number from {} to 5", i64::MIN),
            "whole number, -9223372036854775808 to 5",
        ),
        (
            int(-5, i64::MAX),
            format!("a whole number from -5 to {}", i64::MAX),
            "whole number, -5 to 9223372036854775807",
        ),
        (uint(0, u64::MAX), "a whole number, not negative".to_owned(), "whole number"),
        (uint(3, u64::MAX), "a whole number, at least 3".to_owned(), "whole number, at least 3"),
        (uint(0, 9), "a whole number from 0 to 9".to_owned(), "whole number, 0 to 9"),
        (size(0, u64::MAX), MemSize::from_str("").unwrap_err().expected().to_owned(), "memory size"),
        (
            size(1024, u64::MAX),
            format!("{units}, at least 1k, or `inf`, or `auto`"),
            "memory size, 1k to inf",
        ),
        (size(64, u64::MAX - 1), format!("{units}, at least 64, or `auto`"), "memory size, 64 to auto"),
        (size(0, 1024), format!("{units}, from 0 to 1k"), "memory size, 0 to 1k"),
    ];
    for (kind, expected, shown) in cases {
        assert_eq!((kind.expected(), kind.to_string()), (expected, shown.to_owned()));
        assert!(kind.parse(&kind.example()).is_ok(), "{shown}");
    }
}

#[test]
fn an_example_keeps_to_the_bounds() {
    let cases = [
        (Kind::Int { min: 2, max: 9 }, "2"),
        (Kind::Int { min: -9, max: -2 }, "-2"),
        (Kind::UInt { min: 17, max: 20 }, "17"),
        (Kind::UInt { min: 0, max: 15 }, "15"),
        (Kind::MemSize { min: 0, max: 1 << 10 }, "1k"),
        (Kind::MemSize { min: 1 << 20, max: u64::MAX }, "1m"),
    ];
    for (kind, example) in cases {
        assert_eq!(kind.example(), example);
    }
}

#[test]
fn a_key_may_have_the_name_of_a_section_unless_it_is_global() {
    let mut schema = Schema::new();
    schema.add_section(section("tcp", vec![field("mtu")])).unwrap();
    schema.add_section(section("ib", vec![field("tcp"), field("ib")])).unwrap();
    assert_eq!(schema.section("ib").unwrap().fields.len(), 2);
}

#[test]
fn a_section_that_cannot_be_spelt_or_clashes_is_refused_and_changes_nothing() {
    let mut schema = Schema::new();
    schema.add_section(section("", vec![field("tls"), field("rc_depth")])).unwrap();
    schema.add_section(section("tcp", vec![field("rx_size")])).unwrap();
    let long: &'static str = "x".repeat(65).leak();
    let enumeration = |words: &[&'static str]| {
        let default = words.first().copied().unwrap_or_default();
        section("new", vec![Field::new("x", Kind::words(words.to_vec()), default, "")])
    };
    let cases = [
        (section("Tcp", vec![]), "a name is"),
        (section("tcp.x", vec![]), "a name is"),
        (section("1x", vec![]), "a name is"),
        (section(long, vec![]), "a name is"),
        (section("new", vec![field("")]), "key \"\": a name is"),
        (section("new", vec![field("a-b")]), "a name is"),
        (section("new", vec![field("a"), field("a")]), "UCT_NEW_A is taken"),
        (section("rc", vec![field("depth")]), "UCT_RC_DEPTH is taken"),
        (section("tcp_rx", vec![field("size")]), "UCT_TCP_RX_SIZE is taken"),
        (section("tls", vec![field("a")]), "there is a global key of this name"),
        (section("new", vec![Field::new("a", Kind::UINT, "x", "")]), "the default is \"x\": expected"),
        (section("new", vec![Field::new("a", Kind::UInt { min: 2, max: 1 }, "1", "")]), "the default is"),
        (enumeration(&[]), "a choice without choices"),
        (enumeration(&["a", "b|c"]), "the choice \"b|c\""),
        (enumeration(&["a", ""]), "the choice \"\""),
        (enumeration(&["a b"]), "the choice \"a b\""),
        (enumeration(&["a", "b\u{7}"]), "the choice \"b\\u{7}\""),
        (enumeration(&["a,b"]), "the choice \"a,b\""),
    ];
    for (section, expected) in cases {
        let error = schema.add_section(section).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} has no {expected}");
        assert_eq!(schema.sections().len(), 2);
    }
    let mut schema = Schema::new();
    let error = schema.add_section(section("", vec![field("config")])).unwrap_err().to_string();
    assert!(error.contains("UCT_CONFIG is taken"), "{error}");
    schema.add_section(section("tcp", vec![])).unwrap();
    let error = schema.add_section(section("", vec![field("tcp")])).unwrap_err().to_string();
    assert!(error.contains("there is a section of this name"), "{error}");
}

#[test]
fn the_file_has_every_key_as_a_comment_with_doc_kind_variable_and_default() {
    let text = schema().to_toml();
    let part = "[tcp]\n\n# Largest message\n# that is copied.\n\
                # Kind: memory size, 64 to 1g. Environment: UCT_TCP_TX_SEG_SIZE\n#tx_seg_size = \"8k\"\n\n# Events.\n";
    assert!(text.contains(part), "{text}");
    assert!(text.contains("# First.\n#\n# Second.\n"), "{text}");
    assert!(text.contains("\n#nodelay = true\n") && text.contains("\n#max_poll = 16\n"), "{text}");
    assert!(
        text.contains("# Kind: one of error, warn. Environment: UCT_FALLBACK\n#fallback = \"warn\"\n"),
        "{text}"
    );
    assert!(text.find("#tls").unwrap() < text.find("[tcp]").unwrap());
    assert!(text.lines().all(|line| line.trim_end() == line), "no line ends in a blank");
}

/// Two global keys, two of a section, and a section without a doc.
fn small_schema() -> Schema {
    let mut schema = Schema::new();
    schema.add_section(section("ib", vec![field("mtu"), field("gid").security(true)])).unwrap();
    schema.add_section(Section::new("ud", "", vec![field("depth")])).unwrap();
    schema.add_section(Section::new("", "", vec![field("first"), field("second")])).unwrap();
    schema
}

#[test]
fn one_blank_line_lies_between_the_parts_of_the_file() {
    let key = |environment, name| {
        format!("\n# A number.\n# Kind: whole number. Environment: {environment}\n#{name} = 1\n")
    };
    let text = small_schema().to_toml();
    let (_, keys) = text.split_once("with each key.\n").unwrap();
    let parts = [
        key("UCT_FIRST", "first"),
        key("UCT_SECOND", "second"),
        "\n# Some keys.\n[ib]\n".to_owned(),
        key("UCT_IB_MTU", "mtu"),
        key("UCT_IB_GID. A security key", "gid"),
        "\n[ud]\n".to_owned(),
        key("UCT_UD_DEPTH", "depth"),
    ];
    assert_eq!(keys, parts.concat());
}

#[test]
fn one_blank_line_lies_between_the_parts_of_the_page() {
    let table = "\n| key | kind | default | environment | what it is for |\n|---|---|---|---|---|\n";
    let row = |name, security, environment| {
        format!("| `{name}` | whole number{security} | `1` | `{environment}` | A number. |\n")
    };
    let parts = [
        "## Global keys\n",
        table,
        &row("first", "", "UCT_FIRST"),
        &row("second", "", "UCT_SECOND"),
        "\n## `[ib]`\n\nSome keys.\n",
        table,
        &row("mtu", "", "UCT_IB_MTU"),
        &row("gid", ", security key", "UCT_IB_GID"),
        "\n## `[ud]`\n",
        table,
        &row("depth", "", "UCT_UD_DEPTH"),
    ];
    assert_eq!(small_schema().to_markdown(), parts.concat());
}

/// Loads `text` as a file.
fn load(text: &str) -> Config {
    let home = TempDir::new().unwrap();
    let path = home.path().join("uct.toml");
    fs::write(&path, text).unwrap();
    Config::load(&schema(), &Sources::default().file(path))
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
        .config
}

#[test]
fn a_text_of_several_lines_is_one_line_of_the_file() {
    let text = schema().to_toml();
    assert!(text.contains("# La bel.\n"), "{text}");
    assert!(text.contains(r#"#label = "a \"b\" \\ 'c'\nd\u007F\u0009""#), "{text}");
}

#[test]
fn the_file_as_it_is_sets_nothing() {
    assert_eq!(load(&schema().to_toml()), Config::load(&schema(), &Sources::default()).unwrap().config);
}

#[test]
fn the_file_without_its_comment_signs_sets_every_key_to_its_default() {
    let is_key =
        |line: &str| line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_lowercase()));
    let text: String = schema()
        .to_toml()
        .lines()
        .map(|line| format!("{}\n", if is_key(line) { &line[1..] } else { line }))
        .collect();
    let defaults = Config::load(&schema(), &Sources::default()).unwrap().config;
    let own = load(&text);
    assert_eq!(own.iter().count(), 16);
    for ((section, key, own), (_, _, default)) in own.iter().zip(defaults.iter()) {
        assert!(matches!(own.origin, Origin::File { .. }), "{section}.{key} is not in the file");
        assert_eq!(own.value, default.value, "{section}.{key}");
    }
}

#[test]
fn the_page_has_a_row_for_each_key() {
    let page = schema().to_markdown();
    assert!(page.starts_with("## Global keys\n\n| key |"), "{page}");
    assert!(page.contains("\n\n## `[tcp]`\n\nSockets.\n\n| key | kind |"), "{page}");
    let row = "| `tx_seg_size` | memory size, 64 to 1g | `8k` | `UCT_TCP_TX_SEG_SIZE` | Largest message that is copied. |";
    assert!(page.contains(row), "{page}");
    assert!(page.contains("| No \\| delay. |") && page.contains("| `extra` | list | (empty) |"), "{page}");
    let columns = |row: &str| row.replace("\\|", "").matches('|').count();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 16 + 2 * 2);
    assert!(rows.iter().all(|row| columns(row) == 6), "{page}");
}

#[test]
fn the_list_has_a_line_for_each_key_with_its_origin() {
    let sources = Sources::default().env([("UCT_TCP_MAX_POLL", "7")]).set("label", "it's");
    let config = Config::load(&schema(), &sources).unwrap().config;
    let list = config.list(&schema(), false);
    assert_eq!(list.lines().count(), 16, "{list}");
    assert!(list.starts_with(
        "UCT_TCP_TX_SEG_SIZE=8k  # default\nUCT_TCP_MAX_POLL=7  # environment UCT_TCP_MAX_POLL\n"
    ));
    assert!(list.contains("UCT_LABEL='it'\\''s'  # program\n"), "{list}");
    assert!(list.contains("UCT_EXTRA=  # default\n"), "{list}");
    let docs = config.list(&schema(), true);
    let part = "# Largest message\n# that is copied.\n# Kind: memory size, 64 to 1g. Default: 8k\n\
                UCT_TCP_TX_SEG_SIZE=8k  # default\n\n";
    assert!(docs.starts_with(part), "{docs}");
}

#[test]
fn the_list_can_be_sourced_by_a_shell() {
    let label = "a b; $(touch /nonexistent/x) `id` \"q\" 'r' \\ *";
    let sources = Sources::default().set("label", label);
    let config = Config::load(&schema(), &sources).unwrap().config;
    let script = format!("{}printf %s \"$UCT_LABEL\"", config.list(&schema(), false));
    let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), label, "{output:?}");
}
