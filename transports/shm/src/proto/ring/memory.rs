//! The memory of a ring, as sender and receiver see it.
//!
//! Used by [`Sender`](super::Sender) and [`Receiver`](super::Receiver), which are generic over it, so that a loom model runs the same code
//! over memory that loom observes. Built on [`Layout`].

use std::ptr::NonNull;

use ucs::sync::atomic::AtomicU64;

use super::control::Place;
use super::hint::prefetch_for_write;
use super::layout::{AHEAD, CREDIT_OFFSET, Layout, RELEASE_OFFSET};

/// Memory that holds one ring.
///
/// The words are atomic and any side may touch them at any time. Bodies and blocks belong to one side at a time, by the
/// protocol; the closures get a pointer that is good for that side while they run.
///
/// # Safety
///
/// All references and pointers stay valid as long as the implementor lives, and point to distinct memory for distinct
/// arguments: 8 bytes for words, 56 for a body, the layout's capacity for a block. A slot is named by its offset in the
/// ring. Arguments are in the layout's range, which the caller checks.
pub unsafe trait RingMemory: Sized {
    /// The shape.
    fn layout(&self) -> &Layout;
    /// The receiver's credit word.
    fn credit(&self) -> &AtomicU64;
    /// The receiver's release word of a pool; `place` is not `Inline`.
    fn release(&self, place: Place) -> &AtomicU64;
    /// The control word of a slot.
    fn control(&self, slot: usize) -> &AtomicU64;
    /// Asks for the line that is [`AHEAD`] bytes behind a slot, to be written soon.
    fn prefetch(&self, slot: usize);
    /// The rest of a slot, for the receiver.
    fn body<R>(&self, slot: usize, read: impl FnOnce(*const u8) -> R) -> R;
    /// The rest of a slot, for the sender.
    fn body_mut<R>(&self, slot: usize, write: impl FnOnce(*mut u8) -> R) -> R;
    /// Another handle on the same memory, which a caller can keep in registers.
    ///
    /// # Safety
    ///
    /// It is used as this one may be, and not longer.
    unsafe fn alias(&self) -> Self;
    /// The payload of a block, for the side that owns it; `place` is not `Inline`.
    fn block<R>(&self, place: Place, index: u32, access: impl FnOnce(*mut u8) -> R) -> R;
}

/// A ring in mapped memory, that another process may map too.
#[derive(Debug)]
pub struct MappedRing {
    base: NonNull<u8>,
    layout: Layout,
}

impl MappedRing {
    /// A ring at `base`.
    ///
    /// # Safety
    ///
    /// `base` is aligned to 128 and all bytes of the first part and the rest of `layout` from it are readable and writable, and stay so while the
    /// ring lives. In this process at most one sender and one receiver use them. Other processes may write to them at
    /// any time: nothing is read from them that is not checked or copied first, except message payload.
    pub unsafe fn new(base: NonNull<u8>, layout: Layout) -> MappedRing {
        debug_assert!((base.as_ptr() as usize).is_multiple_of(128));
        MappedRing { base, layout }
    }

    #[inline(always)]
    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.layout.size());
        // SAFETY: `Layout` only gives offsets below its size, which `new`'s caller vouched for.
        unsafe { self.base.as_ptr().add(offset) }
    }

    #[inline(always)]
    fn word(&self, offset: usize) -> &AtomicU64 {
        let word = self.at(offset).cast::<AtomicU64>();
        // SAFETY: inside the mapping (see `at`) and aligned, since base and all offsets of words are multiples of 8.
        // Shared with another process, which is what an atomic is for.
        unsafe { &*word }
    }
}

// SAFETY: offsets come from a checked `Layout`, which keeps words, slots and blocks apart, inside memory that `new`'s
// caller vouched for.
unsafe impl RingMemory for MappedRing {
    #[inline(always)]
    fn layout(&self) -> &Layout {
        &self.layout
    }

    #[inline(always)]
    fn credit(&self) -> &AtomicU64 {
        self.word(CREDIT_OFFSET)
    }

    #[inline]
    fn release(&self, place: Place) -> &AtomicU64 {
        self.word(RELEASE_OFFSET + if place == Place::Bulk { 8 } else { 0 })
    }

    #[inline(always)]
    fn control(&self, slot: usize) -> &AtomicU64 {
        self.word(slot)
    }

    #[inline(always)]
    fn prefetch(&self, slot: usize) {
        prefetch_for_write::<AHEAD>(self.base.as_ptr(), slot);
    }

    #[inline(always)]
    fn body<R>(&self, slot: usize, read: impl FnOnce(*const u8) -> R) -> R {
        read(self.at(slot + 8))
    }

    #[inline(always)]
    fn body_mut<R>(&self, slot: usize, write: impl FnOnce(*mut u8) -> R) -> R {
        write(self.at(slot + 8))
    }

    #[inline(always)]
    unsafe fn alias(&self) -> MappedRing {
        MappedRing { base: self.base, layout: self.layout }
    }

    #[inline]
    fn block<R>(&self, place: Place, index: u32, access: impl FnOnce(*mut u8) -> R) -> R {
        let offset = if place == Place::Bulk { self.layout.bulk(index) } else { self.layout.small(index) };
        access(self.at(offset))
    }
}

// SAFETY: a `MappedRing` is a pointer to memory made for being shared, and carries no thread's state.
unsafe impl Send for MappedRing {}
