//! Registered memory for pools.
//!
//! For the buffer pools of the transports. Built on `MrBuffer` and the pool's allocator hook.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ucs::datastruct::mpool::{ChunkAllocator, ChunkMemory};

use super::{Access, MrBuffer, Pd};

/// Chunks of zeroed memory that is registered for local use. The cookie of every element is its local key: see [`lkey`].
pub struct RegisteredChunks {
    pd: Arc<Pd>,
    access: Access,
    chunks: RefCell<HashMap<usize, MrBuffer>>,
}

impl RegisteredChunks {
    /// Chunks in a domain, for one thread.
    pub fn new(pd: &Arc<Pd>, access: Access) -> Self {
        Self { pd: pd.clone(), access, chunks: RefCell::default() }
    }
}

// SAFETY: a buffer's memory is its own, and stays until the buffer is dropped in `free`. It is not shared with another
// process; the device writes to it only on request of the holder of the element.
unsafe impl ChunkAllocator for RegisteredChunks {
    fn alloc(&self, min_len: usize) -> ucs::Result<ChunkMemory> {
        let buffer = MrBuffer::new(&self.pd, min_len, self.access).map_err(|error| {
            ucs::log::error!(%error, "no memory for a buffer pool");
            ucs::Error::from_status(error.status())
        })?;
        let start = NonNull::new(buffer.as_ptr()).ok_or(ucs::Error::NO_MEMORY)?;
        let cookie = ptr::without_provenance_mut(buffer.mr().lkey() as usize);
        let memory = ChunkMemory { ptr: start, len: buffer.length(), cookie };
        self.chunks.borrow_mut().insert(start.as_ptr().addr(), buffer);
        Ok(memory)
    }

    unsafe fn free(&self, chunk: ChunkMemory) {
        self.chunks.borrow_mut().remove(&chunk.ptr.as_ptr().addr());
    }
}

/// The local key of an element of a pool with [`RegisteredChunks`].
///
/// # Safety
/// The element came from such a pool and has not been put back.
#[inline]
pub unsafe fn lkey(element: NonNull<u8>) -> u32 {
    // SAFETY: the caller's promise.
    let cookie = unsafe { ucs::datastruct::mpool::Mpool::cookie(element) };
    cookie.addr() as u32
}
