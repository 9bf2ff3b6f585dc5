//! A bounded run of every parser over mutations of its seeds. `UCT_TEST_SEED` repeats one; `cargo fuzz` goes further.

#[path = "../../../ucs/testing/seed.rs"]
mod seed;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use uct_parsers::{PARSERS, Parser, parser};

/// Inputs for each parser, and the time after which fewer will do.
const INPUTS: u32 = 20_000;
const TIME: Duration = Duration::from_secs(4);

/// Numbers that lengths, offsets and counts go wrong at.
const INTERESTING: &[u64] = &[0, 1, 7, 8, 63, 64, 255, 256, 65535, 1 << 31, (1 << 32) - 1, 1 << 63, u64::MAX];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// One of the seeds with some changes.
fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len());
        match random.below(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = random.next() as u8,
            2 => bytes.insert(at.min(bytes.len()), random.next() as u8),
            3 if !bytes.is_empty() => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            5 => {
                let word = INTERESTING[random.below(INTERESTING.len())].to_le_bytes();
                let width = 1 << random.below(4);
                for (place, byte) in bytes.iter_mut().skip(at).zip(&word[..width]) {
                    *place = *byte;
                }
            }
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len());
                let length = random.below(other.len() - from + 1).min(256);
                let at = at.min(bytes.len());
                bytes.splice(at..at, other[from..from + length].iter().copied());
            }
        }
    }
    bytes
}

/// The first input that makes a parser panic, if one does.
fn first_panic(parser: &Parser, seed: u64) -> Option<Vec<u8>> {
    let seeds = (parser.seeds)();
    let mut random = Random(seed);
    let start = Instant::now();
    let panics = |bytes: &[u8]| catch_unwind(AssertUnwindSafe(|| (parser.read)(bytes))).is_err();
    if let Some(bytes) = seeds.iter().chain([&Vec::new()]).find(|bytes| panics(bytes)) {
        return Some(bytes.clone());
    }
    for count in 0..INPUTS {
        if count.is_multiple_of(64) && start.elapsed() > TIME {
            println!("{}: {count} inputs in {} s", parser.name, TIME.as_secs());
            return None;
        }
        let bytes = mutated(&seeds, &mut random);
        if panics(&bytes) {
            return Some(bytes);
        }
    }
    None
}

#[test]
fn no_bytes_from_outside_make_a_parser_panic() {
    let seed = seed::printed().max(1);
    let mut panicked = Vec::new();
    for parser in PARSERS {
        if let Some(bytes) = first_panic(parser, seed) {
            panicked.push(format!("{} over b\"{}\"", parser.name, bytes.escape_ascii()));
        }
    }
    assert!(panicked.is_empty(), "UCT_TEST_SEED={seed:#x}\n{}", panicked.join("\n"));
}

#[test]
fn a_parser_that_panics_is_found() {
    let fragile = Parser {
        name: "fragile",
        read: |bytes| assert!(bytes.len() < 24 || bytes[20] != 0xff, "planted"),
        seeds: || vec![vec![0; 24]],
    };
    std::panic::set_hook(Box::new(|_| ()));
    let found = first_panic(&fragile, 1);
    let _ = std::panic::take_hook();
    assert!(found.is_some_and(|bytes| bytes[20] == 0xff));
}

#[test]
fn the_fuzz_targets_are_those_of_the_list() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz_targets");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut targets: Vec<_> =
        files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    targets.sort();
    let mut names: Vec<_> = PARSERS.iter().map(|parser| parser.name).collect();
    names.sort_unstable();
    assert_eq!(targets, names);
    assert!(targets.iter().all(|name| parser(name).name == name));
}
