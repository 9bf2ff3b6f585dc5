//! The commits since this check exists: each has a title that one line of a log has room for, a body, and one parent.
//! Built on git; used by `check`.

use crate::failure::{Failure, Outcome};
use crate::process::{capture, command, output};
use crate::steps::Verdict;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// In characters.
const TITLE: usize = 72;
/// The commit that added this file is the first that is checked.
const SINCE: &str = "xtask/src/check/history.rs";
const LIMIT: Duration = Duration::from_secs(60);

/// Fails with one line for each commit that is not as CONTRIBUTING.md wants it. A tree without its history is skipped.
pub fn check(root: &Path) -> Outcome<Verdict> {
    let Ok((status, shallow, complaint)) =
        capture(git(root).args(["rev-parse", "--is-shallow-repository"]), LIMIT)
    else {
        return Ok(Verdict::Impossible("git is not installed".to_owned()));
    };
    if !status.success() {
        return Ok(Verdict::Impossible(format!("git has no history of these sources: {}", complaint.trim())));
    }
    if shallow.trim() == "true" {
        return Ok(Verdict::Impossible("a shallow clone has no history".to_owned()));
    }
    let added = output(git(root).args(["log", "--diff-filter=A", "--format=%H", "--", SINCE]), LIMIT)?;
    let Some(first) = added.lines().last() else { return Ok(Verdict::Passed) };
    let log = git_log(root, &[&format!("^{first}"), "HEAD"])? + &git_log(root, &["-1", first])?;
    let mistakes: Vec<String> = log.split_terminator(END).filter_map(mistake).collect();
    if mistakes.is_empty() {
        return Ok(Verdict::Passed);
    }
    Err(Failure::new(mistakes.join("\n")))
}

/// What ends a commit in the log, and what separates its parts.
const END: char = '\x1e';
const BETWEEN: char = '\x1f';

fn git_log(root: &Path, which: &[&str]) -> Outcome<String> {
    output(git(root).args(["log", "--format=%h%x1f%p%x1f%s%x1f%b%x1e"]).args(which), LIMIT)
}

fn git(root: &Path) -> Command {
    let mut git = command("git");
    git.arg("-C").arg(root);
    git
}

fn mistake(commit: &str) -> Option<String> {
    let mut parts = commit.trim_start().split(BETWEEN);
    let (hash, parents, title, body) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if parents.contains(' ') {
        return Some(format!("{hash} {title}: a merge, expected a branch that was rebased on main"));
    }
    let length = title.chars().count();
    if length > TITLE {
        return Some(format!("{hash} {title}: a title of {length} characters, expected {TITLE} at most"));
    }
    body.trim().is_empty().then(|| format!("{hash} {title}: no body, expected why, and how it is known"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn as_user(root: &Path) -> Command {
        let mut git = git(root);
        git.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]);
        git
    }

    /// A repository with a commit for each title and body; the file of the check comes with the second one.
    fn repository(commits: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let run = |arguments: &[&str]| output(as_user(directory.path()).args(arguments), LIMIT).unwrap();
        run(&["init", "--quiet"]);
        for (number, (title, body)) in commits.iter().enumerate() {
            if number == 1 {
                fs::create_dir_all(directory.path().join("xtask/src/check")).unwrap();
                fs::write(directory.path().join(SINCE), "").unwrap();
            }
            fs::write(directory.path().join("number"), number.to_string()).unwrap();
            run(&["add", "--all"]);
            run(&["commit", "--quiet", "--message", title, "--message", body]);
        }
        directory
    }

    #[test]
    fn commits_since_the_check_have_a_short_title_and_a_body() {
        let long = "x".repeat(73);
        let limit = "é".repeat(72);
        let good = repository(&[(&long, ""), ("a: b", "why"), (&limit, "why")]);
        assert!(matches!(check(good.path()), Ok(Verdict::Passed)));
        let bad = repository(&[(&long, ""), ("a: b", ""), (&long, "why"), ("c: d", "why")]);
        let refused = check(bad.path()).err().unwrap().to_string();
        assert_eq!(refused.lines().count(), 2, "{refused}");
        assert!(refused.contains(&format!("{long}: a title of 73 characters, expected 72 at most")));
        assert!(refused.contains("a: b: no body"), "{refused}");
    }

    #[test]
    fn a_merge_since_the_check_is_refused() {
        let merged = repository(&[("a: b", "why"), ("c: d", "why"), ("e: f", "why")]);
        let merge = ["merge", "--quiet", "--no-ff", "--message", "Merge: g", "--message", "why", "side"];
        for arguments in [
            &["checkout", "--quiet", "-b", "side", "HEAD~1"][..],
            &["commit", "--quiet", "--allow-empty", "-m", "g: h", "-m", "why"],
            &["checkout", "--quiet", "-"],
            &merge,
        ] {
            output(as_user(merged.path()).args(arguments), LIMIT).unwrap();
        }
        let refused = check(merged.path()).err().unwrap().to_string();
        assert_eq!(refused.lines().count(), 1, "{refused}");
        assert!(refused.contains("Merge: g: a merge"), "{refused}");
    }

    #[test]
    fn a_tree_without_its_history_is_skipped() {
        let plain = tempfile::tempdir().unwrap();
        assert!(matches!(check(plain.path()), Ok(Verdict::Impossible(_))));
        let whole = repository(&[("a: b", "why"), ("c: d", "")]);
        let shallow = tempfile::tempdir().unwrap();
        let from = format!("file://{}", whole.path().display());
        let to = shallow.path().join("clone");
        let mut clone = command("git");
        output(clone.args(["clone", "--quiet", "--depth", "1", &from]).arg(&to), LIMIT).unwrap();
        assert!(matches!(check(&to), Ok(Verdict::Impossible(_))));
    }
}
