//! Tests that need a process of their own, because they count or change what belongs to a process: descriptors, threads, memory, limits,
//! the log's subscriber.
//!
//! Used by the tests of every crate, which include this file by its path. Built on the standard library alone.

use std::process::Command;

/// The name of the test whose process this is.
const VARIABLE: &str = "UCT_TEST_ALONE";
/// cargo-nextest starts a process for each test, and says so.
const NEXTEST: (&str, &str) = ("NEXTEST_EXECUTION_MODE", "process-per-test");

/// Whether this process runs the calling test alone. If others run in it, the test runs in a process that it gets here, and `false` means that
/// it has passed there: the caller returns.
///
/// # Panics
/// If the test fails there.
#[track_caller]
pub fn is_alone() -> bool {
    let thread = std::thread::current();
    let test = thread.name().expect("the thread of a test has its name");
    let is_set_to = |variable, value: &str| std::env::var(variable).is_ok_and(|set| set == value);
    if is_set_to(VARIABLE, test) || is_set_to(NEXTEST.0, NEXTEST.1) {
        return true;
    }
    let program = std::env::current_exe().expect("this program has a path");
    let mut process = Command::new(program);
    let output = process.args([test, "--exact", "--nocapture"]).env(VARIABLE, test).output();
    let output = output.expect("this program starts");
    let [printed, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    println!("{printed}");
    eprintln!("{errors}");
    let has_passed = output.status.success() && printed.contains("1 passed");
    assert!(has_passed, "{test} in a process of its own: {}", output.status);
    false
}
