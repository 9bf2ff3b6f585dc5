//! A copy of the sources, in which changes are harmless.
//! Built on git's list of files; used by `mutants`.

use crate::failure::{Context, Outcome};
use crate::process::{command, output};
use crate::workspace::Workspace;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Copies the sources below `directory`, unless they were copied for this seed, and makes `tree` the same as that copy. A run
/// that was killed may have left a change in `tree`.
pub fn prepare(workspace: &Workspace, directory: &Path, tree: &Path, seed: u64) -> Outcome {
    let (sources, made_for) = (directory.join("sources"), directory.join("seed"));
    if fs::read_to_string(&made_for).ok() != Some(seed.to_string()) {
        for old in [&sources, tree].into_iter().filter(|old| old.exists()) {
            fs::remove_dir_all(old).context(|| format!("cannot remove {}", old.display()))?;
        }
        copy(workspace.root(), &sources, &tracked(workspace)?)?;
        fs::write(&made_for, seed.to_string()).context(|| format!("cannot write {}", made_for.display()))?;
    }
    let names = files(&sources)?;
    copy(&sources, tree, &names)
}

/// The files that git knows, or would.
fn tracked(workspace: &Workspace) -> Outcome<Vec<String>> {
    let mut list = command("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(workspace.root());
    let names = output(&mut list, Duration::from_secs(60))?;
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// All files below a directory, by their paths from there.
fn files(root: &Path) -> Outcome<Vec<String>> {
    let (mut found, mut left) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = left.pop() {
        let entries = fs::read_dir(&directory).context(|| format!("cannot read {}", directory.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                left.push(path);
            } else if let Ok(name) = path.strip_prefix(root) {
                found.push(name.to_string_lossy().into_owned());
            }
        }
    }
    Ok(found)
}

/// Copies only what differs: cargo builds nothing for files with an unchanged time.
fn copy(from: &Path, to: &Path, names: &[String]) -> Outcome {
    for name in names {
        let (from, to) = (from.join(name), to.join(name));
        // What was deleted and not yet committed is still in git's list.
        if !from.exists() {
            continue;
        }
        let contents = fs::read(&from).context(|| format!("cannot read {}", from.display()))?;
        if fs::read(&to).is_ok_and(|there| there == contents) {
            continue;
        }
        let directory = to.parent().unwrap_or(&to);
        fs::create_dir_all(directory).context(|| format!("cannot make {}", directory.display()))?;
        fs::copy(&from, &to).context(|| format!("cannot copy {}", from.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_in_the_copy_is_put_right_and_the_rest_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("deep")).unwrap();
        fs::write(from.join("a"), "1").unwrap();
        fs::write(from.join("deep/b"), "2").unwrap();
        let mut names = files(&from).unwrap();
        names.sort();
        assert_eq!(names, ["a", "deep/b"]);
        copy(&from, &to, &names).unwrap();
        let time = fs::metadata(to.join("a")).unwrap().modified().unwrap();
        fs::write(to.join("deep/b"), "changed").unwrap();
        names.push("deleted".to_owned());
        copy(&from, &to, &names).unwrap();
        assert_eq!(fs::read_to_string(to.join("deep/b")).unwrap(), "2");
        assert_eq!(fs::metadata(to.join("a")).unwrap().modified().unwrap(), time);
    }
}
