//! What holds for every tracked file: sources stay short, nothing is left unfinished, nothing names the
//! machine that it was written on, and atomics are those that loom can replace.
//! Built on `git ls-files`; used by `check`.

use crate::failure::{Context, Failure, Outcome};
use crate::process::{command, output};
use crate::workspace::Workspace;
use std::fs;
use std::time::Duration;

/// No source file is longer than this many lines; past it, it is split along a seam.
const LONGEST: usize = 800;
/// Nine source files in ten are no longer than this.
const NINE_IN_TEN: usize = 600;
/// Half of the source files are no longer than this.
const MEDIAN: usize = 200;

/// Where people's own directories are.
const HOMES: &[&str] = &["/home/", "/root/", "/Users/"];
/// Marks of work that was left for later.
const UNFINISHED: &[&str] = &["todo!(", "unimplemented!(", "FIXME", "XXX"];

/// Atomics that loom cannot replace: sources of the libraries take them from `ucs::sync`.
const ATOMICS: &str = "std::sync::atomic";
/// Where that is.
const SYNC: &str = "ucs/src/sync.rs";

/// This file names what it looks for.
const THIS_FILE: &str = "xtask/src/check/files.rs";

/// Fails with one line per finding.
pub fn check(workspace: &Workspace) -> Outcome {
    let mut list = command("git");
    list.args(["ls-files", "-z"]).current_dir(workspace.root());
    let names = output(&mut list, Duration::from_secs(300))?;
    let checkout = workspace.root().to_string_lossy();
    let private: Vec<&str> = HOMES.iter().copied().chain([checkout.as_ref()]).collect();
    let mut findings = Vec::new();
    let mut lengths = Vec::new();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        // A file that is removed and not committed yet.
        let path = workspace.root().join(name);
        if !path.is_file() {
            continue;
        }
        let bytes = fs::read(&path).context(|| format!("cannot read {name}"))?;
        let text = String::from_utf8_lossy(&bytes);
        if name != THIS_FILE {
            findings.extend(in_text(name, &text, &private));
            findings.extend(atomics(name, &text));
        }
        if name.ends_with(".rs") {
            let lines = text.lines().count();
            if lines > LONGEST {
                findings
                    .push(format!("{name}: {lines} lines; the limit is {LONGEST}: split it along a seam"));
            }
            lengths.push(lines);
        }
    }
    findings.extend(distribution(lengths));
    if findings.is_empty() {
        return Ok(());
    }
    Err(Failure::new(findings.join("\n")))
}

fn in_text(name: &str, text: &str, private: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let unfinished = UNFINISHED.iter().filter(|mark| name.ends_with(".rs") && line.contains(**mark));
        findings.extend(unfinished.map(|mark| format!("{name}:{number}: unfinished: {mark}")));
        let private = private.iter().filter(|path| begins_a_path(line, path));
        findings
            .extend(private.map(|path| format!("{name}:{number}: names a directory of one machine: {path}")));
    }
    findings
}

/// Atomics of the standard library in a source of a library, tests left out.
fn atomics(name: &str, text: &str) -> Option<String> {
    let is_library = ["ucs/", "uct-core/", "transports/"].iter().any(|folder| name.starts_with(folder));
    let is_source = name.contains("/src/") && name.ends_with(".rs") && !name.contains("/tests");
    let concerned = is_library && is_source && name != SYNC;
    (concerned && text.contains(ATOMICS)).then(|| format!("{name}: {ATOMICS}: take `ucs::sync` instead"))
}

/// Whether `path` is in `line` as the start of an absolute path, and not the middle of another.
fn begins_a_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.}~*".contains(c))
    })
}

/// Says where the lengths of all source files together leave the rule.
fn distribution(mut lengths: Vec<usize>) -> Vec<String> {
    lengths.sort_unstable();
    let at = |tenths: usize| lengths.get((lengths.len() * tenths / 10).min(lengths.len() - 1)).copied();
    let mut findings = Vec::new();
    if lengths.is_empty() {
        return findings;
    }
    if let Some(median) = at(5).filter(|median| *median > MEDIAN) {
        findings.push(format!("half of the source files have {median} lines or more; the limit is {MEDIAN}"));
    }
    if let Some(long) = at(9).filter(|long| *long > NINE_IN_TEN) {
        findings.push(format!("one source file in ten has {long} lines or more; the limit is {NINE_IN_TEN}"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_one_machine_is_found() {
        assert_eq!(in_text("a.md", "see /home/someone/x\n", HOMES).len(), 1);
        assert_eq!(in_text("a.md", "see docs/root/x, ~/home/x and /var/home/x\n", HOMES).len(), 0);
    }

    #[test]
    fn unfinished_work_is_found_in_sources() {
        let line = format!("    {}\"later\")\n", UNFINISHED[0]);
        assert_eq!(in_text("a.rs", &line, HOMES), [format!("a.rs:1: unfinished: {}", UNFINISHED[0])]);
        assert!(in_text("a.md", &line, HOMES).is_empty());
    }

    #[test]
    fn atomics_of_the_standard_library_are_found_in_sources_of_libraries() {
        let line = format!("use {ATOMICS}::AtomicBool;\n");
        assert!(atomics("transports/tcp/src/ep.rs", &line).is_some());
        for name in [SYNC, "transports/shm/src/ring/tests.rs", "ucs/tests/a.rs", "tools/uct_info/src/main.rs"]
        {
            assert_eq!(atomics(name, &line), None, "{name}");
        }
    }

    #[test]
    fn long_files_are_counted_as_a_whole() {
        assert!(distribution(vec![]).is_empty());
        assert!(distribution(vec![100; 10]).is_empty());
        assert_eq!(distribution(vec![300; 10]).len(), 1);
        let mut lengths = vec![100; 8];
        lengths.extend([700, 700]);
        assert_eq!(distribution(lengths).len(), 1);
    }
}
