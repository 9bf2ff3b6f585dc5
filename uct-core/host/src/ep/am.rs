//! Sending active messages.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use ucs::{Error, Result, Status};
use uct_abi::{
    UCT_ERR_INVALID_PARAM, UCT_ERR_NO_RESOURCE, UCT_ERR_UNSUPPORTED, UCT_IFACE_ATTR_AM_GATHERS, UctIov,
};

use super::packing::{self, Packing};
use super::{Ep, EpInner, SendFlags};
use crate::am::AmId;
use crate::completion::{Completion, Held, Posted};
use crate::latency::Kind;
use crate::md::MemorySlice;
use crate::stats::Counter;

/// Most entries of a vector; transports report their own limit, which is below.
pub(super) const MAX_IOV: usize = 64;

/// Room for the entries of a vector. Filling all of it would take longer than many an operation.
const NO_ENTRIES: [MaybeUninit<UctIov>; MAX_IOV] = [const { MaybeUninit::uninit() }; MAX_IOV];

impl EpInner {
    /// Counts an operation by its status and converts the status.
    #[inline]
    pub(super) fn counted(&self, status: i32, counter: &Counter, bytes: usize) -> Result {
        if status == uct_abi::UCT_OK {
            counter.add(bytes);
            return Ok(());
        }
        self.refused(status, counter, bytes)
    }

    #[cold]
    pub(crate) fn refused(&self, status: i32, counter: &Counter, bytes: usize) -> Result {
        match status {
            UCT_ERR_NO_RESOURCE => self.counters.no_resource.set(self.counters.no_resource.get() + 1),
            UCT_ERR_INVALID_PARAM => self.log_invalid(counter, bytes),
            UCT_ERR_UNSUPPORTED => self.log_unsupported(counter),
            _ => {}
        }
        Err(Error::from_status(Status::from_raw(status)))
    }

    /// Counts a packed length, or an error in its place.
    #[inline]
    pub(super) fn counted_length(&self, answer: isize, counter: &Counter) -> Result<usize> {
        if answer >= 0 {
            counter.add(answer as usize);
            return Ok(answer as usize);
        }
        self.refused(answer as i32, counter, 0).map(|()| 0)
    }

    /// After a packed message that is empty or was refused: the closure may have failed.
    #[cold]
    #[inline(never)]
    fn packed_nothing(&self, answer: isize) -> Result<usize> {
        packing::end()?;
        self.counted_length(answer, &self.counters.am_bcopy)
    }

    /// Whether the transport itself copies so many parts into a message.
    fn gathers(&self, parts: usize) -> bool {
        let attributes = self.iface.attributes();
        attributes.flags & UCT_IFACE_ATTR_AM_GATHERS != 0 && parts <= attributes.am.max_iov.min(MAX_IOV)
    }

    /// The entries of a vector, in an array of the stack.
    #[inline]
    pub(super) fn with_iov<T>(
        &self,
        slices: &[MemorySlice],
        call: impl FnOnce(*const UctIov, usize, usize) -> Result<T>,
    ) -> Result<T> {
        if slices.len() > MAX_IOV {
            return Err(self.too_many(slices.len()));
        }
        let mut entries = NO_ENTRIES;
        let mut bytes = 0;
        for (entry, slice) in entries.iter_mut().zip(slices) {
            self.same_domain(slice.memory.domain())?;
            entry.write(slice.iov());
            bytes += slice.len();
        }
        call(entries.as_ptr().cast(), slices.len(), bytes)
    }

    /// Memory and keys are of use only to interfaces of their own memory domain.
    #[inline]
    pub(super) fn same_domain(&self, md: &crate::md::MemoryDomain) -> Result {
        if std::sync::Arc::ptr_eq(&md.inner, &self.md.inner) { Ok(()) } else { Err(self.other_domain(md)) }
    }
}

/// Writes a vector of the first [`MAX_IOV`] parts, which are in memory that need not be registered, and returns its start. The array is the
/// caller's, because one that is returned is copied whole.
#[inline]
fn vector(entries: &mut [MaybeUninit<UctIov>; MAX_IOV], parts: &[&[u8]]) -> *const UctIov {
    for (entry, part) in entries.iter_mut().zip(parts) {
        entry.write(UctIov {
            buffer: part.as_ptr().cast_mut().cast(),
            length: part.len(),
            memh: std::ptr::null_mut(),
            stride: 0,
            count: 1,
        });
    }
    entries.as_ptr().cast()
}

pub(super) fn held(slices: &[MemorySlice]) -> impl Iterator<Item = Held> {
    slices.iter().map(|slice| Held::Memory(slice.memory.clone()))
}

impl Ep {
    /// Sends 8 bytes of header and the payload, both copied. Limit: [`crate::OpLimits::max_short`] of payload.
    ///
    /// # Errors
    /// [`Error::NO_RESOURCE`]; [`Error::INVALID_PARAM`] beyond the limit; the error of a failed endpoint.
    #[inline]
    pub fn am_short(&self, id: AmId, header: u64, payload: &[u8]) -> Result {
        let ep = &*self.inner;
        let slot = ep.am_short.get();
        // SAFETY: the endpoint is alive, and the payload valid for the call.
        let status = unsafe { slot(ep.raw.get(), id.get(), header, payload.as_ptr().cast(), payload.len()) };
        ep.counted(status, &ep.counters.am_short, size_of::<u64>() + payload.len())
    }

    /// Sends the gathered parts, copied; the first 8 bytes are at the place of the header of [`Ep::am_short`].
    ///
    /// # Errors
    /// As [`Ep::am_short`]; the limit counts all bytes but the first 8.
    pub fn am_short_iov(&self, id: AmId, parts: &[&[u8]]) -> Result {
        let ep = &*self.inner;
        if parts.len() > MAX_IOV {
            return Err(ep.too_many(parts.len()));
        }
        let slot = slot!(ep.am_short_iov);
        let mut entries = NO_ENTRIES;
        let vector = vector(&mut entries, parts);
        // SAFETY: the endpoint is alive; as many entries as there are parts were written, and the parts are valid for the
        // call and only read.
        let status = unsafe { slot(ep.raw.get(), id.get(), vector.cast(), parts.len()) };
        ep.counted(status, &ep.counters.am_short, parts.iter().map(|part| part.len()).sum())
    }

    /// Sends what `pack` writes: it gets the transport's own buffer, of [`crate::OpLimits::max_bcopy`] bytes with
    /// arbitrary contents, and returns how many of them are the message. Returns that length.
    ///
    /// `pack` is called only if there is room. A message whose length is known is checked ahead of packing by [`Ep::am_bcopy_iov`]; here
    /// `pack` compares it with the buffer's, and returns it if it is beyond: nothing is sent then. Neither is anything after a panic of `pack`,
    /// which is resumed here. (Unless the transport cannot take its buffer back: [`crate::Iface::sends_nothing_after_failed_packing`].)
    ///
    /// # Errors
    /// [`Error::NO_RESOURCE`]; [`Error::INVALID_PARAM`] if `pack` returned more than there is room for; the error of a failed endpoint.
    #[inline]
    pub fn am_bcopy<F>(&self, id: AmId, flags: SendFlags, pack: F) -> Result<usize>
    where
        F: FnOnce(&mut [u8]) -> usize,
    {
        let ep = &*self.inner;
        let mut packing = Packing::new(pack, &ep.am_buffer);
        let slot = slot!(ep.am_bcopy);
        // SAFETY: the endpoint is alive, and callback and argument belong together.
        let answer =
            unsafe { slot(ep.raw.get(), id.get(), Packing::<F>::write, packing.argument(), flags.bits()) };
        // After a failure the message is empty, or was not sent. So the result of most messages shows that there was none.
        if answer <= 0 {
            return ep.packed_nothing(answer);
        }
        ep.counters.am_bcopy.add(answer as usize);
        Ok(answer as usize)
    }

    /// Sends the gathered parts through the transport's buffer, all of them together at most [`crate::OpLimits::max_bcopy`] bytes. Returns
    /// their length. Over shared memory it makes one copy, and [`Ep::am_bcopy`] two: no closure gets a buffer that the peer can read.
    ///
    /// # Errors
    /// As [`Ep::am_bcopy`]; [`Error::INVALID_PARAM`] beyond the limit, and nothing is sent.
    pub fn am_bcopy_iov(&self, id: AmId, flags: SendFlags, parts: &[&[u8]]) -> Result<usize> {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        if total > self.inner.am_buffer.capacity() {
            self.inner.log_invalid(&self.inner.counters.am_bcopy, total);
            return Err(Error::INVALID_PARAM);
        }
        if self.inner.gathers(parts.len()) {
            return self.am_gather(id, flags, parts, total);
        }
        self.am_bcopy(id, flags, |buffer| {
            let mut rest = buffer;
            for part in parts {
                let (room, behind) = rest.split_at_mut(part.len());
                room.copy_from_slice(part);
                rest = behind;
            }
            total
        })
    }

    /// Sends the parts, which the transport copies itself.
    fn am_gather(&self, id: AmId, flags: SendFlags, parts: &[&[u8]], total: usize) -> Result<usize> {
        let ep = &*self.inner;
        let slot = slot!(ep.am_zcopy);
        let mut entries = NO_ENTRIES;
        let (none, vector) = (NonNull::<u8>::dangling().as_ptr(), vector(&mut entries, parts));
        let (flags, completion) = (flags.bits(), std::ptr::null_mut());
        // SAFETY: the endpoint is alive; as many entries as there are parts were written, and the parts are valid for the call. An interface
        // that gathers uses neither them nor the completion after it.
        let status = unsafe {
            slot(ep.raw.get(), id.get(), none.cast(), 0, vector.cast(), parts.len(), flags, completion)
        };
        ep.counted(status, &ep.counters.am_bcopy, total).map(|()| total)
    }

    /// Sends `header`, copied, and the memory, in place: it is the transport's until the completion.
    ///
    /// # Errors
    /// [`Error::NO_RESOURCE`]; [`Error::INVALID_PARAM`] beyond [`crate::OpLimits::max_hdr`],
    /// [`crate::OpLimits::max_zcopy`] or [`crate::OpLimits::max_iov`], or for memory of another domain.
    #[inline]
    pub fn am_zcopy(
        &self,
        id: AmId,
        header: &[u8],
        memory: &[MemorySlice],
        flags: SendFlags,
        completion: &Completion,
    ) -> Result<Posted> {
        let ep = &*self.inner;
        let slot = slot!(ep.am_zcopy);
        ep.with_iov(memory, |iov, count, bytes| {
            let begun = completion.begin();
            // SAFETY: the endpoint is alive; header and vector are valid for the call, and the memory until the
            // completion, which `started` holds it for.
            let status = unsafe {
                slot(
                    ep.raw.get(),
                    id.get(),
                    header.as_ptr().cast(),
                    header.len(),
                    iov,
                    count,
                    flags.bits(),
                    begun,
                )
            };
            let posted = completion.started(status, None, || held(memory));
            completion.measure(posted, Kind::AmZcopy, ep.iface.histograms());
            match posted {
                Ok(_) => ep.counters.am_zcopy.add(header.len() + bytes),
                Err(_) => ep.refused(status, &ep.counters.am_zcopy, header.len() + bytes)?,
            }
            posted
        })
    }
}
