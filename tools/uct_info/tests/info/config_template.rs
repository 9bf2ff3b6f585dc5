//! config/uct.toml is what the schema makes. This program may find fewer plugins than the file has sections;
//! those that it has must agree. `cargo xtask check` compares the whole file.

use std::collections::BTreeMap;

use crate::support::process::run;
use crate::support::{ended, info};

const COMMITTED: &str = include_str!("../../../../config/uct.toml");

/// The text of each section by its name; the text ahead of the first one has none.
fn sections(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut name = "";
    let mut comments = Vec::new();
    for line in text.lines() {
        // A comment belongs to what follows it.
        if line.is_empty() {
            all.entry(name).or_default().append(&mut comments);
            continue;
        }
        if let Some(next) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name = next;
        }
        comments.push(line);
    }
    all.entry(name).or_default().append(&mut comments);
    all
}

#[test]
fn the_committed_file_has_every_section_as_the_schema_has_it() {
    let made = ended(&["--config-template"]).success();
    let committed = sections(COMMITTED);
    for (name, lines) in sections(&made) {
        let own = committed.get(name).unwrap_or_else(|| panic!("no [{name}]; run: cargo xtask config"));
        assert_eq!(*own, lines, "[{name}] differs; run: cargo xtask config");
    }
}

#[test]
fn the_template_sets_nothing_and_is_read_without_a_complaint() {
    let made = ended(&["--config-template"]).success();
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), &made).unwrap();
    let path = file.path().display().to_string();
    let ended_with = run(&mut info(&["-c", "--config", &path]));
    assert_eq!(ended_with.stderr, "");
    assert_eq!(ended_with.success(), ended(&["-c"]).success());
}

#[test]
fn every_key_of_the_template_may_be_set_to_its_default() {
    let made = ended(&["--config-template"]).success();
    let uncommented: Vec<&str> = made
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if !key.is_empty() && !key.starts_with(' ') => key,
            _ => line,
        })
        .collect();
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(file.path(), uncommented.join("\n")).unwrap();
    let path = file.path().display().to_string();
    let printed = run(&mut info(&["-c", "--config", &path])).success();
    assert!(printed.lines().all(|line| line.contains(&format!("# {path}:"))), "{printed}");
}

#[test]
fn a_section_that_differs_is_seen() {
    let changed = COMMITTED.replace("#fallback = ", "#fallback = \"\" # ");
    assert_ne!(sections(&changed)[""], sections(COMMITTED)[""]);
    assert!(sections(COMMITTED).len() > 1);
}
