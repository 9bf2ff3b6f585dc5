//! The fuzz target's entry, over random inputs and over inputs that begin well and go wrong.
//!
//! Built on the protocol's `fuzz_packets`.

use crate::simulator::{Random, given};
use uct_ud_verbs::testing::fuzz_packets;

#[test]
fn random_inputs_do_no_harm() {
    let mut random = Random(given().unwrap_or(1));
    for _ in 0..20_000 {
        let length = random.below(200) as usize;
        let data: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        fuzz_packets(&data);
    }
}

#[test]
fn inputs_that_begin_with_a_working_connection_do_no_harm() {
    let mut random = Random(given().unwrap_or(2));
    // Connect, exchange and acknowledge; then mutate.
    let mut seed = Vec::new();
    for round in 0..40u8 {
        seed.extend([0, 0, 0, 0, 1 | (round & 1) << 7, round, 1, round, 0, 0, 2 | 15 << 3, 200]);
    }
    fuzz_packets(&seed);
    for _ in 0..20_000 {
        let mut data = seed.clone();
        for _ in 0..random.below(30) {
            let place = random.below(data.len() as u64) as usize;
            data[place] = random.next() as u8;
        }
        data.truncate(random.below(data.len() as u64 + 1) as usize);
        fuzz_packets(&data);
    }
}
