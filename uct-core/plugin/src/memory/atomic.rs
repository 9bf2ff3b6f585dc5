//! Atomics on memory of this process, for target sides in software. All are sequentially consistent.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ucs::Error;

use crate::attr::AtomicOp;
use crate::memory::{MemoryAccess, Region};

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
        pub unsafe fn $fetch(address: NonNull<u8>, op: AtomicOp, value: $value) -> $value {
            if op != AtomicOp::Add {
                // SAFETY: the caller's promise.
                return unsafe { $other(address, op, value) };
            }
            // SAFETY: the caller's promise.
            let cell = unsafe { <$atomic>::from_ptr(address.as_ptr().cast()) };
            // SYNC: remote atomics order like the processor's own; pairs with any atomic access of the target.
            cell.fetch_add(value, Ordering::SeqCst)
        }

        /// All but the additions, which are most of them, and need not pass by a table.
        #[inline(never)]
        unsafe fn $other(address: NonNull<u8>, op: AtomicOp, value: $value) -> $value {
            // SAFETY: the caller's promise.
            let cell = unsafe { <$atomic>::from_ptr(address.as_ptr().cast()) };
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
        pub unsafe fn $cswap(address: NonNull<u8>, compare: $value, swap: $value) -> $value {
            // SAFETY: the caller's promise.
            let cell = unsafe { <$atomic>::from_ptr(address.as_ptr().cast()) };
            // SYNC: as above.
            cell.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|former| former)
        }
    };
}

atomics!(u32, AtomicU32, fetch32, other32, cswap32);
atomics!(u64, AtomicU64, fetch64, other64, cswap64);

/// The six atomic slots of an endpoint whose remote memory lies in this process: `$rkey` checks an access with
/// [`Region::check`](crate::memory::Region::check) and all operations are done at once.
#[macro_export]
macro_rules! local_atomics {
    ($rkey:ty) => {
        $crate::local_atomics!(@ $rkey, u32, atomic32_post, atomic32_fetch, atomic32_cswap, fetch32, cswap32);
        $crate::local_atomics!(@ $rkey, u64, atomic64_post, atomic64_fetch, atomic64_cswap, fetch64, cswap64);
    };
    (@ $rkey:ty, $value:ty, $post:ident, $fetch:ident, $cswap:ident, $do_fetch:ident, $do_cswap:ident) => {
        #[inline(always)]
        fn $post(&self, op: $crate::AtomicOp, value: $value, remote_address: u64, rkey: &$rkey) -> $crate::Result {
            let cell = $crate::memory::atomic::target(rkey, remote_address, size_of::<$value>())?;
            // SAFETY: the target is registered, checked and aligned.
            unsafe { $crate::memory::atomic::$do_fetch(cell, op, value) };
            Ok(())
        }

        #[inline(always)]
        fn $fetch(
            &self,
            op: $crate::AtomicOp,
            value: $value,
            result: ::std::ptr::NonNull<$value>,
            remote_address: u64,
            rkey: &$rkey,
            completion: Option<$crate::Completion>,
        ) -> $crate::Result<$crate::Outcome> {
            let cell = $crate::memory::atomic::target(rkey, remote_address, size_of::<$value>())?;
            // SAFETY: the target is registered, checked and aligned.
            let former = unsafe { $crate::memory::atomic::$do_fetch(cell, op, value) };
            // SAFETY: the place of the result is the caller's and valid.
            unsafe { result.write(former) };
            let _ = completion;
            Ok($crate::Outcome::Done)
        }

        #[inline(always)]
        fn $cswap(
            &self,
            compare: $value,
            swap: $value,
            result: ::std::ptr::NonNull<$value>,
            remote_address: u64,
            rkey: &$rkey,
            completion: Option<$crate::Completion>,
        ) -> $crate::Result<$crate::Outcome> {
            let cell = $crate::memory::atomic::target(rkey, remote_address, size_of::<$value>())?;
            // SAFETY: the target is registered, checked and aligned.
            let former = unsafe { $crate::memory::atomic::$do_cswap(cell, compare, swap) };
            // SAFETY: the place of the result is the caller's and valid.
            unsafe { result.write(former) };
            let _ = completion;
            Ok($crate::Outcome::Done)
        }
    };
}

/// The target of an atomic on `size` bytes, checked and aligned.
#[inline(always)]
pub fn target(region: &Region, address: u64, size: usize) -> Result<NonNull<u8>, Error> {
    aligned(address, size)?;
    region.check(address, size, MemoryAccess::REMOTE_ATOMIC)
}
