//! Atomics on memory of this process, for target sides in software. All are sequentially consistent.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ucs::Error;

use crate::attr::AtomicOp;

/// Checks the alignment that an atomic on `size` bytes needs; [`Error::INVALID_PARAM`] where it is missing.
#[inline(always)]
pub fn aligned(address: u64, size: usize) -> Result<(), Error> {
    if address.is_multiple_of(size as u64) { Ok(()) } else { Err(misaligned()) }
}

#[cold]
#[inline(never)]
fn misaligned() -> Error {
    Error::INVALID_PARAM
}

macro_rules! atomics {
    ($value:ty, $atomic:ty, $fetch:ident, $other:ident, $cswap:ident) => {
        /// Carries out an operation and answers the former value.
        ///
        /// # Safety
        /// `address` is aligned and valid for reads and writes, and accessed by atomics only.
        #[inline(always)]
        pub unsafe fn $fetch(address: *mut u8, op: AtomicOp, value: $value) -> $value {
            if op != AtomicOp::Add {
                // SAFETY: the caller's promise.
                return unsafe { $other(address, op, value) };
            }
            // SAFETY: the caller's promise.
            let cell = unsafe { <$atomic>::from_ptr(address.cast()) };
            // SYNC: remote atomics order like the processor's own; pairs with any atomic access of the target.
            cell.fetch_add(value, Ordering::SeqCst)
        }

        /// All but the additions, which are most of them, and need not pass by a table.
        #[inline(never)]
        unsafe fn $other(address: *mut u8, op: AtomicOp, value: $value) -> $value {
            // SAFETY: the caller's promise.
            let cell = unsafe { <$atomic>::from_ptr(address.cast()) };
            // SYNC: as above.
            match op {
                AtomicOp::Add => cell.fetch_add(value, Ordering::SeqCst),
                AtomicOp::And => cell.fetch_and(value, Ordering::SeqCst),
                AtomicOp::Or => cell.fetch_or(value, Ordering::SeqCst),
                AtomicOp::Xor => cell.fetch_xor(value, Ordering::SeqCst),
                AtomicOp::Swap => cell.swap(value, Ordering::SeqCst),
            }
        }

        /// Compares and swaps, and answers the former value.
        ///
        /// # Safety
        /// As the other operations.
        #[inline(always)]
        pub unsafe fn $cswap(address: *mut u8, compare: $value, swap: $value) -> $value {
            // SAFETY: the caller's promise.
            let cell = unsafe { <$atomic>::from_ptr(address.cast()) };
            // SYNC: as above.
            cell.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|former| former)
        }
    };
}

atomics!(u32, AtomicU32, fetch32, other32, cswap32);
atomics!(u64, AtomicU64, fetch64, other64, cswap64);
