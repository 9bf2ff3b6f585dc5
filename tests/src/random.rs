//! Numbers that look random and are the same for the same seed.
//!
//! For cases and patterns. Built on no other module. The sequence is splitmix64's.

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A seed that differs from run to run.
    pub fn fresh_seed() -> u64 {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(std::process::id())
    }

    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "the sequence has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 7);
        while bytes.len() < length {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// Puts them into another order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            list.swap(end, self.below(end + 1));
        }
    }
}

/// `length` bytes that depend on `seed` and on their place, so that a shifted, cut or mixed-up copy differs.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    Random::new(seed ^ 0x7061_7474_6572_6e00).bytes(length)
}

/// Panics, with the first place that differs, unless the bytes are those expected.
#[track_caller]
pub fn check_bytes(what: &str, got: &[u8], expected: &[u8]) {
    assert_eq!(got.len(), expected.len(), "{what}: another length than expected");
    if got == expected {
        return;
    }
    if let Some(at) = (0..got.len()).find(|&at| got[at] != expected[at]) {
        let wrong = (0..got.len()).filter(|&at| got[at] != expected[at]).count();
        panic!(
            "{what}: byte {at} of {} is {:#04x} instead of {:#04x}; {wrong} bytes are wrong",
            got.len(),
            got[at],
            expected[at]
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_sequence_again_and_another_seed_another_one() {
        assert_eq!(pattern(1, 100), pattern(1, 100));
        assert_ne!(pattern(1, 100), pattern(2, 100));
        assert_eq!(pattern(1, 100)[..13], pattern(1, 13));
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut list: Vec<u32> = (0..100).collect();
        Random::new(5).shuffle(&mut list);
        assert_ne!(list, (0..100).collect::<Vec<_>>());
        list.sort_unstable();
        assert_eq!(list, (0..100).collect::<Vec<_>>());
    }

    #[test]
    #[should_panic(expected = "byte 2 of 4 is 0x09 instead of 0x03; 1 bytes are wrong")]
    fn a_wrong_byte_is_named() {
        check_bytes("data", &[1, 2, 9, 4], &[1, 2, 3, 4]);
    }
}
