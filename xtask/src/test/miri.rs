//! The ring of shared memory under Miri, which notices undefined behaviour.
//! Built on a nightly toolchain that has Miri; used by `test`.

use crate::failure::Outcome;
use crate::process::{capture, command, run};
use crate::steps::Verdict;
use crate::workspace::Workspace;
use std::process::Command;
use std::time::Duration;

/// What it can run in half a minute. Files, sockets and the advice that mappings need are strange to it.
const TESTS: [&str; 5] = ["test", "--package", "uct-shm", "--lib", "ring::"];
const LIMIT: Duration = Duration::from_secs(1800);

/// Runs the tests, where there is a Miri.
pub fn run_or_skip(workspace: &Workspace) -> Outcome<Verdict> {
    // Builds its own standard library, for which a toolchain may lack the sources.
    let is_there = capture(miri().arg("setup"), LIMIT).is_ok_and(|(status, ..)| status.success());
    if !is_there {
        let reason = "no Miri: rustup toolchain install nightly --component miri,rust-src";
        return Ok(Verdict::Impossible(reason.to_owned()));
    }
    let mut tests = miri();
    // Threads of the tests read the clock.
    tests.args(TESTS).env("MIRIFLAGS", "-Zmiri-disable-isolation").current_dir(workspace.root());
    run(tests.arg("--target-dir").arg(workspace.target().join("miri")), LIMIT)?;
    Ok(Verdict::Passed)
}

/// Of the toolchain that has it; the cargo that runs this program is another one's.
fn miri() -> Command {
    let mut miri = command("cargo");
    miri.args(["+nightly", "miri"]).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
    miri
}
