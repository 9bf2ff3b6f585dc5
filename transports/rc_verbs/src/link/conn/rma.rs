//! Put and get, as RDMA writes and reads.
//!
//! The keys of both sides are checked ahead of any traffic.

use uct_ib::verbs::{InlineData, InlineWr, SendWr, Sge};
use uct_plugin::abi::UctIov;
use uct_plugin::{Completion, Error, Iov, MemoryAccess, Outcome, Pack, Result, Unpack};

use super::Conn;
use crate::io::buffer::MessageBuffer;
use crate::io::limits::MAX_PIECES;
use crate::io::memory::Memh;
use crate::link::op::TxOp;
use crate::link::rkey::Rkey;

impl Conn {
    /// The one block that a vector mostly is, with its key, if it is no longer than what a work request may move.
    #[inline(always)]
    pub(crate) fn only_piece(&self, iov: Iov<'_>) -> Result<Option<Sge>> {
        match iov.entries() {
            [entry] if entry.count == 1 && entry.length <= self.shared.limits.max_part => {
                // SAFETY: it is an entry of a vector.
                unsafe { piece_of(entry, entry.buffer as u64) }.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The vector as pieces with their keys; returns how many, or `None` if there are more than fit. Memory that is not
    /// registered is [`Error::INVALID_PARAM`].
    pub(crate) fn pieces(&self, iov: Iov<'_>, pieces: &mut [Sge]) -> Result<Option<usize>> {
        let mut count = 0;
        for piece in pieces_of(iov) {
            let piece = piece?;
            let Some(place) = pieces.get_mut(count) else { return Ok(None) };
            *place = piece;
            count += 1;
        }
        Ok(Some(count))
    }

    /// Posts a write whose data are copied into the work request. There is room.
    #[inline]
    fn write_inline(&self, data: &[u8], address: u64, key: u32) -> Result {
        let (flags, unsignaled) = self.next_flags(false);
        let pieces = [InlineData::new(data)];
        let request = InlineWr::rdma_write(self.next_id(), &pieces, address, key, flags);
        self.qp.post_inline(request).map_err(|error| self.refused(error))?;
        self.posted(unsignaled);
        Ok(())
    }

    #[inline]
    pub(crate) fn write_short(&self, data: &[u8], address: u64, rkey: &Rkey) -> Result {
        if data.len() > self.shared.limits.max_inline {
            return Err(Error::INVALID_PARAM);
        }
        let key = rkey.check(address, data.len(), MemoryAccess::REMOTE_PUT)?;
        if !self.has_room() {
            return Err(self.refusal());
        }
        if data.is_empty() {
            return Ok(());
        }
        self.write_inline(data, address, key)
    }

    #[inline(always)]
    pub(crate) fn write_bcopy(&self, pack: Pack, address: u64, rkey: &Rkey) -> Result<usize> {
        // The length is only known once it is packed; a key that allows nothing at all is found before.
        rkey.check(address, 0, MemoryAccess::REMOTE_PUT)?;
        if !self.has_room() {
            return Err(self.refusal());
        }
        let Some(buffer) = self.shared.buffers.message() else { return Err(self.no_resource()) };
        // SAFETY: as for an active message.
        let packed = unsafe { pack.write(buffer.as_ptr(), self.shared.limits.seg_size) };
        let posted =
            packed.and_then(|length| Ok((length, self.write_packed(&buffer, length, address, rkey)?)));
        match posted {
            Ok((_, Some(number))) => self.remember(number, TxOp::Buffer(buffer)),
            Ok((_, None)) | Err(_) => self.shared.buffers.put_message(buffer),
        }
        posted.map(|(length, _)| length)
    }

    /// Posts a write of the first bytes of a buffer; returns the number of the work request that still needs it, whose the
    /// buffer is then.
    fn write_packed(
        &self,
        buffer: &MessageBuffer,
        length: usize,
        address: u64,
        rkey: &Rkey,
    ) -> Result<Option<u32>> {
        let key = rkey.check(address, length, MemoryAccess::REMOTE_PUT)?;
        if length == 0 {
            return Ok(None);
        }
        if !self.has_room() {
            // The packing sent something itself.
            return Err(self.refusal());
        }
        if length <= self.shared.limits.max_inline {
            // SAFETY: the length was checked, and no work request has the caller's buffer.
            let bytes = unsafe { buffer.bytes(length) };
            return self.write_inline(bytes, address, key).map(|()| None);
        }
        // SAFETY: the buffer becomes the work request's, of the answered number.
        unsafe { self.post_write(&[buffer.piece(length)], address, key, false) }.map(Some)
    }

    #[inline(always)]
    pub(crate) fn write_zcopy(
        &self,
        iov: Iov<'_>,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let total = iov.total();
        if total > self.shared.limits.max_message {
            return Err(Error::INVALID_PARAM);
        }
        let key = rkey.check(address, total, MemoryAccess::REMOTE_PUT)?;
        if !self.has_room() {
            return Err(self.refusal());
        }
        if total == 0 {
            return Ok(Outcome::Done);
        }
        let number = match self.only_piece(iov)? {
            // SAFETY: the host keeps the vector's memory until the completion.
            Some(piece) => unsafe { self.post_write(&[piece], address, key, true) }?,
            None => self.post_vector(iov, total, address, |pieces, address| {
                // SAFETY: as above.
                unsafe { self.post_write(pieces, address, key, true) }
            })?,
        };
        self.remember(number, TxOp::Zcopy(None, completion));
        Ok(Outcome::InProgress)
    }

    /// Whether so many more bytes may be read; one read is always permitted.
    #[inline]
    fn may_read(&self, length: usize) -> bool {
        let reading = self.shared.read_bytes.get();
        reading == 0 || reading.saturating_add(length as u64) <= self.shared.limits.max_read_bytes
    }

    #[inline(always)]
    pub(crate) fn read_bcopy(
        &self,
        unpack: Unpack,
        length: usize,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if length > self.shared.limits.seg_size {
            return Err(Error::INVALID_PARAM);
        }
        let key = rkey.check(address, length, MemoryAccess::REMOTE_GET)?;
        if !self.has_room() {
            return Err(self.refusal());
        }
        if length == 0 {
            unpack.read(&[]);
            return Ok(Outcome::Done);
        }
        if !self.may_read(length) {
            return Err(self.no_resource());
        }
        let Some(buffer) = self.shared.buffers.message() else { return Err(self.no_resource()) };
        // SAFETY: the length was checked.
        let buffer = unsafe { buffer.expecting(length) };
        let pieces = [buffer.piece()];
        // SAFETY: the buffer is this operation's until the work request has ended.
        match unsafe { self.post_read(&pieces, address, key) } {
            Ok(number) => {
                self.reading(length);
                self.remember(number, TxOp::GetBcopy(buffer, unpack, completion));
                Ok(Outcome::InProgress)
            }
            Err(error) => {
                self.shared.buffers.put_message(buffer.into_buffer());
                Err(error)
            }
        }
    }

    /// Reads and waits for the completion. The peer's device responds without its program, so the wait is short, or the peer is gone.
    /// Other completions that come meanwhile are kept for progress.
    pub(crate) fn read_short(&self, buffer: &mut [u8], address: u64, rkey: &Rkey) -> Result {
        let length = buffer.len();
        if length > self.shared.limits.seg_size {
            return Err(Error::INVALID_PARAM);
        }
        let key = rkey.check(address, length, MemoryAccess::REMOTE_GET)?;
        if !self.has_room() {
            return Err(self.refusal());
        }
        if length == 0 {
            return Ok(());
        }
        let Some(source) = self.shared.buffers.message() else { return Err(self.no_resource()) };
        let data = source.as_ptr();
        // SAFETY: the buffer becomes the work request's, whatever becomes of this call.
        let number = match unsafe { self.post_read(&[source.piece(length)], address, key) } {
            Ok(number) => number,
            Err(error) => {
                self.shared.buffers.put_message(source);
                return Err(error);
            }
        };
        self.remember(number, TxOp::Buffer(source));
        self.wait_for(number)?;
        // SAFETY: the read has ended, and nothing else uses the buffer before progress handles its completion.
        unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(data, length) };
        Ok(())
    }

    /// Waits until a work request has ended, and leaves all completions to progress.
    fn wait_for(&self, number: u32) -> Result {
        self.shared.agenda.add_work();
        self.shared.completions.wait_for(self.shared.limits.longest_wait, |wc| {
            let is_own = (wc.wr_id() >> 32) as u32 == self.index;
            let is_it = is_own && (wc.wr_id() as u32).wrapping_sub(number) < 1 << 31;
            is_it || (!wc.is_ok() && wc.qp_number() == self.qp.number())
        })
    }

    #[inline(always)]
    pub(crate) fn read_zcopy(
        &self,
        iov: Iov<'_>,
        address: u64,
        rkey: &Rkey,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        let total = iov.total();
        if total > self.shared.limits.max_message {
            return Err(Error::INVALID_PARAM);
        }
        let key = rkey.check(address, total, MemoryAccess::REMOTE_GET)?;
        if !self.has_room() {
            return Err(self.refusal());
        }
        if total == 0 {
            return Ok(Outcome::Done);
        }
        if !self.may_read(total) {
            return Err(self.no_resource());
        }
        let number = match self.only_piece(iov)? {
            // SAFETY: the host keeps the vector's memory until the completion, and permits no other access.
            Some(piece) => unsafe { self.post_read(&[piece], address, key) }?,
            None => self.post_vector(iov, total, address, |pieces, address| {
                // SAFETY: as above.
                unsafe { self.post_read(pieces, address, key) }
            })?,
        };
        self.reading(total);
        self.remember(number, TxOp::Get(total, completion));
        Ok(Outcome::InProgress)
    }

    /// Posts a vector, as several work requests if it has more blocks, or more bytes, than one takes; returns the number of
    /// the last, which has a completion. There is room for one.
    #[cold]
    #[inline(never)]
    fn post_vector(
        &self,
        iov: Iov<'_>,
        total: usize,
        address: u64,
        post: impl Fn(&[Sge], u64) -> Result<u32>,
    ) -> Result<u32> {
        let most = self.shared.limits.max_pieces;
        if iov.entries().len() > most {
            return Err(Error::INVALID_PARAM);
        }
        let mut pieces = [Sge::new(0, 0, 0); MAX_PIECES];
        match self.pieces(iov, &mut pieces[..most])? {
            Some(count) if total <= self.shared.limits.max_part => post(&pieces[..count], address),
            _ => self.post_in_parts(iov, address, post),
        }
    }

    #[cold]
    fn post_in_parts(
        &self,
        iov: Iov<'_>,
        address: u64,
        post: impl Fn(&[Sge], u64) -> Result<u32>,
    ) -> Result<u32> {
        // Everything is checked before the first post, so that a refusal leaves nothing half done.
        let pieces = pieces_of(iov).collect::<Result<Vec<Sge>>>()?;
        let parts = parts_of(&pieces, address, self.shared.limits.max_pieces, self.shared.limits.max_part);
        if parts.len() > self.shared.limits.tx_queue_len as usize {
            return Err(Error::INVALID_PARAM);
        }
        let room = self.queue.available().min(self.shared.cq_available.get());
        if (room as usize) < parts.len() {
            return Err(self.no_resource());
        }
        let mut last = 0;
        for (index, (address, pieces)) in parts.iter().enumerate() {
            // Each has a completion, which shows that the peer is alive.
            match post(pieces, *address) {
                Ok(number) => last = number,
                Err(error) if index == 0 => return Err(error),
                Err(error) => {
                    // What was posted cannot be taken back.
                    self.fail_later(error, "the device took a part of an operation only".to_owned());
                    return Ok(last);
                }
            }
        }
        Ok(last)
    }

    /// Posts a read. There is room.
    ///
    /// # Safety
    /// The memory of the pieces stays valid, and untouched, until the work request has ended.
    #[inline(always)]
    unsafe fn post_read(&self, pieces: &[Sge], address: u64, key: u32) -> Result<u32> {
        let (flags, unsignaled) = self.next_flags(true);
        let request = SendWr::rdma_read(self.next_id(), pieces, address, key, flags);
        // SAFETY: the caller's promise.
        unsafe { self.qp.post_send(request) }.map_err(|error| self.refused(error))?;
        let number = self.posted(unsignaled);
        self.queue.note_read();
        Ok(number)
    }

    /// Posts a write. There is room.
    ///
    /// # Safety
    /// The memory of the pieces stays valid until the work request has ended.
    #[inline]
    unsafe fn post_write(&self, pieces: &[Sge], address: u64, key: u32, signaled: bool) -> Result<u32> {
        let (flags, unsignaled) = self.next_flags(signaled);
        let request = SendWr::rdma_write(self.next_id(), pieces, address, key, flags);
        // SAFETY: the caller's promise.
        unsafe { self.qp.post_send(request) }.map_err(|error| self.refused(error))?;
        Ok(self.posted(unsignaled))
    }

    /// Accounts for a read just posted.
    #[inline]
    fn reading(&self, length: usize) {
        self.shared.read_bytes.set(self.shared.read_bytes.get() + length as u64);
    }
}

/// The blocks of a vector with their keys.
fn pieces_of(iov: Iov<'_>) -> impl Iterator<Item = Result<Sge>> + '_ {
    iov.entries().iter().flat_map(|entry| {
        let count = if entry.length == 0 { 0 } else { u64::from(entry.count) };
        (0..count).map(move |block| {
            let address = (entry.buffer as u64).wrapping_add(block.wrapping_mul(entry.stride as u64));
            // SAFETY: it is an entry of a vector.
            unsafe { piece_of(entry, address) }
        })
    })
}

/// One block of an entry of a vector, at `address`.
///
/// # Safety
/// The entry is one of an [`Iov`]: its registration is null, or one of this memory domain that lives until the operation has ended.
#[inline]
unsafe fn piece_of(entry: &UctIov, address: u64) -> Result<Sge> {
    // SAFETY: the caller's promise: registrations of this memory domain are boxes of this type.
    let memh = unsafe { entry.memh.cast::<Memh>().as_ref() };
    let key = memh.and_then(|memh| memh.lkey(address, entry.length)).ok_or(Error::INVALID_PARAM)?;
    let length = u32::try_from(entry.length).map_err(|_| Error::INVALID_PARAM)?;
    Ok(Sge::new(address, length, key))
}

/// Cuts pieces into work requests of at most so many pieces and bytes, each with its remote address.
fn parts_of(pieces: &[Sge], mut address: u64, most: usize, bytes: usize) -> Vec<(u64, Vec<Sge>)> {
    let mut parts = Vec::new();
    let mut part = Vec::new();
    let mut length = 0;
    for piece in pieces {
        let mut rest = *piece;
        while rest.length() > 0 {
            let take = (rest.length() as usize).min(bytes - length);
            let (head, tail) = rest.split_at(take as u32);
            part.push(head);
            length += take;
            rest = tail;
            if part.len() == most || length == bytes {
                parts.push((address, std::mem::take(&mut part)));
                address += length as u64;
                length = 0;
            }
        }
    }
    if !part.is_empty() {
        parts.push((address, part));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn parts_are_within_the_limits_and_cover_everything_once(
            lengths in prop::collection::vec(0u32..5000, 0..40),
            most in 1usize..8,
            bytes in 1usize..4000,
        ) {
            let mut start = 0x1000;
            let mut covered = Vec::new();
            let pieces: Vec<Sge> = lengths.iter().map(|&length| {
                let piece = Sge::new(start, length, 7);
                covered.extend(start..start + u64::from(length));
                start += u64::from(length) + 64;
                piece
            }).collect();
            let mut remote = 500_000;
            let mut seen = Vec::new();
            for (address, part) in parts_of(&pieces, remote, most, bytes) {
                prop_assert_eq!(address, remote);
                prop_assert!(!part.is_empty() && part.len() <= most);
                let length: usize = part.iter().map(|piece| piece.length() as usize).sum();
                prop_assert!(length > 0 && length <= bytes);
                remote += length as u64;
                for piece in part {
                    seen.extend(piece.address()..piece.address() + u64::from(piece.length()));
                }
            }
            prop_assert_eq!(seen, covered);
        }
    }
}
