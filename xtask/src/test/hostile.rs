//! Peers that mean harm, and bytes from outside: test programs with a name that says so, from one seed that is printed.
//! Built on the names of test programs; used by `test`.

use super::{TEST_LIMIT, require_root};
use crate::failure::{Failure, Outcome};
use crate::process::{cargo, run as run_command, run_side_by_side};
use crate::workspace::{BUILD_LIMIT, Workspace};
use std::time::UNIX_EPOCH;

/// The variable that repeats a run.
const SEED: &str = "UCT_TEST_SEED";
/// What marks the name of such a test program.
const MARKS: &[&str] = &["hostile", "identity", "frames", "keys", "mutations", "fuzz"];

/// Whether a test program is one of them.
pub fn is_hostile(name: &str) -> bool {
    MARKS.iter().any(|mark| name.contains(mark))
}

/// Runs them. Each bounds its own time.
pub fn run(workspace: &Workspace) -> Outcome {
    let mut names: Vec<&str> = workspace
        .members()
        .flat_map(|package| workspace.tests(&package.name))
        .filter(|name| is_hostile(name))
        .collect();
    names.sort_unstable();
    names.dedup();
    if let Some(mark) = MARKS[1..].iter().find(|mark| !names.iter().any(|name| name.contains(**mark))) {
        return Err(Failure::new(format!("no test program has `{mark}` in its name any more")));
    }
    let seed = std::env::var(SEED)
        .unwrap_or_else(|_| format!("{:#x}", UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64)));
    println!("{SEED}={seed}");
    let test = |names: &[&str]| {
        let mut test = cargo();
        test.args(["test", "--workspace", "--no-fail-fast"])
            .args(names.iter().flat_map(|name| ["--test", name]));
        test.env("UCT_MODULE_DIR", workspace.target().join("debug")).env(SEED, &seed);
        require_root(&mut test);
        test.current_dir(workspace.root());
        test
    };
    run_command(test(&names).arg("--no-run"), BUILD_LIMIT)?;
    run_side_by_side(3, names.iter().map(|name| test(&[name])).collect(), TEST_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hostile_is_known_by_its_name() {
        for name in
            ["tcp_hostile", "hostile_peers", "tcp_identity", "tcp_frames", "keys", "mutations", "fuzz"]
        {
            assert!(is_hostile(name), "{name}");
        }
        for name in ["conformance", "tcp_connections", "failures", "reliability", "hello"] {
            assert!(!is_hostile(name), "{name}");
        }
    }
}
