//! A pool of elements of one size, for descriptors and buffers of the data path.
//!
//! Used by interfaces. Built on [`chunk`](ChunkAllocator) memory, which a memory domain may register as it is allocated.
//! Transports use it; [`ObjectPool`] is the safe way in for plain objects.
//!
//! A chunk is cut into elements, each behind a header of two words:
//!
//! ```text
//! | next free | chunk | element ... | padding | next free | chunk | element ... |
//!                       ^ + align_offset is a multiple of alignment
//! ```
//!
//! # Obligations
//!
//! - The pool belongs to one thread. `get` and `put` cost a few instructions and never allocate, but for the `get` that
//!   finds the free list empty and grows the pool.
//! - An element belongs to the caller from `get` to `put`: its bytes, not the header before it. Its contents survive
//!   in the pool, so what an init hook wrote is there again unless an owner overwrote it.
//! - Chunk memory is private to the process: the links are in it, and they are trusted.
//! - A pool that is dropped while elements are in use logs a warning, counts them in [`leaked_elements`], and never frees
//!   the chunks that hold them, so that their memory stays valid. Their cleanup hook is not called.

mod chunk;
mod grow;
mod object_pool;
mod params;

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};

pub use chunk::{ChunkAllocator, ChunkMemory, HeapChunks};
pub use object_pool::{ObjectPool, Pooled};
pub use params::{ElementHooks, MpoolError, MpoolParams};

use crate::sync::fixed::{AtomicU64, Ordering};
use chunk::Chunk;
use grow::Layout;

/// What precedes every element. At the element's address minus 16, whatever the alignment of that.
#[repr(C)]
struct Header {
    /// The next free element; [`OUT`] (in a debug build) while a caller has this one.
    next: *mut u8,
    /// The chunk that the element is in, set once.
    chunk: *const Chunk,
}

const HEADER: usize = size_of::<Header>();

/// Marks an element as not in the pool, so that a debug build notices a second `put`.
const OUT: *mut u8 = ptr::without_provenance_mut(usize::MAX);

static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Elements that were out when their pool was dropped, in all pools of this process (of this copy of the library).
pub fn leaked_elements() -> u64 {
    // SYNC: a count for people and tests; orders nothing.
    LEAKED.load(Ordering::Relaxed)
}

/// A pool of elements of one size; see the module.
pub struct Mpool {
    /// The first free element, or null.
    free: Cell<*mut u8>,
    cold: Box<Cold>,
}

/// What `get` and `put` do not touch.
struct Cold {
    params: MpoolParams,
    layout: Layout,
    allocator: Box<dyn ChunkAllocator>,
    hooks: Box<dyn ElementHooks>,
    chunks: RefCell<Vec<NonNull<Chunk>>>,
    /// Elements in all chunks.
    elements: Cell<u32>,
    /// How many elements the next chunk is to have.
    next_chunk: Cell<u32>,
    growing: Cell<bool>,
    /// Whether a failure to allocate was logged already, so that a data path without memory does not fill the log.
    failure_logged: Cell<bool>,
}

impl Mpool {
    /// An empty pool whose chunks come from `allocator`; `hooks` see each element at its beginning and its end (`()` has
    /// none). Allocates no chunk yet. Fails on parameters that no pool can have.
    pub fn new(
        params: MpoolParams,
        allocator: impl ChunkAllocator + 'static,
        hooks: impl ElementHooks + 'static,
    ) -> Result<Mpool, MpoolError> {
        let layout = Layout::new(&params)?;
        let cold = Cold {
            next_chunk: Cell::new(params.elems_per_chunk),
            params,
            layout,
            allocator: Box::new(allocator),
            hooks: Box::new(hooks),
            chunks: RefCell::new(Vec::new()),
            elements: Cell::new(0),
            growing: Cell::new(false),
            failure_logged: Cell::new(false),
        };
        Ok(Mpool { free: Cell::new(ptr::null_mut()), cold: Box::new(cold) })
    }

    /// An element: the one put back last, or one of a new chunk. `None` if the pool has given all that it may, or if a
    /// chunk cannot be had (the first such failure is logged; [`Mpool::reserve`] returns the reason).
    #[inline]
    pub fn get(&self) -> Option<NonNull<u8>> {
        match NonNull::new(self.free.get()) {
            None => self.get_from_new_chunk(),
            Some(element) => {
                // SAFETY: what is in the free list is an element of this pool.
                self.free.set(unsafe { header(element) }.next);
                if cfg!(debug_assertions) {
                    // SAFETY: as above.
                    unsafe { set_next(element, OUT) };
                }
                Some(element)
            }
        }
    }

    /// As [`Mpool::get`], but `None` where that would take a new chunk.
    #[inline]
    pub fn get_free(&self) -> Option<NonNull<u8>> {
        if self.free.get().is_null() { None } else { self.get() }
    }

    /// Gives an element back. It is the next to be handed out.
    ///
    /// # Safety
    ///
    /// `element` came from `get` of this very pool, has not been put back since, and is not in use any more.
    #[inline]
    pub unsafe fn put(&self, element: NonNull<u8>) {
        if cfg!(debug_assertions) {
            // SAFETY: it is an element of this pool by this function's contract.
            let mark = unsafe { header(element) }.next;
            assert!(
                mark == OUT,
                "mpool {}: element {element:p} was put twice, or its header overwritten",
                self.name()
            );
        }
        // SAFETY: as above.
        unsafe { set_next(element, self.free.get()) };
        self.free.set(element.as_ptr());
    }

    /// What the chunk allocator attached to the chunk that `element` is in: a memory handle, an index, null. Two loads.
    ///
    /// # Safety
    ///
    /// `element` came from `get` of some pool; a pool that was dropped meanwhile does no harm, for its chunk lives on.
    #[inline]
    pub unsafe fn cookie(element: NonNull<u8>) -> *mut c_void {
        // SAFETY: by this function's contract.
        let chunk = unsafe { header(element) }.chunk;
        // SAFETY: a chunk lives as long as one of its elements is out.
        unsafe { (*chunk).memory.cookie }
    }

    /// Grows the pool until at least `elements` are free. Not for the data path. Fails where the quota or the allocator
    /// ends; what was allocated up to there stays.
    pub fn reserve(&self, elements: u32) -> Result<(), MpoolError> {
        // Counted once: a walk for each chunk would take the square of their number.
        let (free, capacity) = (self.available(), self.capacity());
        while free + (self.capacity() - capacity) < elements {
            self.grow()?;
        }
        Ok(())
    }

    /// The name given in the parameters.
    pub fn name(&self) -> &str {
        &self.cold.params.name
    }

    /// The parameters that it was made with.
    pub fn params(&self) -> &MpoolParams {
        &self.cold.params
    }

    /// How many elements are in its chunks, free and out.
    pub fn capacity(&self) -> u32 {
        self.cold.elements.get()
    }

    /// How many chunks it has.
    #[inline]
    pub fn chunks(&self) -> usize {
        self.cold.chunks.borrow().len()
    }

    /// How many elements are free. Walks them: not for the data path.
    pub fn available(&self) -> u32 {
        let mut count = 0;
        self.for_each_free(|_| count += 1);
        count
    }

    /// How many elements are out. Walks the free ones: not for the data path.
    pub fn outstanding(&self) -> u32 {
        self.capacity() - self.available()
    }

    #[cold]
    #[inline(never)]
    fn get_from_new_chunk(&self) -> Option<NonNull<u8>> {
        match self.grow() {
            Ok(()) => {
                self.cold.failure_logged.set(false);
                // `grow` put at least one element into the free list.
                self.get()
            }
            Err(error) => {
                if !matches!(error, MpoolError::Quota { .. }) && !self.cold.failure_logged.replace(true) {
                    crate::log::error!("{error}");
                }
                None
            }
        }
    }

    fn for_each_free(&self, mut visit: impl FnMut(NonNull<u8>)) {
        let mut free = self.free.get();
        while let Some(element) = NonNull::new(free) {
            // SAFETY: what is in the free list is an element of this pool.
            free = unsafe { header(element) }.next;
            visit(element);
        }
    }
}

impl Drop for Mpool {
    fn drop(&mut self) {
        self.for_each_free(|element| {
            // SAFETY: the element is in the free list, so it was initialized and is not in use.
            unsafe { self.cold.hooks.cleanup(element) };
            // SAFETY: it is an element of this pool.
            let chunk = unsafe { header(element) }.chunk;
            // SAFETY: a chunk lives as long as its pool does.
            let chunk = unsafe { &*chunk };
            chunk.home.set(chunk.home.get() + 1);
        });
        let mut leaked = 0;
        for chunk in self.cold.chunks.take() {
            // SAFETY: `grow` made the pointer, and only this function ends a chunk.
            let chunk_ref = unsafe { chunk.as_ref() };
            let out = chunk_ref.elements - chunk_ref.home.get();
            leaked += out;
            if out == 0 {
                let memory = chunk_ref.memory;
                // SAFETY: none of its elements is out, and the free list is not used any more.
                unsafe { self.cold.allocator.free(memory) };
                // SAFETY: `grow` made it with `Box::into_raw`; no header that points to it is read any more.
                drop(unsafe { Box::from_raw(chunk.as_ptr()) });
            }
        }
        if leaked > 0 {
            // SYNC: a count for people and tests; orders nothing.
            LEAKED.fetch_add(leaked.into(), Ordering::Relaxed);
            crate::log::warn!(
                pool = self.name(),
                elements = leaked,
                "a memory pool was dropped with elements out"
            );
        }
    }
}

impl fmt::Debug for Mpool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mpool")
            .field("name", &self.name())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}

/// The header of an element.
///
/// # Safety
///
/// `element` is an element of a pool that lives, or is out.
#[inline]
unsafe fn header(element: NonNull<u8>) -> Header {
    // SAFETY: a header precedes every element.
    let header = unsafe { element.as_ptr().sub(HEADER) }.cast::<Header>();
    // SAFETY: `cut` wrote it, only the pool writes it again; it is as aligned as the element is.
    unsafe { header.read_unaligned() }
}

/// # Safety
///
/// `element` is an element of a pool that lives.
#[inline]
unsafe fn set_next(element: NonNull<u8>, next: *mut u8) {
    // SAFETY: a header precedes every element, and `next` is its first field.
    let field = unsafe { element.as_ptr().sub(HEADER) }.cast::<*mut u8>();
    // SAFETY: only the pool accesses headers.
    unsafe { field.write_unaligned(next) };
}
