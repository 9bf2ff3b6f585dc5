//! The endpoint of `self`: what is sent is delivered at once, what is put is written at once.

use std::ptr::NonNull;
use std::rc::Rc;

use std::sync::Arc;
use ucs::Error;
use uct_plugin::abi::UctPendingReq;
use uct_plugin::memory::{Region, copy};
use uct_plugin::{Completion, Endpoint, Flush, Iov, MemoryAccess, Outcome, Pack, Result, Unpack, aside};

use crate::iface::SelfIface;

/// An endpoint of `self`.
pub(crate) struct SelfEp {
    pub(crate) iface: Rc<SelfIface>,
}

/// Bytes of a short message's header.
const HEADER: usize = size_of::<u64>();

/// Done at once, so the completion is not taken.
#[inline(always)]
fn done(completion: Option<Completion>) -> Result<Outcome> {
    let _ = completion;
    Ok(Outcome::Done)
}

impl Endpoint for SelfEp {
    type Iface = SelfIface;
    const MAX_IOV: usize = 16;

    #[inline(always)]
    fn am_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        let iface = &*self.iface;
        // One word into the buffer that is at hand: what most messages are. All else is out of the way.
        if payload.len() != HEADER {
            return self.am_short_any(id, header, payload);
        }
        let Some(buffer) = iface.take_spare() else { return self.am_short_any(id, header, payload) };
        // SAFETY: the least `seg_size` holds the header and a word.
        unsafe { write_short(header, payload, buffer) };
        // SAFETY: header and payload were just written.
        unsafe { iface.deliver_spare(id, buffer, 2 * HEADER) };
        Ok(())
    }

    fn am_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        self.gather(id, &[], iov)
    }

    #[inline(always)]
    fn am_bcopy(&self, id: u8, pack: Pack, _signaled: bool) -> Result<usize> {
        let iface = &*self.iface;
        let Some(buffer) = iface.take_spare() else {
            return aside("am_bcopy", move || self.am_bcopy_any(id, pack));
        };
        // SAFETY: the buffer holds `seg_size` initialised bytes, which is the `max_bcopy`.
        let length = unsafe { pack.write(buffer.as_ptr()) };
        // SAFETY: `length` bytes were packed, never more than the `max_bcopy`.
        unsafe { iface.deliver_spare(id, buffer, length) };
        Ok(length)
    }

    fn am_zcopy(
        &self,
        id: u8,
        header: &[u8],
        iov: Iov<'_>,
        _signaled: bool,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.gather(id, header, iov)?;
        done(completion)
    }

    #[inline(always)]
    fn direct(
        &self,
        rkey: &Arc<Region>,
        remote_address: u64,
        length: usize,
        access: MemoryAccess,
    ) -> Option<*mut u8> {
        rkey.find(remote_address, length, access)
    }

    fn reach(
        &self,
        rkey: &Arc<Region>,
        remote_address: u64,
        length: usize,
        access: MemoryAccess,
    ) -> Result<NonNull<u8>> {
        rkey.check(remote_address, length, access)
    }

    fn put_bcopy(&self, pack: Pack, remote_address: u64, rkey: &Arc<Region>) -> Result<usize> {
        let buffer = self.iface.buffer()?;
        // SAFETY: the buffer holds `seg_size` initialised bytes, which is the `max_bcopy`.
        let length = unsafe { pack.write(buffer.as_ptr()) };
        let result = rkey.check(remote_address, length, MemoryAccess::REMOTE_PUT).map(|target| {
            // SAFETY: the region is registered and checked, the buffer a pool's.
            unsafe { target.copy_from_nonoverlapping(buffer, length) };
            length
        });
        // SAFETY: the buffer was not handed to anybody.
        unsafe { self.iface.recycle(buffer) };
        result
    }

    fn get_bcopy(
        &self,
        unpack: Unpack,
        length: usize,
        remote_address: u64,
        rkey: &Arc<Region>,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if length > self.iface.seg_size {
            return Err(Error::INVALID_PARAM);
        }
        let source = rkey.check(remote_address, length, MemoryAccess::REMOTE_GET)?;
        let buffer = self.iface.buffer()?;
        // SAFETY: the region is registered and checked, and the buffer holds `seg_size` bytes.
        unsafe { buffer.copy_from_nonoverlapping(source, length) };
        // SAFETY: the bytes were just written, and the buffer is this call's.
        unpack.read(unsafe { std::slice::from_raw_parts(buffer.as_ptr(), length) });
        // SAFETY: the buffer was not handed to anybody beyond the call.
        unsafe { self.iface.recycle(buffer) };
        done(completion)
    }

    unsafe fn pending_add(&self, _request: NonNull<UctPendingReq>) -> Result {
        // What was sent is delivered, so there is always room; kept messages come back through the application.
        Err(Error::BUSY)
    }

    fn flush(&self, _flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        done(completion)
    }

    fn fence(&self) -> Result {
        Ok(())
    }

    fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        done(completion)
    }
}

impl SelfEp {
    #[inline(never)]
    fn am_short_any(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        if payload.len() > self.iface.max_short() {
            return Err(Error::INVALID_PARAM);
        }
        let buffer = self.iface.buffer()?;
        // SAFETY: the length is within the limit, so the buffer holds header and payload.
        unsafe { write_short(header, payload, buffer) };
        // SAFETY: header and payload were just written.
        unsafe { self.iface.deliver(id, buffer, HEADER + payload.len()) };
        Ok(())
    }

    #[inline(never)]
    fn am_bcopy_any(&self, id: u8, pack: Pack) -> Result<usize> {
        let buffer = self.iface.buffer()?;
        // SAFETY: the buffer holds `seg_size` initialised bytes, which is the `max_bcopy`.
        let length = unsafe { pack.write(buffer.as_ptr()) };
        // SAFETY: `length` bytes were packed, never more than the `max_bcopy`.
        unsafe { self.iface.deliver(id, buffer, length) };
        Ok(length)
    }

    fn gather(&self, id: u8, header: &[u8], iov: Iov<'_>) -> Result {
        let total = iov.total().saturating_add(header.len());
        let fits = total <= self.iface.seg_size && header.len() <= self.iface.max_hdr();
        if !fits {
            return Err(Error::INVALID_PARAM);
        }
        let buffer = self.iface.buffer()?;
        // SAFETY: the buffer holds `seg_size` bytes, and a pool's buffer is no part of the header.
        unsafe { buffer.as_ptr().copy_from_nonoverlapping(header.as_ptr(), header.len()) };
        // SAFETY: header and vector fit together.
        let body = unsafe { buffer.add(header.len()) };
        // SAFETY: as above.
        unsafe { iov.gather(body.as_ptr()) };
        // SAFETY: `total` bytes were just written.
        unsafe { self.iface.deliver(id, buffer, total) };
        Ok(())
    }
}

/// # Safety
/// `buffer` is the caller's and holds header and payload.
#[inline(always)]
unsafe fn write_short(header: u64, payload: &[u8], buffer: NonNull<u8>) {
    // SAFETY: the caller's promise.
    unsafe { buffer.cast::<u64>().write_unaligned(header) };
    // SAFETY: as above.
    let body = unsafe { buffer.add(HEADER) };
    // SAFETY: the payload fits behind the header, and a pool's buffer is no part of it.
    unsafe { copy(payload.as_ptr(), body.as_ptr(), payload.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_no_larger_than_ucxs() {
        assert_eq!(size_of::<SelfEp>(), 8);
    }

    #[test]
    fn an_interface_is_small() {
        assert!(size_of::<SelfIface>() <= 64, "{} bytes", size_of::<SelfIface>());
    }
}
