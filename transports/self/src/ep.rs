//! The endpoint of `self`: what is sent is delivered at once. Put, get and atomics are the SDK's, since keys are regions of this
//! process.

use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use ucs::Error;
use uct_plugin::memory::{Accessor, MessagePool, Region, copy};
use uct_plugin::{Answer, Completion, Endpoint, Iov, Outcome, Pack, Result, guarded};

use crate::iface::SelfIface;

/// An endpoint of `self`.
pub(crate) struct SelfEp {
    pub(crate) iface: Rc<SelfIface>,
}

/// Bytes of a word, as which a short message's header is.
pub(crate) const WORD: usize = size_of::<u64>();

impl Endpoint for SelfEp {
    type Iface = SelfIface;
    const AT_ONCE: bool = true;
    const MAX_IOV: usize = 16;

    #[inline(always)]
    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        // A word is what most messages are. All else is out of the way.
        if let Ok(word) = payload.try_into() {
            let iface = &*self.iface;
            let write = || {
                iface.word.set([header, u64::from_ne_bytes(word)]);
                (iface.word.as_ptr().cast_const().cast(), 2 * WORD)
            };
            // SAFETY: the place holds as much, and nobody but this function writes it, while no handler runs. The id is the host's, and the
            // interface is open.
            if let Some(answer) = unsafe { iface.quick.get().deliver(id, write) } {
                return answer;
            }
        }
        // SAFETY: a slice, taken apart.
        unsafe { am_short_any(payload.as_ptr(), id, header, payload.len(), &self.iface) }
    }

    fn am_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        self.am_zcopy(id, &[], iov, false, None).map(drop)
    }

    #[inline(always)]
    fn am_bcopy(&self, id: u8, pack: Pack, _signaled: bool) -> Result<usize> {
        let iface = &*self.iface;
        let Some(buffer) = iface.buffers.first() else {
            return Answer::from_raw(am_bcopy_any(self, id, pack));
        };
        // SAFETY: the buffer holds `seg_size` initialised bytes, which is the `max_bcopy`.
        let length = unsafe { pack.write(buffer.as_ptr()) };
        // SAFETY: `first` has lent it to us; so it need not be kept over the call.
        let buffer = unsafe { iface.buffers.lent() };
        // SAFETY: `length` bytes were packed into the first buffer, never more than the `max_bcopy`.
        let disposition = unsafe { iface.deliver(id, buffer, length) };
        // SAFETY: ends what `first` has begun.
        unsafe { iface.buffers.first_done(disposition) };
        Ok(length)
    }

    fn am_zcopy(
        &self,
        id: u8,
        header: &[u8],
        iov: Iov<'_>,
        _signaled: bool,
        _completion: Option<Completion>,
    ) -> Result<Outcome> {
        let total = iov.total().saturating_add(header.len());
        if total > self.iface.seg_size || header.len() > self.iface.max_hdr() {
            return Err(Error::INVALID_PARAM);
        }
        self.iface.send(id, |buffer| {
            // SAFETY: header and vector fit into the buffer together, and it is no part of the header.
            unsafe { buffer.as_ptr().copy_from_nonoverlapping(header.as_ptr(), header.len()) };
            // SAFETY: as above.
            let body = unsafe { buffer.add(header.len()) };
            // SAFETY: as above.
            unsafe { iov.gather(body.as_ptr()) };
            total
        })?;
        Ok(Outcome::Done)
    }

    #[inline(always)]
    fn region<'a>(&'a self, rkey: &'a Arc<Region>) -> Option<(&'a Region, &'a Accessor)> {
        Some((rkey, &self.iface.accessor))
    }

    fn buffers(&self) -> Option<&MessagePool> {
        Some(&self.iface.buffers)
    }
}

impl SelfEp {
    fn am_bcopy_any(&self, id: u8, pack: Pack) -> Result<usize> {
        let mut length = 0;
        self.iface.send(id, |buffer| {
            // SAFETY: as in `am_bcopy`.
            length = unsafe { pack.write(buffer.as_ptr()) };
            length
        })?;
        Ok(length)
    }
}

impl SelfIface {
    fn am_short_any(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        if payload.len() > self.max_short() {
            return Err(Error::INVALID_PARAM);
        }
        self.send(id, |buffer| {
            // SAFETY: the length is within the limit.
            unsafe { write_short(header, payload, buffer) };
            WORD + payload.len()
        })
    }
}

// The seldom ways of an active message, each guarded by itself: the frequent one is then left without a landing pad.

/// [`SelfIface::am_short_any`], with its parameters where the frequent way needs no register of theirs.
///
/// # Safety
/// `length` bytes at `payload` are readable.
#[cold]
#[inline(never)]
unsafe extern "C" fn am_short_any(
    payload: *const u8,
    id: u8,
    header: u64,
    length: usize,
    iface: &SelfIface,
) -> Result {
    guarded("am_short", Err(Error::IO_ERROR), || {
        // SAFETY: the caller's promise.
        iface.am_short_any(id, header, unsafe { std::slice::from_raw_parts(payload, length) })
    })
}

/// [`SelfEp::am_bcopy_any`].
#[cold]
#[inline(never)]
extern "C" fn am_bcopy_any(ep: &SelfEp, id: u8, pack: Pack) -> isize {
    let failed = Answer::into_raw(Err::<usize, _>(Error::IO_ERROR));
    guarded("am_bcopy", failed, || ep.am_bcopy_any(id, pack).into_raw())
}

/// # Safety
/// `buffer` is a pool's, and holds header and payload.
#[inline(always)]
unsafe fn write_short(header: u64, payload: &[u8], buffer: NonNull<u8>) {
    // SAFETY: the caller's promise.
    unsafe { buffer.cast::<u64>().write_unaligned(header) };
    // SAFETY: as above.
    let body = unsafe { buffer.add(WORD) };
    // SAFETY: as above, and a pool's buffer is no part of the payload.
    unsafe { copy(payload.as_ptr(), body.as_ptr(), payload.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_and_interfaces_are_small() {
        assert_eq!(size_of::<SelfEp>(), 8, "as UCX's");
        // 96, and the counter of accesses that the end of a registration waits for.
        assert!(size_of::<SelfIface>() <= 104, "{} bytes", size_of::<SelfIface>());
    }
}
