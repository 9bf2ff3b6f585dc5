//! Active messages.
//!
//! For: the endpoint. Stands on `tx` and `wire`. Id and grant travel as immediate data, so the payload has no header.

use std::ptr::NonNull;

use uct_ib::verbs::{InlineData, InlineWr, SendFlags, SendWr, Sge, lkey};
use uct_plugin::{Completion, Error, Iov, Outcome, Pack, Result};

use crate::ep::RcEp;
use crate::iface::{MAX_HEADER, MAX_PIECES};
use crate::queue::TxOp;
use crate::tx::Unsignaled;
use crate::wire::Immediate;

/// Whether a buffer is still needed when its message has been posted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Nothing,
    Buffer,
}

impl RcEp {
    #[inline(always)]
    pub(crate) fn send_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        if payload.len() > self.iface.limits.max_short {
            return Err(Error::INVALID_PARAM);
        }
        let next = self.message_flags()?;
        let header = header.to_ne_bytes();
        let pieces = [InlineData::new(&header), InlineData::new(payload)];
        self.send_inline(id, &pieces, next, false)
    }

    #[inline]
    pub(crate) fn send_short_iov(&self, id: u8, iov: Iov<'_>) -> Result {
        let total = iov.total();
        if total > self.iface.limits.max_inline {
            return Err(Error::INVALID_PARAM);
        }
        let next = self.message_flags()?;
        let mut copy = [0u8; crate::iface::MAX_INLINE];
        // SAFETY: the array has room for `max_inline` bytes, at least the total, and is no part of the vector.
        unsafe { iov.gather(copy.as_mut_ptr()) };
        self.send_inline(id, &[InlineData::new(&copy[..total])], next, false)
    }

    /// Posts a message that is copied into the work request. There is room.
    #[inline(always)]
    fn send_inline(
        &self,
        id: u8,
        pieces: &[InlineData<'_>],
        (flags, unsignaled): (SendFlags, Unsignaled),
        solicited: bool,
    ) -> Result {
        let flags = flags.with(SendFlags::SOLICITED, solicited);
        let immediate = Immediate::active(id, self.grant.get());
        let request = InlineWr::send_immediate(self.next_id(), pieces, immediate.0, flags);
        self.qp.post_inline(request).map_err(|error| self.refused(error))?;
        self.sent(unsignaled);
        Ok(())
    }

    /// Accounts for a message just posted; answers the number of its work request.
    #[inline(always)]
    fn sent(&self, unsignaled: Unsignaled) -> u32 {
        self.credits.set(self.credits.get() - 1);
        self.grant.set(0);
        self.posted(unsignaled)
    }

    #[inline]
    pub(crate) fn send_bcopy(&self, id: u8, pack: Pack, solicited: bool) -> Result<usize> {
        if !self.has_room_for_message() {
            return Err(self.message_refusal());
        }
        let iface = &*self.iface;
        let Some(buffer) = iface.message() else { return Err(self.starved()) };
        // SAFETY: the buffer is initialised, has room for `seg_size` bytes, which is `max_bcopy`, and is this call's.
        let length = unsafe { pack.write(buffer.as_ptr()) };
        let posted = self.send_packed(id, buffer, length, solicited);
        if posted != Ok(Kept::Buffer) {
            // SAFETY: nothing was posted, or the bytes were copied, and the buffer is this call's.
            unsafe { iface.put_message(buffer) };
        }
        posted.map(|_| length)
    }

    /// Posts a message of the first bytes of a buffer. The packing may have sent something itself.
    #[inline(always)]
    fn send_packed(&self, id: u8, buffer: NonNull<u8>, length: usize, solicited: bool) -> Result<Kept> {
        let limits = &self.iface.limits;
        if length > limits.seg_size {
            return Err(Error::INVALID_PARAM);
        }
        let next = self.message_flags()?;
        if length <= limits.max_inline {
            // SAFETY: the bytes were just written, and the buffer is the caller's.
            let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), length) };
            return self.send_inline(id, &[InlineData::new(bytes)], next, solicited).map(|()| Kept::Nothing);
        }
        // SAFETY: the buffer is of a pool of registered memory.
        let key = unsafe { lkey(buffer) };
        let piece = [Sge::new(buffer.as_ptr() as u64, length as u32, key)];
        // SAFETY: the buffer is put back when the work request has ended.
        let number = unsafe { self.send_pieces(id, &piece, next, solicited) }?;
        // SAFETY: the work request of this number reads the buffer, and the caller does not put it back (`Kept::Buffer`).
        unsafe { self.lend(number, buffer) };
        Ok(Kept::Buffer)
    }

    /// Posts a message of registered memory. There is room.
    ///
    /// # Safety
    /// The memory of the pieces stays valid until the work request of the answered number has ended.
    #[inline(always)]
    unsafe fn send_pieces(
        &self,
        id: u8,
        pieces: &[Sge],
        (flags, unsignaled): (SendFlags, Unsignaled),
        solicited: bool,
    ) -> Result<u32> {
        let flags = flags.with(SendFlags::SOLICITED, solicited);
        let immediate = Immediate::active(id, self.grant.get());
        let request = SendWr::send_immediate(self.next_id(), pieces, immediate.0, flags);
        // SAFETY: the caller's promise; a queue pair is destroyed only when nothing is under way any more, or its buffers
        // are given up for good.
        unsafe { self.qp.post_send(request) }.map_err(|error| self.refused(error))?;
        Ok(self.sent(unsignaled))
    }

    #[inline]
    pub(crate) fn send_zcopy(
        &self,
        id: u8,
        header: &[u8],
        iov: Iov<'_>,
        solicited: bool,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let limits = &self.iface.limits;
        let total = iov.total().saturating_add(header.len());
        if header.len() > MAX_HEADER || total > limits.seg_size || iov.entries().len() >= limits.max_pieces {
            return Err(Error::INVALID_PARAM);
        }
        if !self.has_room_for_message() {
            return Err(self.message_refusal());
        }
        // A block without bytes is none.
        let only = if iov.total() > 0 { self.only_piece(iov)? } else { None };
        let Some(piece) = only else {
            return self.send_vector(id, header, iov, solicited, completion);
        };
        let mut pieces = [piece; 2];
        let header = self.copy_of_header(header, &mut pieces[0])?;
        let pieces = if header.is_some() { &pieces[..] } else { &pieces[1..] };
        // SAFETY: the host keeps the vector's memory until the completion, and the header's copy is put back then.
        unsafe { self.send_zero_copy(id, pieces, header, solicited, completion) }
    }

    /// As [`RcEp::send_zcopy`], of a vector that is not one block. There is room.
    #[cold]
    #[inline(never)]
    fn send_vector(
        &self,
        id: u8,
        header: &[u8],
        iov: Iov<'_>,
        solicited: bool,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let mut pieces = [Sge::new(0, 0, 0); MAX_PIECES];
        let first = usize::from(!header.is_empty());
        let Some(count) = self.pieces(iov, &mut pieces[first..self.iface.limits.max_pieces])? else {
            return self.send_gathered(id, header, iov, solicited);
        };
        let header = self.copy_of_header(header, &mut pieces[0])?;
        // SAFETY: the host keeps the vector's memory until the completion, and the header's copy is put back then.
        unsafe { self.send_zero_copy(id, &pieces[..first + count], header, solicited, completion) }
    }

    /// A small buffer with a copy of the header, if there is one, which becomes the piece at `place`.
    #[inline(always)]
    fn copy_of_header(&self, header: &[u8], place: &mut Sge) -> Result<Option<NonNull<u8>>> {
        if header.is_empty() {
            return Ok(None);
        }
        let Some(copy) = self.iface.small() else { return Err(self.starved()) };
        // SAFETY: a small buffer has room for `MAX_HEADER` bytes, and is no part of the caller's memory.
        unsafe { copy.as_ptr().copy_from_nonoverlapping(header.as_ptr(), header.len()) };
        // SAFETY: the buffer is of a pool of registered memory.
        let key = unsafe { lkey(copy) };
        *place = Sge::new(copy.as_ptr() as u64, header.len() as u32, key);
        Ok(Some(copy))
    }

    /// Posts a message that completes, and whose header's copy is put back then. There is room.
    ///
    /// # Safety
    /// The memory of the pieces stays valid until the completion, and the header's copy until it is put back.
    #[inline(always)]
    unsafe fn send_zero_copy(
        &self,
        id: u8,
        pieces: &[Sge],
        header: Option<NonNull<u8>>,
        solicited: bool,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        self.prepare(TxOp::Zcopy(header, completion));
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { self.send_pieces(id, pieces, self.next_flags(true), solicited) } {
            if let Some(header) = header {
                // SAFETY: nothing was posted, and the buffer is this call's.
                unsafe { self.iface.put_small(header) };
            }
            return Err(error);
        }
        // SAFETY: nothing but the post came in between.
        unsafe { self.go_ahead() };
        Ok(Outcome::InProgress)
    }

    /// Copies a vector of more blocks than a work request takes. There is room.
    #[cold]
    fn send_gathered(&self, id: u8, header: &[u8], iov: Iov<'_>, solicited: bool) -> Result<Outcome> {
        let Some(buffer) = self.iface.message() else { return Err(self.starved()) };
        // SAFETY: header and vector fit into the buffer together, which is this call's and no part of either.
        unsafe { buffer.as_ptr().copy_from_nonoverlapping(header.as_ptr(), header.len()) };
        // SAFETY: as above.
        let body = unsafe { buffer.add(header.len()) };
        // SAFETY: as above.
        let length = header.len() + unsafe { iov.gather(body.as_ptr()) };
        // SAFETY: the buffer is of a pool of registered memory.
        let key = unsafe { lkey(buffer) };
        let piece = [Sge::new(buffer.as_ptr() as u64, length as u32, key)];
        // SAFETY: the buffer is put back when the work request has ended.
        match unsafe { self.send_pieces(id, &piece, self.next_flags(false), solicited) } {
            Ok(number) => {
                self.remember(number, TxOp::Buffer(buffer));
                Ok(Outcome::Done)
            }
            Err(error) => {
                // SAFETY: nothing was posted, and the buffer is this call's.
                unsafe { self.iface.put_message(buffer) };
                Err(error)
            }
        }
    }
}
