//! Where the memory of a pool comes from.
//!
//! Used by pools, and memory domains that register what a pool allocates. Built on the global allocator. `grow` cuts a
//! chunk into elements.

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// A piece of memory for a chunk.
#[derive(Clone, Copy, Debug)]
pub struct ChunkMemory {
    /// Its first byte; any alignment.
    pub ptr: NonNull<u8>,
    /// Its length in bytes, at least as much as requested. What is beyond that is used as well.
    pub len: usize,
    /// The allocator's word about it, which [`Mpool::cookie`](super::Mpool::cookie) finds for every element: a memory
    /// handle, or an integer without provenance. Null if there is none.
    pub cookie: *mut c_void,
}

/// Gives a pool its chunks. Control path: may block, map and register memory.
///
/// # Safety
///
/// What `alloc` returns is readable and writable, used by no other code and not shared with another process that writes to
/// it, until it is passed to `free` as it was.
pub unsafe trait ChunkAllocator {
    /// At least `min_len` bytes.
    fn alloc(&self, min_len: usize) -> crate::Result<ChunkMemory>;

    /// Takes a chunk back.
    ///
    /// # Safety
    ///
    /// `chunk` is what `alloc` of this allocator returned, freed once, and not in use any more.
    unsafe fn free(&self, chunk: ChunkMemory);
}

/// Chunks from the global allocator, cache-line aligned, without a cookie.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapChunks;

impl HeapChunks {
    const ALIGNMENT: usize = 64;
}

// SAFETY: the global allocator's memory is the caller's alone.
unsafe impl ChunkAllocator for HeapChunks {
    fn alloc(&self, min_len: usize) -> crate::Result<ChunkMemory> {
        let layout = Layout::from_size_align(min_len.max(1), HeapChunks::ALIGNMENT)
            .map_err(|_| crate::Error::INVALID_PARAM)?;
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { alloc::alloc(layout) };
        let ptr = NonNull::new(pointer).ok_or(crate::Error::NO_MEMORY)?;
        Ok(ChunkMemory { ptr, len: layout.size(), cookie: ptr::null_mut() })
    }

    unsafe fn free(&self, chunk: ChunkMemory) {
        // SAFETY: `alloc` made this very layout of the same numbers, so it is valid.
        let layout = unsafe { Layout::from_size_align_unchecked(chunk.len, HeapChunks::ALIGNMENT) };
        // SAFETY: it came from `alloc` with this layout, by this function's contract.
        unsafe { alloc::dealloc(chunk.ptr.as_ptr(), layout) };
    }
}

/// The record of one chunk. Apart from the memory, so that an allocator hands out all of it.
pub(super) struct Chunk {
    pub(super) memory: ChunkMemory,
    /// How many elements it was cut into.
    pub(super) elements: u32,
    /// How many of them were in the free list when the pool was dropped.
    pub(super) home: Cell<u32>,
}
