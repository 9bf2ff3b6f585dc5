//! Atomics do what a serial model does, also when several senders run at once.

use uct_host::{AtomicOp, Ep, Error, Fetched, Flush, Memory, RemoteKey, Result};

use super::case;
use crate::access::{finish, is_refusal};
use crate::case::{Case, Needs};
use crate::pair::{Link, Pair, connect};
use crate::random::check_bytes;
use crate::setup::Setup;

/// The two widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Four,
    Eight,
}

impl Width {
    fn bytes(self) -> usize {
        if self == Width::Four { 4 } else { 8 }
    }

    fn mask(self) -> u64 {
        if self == Width::Four { u64::from(u32::MAX) } else { u64::MAX }
    }

    fn ops(self, pair: &Pair) -> uct_host::AtomicOps {
        let attributes = pair.sender.attributes();
        if self == Width::Four { attributes.atomic32 } else { attributes.atomic64 }
    }

    fn post(self, ep: &Ep, op: AtomicOp, value: u64, at: u64, key: &RemoteKey) -> Result {
        match self {
            Width::Four => ep.atomic32_post(op, value as u32, at, key),
            Width::Eight => ep.atomic64_post(op, value, at, key),
        }
    }

    fn read(self, memory: &Memory, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        memory.read(offset, &mut bytes[..self.bytes()]);
        u64::from_le_bytes(bytes)
    }
}

/// Carries out a fetching atomic and returns the old value.
fn fetch(
    pair: &Pair,
    link: &Link,
    width: Width,
    op: AtomicOp,
    values: (u64, u64),
    at: u64,
    key: &RemoteKey,
) -> Result<u64> {
    let completion = pair.sender.completion();
    let (value, compare) = values;
    let start = || match (width, op) {
        (Width::Four, AtomicOp::Cswap) => {
            link.atomic32_cswap(compare as u32, value as u32, at, key, &completion)
        }
        (Width::Eight, AtomicOp::Cswap) => link.atomic64_cswap(compare, value, at, key, &completion),
        (Width::Four, _) => link.atomic32_fetch(op, value as u32, at, key, &completion),
        (Width::Eight, _) => link.atomic64_fetch(op, value, at, key, &completion),
    };
    let fetched = pair.retry("a fetching atomic", start)?;
    if fetched == Fetched::InProgress {
        finish(&pair.sender, link, &completion, || pair.progress())?;
    }
    Ok(fetched.old_value(&completion))
}

fn model(op: AtomicOp, old: u64, value: u64, compare: u64, mask: u64) -> u64 {
    let new = match op {
        AtomicOp::Add => old.wrapping_add(value),
        AtomicOp::And => old & value,
        AtomicOp::Or => old | value,
        AtomicOp::Xor => old ^ value,
        AtomicOp::Swap => value,
        AtomicOp::Cswap if old == compare & mask => value,
        AtomicOp::Cswap => old,
    };
    new & mask
}

/// Memory whose first byte is aligned to 8, and the offset in it.
fn cells(pair: &Pair, seed: u64) -> (Memory, usize) {
    let memory = pair.receiver.memory(crate::random::pattern(seed, 88));
    let offset = 16 + (memory.address().next_multiple_of(8) - memory.address()) as usize;
    (memory, offset)
}

fn one_by_one(setup: &Setup) {
    let pair = Pair::new(setup);
    let mut random = setup.random();
    for width in [Width::Four, Width::Eight] {
        let ops = width.ops(&pair);
        let (memory, offset) = cells(&pair, setup.seed);
        let key = pair.sender.key_to(&memory);
        let at = memory.address() + offset as u64;
        let before = memory.to_vec();
        let mut expected = width.read(&memory, offset);
        for round in 0..60 {
            for op in AtomicOp::ALL {
                // Ends of the range among arbitrary numbers, and a comparison that holds every other time.
                let value = *random.pick(&[0, 1, u64::MAX, 1 << 31, 1 << 63])
                    ^ if round % 2 == 0 { random.next() } else { 0 };
                let compare = if round % 2 == 0 { expected } else { random.next() };
                if ops.fetch & op.bit() != 0 {
                    let old = fetch(&pair, &pair.to, width, op, (value, compare), at, &key);
                    let old = old.unwrap_or_else(|error| panic!("{width:?} fetch {op:?}: {error}"));
                    assert_eq!(old, expected, "{width:?} {op:?} fetches another value than was there");
                    expected = model(op, expected, value, compare, width.mask());
                }
                if ops.post & op.bit() != 0 {
                    pair.retry("a post", || width.post(&pair.to, op, value, at, &key)).expect("a post");
                    expected = model(op, expected, value, compare, width.mask());
                }
                pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
                assert_eq!(width.read(&memory, offset), expected, "{width:?} {op:?} of {value:#x}");
            }
        }
        let mut after = memory.to_vec();
        after[offset..offset + width.bytes()].copy_from_slice(&before[offset..offset + width.bytes()]);
        check_bytes("what lies around the cell", &after, &before);
    }
    pair.to.check_alive();
}

fn several_senders(setup: &Setup) {
    const SENDERS: usize = 6;
    const ROUNDS: u64 = 60;
    let pair = Pair::new(setup);
    let links: Vec<(Link, Link)> = (0..SENDERS).map(|_| connect(&pair.sender, &pair.receiver)).collect();
    for width in [Width::Four, Width::Eight] {
        let ops = width.ops(&pair);
        let add = AtomicOp::Add.bit();
        if ops.fetch & add == 0 && ops.post & add == 0 {
            continue;
        }
        let (memory, offset) = cells(&pair, setup.seed);
        memory.fill(0, memory.len(), 0);
        let key = pair.sender.key_to(&memory);
        let at = memory.address() + offset as u64;
        let mut total = 0;
        let mut outstanding = Vec::new();
        for round in 0..ROUNDS {
            for (link, _) in &links {
                if ops.post & add != 0 && round % 3 == 0 {
                    pair.retry("a post", || width.post(link, AtomicOp::Add, 1, at, &key)).expect("a post");
                    total += 1;
                }
                if ops.fetch & add != 0 {
                    let completion = pair.sender.completion();
                    let fetch = || match width {
                        Width::Four => link.atomic32_fetch(AtomicOp::Add, 1, at, &key, &completion),
                        Width::Eight => link.atomic64_fetch(AtomicOp::Add, 1, at, &key, &completion),
                    };
                    let fetched = pair.retry("a fetch", fetch).expect("a fetch");
                    total += 1;
                    outstanding.push((fetched, completion));
                }
            }
        }
        pair.until("all fetches", || outstanding.iter().all(|(_, completion)| completion.is_done()));
        for (link, _) in &links {
            pair.flush(link, Flush::REMOTE).expect("a flush");
        }
        assert_eq!(width.read(&memory, offset), total, "{width:?}: increments got lost");
        // Each increment saw a value that no other saw.
        let mut seen: Vec<u64> =
            outstanding.iter().map(|(fetched, completion)| fetched.old_value(completion)).collect();
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{width:?}: two increments saw one value");
    }
}

fn swaps_of_several_senders(setup: &Setup) {
    let pair = Pair::new(setup);
    let links: Vec<(Link, Link)> = (0..4).map(|_| connect(&pair.sender, &pair.receiver)).collect();
    for width in [Width::Four, Width::Eight] {
        if width.ops(&pair).fetch & AtomicOp::Cswap.bit() == 0 {
            continue;
        }
        let (memory, offset) = cells(&pair, setup.seed);
        memory.fill(0, memory.len(), 0);
        let key = pair.sender.key_to(&memory);
        let at = memory.address() + offset as u64;
        // Each takes the number from what it saw to the next, and tries again with what it sees if another was ahead.
        let mut guesses = vec![0; links.len()];
        let mut successes = 0;
        while successes < 100 {
            for (index, (link, _)) in links.iter().enumerate() {
                let guess = guesses[index];
                let old =
                    fetch(&pair, link, width, AtomicOp::Cswap, (guess + 1, guess), at, &key).expect("a swap");
                if old == guess {
                    successes += 1;
                }
                guesses[index] = if old == guess { guess + 1 } else { old };
            }
        }
        assert_eq!(width.read(&memory, offset), successes, "{width:?}: swaps that succeeded, and the number");
    }
}

fn wrong_places(setup: &Setup) {
    let pair = Pair::new(setup);
    let witness = connect(&pair.sender, &pair.receiver);
    for width in [Width::Four, Width::Eight] {
        let ops = width.ops(&pair);
        let (memory, offset) = cells(&pair, setup.seed);
        let key = pair.sender.key_to(&memory);
        let before = memory.to_vec();
        let base = memory.address();
        let at = base + offset as u64;
        let end = (base + memory.len() as u64).next_multiple_of(8);
        let places = [
            ("one byte off", at + 1),
            ("half a cell off", at + width.bytes() as u64 / 2),
            ("outside", end),
            ("at 0", 0),
        ];
        for (what, at) in places {
            let check = |kind: &str, answer: Result| {
                let error = answer.expect_err(&format!("{width:?} {kind} {what}: no error came back"));
                assert!(is_refusal(error), "{width:?} {kind} {what}: {error} is no refusal");
                pair.settle();
                check_bytes(&format!("memory after {width:?} {what}"), &memory.to_vec(), &before);
                assert!(
                    witness.0.failures().is_empty(),
                    "another endpoint failed: {:?}",
                    witness.0.failures()
                );
            };
            if ops.post & AtomicOp::Add.bit() != 0 {
                let (link, _back) = connect(&pair.sender, &pair.receiver);
                let posted = pair.retry("a post", || width.post(&link, AtomicOp::Add, 1, at, &key));
                let nothing = pair.sender.completion();
                check(
                    "post",
                    posted.and_then(|()| finish(&pair.sender, &link, &nothing, || pair.progress())),
                );
            }
            for op in [AtomicOp::Add, AtomicOp::Cswap] {
                if ops.fetch & op.bit() != 0 {
                    let (link, _back) = connect(&pair.sender, &pair.receiver);
                    check("fetch", fetch(&pair, &link, width, op, (1, 1), at, &key).map(drop));
                }
            }
        }
    }
}

fn busy_completion(setup: &Setup) {
    let pair = Pair::new(setup);
    let (memory, offset) = cells(&pair, setup.seed);
    let key = pair.sender.key_to(&memory);
    let at = memory.address() + offset as u64;
    if pair.sender.attributes().atomic64.fetch & AtomicOp::Add.bit() == 0 {
        setup.skip("it has no 64-bit fetching add");
    }
    let completion = pair.sender.completion();
    let fetch = || pair.to.atomic64_fetch(AtomicOp::Add, 1, at, &key, &completion);
    if pair.retry("a fetch", fetch).expect("a fetch") != Fetched::InProgress {
        setup.skip("its atomics are done at once");
    }
    assert_eq!(fetch(), Err(Error::BUSY), "a completion has one place for an old value");
    pair.until("the fetch", || completion.is_done());
    completion.result().expect("a fetch");
}

const ATOMICS: Needs = Needs::NOTHING.and_atomics();

pub(super) const CASES: &[Case] = &[
    case("each atomic does what a serial model does", ATOMICS, one_by_one),
    case("increments of several senders are neither lost nor seen twice", ATOMICS, several_senders),
    case("compare and swap of several senders succeeds once per value", ATOMICS, swaps_of_several_senders),
    Case {
        logs: None,
        ..case(
            "an atomic at a wrong or unaligned address is refused and nothing is touched",
            ATOMICS,
            wrong_places,
        )
    },
    case("a fetching atomic waits for its completion to be free", ATOMICS, busy_completion),
];
