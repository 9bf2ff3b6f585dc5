//! A test in a process of its own fails where it fails there.

use crate::alone::is_alone;
use std::process::{Command, Stdio};

/// Set where the test is to fail.
const BROKEN: &str = "UCT_TEST_BROKEN_ALONE";
/// Set by the second test for the first one, which does nothing without it.
const SHARED: &str = "UCT_TEST_SHARED";

#[test]
fn a_test_that_fails_if_it_is_told_to() {
    if std::env::var_os(SHARED).is_none() || !is_alone() {
        return;
    }
    assert!(std::env::var_os(BROKEN).is_none(), "broken on purpose");
    println!("process {}", std::process::id());
}

#[test]
fn a_test_runs_in_a_process_of_its_own_and_fails_with_it() {
    let run = |is_broken: bool| {
        let mut shared = Command::new(std::env::current_exe().expect("this program has a path"));
        shared.args(["alone_again::a_test_that_fails_if_it_is_told_to", "--exact", "--nocapture"]);
        // As under a runner that has one process for all tests.
        shared.env_remove("NEXTEST_EXECUTION_MODE").env(SHARED, "");
        if is_broken {
            shared.env(BROKEN, "");
        }
        let child = shared.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let id = child.id();
        let output = child.wait_with_output().expect("it ends");
        (id, String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success())
    };
    let (shared, printed, has_passed) = run(false);
    let own = printed.lines().find_map(|line| line.split_once("process ")).expect("a line of the test");
    assert!(has_passed && own.1.trim().parse::<u32>().is_ok_and(|own| own != shared), "{printed}");
    let (_, printed, has_passed) = run(true);
    assert!(!has_passed && printed.contains("1 failed"), "{printed}");
}
