//! The seed of a test's random choices.
//!
//! Used by the tests of every crate, which include this file by its path. Built on the standard library alone.
#![allow(dead_code, reason = "every crate's tests use a part")]

/// What repeats a run.
const VARIABLE: &str = "UCT_TEST_SEED";

/// Reads a seed, as it is printed or as a decimal number.
pub fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The seed that `UCT_TEST_SEED` gives.
pub fn given() -> Option<u64> {
    let text = std::env::var(VARIABLE).ok()?;
    Some(parse(&text).unwrap_or_else(|| panic!("{VARIABLE}={text}: expected a number, such as 17 or 0x11")))
}

/// The given seed or a fresh one. It is printed, and a test that fails shows what it has printed.
pub fn printed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let seed = given().unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
    println!("{VARIABLE}={seed:#x}");
    seed
}
