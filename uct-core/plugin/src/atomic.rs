//! Atomics: as an endpoint is asked for them, and how they are carried out on memory of this process.
//!
//! Used by endpoints, the slots ahead of them, and target sides in software. All are sequentially consistent.

use std::ptr::NonNull;
use ucs::sync::fixed::{AtomicU32, AtomicU64, Ordering};

use ucs::Error;

use crate::attr::AtomicOp;

/// What an atomic works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Four bytes.
    Bits32,
    /// Eight bytes.
    Bits64,
}

/// What becomes of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// An operation with an operand.
    Op(AtomicOp, u64),
    /// It becomes `swap` if it was `compare`.
    CompareSwap {
        /// What is expected.
        compare: u64,
        /// What replaces it.
        swap: u64,
    },
}

/// An atomic. Values of four bytes are the lower half of those of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// What it works on.
    pub width: Width,
    /// What becomes of it.
    pub change: Change,
}

/// Where the old value goes: a place of the host's, valid until the operation's completion.
#[derive(Debug)]
pub struct OldValue {
    width: Width,
    place: NonNull<u8>,
}

impl Width {
    /// Bytes.
    #[inline(always)]
    pub const fn bytes(self) -> usize {
        match self {
            Width::Bits32 => 4,
            Width::Bits64 => 8,
        }
    }
}

impl Atomic {
    /// Checks that `address` is a multiple of the width.
    ///
    /// # Errors
    /// [`Error::INVALID_PARAM`].
    #[inline(always)]
    pub fn check_alignment(self, address: u64) -> Result<(), Error> {
        if address.is_multiple_of(self.width.bytes() as u64) { Ok(()) } else { Err(misaligned()) }
    }

    /// Carries it out and returns the old value.
    ///
    /// # Safety
    /// `cell` is aligned to the width and valid for reads and writes, and accessed by atomics only.
    #[inline]
    pub unsafe fn carry_out(self, cell: NonNull<u8>) -> u64 {
        match self.width {
            Width::Bits32 => {
                // SAFETY: the caller's promise.
                let cell = unsafe { AtomicU32::from_ptr(cell.as_ptr().cast()) };
                change!(cell, self.change, u32).into()
            }
            Width::Bits64 => {
                // SAFETY: the caller's promise.
                let cell = unsafe { AtomicU64::from_ptr(cell.as_ptr().cast()) };
                change!(cell, self.change, u64)
            }
        }
    }
}

#[cold]
#[inline(never)]
fn misaligned() -> Error {
    Error::INVALID_PARAM
}

/// Changes a cell of one of the two types, and returns what was there.
macro_rules! change {
    ($cell:ident, $change:expr, $value:ty) => {
        // SYNC: remote atomics order like the processor's own; they pair with any atomic access of the target.
        match $change {
            Change::Op(AtomicOp::Add, value) => $cell.fetch_add(value as $value, Ordering::SeqCst),
            Change::Op(AtomicOp::And, value) => $cell.fetch_and(value as $value, Ordering::SeqCst),
            Change::Op(AtomicOp::Or, value) => $cell.fetch_or(value as $value, Ordering::SeqCst),
            Change::Op(AtomicOp::Xor, value) => $cell.fetch_xor(value as $value, Ordering::SeqCst),
            Change::Op(AtomicOp::Swap, value) => $cell.swap(value as $value, Ordering::SeqCst),
            Change::CompareSwap { compare, swap } => {
                let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
                let old = $cell.compare_exchange(compare as $value, swap as $value, success, failure);
                old.unwrap_or_else(|old| old)
            }
        }
    };
}
use change;

/// As [`OldValue`], of eight bytes.
#[derive(Debug)]
pub struct OldWord(NonNull<u64>);

impl OldWord {
    /// Writes the value.
    ///
    /// # Safety
    /// The operation has not been completed.
    #[inline(always)]
    pub unsafe fn write(self, value: u64) {
        // SAFETY: the caller's promise, and the host's, which made the place.
        unsafe { self.0.write(value) };
    }
}

impl OldValue {
    #[inline(always)]
    pub(crate) fn new(width: Width, place: NonNull<u8>) -> OldValue {
        OldValue { width, place }
    }

    /// Bytes of the value.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.width.bytes()
    }

    /// The same, if it is of eight bytes.
    #[inline(always)]
    pub fn word(self) -> Option<OldWord> {
        (self.width == Width::Bits64).then(|| OldWord(self.place.cast()))
    }

    /// Writes the value.
    ///
    /// # Safety
    /// The operation has not been completed.
    #[inline(always)]
    pub unsafe fn write(self, value: u64) {
        match self.width {
            // SAFETY: the caller's promise, and the host's, which made the place.
            Width::Bits32 => unsafe { self.place.cast::<u32>().write(value as u32) },
            // SAFETY: as above.
            Width::Bits64 => unsafe { self.place.cast::<u64>().write(value) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_made_to_as_many_bytes_as_it_is_about() {
        let start = 0xffff_ffff_0000_00f0_u64;
        let op = Change::Op;
        let swap = |compare| Change::CompareSwap { compare, swap: 9 };
        let cases = [
            (op(AtomicOp::Add, 0xffff_ff20), 0xffff_ffff_0000_0010, 0),
            (op(AtomicOp::And, 0x3f), 0xffff_ffff_0000_0030, 0x30),
            (op(AtomicOp::Or, 0x0f), 0xffff_ffff_0000_00ff, 0xffff_ffff_0000_00ff),
            (op(AtomicOp::Xor, 0xff), 0xffff_ffff_0000_000f, 0xffff_ffff_0000_000f),
            (op(AtomicOp::Swap, 7), 0xffff_ffff_0000_0007, 7),
            (swap(0xf0), 0xffff_ffff_0000_0009, start),
            (swap(start), 0xffff_ffff_0000_0009, 9),
            (swap(1), start, start),
        ];
        for (change, lower, whole) in cases {
            for (width, expected) in [(Width::Bits32, lower), (Width::Bits64, whole)] {
                let mut value = start;
                let atomic = Atomic { width, change };
                // SAFETY: the place is this test's, and aligned.
                let old = unsafe { atomic.carry_out(NonNull::from(&mut value).cast()) };
                let expected = match (width, change) {
                    (Width::Bits64, Change::Op(AtomicOp::Add, by)) => start.wrapping_add(by),
                    _ => expected,
                };
                assert_eq!(value, expected, "{atomic:?}");
                assert_eq!(old, if width == Width::Bits32 { 0xf0 } else { start }, "{atomic:?}");
            }
        }
    }
}
