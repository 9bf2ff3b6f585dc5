//! Atomics that the device does not have, made of its compare-and-swap.
//!
//! An emulated atomic guesses what is there, swaps in what should be there instead, and guesses better if it was wrong: coherent with
//! the device's own, and no work for the target's processor.

use uct_plugin::atomic::Change;
use uct_plugin::{AtomicOp, Completion, OldValue};

/// Which bits of the eight bytes it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    Whole,
    Half { shift: u32 },
}

/// An emulated atomic, or a flush that waits for those ahead of it.
pub(crate) enum Emulated {
    Atomic(Steps),
    Flush(Completion),
}

/// An emulated atomic.
pub(crate) struct Steps {
    pub(crate) change: Change,
    pub(crate) word: Word,
    /// What is thought to be there.
    pub(crate) guess: u64,
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) old: Option<OldValue>,
    pub(crate) completion: Option<Completion>,
}

/// What to do after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The value was as guessed and was changed, or need not change: this was the old value.
    Done(u64),
    /// Try again with this guess.
    Again(u64),
}

impl Word {
    fn of(self, bytes: u64) -> u64 {
        match self {
            Word::Whole => bytes,
            Word::Half { shift } => bytes >> shift & 0xffff_ffff,
        }
    }

    fn with(self, bytes: u64, value: u64) -> u64 {
        match self {
            Word::Whole => value,
            Word::Half { shift } => bytes & !(0xffff_ffff << shift) | (value & 0xffff_ffff) << shift,
        }
    }
}

/// The eight bytes that are to replace `bytes`.
pub(crate) fn changed(change: Change, word: Word, bytes: u64) -> u64 {
    let old = word.of(bytes);
    let value = match change {
        Change::Op(AtomicOp::Add, value) => old.wrapping_add(value),
        Change::Op(AtomicOp::And, value) => old & value,
        Change::Op(AtomicOp::Or, value) => old | value,
        Change::Op(AtomicOp::Xor, value) => old ^ value,
        Change::Op(AtomicOp::Swap, value) => value,
        Change::CompareSwap { compare, swap } if old == compare => swap,
        Change::CompareSwap { .. } => old,
    };
    word.with(bytes, value)
}

/// What a compare-and-swap that expected `guess` and found `found` means.
pub(crate) fn after(change: Change, word: Word, guess: u64, found: u64) -> Next {
    let differs = matches!(change, Change::CompareSwap { compare, .. } if word.of(found) != compare);
    if guess == found || differs { Next::Done(word.of(found)) } else { Next::Again(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs an emulated atomic on a memory word, where another changes the word before each of the first steps.
    fn run(change: Change, word: Word, memory: &mut u64, others: &[u64]) -> u64 {
        let mut guess = 0;
        for step in 0..=others.len() + 1 {
            let found = *memory;
            if found == guess {
                *memory = changed(change, word, guess);
            }
            match after(change, word, guess, found) {
                Next::Done(old) => return old,
                Next::Again(next) => guess = next,
            }
            if let Some(other) = others.get(step) {
                *memory = *other;
            }
        }
        panic!("it did not end one step after the last change");
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn half_a_word_changes_and_the_other_half_stays(memory: u64, value: u32, upper: bool, op in 0u32..5) {
            let op = AtomicOp::from_abi(op).unwrap();
            let shift = if upper { 32 } else { 0 };
            let mut after = memory;
            let old = run(Change::Op(op, u64::from(value)), Word::Half { shift }, &mut after, &[]) as u32;
            prop_assert_eq!(old, (memory >> shift) as u32);
            let expected = match op {
                AtomicOp::Add => old.wrapping_add(value),
                AtomicOp::And => old & value,
                AtomicOp::Or => old | value,
                AtomicOp::Xor => old ^ value,
                AtomicOp::Swap => value,
            };
            prop_assert_eq!((after >> shift) as u32, expected);
            prop_assert_eq!((after >> (32 - shift)) as u32, (memory >> (32 - shift)) as u32);
        }

        #[test]
        fn changes_by_others_in_between_are_not_lost(memory: u64, value: u64, others: Vec<u64>) {
            let mut after = memory;
            let old = run(Change::Op(AtomicOp::Add, value), Word::Whole, &mut after, &others);
            prop_assert_eq!(after, old.wrapping_add(value));
        }

        #[test]
        fn a_comparison_that_fails_changes_nothing(memory: u64, compare: u32, swap: u32) {
            let mut after = memory;
            let change = Change::CompareSwap { compare: u64::from(compare), swap: u64::from(swap) };
            let old = run(change, Word::Half { shift: 0 }, &mut after, &[]);
            prop_assert_eq!(old, memory & 0xffff_ffff);
            let expected = if old == u64::from(compare) { memory & !0xffff_ffff | u64::from(swap) } else { memory };
            prop_assert_eq!(after, expected);
        }
    }
}
