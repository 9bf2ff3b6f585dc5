//! Send buffers, owned: of messages, and small ones for headers and the results of atomics.
//!
//! Built on pools of registered memory. A buffer has one holder: a call, the operation whose work request uses it (`TxOp`), or its
//! pool. So the holder knows that the device does not use it, unless it has posted it and not yet handed it over.

use std::ptr::NonNull;

use ucs::datastruct::mpool::Mpool;
use uct_ib::verbs::{Sge, lkey};
use uct_plugin::{Error, Result};

/// Most bytes of the header of a zero-copy active message; also the size of a small buffer.
pub(crate) const MAX_HEADER: usize = 128;

/// Buffers of `seg_size` bytes, and of [`MAX_HEADER`] bytes.
pub(crate) struct Buffers {
    messages: Mpool,
    smalls: Mpool,
}

impl Buffers {
    /// Of two pools of registered, initialised memory.
    ///
    /// # Safety
    /// The elements of both have the sizes above, and those of `smalls` are aligned to 8; all lie in
    /// [`uct_ib::verbs::RegisteredChunks`], and the pools outlive every work request over them.
    pub(crate) unsafe fn new(messages: Mpool, smalls: Mpool) -> Buffers {
        Buffers { messages, smalls }
    }

    /// A buffer for a message of up to `seg_size` bytes.
    #[inline]
    pub(crate) fn message(&self) -> Option<MessageBuffer> {
        self.messages.get().map(MessageBuffer)
    }

    /// Takes back what [`Buffers::message`] returned.
    #[inline]
    pub(crate) fn put_message(&self, buffer: MessageBuffer) {
        // SAFETY: an interface has one pool of these, and a buffer is put back by value.
        unsafe { self.messages.put(buffer.0) };
    }

    /// A small buffer, for headers and results of atomics.
    #[inline]
    pub(crate) fn small(&self) -> Option<SmallBuffer> {
        self.smalls.get().map(SmallBuffer)
    }

    /// As [`Buffers::small`], if there is one without a look for more memory.
    #[inline]
    pub(crate) fn small_ready(&self) -> Option<SmallBuffer> {
        self.smalls.get_free().map(SmallBuffer)
    }

    /// Takes back what [`Buffers::small`] returned.
    #[inline]
    pub(crate) fn put_small(&self, buffer: SmallBuffer) {
        // SAFETY: as for `put_message`.
        unsafe { self.smalls.put(buffer.0) };
    }
}

/// A buffer of `seg_size` bytes, all initialised. One that is dropped is lost to its pool.
#[must_use = "a buffer that is not put back is lost to its pool"]
pub(crate) struct MessageBuffer(NonNull<u8>);

impl MessageBuffer {
    /// Its first byte.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Its first bytes as a piece of a work request.
    #[inline]
    pub(crate) fn piece(&self, length: usize) -> Sge {
        // SAFETY: the buffer is of a pool of registered memory (`Buffers::new`).
        let key = unsafe { lkey(self.0) };
        Sge::new(self.as_ptr() as u64, length as u32, key)
    }

    /// Its first bytes.
    ///
    /// # Safety
    /// `length` is at most `seg_size`, and no work request uses the buffer.
    #[inline]
    pub(crate) unsafe fn bytes(&self, length: usize) -> &[u8] {
        // SAFETY: the caller's promise; the buffer is initialised and its holder's.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), length) }
    }

    /// As the place that a read of so many bytes goes to.
    ///
    /// # Safety
    /// `length` is at most `seg_size`.
    #[inline]
    pub(crate) unsafe fn expecting(self, length: usize) -> ReadBuffer {
        ReadBuffer { buffer: self, length }
    }
}

/// A message buffer for the result of a read, which fits.
#[must_use = "a buffer that is not put back is lost to its pool"]
pub(crate) struct ReadBuffer {
    buffer: MessageBuffer,
    length: usize,
}

impl ReadBuffer {
    /// Bytes of the read.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// As a piece of a work request.
    #[inline]
    pub(crate) fn piece(&self) -> Sge {
        self.buffer.piece(self.length)
    }

    /// The bytes that were read.
    ///
    /// # Safety
    /// It has ended.
    #[inline]
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the length was checked (`MessageBuffer::expecting`), and the caller's promise.
        unsafe { self.buffer.bytes(self.length) }
    }

    /// The buffer.
    #[inline]
    pub(crate) fn into_buffer(self) -> MessageBuffer {
        self.buffer
    }
}

/// A buffer of [`MAX_HEADER`] bytes, aligned to 8. One that is dropped is lost to its pool.
#[must_use = "a buffer that is not put back is lost to its pool"]
pub(crate) struct SmallBuffer(NonNull<u8>);

const _: () = assert!(MAX_HEADER >= size_of::<u64>());

impl SmallBuffer {
    /// Its first bytes as a piece of a work request.
    #[inline]
    pub(crate) fn piece(&self, length: usize) -> Sge {
        // SAFETY: the buffer is of a pool of registered memory (`Buffers::new`).
        let key = unsafe { lkey(self.0) };
        Sge::new(self.0.as_ptr() as u64, length as u32, key)
    }

    /// Has it begin with a copy of `bytes`.
    ///
    /// # Errors
    /// [`Error::INVALID_PARAM`] if they do not fit.
    #[inline(always)]
    pub(crate) fn copy_from(&mut self, bytes: &[u8]) -> Result {
        if bytes.len() > MAX_HEADER {
            return Err(Error::INVALID_PARAM);
        }
        // SAFETY: so many bytes fit, and the buffer is its holder's.
        unsafe { self.0.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Its first eight bytes.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        // SAFETY: it has so many, is aligned to as many (`Buffers::new`), and is its holder's.
        unsafe { self.0.cast::<u64>().read() }
    }

    /// Writes its first eight bytes.
    #[inline]
    pub(crate) fn set_word(&mut self, word: u64) {
        // SAFETY: as for `word`.
        unsafe { self.0.cast::<u64>().write(word) };
    }
}
