//! Copies of programs, for tests that start them.
//!
//! Used by the tests of every crate, which include this file by its path. Built on the standard library alone.

use std::path::Path;
use std::process::Command;

/// Copies a program. Another process writes the copy: if this one did, a process that another thread forks meanwhile would have it open for
/// writing as well, and as long as it has, the system refuses to start the copy (ETXTBSY).
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status().expect("cp is there");
    assert!(copied.success(), "{} is not copied", from.as_ref().display());
}
