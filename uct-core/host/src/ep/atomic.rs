//! Atomics on remote memory: 4 or 8 aligned bytes. Additions and compare-and-swap, which most are, go through the key's window
//! where it has one; the rest is the transport's.

use std::iter;
use ucs::sync::fixed::{AtomicU32, AtomicU64, Ordering};

use ucs::Result;
use uct_abi::{UctCompletion, UctStatus};

use super::{Ep, EpInner};
use crate::attr::AtomicOp;
use crate::completion::{Completion, Fetched};
use crate::latency::Kind;
use crate::md::RemoteKey;

impl EpInner {
    /// An atomic on a `T` with a result: `call` has the transport carry it out, with the place of the result and the
    /// completion. Returns a status, which takes one register.
    #[inline]
    fn fetching<T>(
        &self,
        key: &RemoteKey,
        completion: &Completion,
        call: impl FnOnce(*mut T, *mut UctCompletion) -> UctStatus,
    ) -> UctStatus {
        if let Err(error) = self.same_domain(key.domain()) {
            return error.status().raw();
        }
        let begun = match completion.begin_alone() {
            Ok(begun) => begun,
            Err(error) => return error.status().raw(),
        };
        let status = call(completion.cleared_result().cast(), begun);
        let posted = self.posted(status, completion, Kind::Atomic, size_of::<T>(), Some(key), iter::empty);
        // Last, so that little has to be kept for it.
        key.look_again();
        match posted {
            Ok(_) => status,
            Err(error) => error.status().raw(),
        }
    }
}

macro_rules! atomics {
    ($value:ty, $atomic:ty, $bytes:literal, $cell:ident, $post:ident, $fetch:ident, $cswap:ident) => {
        impl Ep {
            #[doc = concat!("Add, and, or, xor on ", $bytes, " bytes of remote memory, without a result.")]
            ///
            /// # Errors
            /// [`ucs::Error::NO_RESOURCE`]; `INVALID_PARAM` or `OUT_OF_RANGE` for a wrong or unaligned address or key;
            /// `UNSUPPORTED` for an operation that the interface does not have.
            #[inline]
            pub fn $post(&self, op: AtomicOp, value: $value, remote_address: u64, key: &RemoteKey) -> Result {
                let ep = &*self.inner;
                if op == AtomicOp::Add
                    // SYNC: remote atomics order like the processor's own.
                    && let Some(_) =
                        key.$cell(&ep.gate, remote_address, |cell| cell.fetch_add(value, Ordering::SeqCst))
                {
                    ep.counters.atomic.add_value::<$value>();
                    return Ok(());
                }
                ep.$post(op, value, remote_address, key)
            }

            #[doc = concat!("Add, and, or, xor, swap on ", $bytes, " bytes of remote memory.")]
            /// The old value is in the answer, or [`Completion::fetched`] once the operation has ended.
            ///
            /// # Errors
            /// As without a result; [`ucs::Error::BUSY`] where the operation would go on while the completion has others
            /// outstanding.
            #[inline]
            pub fn $fetch(
                &self,
                op: AtomicOp,
                value: $value,
                remote_address: u64,
                key: &RemoteKey,
                completion: &Completion,
            ) -> Result<Fetched> {
                let ep = &*self.inner;
                if op == AtomicOp::Add
                    // SYNC: as without a result.
                    && let Some(old) =
                        key.$cell(&ep.gate, remote_address, |cell| cell.fetch_add(value, Ordering::SeqCst))
                {
                    ep.counters.atomic.add_value::<$value>();
                    return Ok(Fetched::Done(u64::from(old)));
                }
                Fetched::of(ep.$fetch(op, value, remote_address, key, completion), completion)
            }

            #[doc = concat!("Writes `swap` to ", $bytes, " bytes of remote memory if they equal `compare`.")]
            /// The old value is in the answer, or [`Completion::fetched`] once the operation has ended.
            ///
            /// # Errors
            /// As the other fetching atomics.
            #[inline]
            pub fn $cswap(
                &self,
                compare: $value,
                swap: $value,
                remote_address: u64,
                key: &RemoteKey,
                completion: &Completion,
            ) -> Result<Fetched> {
                let ep = &*self.inner;
                // SYNC: as without a result.
                let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
                let exchange = |cell: &$atomic| cell.compare_exchange(compare, swap, success, failure);
                if let Some(old) = key.$cell(&ep.gate, remote_address, exchange) {
                    ep.counters.atomic.add_value::<$value>();
                    return Ok(Fetched::Done(u64::from(old.unwrap_or_else(|old| old))));
                }
                Fetched::of(ep.$cswap(compare, swap, remote_address, key, completion), completion)
            }
        }

        /// What goes through no window. Cold, so that the way through one is straight; for a transport without windows that is
        /// a jump.
        impl EpInner {
            #[cold]
            #[inline(never)]
            fn $post(&self, op: AtomicOp, value: $value, remote_address: u64, key: &RemoteKey) -> Result {
                self.same_domain(key.domain())?;
                key.look_again();
                let slot = slot!(self.$post);
                // SAFETY: the endpoint is alive, and the key is of its domain.
                let status = unsafe { slot(self.raw.get(), op as u32, value, remote_address, key.raw()) };
                self.counted(status, &self.counters.atomic, size_of::<$value>())
            }

            #[cold]
            #[inline(never)]
            fn $fetch(
                &self,
                op: AtomicOp,
                value: $value,
                remote_address: u64,
                key: &RemoteKey,
                completion: &Completion,
            ) -> UctStatus {
                self.fetching::<$value>(key, completion, |place, begun| {
                    let slot = slot!(self.$fetch);
                    // SAFETY: the endpoint is alive, the key is of its domain; the place of the result belongs to the
                    // completion, which lives until it is called.
                    unsafe { slot(self.raw.get(), op as u32, value, place, remote_address, key.raw(), begun) }
                })
            }

            #[cold]
            #[inline(never)]
            fn $cswap(
                &self,
                compare: $value,
                swap: $value,
                remote_address: u64,
                key: &RemoteKey,
                completion: &Completion,
            ) -> UctStatus {
                self.fetching::<$value>(key, completion, |place, begun| {
                    let slot = slot!(self.$cswap);
                    // SAFETY: as for the other fetching atomics.
                    unsafe { slot(self.raw.get(), compare, swap, place, remote_address, key.raw(), begun) }
                })
            }
        }
    };
}

atomics!(u32, AtomicU32, "4", atomic_half, atomic32_post, atomic32_fetch, atomic32_cswap);
atomics!(u64, AtomicU64, "8", atomic_word, atomic64_post, atomic64_fetch, atomic64_cswap);
