//! Peers that mean harm, and bytes from outside: test programs with a name that says so, from one seed that is printed.
//! Built on the names of test programs; used by `test`.

use super::{TEST_LIMIT, require_root};
use crate::failure::{Failure, Outcome};
use crate::process::run_side_by_side;
use crate::workspace::Workspace;
use std::process::Command;
use std::time::UNIX_EPOCH;

/// The variable that repeats a run.
const SEED: &str = "UCT_TEST_SEED";
/// What marks the name of such a test program.
const MARKS: &[&str] = &["hostile", "mutations"];
/// So many of them run at a time, each with as many tests as there are processors.
const AT_A_TIME: usize = 2;

/// Whether a test program is one of them.
pub fn is_hostile(name: &str) -> bool {
    MARKS.iter().any(|mark| name.contains(mark))
}

/// Runs them. Each bounds its own time.
pub fn run(workspace: &Workspace) -> Outcome {
    let names: Vec<&str> = workspace.tests().map(|(_, name)| name).filter(|name| is_hostile(name)).collect();
    if let Some(mark) = MARKS.iter().find(|mark| !names.iter().any(|name| name.contains(**mark))) {
        return Err(Failure::new(format!("no test program has `{mark}` in its name any more")));
    }
    let seed = std::env::var(SEED)
        .unwrap_or_else(|_| format!("{:#x}", UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64)));
    println!("{SEED}={seed}");
    let built = workspace.build_tests(names.iter().copied())?;
    let tests = built.tests.iter().map(|test| {
        let mut test = test.command();
        test.env("UCT_MODULE_DIR", workspace.target().join("debug")).env(SEED, &seed);
        require_root(&mut test);
        test
    });
    run_side_by_side(AT_A_TIME, tests.collect::<Vec<Command>>(), TEST_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hostile_is_known_by_its_name() {
        for name in ["tcp_hostile", "net_hostile", "hostile", "mutations"] {
            assert!(is_hostile(name), "{name}");
        }
        for name in ["conformance", "processes", "simulated", "pages", "hello"] {
            assert!(!is_hostile(name), "{name}");
        }
    }
}
