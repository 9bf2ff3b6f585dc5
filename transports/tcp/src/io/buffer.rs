//! Buffers: receive buffers from which messages are delivered in place and may be kept, and plain ones for sending.
//!
//! A receive buffer is aligned to the size of the pool's buffers, so that the buffer of a kept message is found from its
//! address alone. It lives as long as something refers to it: the connection or the interface that receives into it, each handler that
//! runs on a message in it, each kept message.
//!
//! Buffers are mapped, so that a page of one is memory of the machine's once something was written to it, and no earlier: a buffer of
//! 256 KiB for short messages takes a page or two, and a length that a peer announces costs nothing until its bytes come.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use ucs::memory::{Allocation, Method, allocate};
use ucs::{Error, Result};

/// Bytes of a buffer's head, ahead of its data.
const HEAD: usize = 64;
/// Every payload begins at a multiple of this.
const ALIGNMENT: usize = 8;
/// Data begin no earlier in a buffer. What the system receives lies behind what it has sent before, at the first bytes of a page most often, and
/// many processors copy slowly to a place that is a little further within its page: see [`fill`](crate::proto::fill).
const FIRST: usize = 2048;
/// Receive buffers that a pool keeps for the next use.
const SPARE: usize = 8;
/// Send buffers that a pool keeps. Each connection may need one at a time, and a new one has to be mapped.
const SPARE_TX: usize = 32;
/// Largest buffer of a single message that is kept for the next one.
const LARGEST_SPARE: usize = 8 << 20;

#[repr(C, align(64))]
struct Head {
    references: Cell<u32>,
    /// The buffer, in which this head lies.
    memory: Allocation,
    /// Where the next receive may begin.
    fill: Cell<usize>,
    /// End of the last message that was kept or is being handled, where keepers write ahead of messages: nobody writes below it.
    kept_end: Cell<usize>,
}

const _: () = assert!(size_of::<Head>() == HEAD);

/// A receive buffer. Each reference is given back with [`RxPool::release`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RxBuffer(NonNull<Head>);

/// The receive buffers of an interface.
pub(crate) struct RxPool {
    /// Size and alignment of a buffer, a power of two.
    size: usize,
    /// Where data begin: behind the head and the headroom of the first message, and not before [`FIRST`].
    start: usize,
    free: RefCell<Vec<RxBuffer>>,
    /// For the next message that is too large for a buffer of the pool.
    large: Cell<Option<RxBuffer>>,
}

impl RxBuffer {
    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: code that has a buffer holds a reference, and the head lives as long.
        unsafe { self.0.as_ref() }
    }

    /// Bytes of the whole buffer; offsets are below.
    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.head().memory.len()
    }

    /// The byte at an offset, which is at most the size.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.size());
        self.0.as_ptr().cast::<u8>().wrapping_add(offset)
    }

    /// Where the next receive may begin.
    #[inline]
    pub(crate) fn fill(&self) -> usize {
        self.head().fill.get()
    }

    pub(crate) fn set_fill(&self, offset: usize) {
        self.head().fill.set(offset);
    }

    /// Bytes below this offset are read-only.
    pub(crate) fn kept_end(&self) -> usize {
        self.head().kept_end.get()
    }

    pub(crate) fn set_kept_end(&self, offset: usize) {
        self.head().kept_end.set(offset);
    }

    /// Another reference.
    #[inline]
    pub(crate) fn retain(&self) {
        let references = &self.head().references;
        references.set(references.get() + 1);
    }

    /// Whether the caller holds the only reference.
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        self.head().references.get() == 1
    }
}

impl RxPool {
    /// A pool of buffers of `size` bytes, a power of two, whose first message has `headroom` writable bytes ahead.
    pub(crate) fn new(size: usize, headroom: usize) -> RxPool {
        debug_assert!(size.is_power_of_two() && size > FIRST.max(HEAD + headroom));
        RxPool {
            size,
            start: (HEAD + headroom).max(FIRST).next_multiple_of(ALIGNMENT),
            free: RefCell::default(),
            large: Cell::new(None),
        }
    }

    /// Where data begin in a buffer.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Bytes of data that fit into a buffer of the pool.
    pub(crate) fn capacity(&self) -> usize {
        self.size - self.start
    }

    /// An empty buffer with one reference.
    pub(crate) fn get(&self) -> Result<RxBuffer> {
        let buffer = match self.free.borrow_mut().pop() {
            Some(buffer) => buffer,
            None => self.take_memory(self.size)?,
        };
        self.reset(buffer);
        buffer.head().references.set(1);
        Ok(buffer)
    }

    /// An empty buffer with one reference and room for `length` bytes of data, more than a buffer of the pool has.
    pub(crate) fn get_large(&self, length: usize) -> Result<RxBuffer> {
        let size = self.start + length;
        let buffer = match self.large.take() {
            Some(buffer) if buffer.size() >= size => buffer,
            other => {
                if let Some(small) = other {
                    self.free_memory(small);
                }
                self.take_memory(size)?
            }
        };
        self.reset(buffer);
        buffer.head().references.set(1);
        Ok(buffer)
    }

    /// Forgets the contents of a buffer without other references.
    #[inline]
    pub(crate) fn reset(&self, buffer: RxBuffer) {
        buffer.head().fill.set(self.start);
        buffer.head().kept_end.set(HEAD);
    }

    /// Gives a reference back.
    #[inline]
    pub(crate) fn release(&self, buffer: RxBuffer) {
        let references = &buffer.head().references;
        references.set(references.get() - 1);
        if references.get() == 0 {
            self.recycle(buffer);
        }
    }

    /// Gives the reference of a kept message back.
    ///
    /// # Safety
    /// `data` was delivered from a buffer of this pool, kept, and is not used any more.
    pub(crate) unsafe fn release_kept(&self, data: *mut u8) {
        let head = data.map_addr(|address| address & !(self.size - 1)).cast::<Head>();
        if let Some(head) = NonNull::new(head) {
            // Data begin in the first `size` bytes of every buffer, which is aligned to that.
            self.release(RxBuffer(head));
        }
    }

    #[cold]
    fn recycle(&self, buffer: RxBuffer) {
        if buffer.size() == self.size {
            let mut free = self.free.borrow_mut();
            if free.len() < SPARE {
                free.push(buffer);
                return;
            }
        } else if buffer.size() <= LARGEST_SPARE {
            let Some(other) = self.large.replace(Some(buffer)) else { return };
            self.free_memory(other);
            return;
        }
        self.free_memory(buffer);
    }

    fn take_memory(&self, size: usize) -> Result<RxBuffer> {
        let memory = map(size, self.size)?;
        let Some(head) = NonNull::new(memory.as_ptr().cast::<Head>()) else { return Err(Error::NO_MEMORY) };
        let first =
            Head { references: Cell::new(1), memory, fill: Cell::new(self.start), kept_end: Cell::new(HEAD) };
        // SAFETY: the memory holds a head, and is aligned to more than it needs.
        unsafe { head.write(first) };
        Ok(RxBuffer(head))
    }

    fn free_memory(&self, buffer: RxBuffer) {
        // SAFETY: `take_memory` wrote the head, and no reference to the buffer is left. What is read owns the memory that it is read
        // from, and nothing reads it there again.
        drop(unsafe { buffer.0.read() });
    }
}

/// Memory of zeros, at a multiple of `alignment`.
fn map(size: usize, alignment: usize) -> Result<Allocation> {
    allocate(Method::Mmap, size, alignment).map_err(|_| Error::NO_MEMORY)
}

impl Drop for RxPool {
    fn drop(&mut self) {
        for buffer in self.free.take().into_iter().chain(self.large.take()) {
            self.free_memory(buffer);
        }
    }
}

/// A send buffer: initialised bytes that are reached by raw pointers, since a message is written into it while it waits.
pub(crate) struct TxBuffer {
    memory: Allocation,
    /// Bytes of it that are used.
    size: usize,
}

impl TxBuffer {
    /// A buffer of this many bytes; they are zero.
    pub(crate) fn new(size: usize) -> Result<TxBuffer> {
        Ok(TxBuffer { memory: map(size.max(1), ALIGNMENT)?, size })
    }

    /// Its first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.memory.as_ptr()
    }

    /// Bytes in it.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

/// The send buffers of an interface: all of one size, used again while they are warm.
pub(crate) struct TxPool {
    size: usize,
    free: RefCell<Vec<TxBuffer>>,
}

impl TxPool {
    /// A pool of buffers of `size` bytes.
    pub(crate) fn new(size: usize) -> TxPool {
        TxPool { size, free: RefCell::default() }
    }

    /// A buffer; its bytes are anything.
    pub(crate) fn get(&self) -> Result<TxBuffer> {
        let kept = self.free.borrow_mut().pop();
        kept.map_or_else(|| TxBuffer::new(self.size), Ok)
    }

    /// Takes a buffer back.
    pub(crate) fn put(&self, buffer: TxBuffer) {
        let mut free = self.free.borrow_mut();
        if buffer.size() == self.size && free.len() < SPARE_TX {
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_message_finds_its_buffer_and_lets_it_live() {
        let pool = RxPool::new(65_536, 32);
        let buffer = pool.get().unwrap();
        buffer.retain();
        let data = buffer.at(pool.start() + 5000);
        pool.release(buffer);
        assert!(buffer.is_sole());
        // SAFETY: the message was delivered from the buffer above, and its reference is given back once.
        unsafe { pool.release_kept(data) };
        assert!(pool.get().unwrap() == buffer, "the buffer is used again");
        pool.release(buffer);
    }

    #[test]
    fn what_was_sent_behind_little_is_not_received_a_little_further_within_a_page() {
        let pool = RxPool::new(16_384, 0);
        for sent_before in 0..2000 {
            let distance = (pool.start() + 4096 - sent_before) % 4096;
            assert!(!(1..32).contains(&distance), "behind {sent_before} bytes: {distance}");
        }
    }

    #[test]
    fn a_large_buffer_is_found_from_its_first_byte_and_used_again() {
        let pool = RxPool::new(65_536, 0);
        let large = pool.get_large(1 << 20).unwrap();
        // SAFETY: as above.
        unsafe { pool.release_kept(large.at(pool.start())) };
        let again = pool.get_large(300_000).unwrap();
        assert!(again == large);
        pool.release(again);
    }

    #[test]
    fn the_largest_buffers_are_not_kept_and_as_many_of_the_pool_as_it_may_keep() {
        let pool = RxPool::new(65_536, 0);
        // Releases one that is to have so many bytes; those that the pool keeps.
        let kept = |bytes: usize| {
            pool.release(pool.get_large(bytes - pool.start()).unwrap());
            let large = pool.large.take();
            pool.large.set(large);
            large.map(|large| large.size())
        };
        assert_eq!(kept(102_400), Some(102_400));
        assert_eq!(kept(102_399), Some(102_400), "it fits into the one that was kept");
        assert_eq!(kept(102_401), Some(106_496), "in whole pages");
        assert_eq!(kept(8 << 20), Some(8 << 20));
        assert_eq!(kept((8 << 20) + 1), None);
        let buffers: Vec<_> = (0..SPARE + 2).map(|_| pool.get().unwrap()).collect();
        buffers.iter().for_each(|buffer| pool.release(*buffer));
        assert_eq!(pool.free.borrow().len(), SPARE);
        let sending = TxPool::new(5000);
        let buffers: Vec<_> = (0..SPARE_TX + 2).map(|_| sending.get().unwrap()).collect();
        buffers.into_iter().for_each(|buffer| sending.put(buffer));
        sending.put(TxBuffer::new(4000).unwrap());
        assert_eq!(sending.free.borrow().len(), SPARE_TX);
        assert!(sending.free.borrow().iter().all(|buffer| buffer.size() == 5000));
    }
}
