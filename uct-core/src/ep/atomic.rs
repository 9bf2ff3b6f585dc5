//! Atomics on remote memory: 4 or 8 aligned bytes.

use ucs::Result;
use uct_abi::UCT_OK;

use super::Ep;
use crate::attr::AtomicOp;
use crate::completion::{Completion, Held, Posted};
use crate::memory::RemoteKey;

macro_rules! atomics {
    ($value:ty, $bytes:literal, $post:ident, $fetch:ident, $cswap:ident) => {
        impl Ep {
            #[doc = concat!("Add, and, or, xor on ", $bytes, " bytes of remote memory, without a result.")]
            ///
            /// # Errors
            /// [`ucs::Error::NO_RESOURCE`]; `INVALID_PARAM` or `OUT_OF_RANGE` for a wrong or unaligned address or key;
            /// `UNSUPPORTED` for an operation that the interface does not have.
            #[inline]
            pub fn $post(&self, op: AtomicOp, value: $value, remote_address: u64, key: &RemoteKey) -> Result {
                let ep = &*self.inner;
                ep.same_domain(key.domain())?;
                let slot = slot!(ep.$post);
                // SAFETY: the endpoint is alive, and the key is of its domain.
                let status = unsafe { slot(ep.raw, op as u32, value, remote_address, key.raw()) };
                ep.counted(status, &ep.counters.atomic, size_of::<$value>())
            }

            #[doc = concat!("Add, and, or, xor, swap on ", $bytes, " bytes of remote memory.")]
            /// The former value is [`Completion::fetched`] once it is done, at once with [`Posted::Done`].
            ///
            /// # Errors
            /// As without a result; [`ucs::Error::BUSY`] while the completion has other operations outstanding.
            #[inline]
            pub fn $fetch(
                &self,
                op: AtomicOp,
                value: $value,
                remote_address: u64,
                key: &RemoteKey,
                completion: &Completion,
            ) -> Result<Posted> {
                let ep = &*self.inner;
                ep.same_domain(key.domain())?;
                let begun = completion.begin_alone()?;
                let slot = slot!(ep.$fetch);
                let (place, rkey) = (completion.result_place().cast(), key.raw());
                // SAFETY: the endpoint is alive, the key is of its domain; the place of the result belongs to the
                // completion, which lives until it is called.
                let status = unsafe { slot(ep.raw, op as u32, value, place, remote_address, rkey, begun) };
                if status == UCT_OK {
                    completion.ended_at_once();
                    ep.counters.atomic.add(size_of::<$value>());
                    return Ok(Posted::Done);
                }
                let held = || [Held::Key(key.clone())];
                ep.posted(status, completion, &ep.counters.atomic, size_of::<$value>(), held)
            }

            #[doc = concat!("Writes `swap` to ", $bytes, " bytes of remote memory if they equal `compare`.")]
            /// The former value is [`Completion::fetched`] once it is done, at once with [`Posted::Done`].
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
            ) -> Result<Posted> {
                let ep = &*self.inner;
                ep.same_domain(key.domain())?;
                let begun = completion.begin_alone()?;
                let slot = slot!(ep.$cswap);
                let (place, rkey) = (completion.result_place().cast(), key.raw());
                // SAFETY: as for the other fetching atomics.
                let status = unsafe { slot(ep.raw, compare, swap, place, remote_address, rkey, begun) };
                if status == UCT_OK {
                    completion.ended_at_once();
                    ep.counters.atomic.add(size_of::<$value>());
                    return Ok(Posted::Done);
                }
                let held = || [Held::Key(key.clone())];
                ep.posted(status, completion, &ep.counters.atomic, size_of::<$value>(), held)
            }
        }
    };
}

atomics!(u32, "4", atomic32_post, atomic32_fetch, atomic32_cswap);
atomics!(u64, "8", atomic64_post, atomic64_fetch, atomic64_cswap);
