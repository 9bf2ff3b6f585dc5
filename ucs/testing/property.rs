//! What property tests have in common: their cases follow from `UCT_TEST_SEED`.
//!
//! Used by the tests of every crate, which include this file by its path. Built on `proptest` and `seed.rs`.

use proptest::test_runner::{Config, RngSeed};

pub mod seed;

/// The configuration of a property test: its seed is given or fresh, and printed; nothing is kept in files.
pub fn config() -> Config {
    Config { failure_persistence: None, rng_seed: RngSeed::Fixed(seed::printed()), ..Config::default() }
}
