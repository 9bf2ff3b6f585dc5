//! A copy of the sources in which a change harms nobody.
//! Stands on git's list of files; `mutants` stands on it.

use crate::failure::{Context, Outcome};
use crate::process::{command, output};
use crate::workspace::Workspace;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Copies the sources to `tree`, unless the copy there was made for this seed.
pub fn prepare(workspace: &Workspace, tree: &Path, seed_file: &Path, seed: u64) -> Outcome {
    if fs::read_to_string(seed_file).is_ok_and(|made_for| made_for == seed.to_string()) {
        return Ok(());
    }
    if tree.exists() {
        fs::remove_dir_all(tree).context(|| format!("cannot remove {}", tree.display()))?;
    }
    let mut list = command("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(workspace.root());
    for name in output(&mut list, Duration::from_secs(60))?.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (workspace.root().join(name), tree.join(name));
        // What was deleted and not yet committed is still in the list.
        if !from.exists() {
            continue;
        }
        let directory = to.parent().unwrap_or(tree);
        fs::create_dir_all(directory).context(|| format!("cannot make {}", directory.display()))?;
        fs::copy(&from, &to).context(|| format!("cannot copy {}", from.display()))?;
    }
    fs::write(seed_file, seed.to_string()).context(|| format!("cannot write {}", seed_file.display()))
}
