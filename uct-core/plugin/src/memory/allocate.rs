//! Zeroed memory: for a memory domain that allocates, and for pools whose buffers the application packs into.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use ucs::Error;
use ucs::datastruct::mpool::{ChunkAllocator, ChunkMemory};
use ucs::memory::{Method, allocate};

use crate::failure::Failure;

/// What both align to: a page, so that neighbours share none.
const ALIGNMENT: usize = 4096;

/// From so many bytes on, memory is pages of its own, which are not made before they are used. It begins at a multiple of this, so that the
/// host can ask for huge pages.
const OWN_PAGES: usize = 2 << 20;

/// Zeroed memory, freed on drop.
#[derive(Debug)]
pub struct Allocation(ucs::memory::Allocation);

impl Allocation {
    /// At least `length` bytes, in whole pages.
    pub fn new(length: usize) -> Result<Allocation, Failure> {
        let refused = || Failure::new(Error::NO_MEMORY, format!("cannot allocate {length} bytes"));
        let whole = length.max(1).checked_next_multiple_of(ALIGNMENT).ok_or_else(refused)?;
        let (method, alignment) =
            if whole < OWN_PAGES { (Method::Heap, ALIGNMENT) } else { (Method::Mmap, OWN_PAGES) };
        allocate(method, whole, alignment).map(Allocation).map_err(|_| refused())
    }

    /// The first byte; page aligned.
    pub fn address(&self) -> NonNull<u8> {
        NonNull::new(self.0.as_ptr()).expect("memory is not at 0")
    }

    /// Usable bytes.
    pub fn length(&self) -> usize {
        self.0.len()
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
