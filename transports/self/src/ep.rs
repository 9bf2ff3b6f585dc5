//! The endpoint of `self`: what is sent is delivered at once. Put, get and atomics are the SDK's, since keys are regions of this
//! process.

use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use ucs::Error;
use ucs::memory::copy_small;
use uct_plugin::memory::{Accessor, MessagePool, Region};
use uct_plugin::rma::ByRegion;
use uct_plugin::{Completion, Endpoint, Iov, Outcome, Pack, Result};

use crate::iface::{SelfIface, WORD};

/// An endpoint of `self`.
pub(crate) struct SelfEp {
    pub(crate) iface: Rc<SelfIface>,
}

impl Endpoint for SelfEp {
    type Iface = SelfIface;
    type Remote = ByRegion;
    const AT_ONCE: bool = true;
    const MAX_IOV: usize = 16;

    #[inline]
    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        // Most messages are one word. Inside the handler of such a message they need a buffer: the number of buffers limits how deep
        // handlers nest.
        match payload.try_into() {
            Ok(word) if !self.iface.is_on_stack.replace(true) => {
                let message = [header, u64::from_ne_bytes(word)];
                // SAFETY: the message is on the stack, and nothing writes to it while the handler runs.
                unsafe { self.iface.deliver(id, NonNull::from(&message).cast(), size_of_val(&message)) };
                self.iface.is_on_stack.set(false);
                Ok(())
            }
            _ => self.am_short_any(id, header, payload),
        }
    }

    fn am_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        self.am_zcopy(id, &[], iov, false, None).map(drop)
    }

    #[inline]
    fn am_bcopy(&self, id: u8, pack: Pack, _signaled: bool) -> Result<usize> {
        // SAFETY: the buffer holds `seg_size` initialised bytes, which is the `max_bcopy`.
        self.iface.send(id, |buffer| unsafe { pack.write(buffer.as_ptr(), isize::MAX as usize) })
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
            Ok(total)
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
    /// [`Endpoint::am_short`] of any payload.
    #[inline(never)]
    fn am_short_any(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        if payload.len() > self.iface.max_short() {
            return Err(Error::INVALID_PARAM);
        }
        let sent = self.iface.send(id, |buffer| {
            // SAFETY: a buffer holds the largest short message.
            unsafe { buffer.cast::<u64>().write_unaligned(header) };
            // SAFETY: as above.
            let body = unsafe { buffer.add(WORD) };
            // SAFETY: as above, and a pool's buffer is no part of the payload.
            unsafe { copy_small(body.as_ptr(), payload.as_ptr(), payload.len()) };
            Ok(WORD + payload.len())
        });
        sent.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_and_interfaces_are_small() {
        assert_eq!(size_of::<SelfEp>(), 8, "as UCX's");
        assert!(size_of::<SelfIface>() <= 96, "{} bytes", size_of::<SelfIface>());
    }
}
