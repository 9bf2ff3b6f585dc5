//! Registered memory for pools.
//!
//! Built on `ucs::datastruct::mpool`, whose chunks are registered as they are allocated.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use ucs::datastruct::mpool::{ChunkAllocator, ChunkMemory, ElementHooks, Mpool, MpoolParams};
use uct_ib::IbError;
use uct_ib::verbs::{Access, MrBuffer, Pd};
use uct_plugin::{Error, Failure};

/// Makes a pool, and allocates its first elements, so that a failure has its reason.
pub(super) fn registered(
    pd: &Arc<Pd>,
    params: MpoolParams,
    hooks: impl ElementHooks + 'static,
    first: u32,
) -> Result<Mpool, Failure> {
    let refusal = Rc::new(RefCell::new(None));
    let chunks = Chunks { pd: Arc::clone(pd), refusal: Rc::clone(&refusal) };
    let made = Mpool::new(params, chunks, hooks);
    let reserved = made.and_then(|pool| pool.reserve(first).map(|()| pool));
    reserved.map_err(|error| match refusal.borrow_mut().take() {
        Some(reason) => Failure::from(reason),
        None => Failure::new(Error::from(error.clone()), error.to_string()),
    })
}

/// Registered, zeroed memory. The cookie is the [`MrBuffer`].
struct Chunks {
    pd: Arc<Pd>,
    /// Why the last chunk could not be had.
    refusal: Rc<RefCell<Option<IbError>>>,
}

// SAFETY: an `MrBuffer` owns its memory, and the device touches it only for work requests that the interface posts over
// elements that are out.
unsafe impl ChunkAllocator for Chunks {
    fn alloc(&self, min_len: usize) -> ucs::Result<ChunkMemory> {
        match MrBuffer::new(&self.pd, min_len, Access::LOCAL_WRITE) {
            Ok(buffer) => {
                let buffer = Box::new(buffer);
                let ptr = NonNull::new(buffer.as_ptr()).ok_or(ucs::Error::NO_MEMORY)?;
                let len = buffer.length();
                Ok(ChunkMemory { ptr, len, cookie: Box::into_raw(buffer).cast() })
            }
            Err(error) => {
                let status = error.status();
                *self.refusal.borrow_mut() = Some(error);
                Err(ucs::Error::from_status(status))
            }
        }
    }

    unsafe fn free(&self, chunk: ChunkMemory) {
        // SAFETY: `alloc` made the box, and the pool frees a chunk once.
        drop(unsafe { Box::from_raw(chunk.cookie.cast::<MrBuffer>()) });
    }
}

/// The local key of a chunk.
///
/// # Safety
/// `cookie` is that of a chunk of [`Chunks`] that lives.
pub(super) unsafe fn lkey(cookie: *mut c_void) -> u32 {
    // SAFETY: the caller's promise.
    let buffer = unsafe { &*cookie.cast::<MrBuffer>() };
    buffer.mr().lkey()
}
