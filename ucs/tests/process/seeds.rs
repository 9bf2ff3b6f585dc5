//! The seed decides the cases of property tests, and a failure shows it.
//!
//! Built on copies of this program that run one property each.

use crate::property;
use proptest::prelude::*;
use std::process::Command;

/// Set in a copy in which the property does not hold.
const BROKEN: &str = "UCT_TEST_BROKEN_PROPERTY";

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..property::config() })]

    #[test]
    fn a_property_that_shows_its_cases(numbers in proptest::collection::vec(any::<u64>(), 1..8)) {
        println!("case {numbers:?}");
        prop_assert!(std::env::var_os(BROKEN).is_none(), "broken on purpose");
    }
}

/// What a copy with the seed prints about its seed and its cases; whether the property holds.
fn run(seed: Option<&str>, is_broken: bool) -> (Vec<String>, bool) {
    let mut copy = Command::new(std::env::current_exe().unwrap());
    copy.args(["--exact", "seeds::a_property_that_shows_its_cases", "--test-threads=1"]);
    copy.env_remove("UCT_TEST_SEED").env_remove(BROKEN);
    if let Some(seed) = seed {
        copy.env("UCT_TEST_SEED", seed);
    }
    // What a test that holds has printed is shown only if it is asked for.
    if is_broken {
        copy.env(BROKEN, "")
    } else {
        copy.arg("--nocapture")
    };
    let output = copy.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // With `--nocapture` the first line begins with the name of the test.
    let shown = |line: &str| {
        let at = line.find("UCT_TEST_SEED=").or_else(|| line.find("case ["))?;
        Some(line[at..].to_owned())
    };
    (text.lines().filter_map(shown).collect(), output.status.success())
}

#[test]
fn the_same_seed_gives_the_same_cases_however_it_is_written() {
    let (hexadecimal, holds) = run(Some("0x11"), false);
    assert!(holds, "{hexadecimal:?}");
    assert_eq!(hexadecimal[0], "UCT_TEST_SEED=0x11");
    assert_eq!(hexadecimal.len(), 1 + 20, "the seed and the cases: {hexadecimal:?}");
    assert_eq!(hexadecimal, run(Some("17"), false).0);
    assert_ne!(hexadecimal[1..], run(Some("0x12"), false).0[1..]);
}

#[test]
fn a_failure_shows_the_seed_that_repeats_it() {
    let (first, holds) = run(None, true);
    assert!(!holds && first.len() > 1, "{first:?}");
    let seed = first[0].strip_prefix("UCT_TEST_SEED=").expect("the seed");
    assert_eq!(run(Some(seed), true), (first.clone(), false));
    assert_ne!(run(None, true).0, first, "a fresh seed");
}

#[test]
fn what_is_no_number_is_no_seed() {
    assert_eq!(property::seed::parse("0xffffffffffffffff"), Some(u64::MAX));
    assert_eq!(property::seed::parse("18446744073709551615"), Some(u64::MAX));
    for text in ["", "0x", "x", "-1", "11h", "0x10000000000000000"] {
        assert_eq!(property::seed::parse(text), None, "{text}");
    }
    assert!(!run(Some("seventeen"), false).1);
}
