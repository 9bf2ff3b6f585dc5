//! What is said when a configuration is wrong: where, what was given, what was expected, what to do.

use std::fs;

use crate::property;
use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use ucs::config::{Config, Field, Kind, Schema, Section, Sources, nearest};

fn schema() -> Schema {
    let mut schema = Schema::new();
    let global = vec![
        Field::new("tls", Kind::NameList, "all", ""),
        Field::new("fallback", Kind::words(["error", "warn", "allow"]), "warn", ""),
        Field::new("extra", Kind::List, "", ""),
        Field::new("label", Kind::Text, "", ""),
        Field::new("scale", Kind::Real, "1", ""),
        Field::new("ports", Kind::Range, "0", ""),
    ];
    schema.add_section(Section::new("", "", global)).unwrap();
    let tcp = vec![
        Field::new("tx_seg_size", Kind::MemSize { min: 64, max: 1 << 20 }, "8k", ""),
        Field::new("max_poll", Kind::UInt { min: 1, max: 1024 }, "16", ""),
        Field::new("offset", Kind::Int { min: -8, max: 8 }, "0", ""),
        Field::new("timeout", Kind::Time, "30s", ""),
        Field::new("nodelay", Kind::Bool, "y", ""),
        Field::new("keepalive", Kind::Ternary, "auto", ""),
        Field::new("bandwidth", Kind::Bandwidth, "auto", ""),
        Field::new("depth", Kind::Count, "inf", ""),
    ];
    schema.add_section(Section::new("tcp", "", tcp)).unwrap();
    let shm = vec![Field::new("fifo_size", Kind::Count, "256", "")];
    schema.add_section(Section::new("shm", "", shm)).unwrap();
    schema
}

/// The errors of a file with this text, one a line, with `F` for its path.
fn errors(text: &str) -> Vec<String> {
    let home = TempDir::new().unwrap();
    let path = home.path().join("uct.toml");
    fs::write(&path, text).unwrap();
    match Config::load(&schema(), &Sources::default().file(&path)) {
        Ok(_) => Vec::new(),
        Err(error) => {
            let lines = error.to_string().replace(path.to_str().unwrap(), "F");
            lines.lines().map(str::to_owned).collect()
        }
    }
}

fn error_of(sources: &Sources) -> String {
    Config::load(&schema(), sources).unwrap_err().to_string()
}

#[test]
fn a_misspelt_key_is_named_with_its_place_and_the_nearest() {
    assert_eq!(
        errors("[tcp]\n\n  tx_seg_sise = \"8k\"\n"),
        ["F:3:3: unknown key \"tx_seg_sise\" in section [tcp]; did you mean \"tx_seg_size\"?"]
    );
    assert_eq!(errors("tsl = 'all'"), ["F:1:1: unknown key \"tsl\"; did you mean \"tls\"?"]);
    assert_eq!(
        errors("[tcp]\nMax-Poll = 1"),
        ["F:2:1: unknown key \"Max-Poll\" in section [tcp]; did you mean \"max_poll\"?"]
    );
}

#[test]
fn a_key_in_the_wrong_section_is_told_where_it_belongs() {
    assert_eq!(
        errors("max_poll = 1\n[shm]\nmax_poll = 2\ntls = 'all'\n"),
        [
            "F:1:1: unknown key \"max_poll\"; it is a key of section [tcp]",
            "F:3:1: unknown key \"max_poll\" in section [shm]; it is a key of section [tcp]",
            "F:4:1: unknown key \"tls\" in section [shm]; \
             it is a global key: write it ahead of the first section",
        ]
    );
}

#[test]
fn a_key_that_resembles_none_gets_the_list_of_keys() {
    assert_eq!(
        errors("[shm]\nwhatever = 1"),
        ["F:2:1: unknown key \"whatever\" in section [shm]; the keys here are fifo_size"]
    );
}

#[test]
fn more_than_eight_keys_are_not_listed() {
    let names = ["a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9"];
    for (count, hint) in [
        (0, "there are no keys here"),
        (1, "the keys here are a1"),
        (8, "are a1, a2, a3, a4, a5, a6, a7, a8"),
        (9, "`uct_info -c` lists"),
    ] {
        let mut schema = Schema::new();
        let fields = names[..count].iter().map(|name| Field::new(*name, Kind::UINT, "1", "")).collect();
        schema.add_section(Section::new("many", "", fields)).unwrap();
        let home = TempDir::new().unwrap();
        let path = home.path().join("uct.toml");
        fs::write(&path, "[many]\nwhatever = 1\n").unwrap();
        let error = Config::load(&schema, &Sources::default().file(&path)).unwrap_err().to_string();
        assert!(error.contains(hint), "{count}: {error}");
    }
}

#[test]
fn a_value_is_shown_up_to_eighty_characters() {
    for (length, is_cut) in [(79, false), (80, false), (81, true), (82, true)] {
        let value = format!("[{}]", " ".repeat(length - 2));
        let shown =
            format!("label = {}{}: expected", &value[..length.min(80)], if is_cut { "…" } else { "" });
        let found = errors(&format!("label = {value}"));
        assert!(found[0].contains(&shown), "{length}: {found:?}");
    }
}

#[test]
fn a_misspelt_section_is_named_with_its_place_and_the_nearest() {
    assert_eq!(errors("[tpc]\nmax_poll = 1"), ["F:1:2: unknown section \"tpc\"; did you mean [tcp]?"]);
    assert_eq!(
        errors("[infiniband]\nmtu = 1"),
        ["F:1:2: unknown section \"infiniband\"; \
          the sections are [tcp], [shm]; is the transport that has it loaded?"]
    );
}

#[test]
fn a_section_that_is_a_value_and_a_key_that_is_a_table_are_told_apart() {
    assert_eq!(
        errors("tcp = 5"),
        ["F:1:1: tcp is a section, not a key: expected a line [tcp] with the section's keys below it"]
    );
    let error = &errors("[[tcp]]\nmax_poll = 1")[0];
    assert!(error.contains("tcp is a section"), "{error}");
    let error = &errors("[tls]\nx = 1")[0];
    assert!(error.starts_with("F:1:1: tls = a table: expected names or patterns"), "{error}");
    let error = &errors("[tcp.max_poll]\nx = 1")[0];
    assert!(error.contains("tcp.max_poll = a table: expected a whole number from 1 to 1024"), "{error}");
    let error = &errors("[tcp.more]\nx = 1")[0];
    assert!(error.contains("unknown key \"more\" in section [tcp]"), "{error}");
}

#[test]
fn every_bad_value_is_shown_as_written_with_what_was_expected_and_an_example() {
    let size =
        "a whole number with an optional k, m, g or t (powers of 1024), from 64 to 1m, for example 64k";
    let cases = [
        ("[tcp]\ntx_seg_size = \"8x\"", format!("F:2:15: tcp.tx_seg_size = \"8x\": expected {size}")),
        ("[tcp]\ntx_seg_size = \"inf\"", format!("F:2:15: tcp.tx_seg_size = \"inf\": expected {size}")),
        ("[tcp]\ntx_seg_size = 0x10", format!("F:2:15: tcp.tx_seg_size = 0x10: expected {size}")),
        ("[tcp]\ntx_seg_size = [\n1,\n2]", format!("F:2:15: tcp.tx_seg_size = [ 1, 2]: expected {size}")),
        (
            "[tcp]\nmax_poll = 0",
            "F:2:12: tcp.max_poll = 0: expected a whole number from 1 to 1024, for example 16".to_owned(),
        ),
        (
            "[tcp]\noffset = -9",
            "F:2:10: tcp.offset = -9: expected a whole number from -8 to 8, for example 1".to_owned(),
        ),
        (
            "fallback = 'never'",
            "F:1:12: fallback = 'never': expected one of error, warn, allow, for example error".to_owned(),
        ),
        ("label = 5", "F:1:9: label = 5: expected a text, for example text".to_owned()),
        ("scale = nan", "F:1:9: scale = nan: expected a number, for example 0.5".to_owned()),
        (
            "extra = ['a,b']",
            "F:1:9: extra = ['a,b']: expected texts with commas between, for example one,two".to_owned(),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(errors(text), [expected], "{text}");
    }
}

#[test]
fn a_type_that_does_not_fit_is_refused_for_every_kind() {
    let documents = [
        "tls = 1",
        "tls = []",
        "tls = [1]",
        "tls = true",
        "fallback = 1",
        "extra = 1",
        "extra = [true]",
        "label = true",
        "label = ['a']",
        "label = 1.5",
        "fallback = 1.5",
        "scale = 'x'",
        "scale = true",
        "scale = inf",
        "ports = 1.5",
        "ports = ['1', '2']",
        "tcp.max_poll = 1.0",
        "tcp.max_poll = -1",
        "tcp.offset = 1979-05-27",
        "tcp.timeout = -1",
        "tcp.timeout = nan",
        "tcp.timeout = -inf",
        "tcp.timeout = true",
        "tcp.nodelay = 'maybe'",
        "tcp.nodelay = 2",
        "tcp.nodelay = []",
        "tcp.keepalive = 1.0",
        "tcp.bandwidth = 'fast'",
        "tcp.bandwidth = -1",
        "tcp.depth = -1",
        "tcp.depth = 1.5",
    ];
    for document in documents {
        let found = errors(document);
        assert_eq!(found.len(), 1, "{document}: {found:?}");
        assert!(found[0].contains("expected") && found[0].contains("for example"), "{document}: {found:?}");
    }
}

#[test]
fn all_errors_of_all_sources_come_at_once_in_the_order_of_their_lines() {
    let home = TempDir::new().unwrap();
    let path = home.path().join("uct.toml");
    fs::write(&path, "tlss = 'a'\n[tcp]\ntimeout = 'x'\nmax_poll = 0\n[tpc]\na = 1\n").unwrap();
    let sources = Sources::default()
        .file(&path)
        .env([("UCT_TCP_DEPTH", "many")])
        .set("tcp.nodelay", "maybe")
        .set("nosuch", "1")
        .set("tpc.max_poll", "1")
        .set("tcp.max_pol", "1");
    let text = error_of(&sources);
    let starts = [
        ":1:1: unknown key \"tlss\"",
        ":3:11: tcp.timeout = 'x'",
        ":4:12: tcp.max_poll = 0",
        ":5:2: unknown section \"tpc\"",
        "environment UCT_TCP_DEPTH: tcp.depth = \"many\"",
        "program: tcp.nodelay = \"maybe\"",
        "program: unknown key \"nosuch\"",
        "program: unknown section \"tpc\"; did you mean [tcp]?",
        "program: unknown key \"max_pol\" in section [tcp]; did you mean \"max_poll\"?",
    ];
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), starts.len(), "{text}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.contains(start), "{line} has no {start}");
    }
}

#[test]
fn a_value_that_a_later_source_overrules_must_be_right_all_the_same() {
    let sources = Sources::default().env([("UCT_TCP_MAX_POLL", "none")]).set("tcp.max_poll", "1");
    assert!(error_of(&sources).contains("environment UCT_TCP_MAX_POLL: tcp.max_poll = \"none\""));
}

#[test]
fn a_file_that_is_not_toml_is_shown_where_it_breaks() {
    let found = errors("[tcp]\nmax_poll = = 1\nnodelay = yes\ndepth = 1\n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("F:2:12: not TOML: "), "{found:?}");
    assert!(found[1].starts_with("F:3:11: not TOML: "), "{found:?}");
    let found = errors("[tcp\nmax_poll = 1\n");
    assert!(found[0].starts_with("F:1:5: not TOML: "), "{found:?}");
    let found = errors("[tcp]\ndepth = 1\ndepth = 2\n");
    assert!(found[0].starts_with("F:3:1: not TOML: ") && found[0].contains("duplicate"), "{found:?}");
    let found = errors("label = \"abc");
    assert!(found[0].starts_with("F:1:"), "{found:?}");
}

#[test]
fn columns_count_characters() {
    let found =
        errors("extra = ['é', 'ü', 3]\nlabel = 'é' # é\n\"é\" = 1\ntcp = { 'é' = 1, max_poll = 0 }\n");
    assert!(found[0].starts_with("F:1:9: "), "{found:?}");
    assert!(found[1].starts_with("F:3:1: unknown key \"é\""), "{found:?}");
    assert!(found[2].starts_with("F:4:9: unknown key \"é\""), "{found:?}");
    assert!(found[3].starts_with("F:4:29: tcp.max_poll"), "{found:?}");
}

/// Processor time of this thread, whatever else the machine does.
fn processor_seconds() -> i64 {
    clock_gettime(ClockId::ThreadCPUTime).tv_sec
}

#[test]
fn a_file_full_of_nonsense_is_refused_quickly_and_in_few_words() {
    let nested = format!("tls = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    let documents = [
        (0..60_000).map(|at| format!("k{at} = 1\n")).collect::<String>(),
        (0..40_000).map(|at| format!("[s{at}]\na = 1\n")).collect::<String>(),
        format!("tcp = {{ {} }}", (0..60_000).map(|at| format!("k{at}=1")).collect::<Vec<_>>().join(",")),
        "=\n".repeat(400_000),
        "[".repeat(1_000_000),
        format!("{} = 1", "k".repeat(1_000_000)),
        format!("label = [{}]", "1,".repeat(400_000)),
        nested,
    ];
    for document in documents {
        let start = processor_seconds();
        let found = errors(&document);
        let took = processor_seconds() - start;
        let head: String = document.chars().take(20).collect();
        assert!(!found.is_empty() && found.len() <= 101, "{head}: {}", found.len());
        assert!(found.iter().all(|line| line.len() < 1000), "{head}");
        assert!(took < 30, "{head}: {took} s");
    }
    let many: String = (0..150).map(|at| format!("k{at} = 1\n")).collect();
    assert_eq!(errors(&many).last().unwrap(), "F: and 50 more errors");
}

#[test]
fn the_nearest_name_is_near_or_none() {
    let names = ["tx_seg_size", "rx_seg_size", "max_poll"];
    assert_eq!(nearest("tx_segsize", names), Some("tx_seg_size"));
    assert_eq!(nearest("rx_seg_sizes", names), Some("rx_seg_size"));
    assert_eq!(nearest("MAX-POLL", names), Some("max_poll"));
    assert_eq!(nearest("A-B-C-D", ["a_b_c_d"]), Some("a_b_c_d"), "signs and case do not count");
    assert_eq!(nearest("completely", names), None);
    assert_eq!(nearest("", names), None);
    assert_eq!(nearest("x", []), None);
    let long = "x".repeat(128);
    assert_eq!(nearest(&long, [&*long]), Some(&*long));
    let longer = "x".repeat(129);
    assert_eq!(nearest(&longer, [&*longer]), None, "too long to look");
    // A third of the letters, and at least one, may differ.
    for (given, is_near) in [("abcdefxyz", true), ("abcdewxyz", false)] {
        assert_eq!(nearest(given, ["abcdefghi"]).is_some(), is_near, "{given}");
    }
    assert_eq!((nearest("ax", ["ab"]), nearest("xy", ["ab"])), (Some("ab"), None));
    assert_eq!(nearest(&"x".repeat(1_000_000), names), None);
}

proptest! {
    #![proptest_config(property::config())]

    #[test]
    fn no_file_makes_loading_panic(
        text in prop_oneof![
            ".{0,200}",
            "([a-z.\"'\\[\\]={}# \n,0-9é-]|tcp|max_poll|tls|true|\n){0,60}",
        ]
    ) {
        let _ = errors(&text);
    }

    #[test]
    fn no_value_makes_loading_panic(key in "(tcp|shm|)[.]?(max_poll|timeout|tls|é|)", value in ".{0,20}") {
        let sources = Sources::default().env([("UCT_TCP_TIMEOUT", &value), ("UCT_TLS", &value)]).set(key, value);
        let _ = Config::load(&schema(), &sources);
    }
}
