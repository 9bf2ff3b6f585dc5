//! Atomics on memory of peers.

use std::ffi::{c_int, c_uint};

use ucs::{Error, Status};
use uct_abi::UctCompletion;
use uct_core::raw::{self, Class};
use uct_core::{AtomicOp, RemoteKey};

use crate::ep::{Ep, slot};
use crate::rma::with_key;

/// The atomic of a number that has no result.
fn without_result(opcode: c_uint) -> Result<AtomicOp, Error> {
    let op = AtomicOp::ALL.get(opcode as usize).copied();
    op.filter(|op| !matches!(op, AtomicOp::Swap | AtomicOp::Cswap)).ok_or(Error::UNSUPPORTED)
}

macro_rules! atomics {
    ($value:ty, $slot_post:ident, $slot_fetch:ident, $slot_cswap:ident, $post:ident, $fetch:ident, $cswap:ident) => {
        #[doc = concat!("`", stringify!($slot_post), "` of C.")]
        ///
        /// # Safety
        /// As the header says.
        // SAFETY: no other code of this library has the name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $post(
            ep: *const Ep,
            opcode: c_uint,
            value: $value,
            remote_address: u64,
            rkey: usize,
        ) -> c_int {
            // SAFETY: a handle, by the caller's promise.
            let ep = unsafe { &*ep };
            let post = |key: &RemoteKey| {
                ep.inner.$slot_post(without_result(opcode)?, value, remote_address, key)?;
                Ok(Status::OK.raw())
            };
            // SAFETY: the caller's promise.
            unsafe { with_key(ep, rkey, post) }
        }

        #[doc = concat!("`", stringify!($slot_fetch), "` of C.")]
        ///
        /// # Safety
        /// As the header says.
        // SAFETY: no other code of this library has the name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fetch(
            ep: *const Ep,
            opcode: c_uint,
            value: $value,
            result: *mut $value,
            remote_address: u64,
            rkey: usize,
            completion: *mut UctCompletion,
        ) -> c_int {
            // SAFETY: a handle, by the caller's promise.
            let ep = unsafe { &*ep };
            let fetch = |key: &RemoteKey| {
                let (ops, inner) = ep.slots();
                let (slot, key) = (slot!(ops.$slot_fetch), raw::rkey(key));
                // SAFETY: the endpoint is alive, and the key of its domain; result, key and completion are valid until
                // the operation ends.
                let status = unsafe { slot(inner, opcode, value, result, remote_address, key, completion) };
                Ok(raw::counted(&ep.inner, Class::Atomic, status, size_of::<$value>()))
            };
            // SAFETY: the caller's promise.
            unsafe { with_key(ep, rkey, fetch) }
        }

        #[doc = concat!("`", stringify!($slot_cswap), "` of C.")]
        ///
        /// # Safety
        /// As the header says.
        // SAFETY: no other code of this library has the name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $cswap(
            ep: *const Ep,
            compare: $value,
            swap: $value,
            remote_address: u64,
            rkey: usize,
            result: *mut $value,
            completion: *mut UctCompletion,
        ) -> c_int {
            // SAFETY: a handle, by the caller's promise.
            let ep = unsafe { &*ep };
            let exchange = |key: &RemoteKey| {
                let (ops, inner) = ep.slots();
                let (slot, key) = (slot!(ops.$slot_cswap), raw::rkey(key));
                // SAFETY: as for the other atomic with a result.
                let status = unsafe { slot(inner, compare, swap, result, remote_address, key, completion) };
                Ok(raw::counted(&ep.inner, Class::Atomic, status, size_of::<$value>()))
            };
            // SAFETY: the caller's promise.
            unsafe { with_key(ep, rkey, exchange) }
        }
    };
}

atomics!(
    u32,
    atomic32_post,
    atomic32_fetch,
    atomic32_cswap,
    uctc_ep_atomic32_post,
    uctc_ep_atomic32_fetch,
    uctc_ep_atomic_cswap32
);
atomics!(
    u64,
    atomic64_post,
    atomic64_fetch,
    atomic64_cswap,
    uctc_ep_atomic64_post,
    uctc_ep_atomic64_fetch,
    uctc_ep_atomic_cswap64
);
