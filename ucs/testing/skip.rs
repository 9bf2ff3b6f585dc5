//! Tests that a machine cannot run: they say so, and fail where the run requires what is missing.
//!
//! Used by the tests of every crate, which include this file by its path. Built on `rustix`.
#![allow(dead_code, reason = "every crate's tests use a part")]

use std::{fmt::Display, io::Write};

/// What has to be there, as names with commas between: a skip for want of one is a failure.
const VARIABLE: &str = "UCT_TEST_REQUIRE";

/// Prints why a test is skipped, past the capture of a test that passes.
///
/// # Panics
/// If `UCT_TEST_REQUIRE` names what is `missing`.
#[track_caller]
pub fn skip(missing: &str, reason: impl Display) {
    let required = std::env::var(VARIABLE).unwrap_or_default();
    let is_required = required.split(',').any(|name| name.trim() == missing);
    assert!(!is_required, "{VARIABLE} names {missing}, but: {reason}");
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}

/// Whether this is root. If it is not, the test is skipped, since only root can do what `act` names.
#[track_caller]
pub fn is_root(act: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("root", format_args!("only root can {act}"));
    }
    is_root
}
