//! Active messages.
//!
//! Id and credits travel as immediate data (`proto::wire`), so the payload has no header.

use uct_ib::verbs::{InlineData, InlineWr, SendFlags, SendWr, Sge};
use uct_plugin::{Completion, Error, Iov, Outcome, Pack, Result};

use super::Conn;
use crate::io::buffer::{MAX_HEADER, MessageBuffer, SmallBuffer};
use crate::io::limits::MAX_PIECES;
use crate::link::op::TxOp;
use crate::proto::send_queue::Unsignaled;
use crate::proto::wire::Immediate;

impl Conn {
    #[inline(always)]
    pub(crate) fn send_short(&self, id: u8, header: u64, payload: &[u8]) -> Result {
        if payload.len() > self.shared.limits.max_short {
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
        if total > self.shared.limits.max_inline {
            return Err(Error::INVALID_PARAM);
        }
        let next = self.message_flags()?;
        let mut copy = [0u8; crate::io::limits::MAX_INLINE];
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
        let immediate = Immediate::active(id, self.window.grant());
        let request = InlineWr::send_immediate(self.next_id(), pieces, immediate.0, flags);
        self.qp.post_inline(request).map_err(|error| self.refused(error))?;
        self.sent(unsignaled);
        Ok(())
    }

    /// Accounts for a message just posted; returns the number of its work request.
    #[inline]
    fn sent(&self, unsignaled: Unsignaled) -> u32 {
        self.queue.spend();
        self.window.note_advertised();
        self.posted(unsignaled)
    }

    #[inline]
    pub(crate) fn send_bcopy(&self, id: u8, pack: Pack, solicited: bool) -> Result<usize> {
        if !self.has_room_for_message() {
            return Err(self.message_refusal());
        }
        let buffers = &self.shared.buffers;
        let Some(buffer) = buffers.message() else { return Err(self.no_resource()) };
        // SAFETY: the buffer is initialised, has room for `seg_size` bytes, which is `max_bcopy`, and is this call's.
        let packed = unsafe { pack.write(buffer.as_ptr(), self.shared.limits.seg_size) };
        let posted =
            packed.and_then(|length| Ok((length, self.send_packed(id, &buffer, length, solicited)?)));
        match posted {
            Ok((_, Some(number))) => self.retain_buffer(number, buffer),
            Ok((_, None)) | Err(_) => buffers.put_message(buffer),
        }
        posted.map(|(length, _)| length)
    }

    /// Posts a message of the first bytes of a buffer; returns the number of the work request that still needs it, whose the
    /// buffer is then. The packing may have sent something itself.
    #[inline(always)]
    fn send_packed(
        &self,
        id: u8,
        buffer: &MessageBuffer,
        length: usize,
        solicited: bool,
    ) -> Result<Option<u32>> {
        let next = self.message_flags()?;
        if length <= self.shared.limits.max_inline {
            // SAFETY: the length was just checked, and no work request has the caller's buffer.
            let bytes = unsafe { buffer.bytes(length) };
            return self.send_inline(id, &[InlineData::new(bytes)], next, solicited).map(|()| None);
        }
        // SAFETY: the buffer becomes the work request's, of the answered number.
        unsafe { self.send_pieces(id, &[buffer.piece(length)], next, solicited) }.map(Some)
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
        let immediate = Immediate::active(id, self.window.grant());
        let request = SendWr::send_immediate(self.next_id(), pieces, immediate.0, flags);
        // SAFETY: the caller's promise; a queue pair is destroyed only when nothing is in flight any more, or its buffers
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
        let limits = &self.shared.limits;
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

    /// As [`Conn::send_zcopy`], of a vector that is not one block. There is room.
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
        let Some(count) = self.pieces(iov, &mut pieces[first..self.shared.limits.max_pieces])? else {
            return self.send_gathered(id, header, iov, solicited);
        };
        let header = self.copy_of_header(header, &mut pieces[0])?;
        // SAFETY: the host keeps the vector's memory until the completion, and the header's copy is put back then.
        unsafe { self.send_zero_copy(id, &pieces[..first + count], header, solicited, completion) }
    }

    /// A small buffer with a copy of the header, if there is one, which becomes the piece at `place`.
    #[inline(always)]
    fn copy_of_header(&self, header: &[u8], place: &mut Sge) -> Result<Option<SmallBuffer>> {
        if header.is_empty() {
            return Ok(None);
        }
        let Some(mut copy) = self.shared.buffers.small() else { return Err(self.no_resource()) };
        if let Err(error) = copy.copy_from(header) {
            self.shared.buffers.put_small(copy);
            return Err(error);
        }
        *place = copy.piece(header.len());
        Ok(Some(copy))
    }

    /// Posts a message that completes, and whose header's copy is put back then. There is room.
    ///
    /// # Safety
    /// The memory of the pieces stays valid until the completion; or it is the header's.
    #[inline(always)]
    unsafe fn send_zero_copy(
        &self,
        id: u8,
        pieces: &[Sge],
        header: Option<SmallBuffer>,
        solicited: bool,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        // SAFETY: the caller's promise.
        match unsafe { self.send_pieces(id, pieces, self.next_flags(true), solicited) } {
            Ok(number) => self.remember(number, TxOp::Zcopy(header, completion)),
            Err(error) => {
                if let Some(header) = header {
                    self.shared.buffers.put_small(header);
                }
                return Err(error);
            }
        }
        Ok(Outcome::InProgress)
    }

    /// Copies a vector of more blocks than a work request takes. There is room.
    #[cold]
    fn send_gathered(&self, id: u8, header: &[u8], iov: Iov<'_>, solicited: bool) -> Result<Outcome> {
        if iov.total().saturating_add(header.len()) > self.shared.limits.seg_size {
            return Err(Error::INVALID_PARAM);
        }
        let Some(buffer) = self.shared.buffers.message() else { return Err(self.no_resource()) };
        // SAFETY: header and vector fit into the buffer together, which is this call's and no part of either.
        unsafe { buffer.as_ptr().copy_from_nonoverlapping(header.as_ptr(), header.len()) };
        // SAFETY: as above.
        let body = unsafe { buffer.as_ptr().add(header.len()) };
        // SAFETY: as above.
        let length = header.len() + unsafe { iov.gather(body) };
        // SAFETY: the buffer becomes the work request's.
        match unsafe { self.send_pieces(id, &[buffer.piece(length)], self.next_flags(false), solicited) } {
            Ok(number) => {
                self.remember(number, TxOp::Buffer(buffer));
                Ok(Outcome::Done)
            }
            Err(error) => {
                self.shared.buffers.put_message(buffer);
                Err(error)
            }
        }
    }
}
