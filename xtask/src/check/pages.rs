//! The files and functions that the pages name exist, and the version of the plugin boundary is the one that they name.
//!
//! A path in backticks is checked if it begins with a folder of the workspace. In a table of steps (`| step | file | function |`) each
//! function is defined in one of the files of its row.

use crate::failure::{Context, Failure, Outcome};
use crate::workspace::Workspace;
use std::fs;
use std::path::Path;

/// Pages for readers of the sources.
const PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "transports/README.md"];
/// The folder of the other pages.
const FOLDER: &str = "docs";
/// The header of a table of steps.
const STEPS: &str = "| step | file | function |";

/// Where the version of the plugin boundary is, and what it is called in a page ahead of its version.
const BOUNDARY: &str = "uct-core/abi/src/plugin.rs";
const BOUNDARY_NAMES: &[&str] = &["plugin boundary", "`uct-abi`"];

/// Fails with one line per name that leads nowhere, and per wrong version.
pub fn check(workspace: &Workspace) -> Outcome {
    let root = workspace.root();
    let mut pages: Vec<String> = PAGES.iter().map(|&page| page.to_owned()).collect();
    let folder = fs::read_dir(root.join(FOLDER)).context(|| format!("cannot read {FOLDER}"))?;
    for entry in folder {
        let name = entry.context(|| format!("cannot read {FOLDER}"))?.file_name();
        pages.push(format!("{FOLDER}/{}", name.to_string_lossy()));
    }
    let source = fs::read_to_string(root.join(BOUNDARY)).context(|| format!("cannot read {BOUNDARY}"))?;
    let version = boundary_version(&source)
        .ok_or_else(|| Failure::new(format!("{BOUNDARY} has no UCT_ABI_MAJOR and UCT_ABI_MINOR")))?;
    let mut findings = Vec::new();
    for page in pages.iter().filter(|page| page.ends_with(".md")) {
        let text = fs::read_to_string(root.join(page)).context(|| format!("cannot read {page}"))?;
        let of_page = in_page(root, &text).into_iter().chain(other_versions(&text, &version));
        findings.extend(of_page.map(|finding| format!("{page}: {finding}")));
    }
    if findings.is_empty() { Ok(()) } else { Err(Failure::new(findings.join("\n"))) }
}

fn in_page(root: &Path, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let (mut is_code, mut is_step) = (false, false);
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if is_code {
            continue;
        }
        let missing = names(line).filter(|name| is_path(root, name) && !root.join(name).exists());
        findings.extend(missing.map(|name| format!("there is no {name}")));
        is_step = line.starts_with('|') && (is_step || line == STEPS);
        if is_step {
            findings.extend(in_step(root, line));
        }
    }
    findings
}

/// What is missing in a row of a table of steps.
fn in_step(root: &Path, row: &str) -> Vec<String> {
    let cells: Vec<&str> = row.split('|').collect();
    let [_, _, files, functions, _] = cells[..] else {
        return vec![format!("a row without three cells: {row}")];
    };
    let sources = names(files).filter_map(|name| fs::read_to_string(root.join(name)).ok());
    let source: String = sources.collect();
    let functions = names(functions).map(|name| name.rsplit("::").next().unwrap_or(name));
    let missing = functions
        .filter(|name| ["(", "<"].iter().all(|behind| !source.contains(&format!("fn {name}{behind}"))));
    missing.map(|name| format!("there is no function {name} in {}", files.trim())).collect()
}

/// As `1.6`, from the constants.
fn boundary_version(source: &str) -> Option<String> {
    let number = |name: &str| {
        let (_, rest) = source.split_once(&format!("pub const {name}: u32 = "))?;
        rest.split(';').next()?.parse::<u32>().ok()
    };
    Some(format!("{}.{}", number("UCT_ABI_MAJOR")?, number("UCT_ABI_MINOR")?))
}

/// Each version of the plugin boundary that a page names, unless it is the present one.
fn other_versions(text: &str, version: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for name in BOUNDARY_NAMES {
        for (start, _) in text.match_indices(name) {
            let rest = text[start + name.len()..].trim_start_matches([' ', '\n', '(']);
            let rest = rest.strip_prefix("version ").unwrap_or(rest);
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let named = rest[..end].trim_end_matches('.');
            if named.contains('.') && named != version {
                findings.push(format!("the plugin boundary has version {version}, and not {named}"));
            }
        }
    }
    findings
}

/// What a line has in backticks.
fn names(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a name is a path of the workspace: it begins with one of its folders. What is built is not part of it.
fn is_path(root: &Path, name: &str) -> bool {
    let plain = !name.contains(|c: char| c.is_whitespace() || "*<>:".contains(c));
    name.split_once('/').is_some_and(|(first, _)| {
        plain
            && !first.is_empty()
            && first != "target"
            && !first.starts_with('.')
            && root.join(first).is_dir()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
    }

    #[test]
    fn a_path_of_the_workspace_has_to_exist() {
        let text =
            "`xtask/src/main.rs`, `xtask/src/no.rs`, `no/such.rs`, `src/no.rs`\n```text\n`xtask/no`\n```\n";
        assert_eq!(in_page(root(), text), ["there is no xtask/src/no.rs"]);
    }

    #[test]
    fn a_version_of_the_plugin_boundary_has_to_be_the_present_one() {
        let source = "pub const UCT_ABI_MAJOR: u32 = 1;\npub const UCT_ABI_MINOR: u32 = 16;\n";
        let version = boundary_version(source).unwrap();
        assert_eq!(version, "1.16");
        let text = "the plugin boundary (1.5) grows; plugin boundary\nversion 1.16. `uct-abi` 1.6 and `uct-abi` 2; the plugin boundary.";
        let wrong = |named| format!("the plugin boundary has version 1.16, and not {named}");
        assert_eq!(other_versions(text, &version), [wrong("1.5"), wrong("1.6")]);
        assert_eq!(boundary_version("pub const UCT_ABI_MAJOR: u32 = 1;"), None);
    }

    #[test]
    fn a_function_of_a_step_has_to_be_in_one_of_its_files() {
        let file = "`xtask/src/check/pages.rs`";
        let text = format!(
            "{STEPS}\n|---|---|---|\n| a | {file} | `in_page`, `X::names` |\n| b | {file} | `absent` |\n"
        );
        assert_eq!(in_page(root(), &text), [format!("there is no function absent in {file}")]);
    }
}
