//! Zeroed memory: for a memory domain that allocates, and for pools whose buffers the application packs into.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use ucs::Error;
use ucs::datastruct::mpool::{ChunkAllocator, ChunkMemory};

use crate::failure::Failure;

/// What both align to: a page, so that neighbours share none.
const ALIGNMENT: usize = 4096;

/// Zeroed memory of the heap, freed on drop.
#[derive(Debug)]
pub struct Allocation {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is plain bytes that belong to the holder of the allocation.
unsafe impl Send for Allocation {}
// SAFETY: the allocation itself only returns address and length.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// At least `length` bytes, in whole pages.
    pub fn new(length: usize) -> Result<Allocation, Failure> {
        let refused = |status| Failure::new(status, format!("cannot allocate {length} bytes"));
        let layout = Layout::from_size_align(length.max(1), ALIGNMENT)
            .map_err(|_| refused(Error::INVALID_PARAM))?
            .pad_to_align();
        // SAFETY: the layout's size is not zero.
        let address =
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| refused(Error::NO_MEMORY))?;
        Ok(Allocation { address, layout })
    }

    /// The first byte; page aligned.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Usable bytes.
    pub fn length(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.address.as_ptr(), self.layout) };
    }
}

/// Chunks of zeroed heap memory for a pool: its buffers are initialised, as [`crate::Pack::write`] requires.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZeroedChunks;

// SAFETY: the global allocator's memory is the caller's alone.
unsafe impl ChunkAllocator for ZeroedChunks {
    fn alloc(&self, min_len: usize) -> ucs::Result<ChunkMemory> {
        let layout = layout(min_len)?;
        // SAFETY: the layout's size is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Error::NO_MEMORY)?;
        Ok(ChunkMemory { ptr, len: layout.size(), cookie: ptr::null_mut::<c_void>() })
    }

    unsafe fn free(&self, chunk: ChunkMemory) {
        if let Ok(layout) = layout(chunk.len) {
            // SAFETY: `alloc` made the chunk with the same layout, by the caller's promise.
            unsafe { dealloc(chunk.ptr.as_ptr(), layout) };
        }
    }
}

fn layout(length: usize) -> ucs::Result<Layout> {
    Layout::from_size_align(length.max(1), 64).map_err(|_| Error::INVALID_PARAM)
}
