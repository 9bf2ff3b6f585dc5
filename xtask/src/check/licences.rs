//! Licences, banned packages and sources of packages, by cargo-deny and deny.toml.
//! Built on `cargo deny`, where it is installed; used by `check`.

use crate::failure::Outcome;
use crate::process::{cargo, run};
use crate::steps::Verdict;
use crate::workspace::Workspace;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

/// Fails where cargo-deny finds something that deny.toml does not allow.
pub fn check(workspace: &Workspace) -> Outcome<Verdict> {
    let installed = cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !installed {
        let reason = "cargo-deny is not installed (cargo install --locked cargo-deny)";
        return Ok(Verdict::Impossible(reason.to_owned()));
    }
    // Advisories are left out: they need a download, and a check has to give the same result tomorrow.
    let mut deny = cargo();
    deny.args(["deny", "check", "bans", "licenses", "sources"]).current_dir(workspace.root());
    run(&mut deny, LIMIT).map(|()| Verdict::Passed)
}
