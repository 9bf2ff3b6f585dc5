//! Registered memory, for any thread.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use ucs::memory::populate::{self, populate};

use super::confined::Confined;
use super::engine::Entered;
use crate::error::{Error, Result, Stage, THIS_PROCESS};

/// Most bytes that are copied while the engine is held.
const CHUNK: usize = 64 << 10;

/// Registered memory that a connection can share, put from and get into: see [`super::Connection::allocate`] and [`super::Net::allocate`]. Cheap to clone. It is
/// deregistered and freed after the last clone, slice and operation in flight.
///
/// A peer that it is shared with may change it at any time, so its bytes are copied in and out. Copies run under the lock of the [`super::Net`], in
/// pieces of 64 KiB. In a child of a fork nothing is copied, and a read leaves its target as it was: the memory is the parent's.
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Confined<uct_host::Memory>>,
    address: usize,
    length: usize,
}

/// A part of a [`Memory`], for one operation. It keeps the memory registered.
#[derive(Clone, Debug)]
pub struct MemorySlice {
    pub(super) memory: Memory,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Memory {
    pub(super) fn new(entered: &Entered<'_>, memory: uct_host::Memory) -> Memory {
        // No address of this process is longer than a pointer.
        Memory {
            address: memory.address() as usize,
            length: memory.len(),
            inner: Arc::new(entered.confine(memory)),
        }
    }

    /// What was allocated without its pages. They are made present outside of the lock, so that others go on meanwhile.
    pub(super) fn populated((memory, populates): (Memory, bool)) -> Result<Memory> {
        if populates {
            let outcome =
                NonNull::new(memory.address()).map_or(Ok(()), |place| populate(place, memory.length));
            match outcome {
                Err(error) if !populate::is_unknown(&error) => {
                    let status = ucs::Error::NO_MEMORY;
                    return Err(Error::new(Stage::Allocate, THIS_PROCESS, status, error.to_string()));
                }
                _ => {}
            }
        }
        Ok(memory)
    }

    pub(super) fn confined(&self) -> &Confined<uct_host::Memory> {
        &self.inner
    }

    /// Its length in bytes: at least the length that was requested.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The address of its first byte in this process, for code that reads and writes in place. It is valid until the memory
    /// is freed. The caller synchronizes with peers, operations in flight and other threads, which may access the same
    /// bytes. In a child of a fork the bytes may be missing.
    pub fn address(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    /// Copies `source` to the bytes from `offset` on.
    ///
    /// # Panics
    /// If the range ends beyond the memory.
    pub fn write(&self, offset: usize, source: &[u8]) {
        self.check(offset, source.len());
        for (number, chunk) in source.chunks(CHUNK).enumerate() {
            let _ = self.inner.with(|_entered, memory| memory.write(offset + number * CHUNK, chunk));
        }
    }

    /// Copies the bytes from `offset` on to `target`.
    ///
    /// # Panics
    /// If the range ends beyond the memory.
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        self.check(offset, target.len());
        for (number, chunk) in target.chunks_mut(CHUNK).enumerate() {
            let _ = self.inner.with(|_entered, memory| memory.read(offset + number * CHUNK, chunk));
        }
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.read(0, &mut bytes);
        bytes
    }

    /// Reads the 8 bytes at `offset` atomically, as a number in native byte order. 0 in a child of a fork.
    ///
    /// # Panics
    /// If they lie beyond the memory, or `offset` is not a multiple of 8.
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.check(offset, size_of::<u64>());
        assert!(offset.is_multiple_of(size_of::<u64>()), "an atomic load at {offset} is not aligned");
        self.inner.with(|_entered, memory| memory.load_u64(offset)).unwrap_or(0)
    }

    /// A part of it, for an operation.
    ///
    /// # Panics
    /// If the range ends beyond the memory, or before it starts.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> MemorySlice {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.length,
        };
        assert!(start <= end, "{start}..{end} ends ahead of its start");
        self.check(start, end - start);
        MemorySlice { memory: self.clone(), start, end }
    }

    /// A panic in the engine would be one of the thread that drives it.
    fn check(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "{length} bytes at {offset} are outside of a memory of {} bytes",
            self.length
        );
    }
}

impl From<&Memory> for MemorySlice {
    /// All of it.
    fn from(memory: &Memory) -> MemorySlice {
        memory.slice(..)
    }
}

impl From<&MemorySlice> for MemorySlice {
    fn from(slice: &MemorySlice) -> MemorySlice {
        slice.clone()
    }
}

impl MemorySlice {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("length", &self.length).finish_non_exhaustive()
    }
}
