//! The tutorials in docs/ show the programs of this folder as they are, name functions that exist, and leave no error out.
//!
//! `UPDATE_DOCS=1 cargo test -p uct-examples --test pages tutorials` writes the programs anew.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use uct_core::Status;

/// Ahead of the block with a program: `<!-- program: echo_server -->`.
const MARK: &str = "<!-- program: ";
const FENCE: &str = "```rust,no_run\n";

const PAGES: &[&str] = &[
    "echo-server",
    "event-loop",
    "inference",
    "key-value",
    "tokio",
    "memory",
    "threads",
    "errors",
    "from-ucx",
    "from-verbs",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn page(name: &str) -> PathBuf {
    root().join("docs").join(name).with_extension("md")
}

#[test]
fn a_page_shows_the_program_as_it_is() {
    let mut shown = 0;
    for name in PAGES {
        let text = fs::read_to_string(page(name)).unwrap();
        let wanted = with_programs(&text);
        shown += text.matches(MARK).count();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(page(name), &wanted).unwrap();
        } else {
            assert!(
                text == wanted,
                "docs/{name}.md is not up to date; UPDATE_DOCS=1 writes its programs anew"
            );
        }
    }
    assert!(shown >= 3, "{shown} programs");
}

/// The page, with the programs that its marks name.
fn with_programs(text: &str) -> String {
    let mut parts = text.split(MARK);
    let mut wanted = parts.next().unwrap().to_owned();
    for part in parts {
        let (program, rest) = part.split_once(" -->\n").unwrap();
        let (_, behind) = rest.strip_prefix(FENCE).unwrap().split_once("```\n").unwrap();
        let source = root().join("examples").join(program).with_extension("rs");
        let source = fs::read_to_string(source).unwrap();
        // Without its comment and its attributes.
        let source = &source[source.find("use ").unwrap()..];
        wanted.extend([MARK, program, " -->\n", FENCE, source, "```\n", behind]);
    }
    wanted
}

#[test]
fn every_function_that_a_page_names_exists() {
    let mut sources = Vec::new();
    for folder in ["uct-core/host/src", "uct-net/src", "ucs/src"] {
        read(&root().join(folder), &mut sources);
    }
    let (mut missing, mut found) = (Vec::new(), 0);
    for page_name in PAGES {
        let text = fs::read_to_string(page(page_name)).unwrap();
        for name in names(&text) {
            let (kind, function) = name.rsplit_once("::").unwrap();
            let kind = kind.rsplit("::").next().unwrap();
            found += 1;
            if !sources.iter().any(|words| words.contains(kind) && words.contains(function)) {
                missing.push(format!("docs/{page_name}.md: {name}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(found > 80, "only {found} names");
}

/// `Worker::progress` and its like in backticks, outside of blocks, without arguments.
fn names(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let mut names = Vec::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if is_code {
            continue;
        }
        for name in line.split('`').skip(1).step_by(2) {
            let name = name.split(['(', '<']).next().unwrap();
            let is_path =
                name.contains("::") && name.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
            if is_path && name.rsplit("::").nth(1).is_some_and(|kind| kind.starts_with(char::is_uppercase)) {
                names.push(name);
            }
        }
    }
    names
}

/// The words of the code of each file in a folder.
fn read(folder: &Path, sources: &mut Vec<HashSet<String>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, sources);
        } else {
            let text = fs::read_to_string(path).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
            sources.push(words.map(str::to_owned).collect());
        }
    }
}

#[test]
fn the_cookbook_has_a_row_for_every_error() {
    let text = fs::read_to_string(page("errors")).unwrap();
    for status in Status::ALL.iter().filter(|status| status.is_error()) {
        let name = status.name().unwrap();
        let is_its =
            |line: &&str| line.split('|').nth(1).is_some_and(|cell| cell.contains(&format!("`{name}`")));
        let row = text.lines().find(is_its);
        let row = row.unwrap_or_else(|| panic!("docs/errors.md has no row for {name}"));
        assert!(row.split('|').skip(1).take(4).all(|cell| !cell.trim().is_empty()), "{row}");
    }
}
