//! A message as its handler sees it, and one that is kept.

use std::cell::{Cell, OnceCell};
use std::collections::TryReserveError;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;

use ucs::memory::Buffer;
use uct_abi::{UCT_AM_DESC, UCT_AM_SHARED};

use super::AmId;
use crate::iface::{Iface, IfaceInner};

/// A received message, as its handler sees it: `&[u8]` of all that was sent, the 8-byte header of a short one included.
///
/// The data are the transport's and gone when the handler returns, unless it keeps the message. Where they lie in memory that the
/// peer can write, they are copied when they are first read; [`AmMessage::len`] reads nothing of them.
///
/// It does not say which peer sent it: see docs/completion.md, which says why, and how to reply.
pub struct AmMessage<'a> {
    id: AmId,
    data: NonNull<u8>,
    length: usize,
    flags: u32,
    iface: &'a IfaceInner,
    kept: &'a Cell<bool>,
    /// Headroom and data of a message that lies in shared memory, once it was read.
    copy: OnceCell<Vec<u8>>,
}

impl<'a> AmMessage<'a> {
    /// The message that a transport delivers; `kept` is set if the handler keeps it.
    #[inline]
    pub(super) fn new(
        id: AmId,
        data: NonNull<u8>,
        length: usize,
        flags: u32,
        iface: &'a IfaceInner,
        kept: &'a Cell<bool>,
    ) -> AmMessage<'a> {
        AmMessage { id, data, length, flags, iface, kept, copy: OnceCell::new() }
    }

    /// The id that it was sent with.
    #[inline]
    pub fn id(&self) -> AmId {
        self.id
    }

    /// Its length in bytes, the header of a short message included.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the message is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A copy for as long as the handler runs: the next message of this interface has its memory.
    #[cold]
    fn copied(&self) -> Vec<u8> {
        let mut copy = self.iface.handlers.take_spare();
        if copy.capacity() < self.iface.rx_headroom + self.length {
            copy = self.other_buffer(copy);
        }
        self.copied_to(copy)
    }

    /// Memory of the pool, for a buffer without enough of it.
    #[inline(never)]
    fn other_buffer(&self, small: Vec<u8>) -> Vec<u8> {
        let pool = &self.iface.worker.buffers;
        pool.give(small);
        pool.take(self.iface.rx_headroom + self.length)
    }

    /// Copies the headroom's worth of zeros and the data.
    #[inline(always)]
    fn copied_to(&self, mut copy: Vec<u8>) -> Vec<u8> {
        let headroom = self.iface.rx_headroom;
        copy.clear();
        copy.reserve(headroom + self.length);
        copy.resize(headroom, 0);
        // SAFETY: headroom and data were reserved.
        let target = unsafe { copy.as_mut_ptr().add(headroom) };
        // SAFETY: the data are readable until the handler returns (`UctAmCallback`), and the vector is no part of them.
        unsafe { ucs::memory::copy_raw(target, self.data.as_ptr(), self.length) };
        // SAFETY: so many bytes were just written.
        unsafe { copy.set_len(headroom + self.length) };
        copy
    }

    /// The first 8 bytes as the header of a short message; `None` if there are fewer.
    #[inline]
    pub fn header(&self) -> Option<u64> {
        self.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// The bytes after the header of a short message; empty if there are none. It leaves out the first 8 bytes of any other message
    /// as well: one that was sent with [`Ep::am_bcopy`](crate::Ep::am_bcopy) or [`Ep::am_zcopy`](crate::Ep::am_zcopy) is read as a whole, by
    /// using the message as a slice (`&message[..]`).
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.get(size_of::<u64>()..).unwrap_or(&[])
    }

    /// The first `N` bytes, straight from where the transport has them; `None` if there are fewer.
    #[inline]
    pub fn first<const N: usize>(&self) -> Option<[u8; N]> {
        // SAFETY: so many bytes are readable until the handler returns (`UctAmCallback`), and bytes have any alignment.
        (self.length >= N).then(|| unsafe { self.data.cast::<[u8; N]>().as_ptr().read_volatile() })
    }

    /// Copies bytes from `offset` on, straight from where the transport has them: one copy, where using the message as a slice may make another.
    /// What the peer can write may be different each time that it is read.
    ///
    /// # Panics
    /// If they end beyond the message.
    #[inline]
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        // SAFETY: a slice is writable and no part of the transport's buffer.
        unsafe { self.read_raw(offset, target.as_mut_ptr(), target.len()) };
    }

    /// As [`AmMessage::read`], to memory to which there is no reference.
    ///
    /// # Panics
    /// If the bytes end beyond the message.
    ///
    /// # Safety
    /// `target` is writable for `length` bytes, and the message no part of it.
    #[inline]
    pub unsafe fn read_raw(&self, offset: usize, target: *mut u8, length: usize) {
        assert!(offset <= self.length && length <= self.length - offset, "bytes beyond a message");
        // SAFETY: the offset is within the message.
        let source = unsafe { self.data.as_ptr().add(offset) };
        // SAFETY: the data are readable until the handler returns (`UctAmCallback`); the rest is the caller's promise.
        unsafe { ucs::memory::copy_small(target, source, length) };
    }

    /// Adds the bytes from `offset` on to a vector, as [`AmMessage::read`].
    ///
    /// # Errors
    /// The system has no memory for them.
    ///
    /// # Panics
    /// If the offset is beyond the message.
    pub fn append_to(&self, offset: usize, bytes: &mut Vec<u8>) -> Result<(), TryReserveError> {
        assert!(offset <= self.length, "an offset beyond a message");
        let (length, before) = (self.length - offset, bytes.len());
        bytes.try_reserve(length)?;
        // SAFETY: so many bytes were reserved behind those that are there.
        let target = unsafe { bytes.as_mut_ptr().add(before) };
        // SAFETY: as above, and a vector is no part of the transport's buffer.
        unsafe { self.read_raw(offset, target, length) };
        // SAFETY: they were just written.
        unsafe { bytes.set_len(before + length) };
        Ok(())
    }

    /// The interface that received the message. With it a handler can connect to the sender, whose address is in the message if
    /// the sender put it there; a handler that captured the interface or an endpoint would keep the interface open.
    pub fn iface(&self) -> Iface {
        Iface { inner: self.iface.share() }
    }

    /// Keeps the message beyond the handler. The data stay in the transport's buffer if it permits that, otherwise they are
    /// copied. In both cases they are writable, with [`crate::IfaceOptions::rx_headroom`] bytes ahead of them.
    pub fn keep(mut self) -> KeptMessage {
        let headroom = self.iface.rx_headroom;
        let storage = if self.flags & UCT_AM_DESC != 0 {
            self.kept.set(true);
            Storage::Descriptor(Descriptor { iface: self.iface.share(), data: self.data })
        } else {
            Storage::Copy(self.take_copy())
        };
        KeptMessage { storage, headroom, length: self.length }
    }

    /// The data as a copy, for any thread. The transport has its buffer back when the handler returns.
    pub fn into_copy(mut self) -> Buffer {
        without_headroom(self.take_copy(), self.iface.rx_headroom)
    }

    /// A copy that may be kept, behind the headroom.
    fn take_copy(&mut self) -> Buffer {
        let pool = &self.iface.worker.buffers;
        match self.copy.take() {
            // It may not be read again from memory that the peer can write.
            Some(copy) => pool.adopt(copy).fitted(),
            None => pool.adopt(self.copied_to(pool.take(self.iface.rx_headroom + self.length))),
        }
    }
}

impl Deref for AmMessage<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.flags & UCT_AM_SHARED != 0 {
            return &self.copy.get_or_init(|| self.copied())[self.iface.rx_headroom..];
        }
        // SAFETY: the transport delivers readable data that nothing writes until the handler returns (`UctAmCallback`).
        unsafe { slice::from_raw_parts(self.data.as_ptr(), self.length) }
    }
}

impl Drop for AmMessage<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(copy) = self.copy.take() {
            self.iface.handlers.give_spare(copy);
        }
    }
}

impl fmt::Debug for AmMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmMessage")
            .field("id", &self.id)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// A message that outlives its handler. Dropping it gives the transport its memory back; keeping many of them may
/// leave the transport without buffers, which its senders see as `NO_RESOURCE`.
pub struct KeptMessage {
    storage: Storage,
    headroom: usize,
    length: usize,
}

enum Storage {
    Descriptor(Descriptor),
    Copy(Buffer),
}

/// A buffer of the transport's.
struct Descriptor {
    iface: Rc<IfaceInner>,
    data: NonNull<u8>,
}

fn without_headroom(mut copy: Buffer, headroom: usize) -> Buffer {
    if headroom > 0 {
        copy.drain(..headroom);
    }
    copy
}

impl KeptMessage {
    /// Whether the data are still where the transport received them.
    pub fn is_zero_copy(&self) -> bool {
        matches!(self.storage, Storage::Descriptor(_))
    }

    /// The data, if they were copied: for any thread.
    ///
    /// # Errors
    /// They are where the transport received them: the message itself.
    pub fn into_copy(self) -> Result<Buffer, KeptMessage> {
        match self.storage {
            Storage::Copy(copy) => Ok(without_headroom(copy, self.headroom)),
            Storage::Descriptor(_) => Err(self),
        }
    }

    /// The bytes ahead of the data and the data, all writable.
    pub fn with_headroom(&mut self) -> (&mut [u8], &mut [u8]) {
        let (headroom, length) = (self.headroom, self.length);
        let whole = match &mut self.storage {
            Storage::Copy(copy) => copy.as_mut_slice(),
            Storage::Descriptor(Descriptor { data, .. }) => {
                // SAFETY: `rx_headroom` bytes ahead of the data are the keeper's (`UctAmCallback`).
                let start = unsafe { data.sub(headroom) };
                // SAFETY: headroom and data are the keeper's until they are released, and borrowed through `self`.
                unsafe { slice::from_raw_parts_mut(start.as_ptr(), headroom + length) }
            }
        };
        whole.split_at_mut(headroom)
    }
}

impl Deref for KeptMessage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.storage {
            Storage::Copy(copy) => &copy[self.headroom..],
            // SAFETY: the data are the keeper's until they are released.
            Storage::Descriptor(place) => unsafe { slice::from_raw_parts(place.data.as_ptr(), self.length) },
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let Descriptor { iface, data } = self;
        if iface.worker.check_process().is_err() {
            // The place is the parent's, which gives it back itself.
            return;
        }
        IfaceInner::let_go(iface);
        let release = iface.ops.release.expect("the loader fills every slot");
        // SAFETY: the handler kept the data, and this is their only owner; the interface is open, since it is held.
        unsafe { release(iface.raw(), data.as_ptr().cast()) };
    }
}

impl fmt::Debug for KeptMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptMessage").field("length", &self.length).finish_non_exhaustive()
    }
}
