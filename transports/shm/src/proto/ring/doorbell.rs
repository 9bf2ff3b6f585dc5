//! The doorbell of a receiver: which of its idle rings have messages, and whether it sleeps.
//!
//! Used by interfaces, which poll it, and by senders on idle rings, which ring it. Built on `ucs::sync`. It is one page of memory that the
//! receiver owns and all its senders map. A sender that writes invalid values here can hide the bits of others, but not their messages: the
//! receiver checks a few idle rings in each epoch, and the first message on an idle ring wakes the receiver whatever the doorbell contains
//! (`Sender::attend`).

use std::ptr::NonNull;

use ucs::sync::atomic::{AtomicU64, Ordering};

use super::Watch;

/// Words of ring bits.
const WORDS: usize = 64;
/// The summary has this value or a larger one when a sender has rung.
const RUNG: u64 = 1;
/// Bytes of a mapped doorbell.
pub const DOORBELL_BYTES: usize = 4096;

/// Memory that holds a doorbell.
///
/// # Safety
///
/// The three kinds of words are distinct and stay valid as long as the implementor lives. `index` is below 64.
pub unsafe trait DoorbellMemory {
    /// Bit i: word i has bits.
    fn summary(&self) -> &AtomicU64;
    /// A bit for each of 64 rings.
    fn word(&self, index: usize) -> &AtomicU64;
    /// Not 0 while the receiver wants to be woken.
    fn armed(&self) -> &AtomicU64;
}

/// A doorbell, either side.
#[derive(Debug)]
pub struct Doorbell<M> {
    memory: M,
}

impl<M: DoorbellMemory> Doorbell<M> {
    /// Number of rings with a bit of their own; further ones share.
    pub const RINGS: u32 = (WORDS * 64) as u32;

    /// A doorbell on zeroed memory.
    pub fn new(memory: M) -> Doorbell<M> {
        Doorbell { memory }
    }

    /// Sets the bit of `ring`. Returns whether the receiver sleeps, and the caller must wake it now.
    #[must_use]
    pub fn ring(&self, ring: u32) -> bool {
        let ring = ring % Self::RINGS;
        let word = (ring / 64) as usize;
        // SYNC: both pair with the swaps in `take`. The word first, so that a receiver that sees the summary finds the bit.
        self.memory.word(word).fetch_or(1 << (ring % 64), Ordering::SeqCst);
        self.memory.summary().fetch_or(1 << word, Ordering::SeqCst);
        // SYNC: with the heavy barrier of `publish_idle`: the receiver sees the bit, or we see that it has armed. That needs
        // SeqCst here and above; then the swap: of two ringers one wakes.
        self.memory.armed().load(Ordering::SeqCst) != 0 && self.memory.armed().swap(0, Ordering::SeqCst) != 0
    }

    /// Whether a sender has rung.
    #[inline(always)]
    pub fn has_rung(&self) -> bool {
        // SYNC: only a hint; `take` swaps.
        self.memory.summary().load(Ordering::Relaxed) != 0
    }

    /// The word that is not 0 when a sender has rung.
    pub fn watch(&self) -> Watch {
        Watch::new(self.memory.summary(), RUNG)
    }

    /// Clears all bits and calls `each` with the number of every ring whose bit was set, modulo [`RINGS`](Self::RINGS).
    pub fn take(&self, mut each: impl FnMut(u32)) {
        // SYNC: pairs with the read-modify-writes in `ring`; messages that were sent before them are visible.
        let mut summary = self.memory.summary().swap(0, Ordering::SeqCst);
        while summary != 0 {
            let word = summary.trailing_zeros();
            summary &= summary - 1;
            let mut bits = self.memory.word(word as usize).swap(0, Ordering::SeqCst);
            while bits != 0 {
                each(word * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    /// Asks to be woken. Call `publish_idle` afterwards, then poll rings and doorbell once more before sleeping.
    pub fn arm(&self) {
        self.memory.armed().store(1, Ordering::Relaxed);
    }

    /// Asks not to be woken any more. Returns whether a sender has woken the receiver: the wake-up has arrived or will arrive.
    pub fn disarm(&self) -> bool {
        // SYNC: one side only gets the 1.
        self.memory.armed().swap(0, Ordering::SeqCst) == 0
    }
}

/// A doorbell in mapped memory.
#[derive(Debug)]
pub struct MappedDoorbell {
    base: NonNull<u8>,
}

impl MappedDoorbell {
    /// A doorbell at `base`.
    ///
    /// # Safety
    ///
    /// `base` is aligned to 64 and [`DOORBELL_BYTES`] bytes from it are readable and writable while the doorbell lives.
    pub unsafe fn new(base: NonNull<u8>) -> MappedDoorbell {
        debug_assert!((base.as_ptr() as usize).is_multiple_of(64));
        MappedDoorbell { base }
    }

    #[inline(always)]
    fn at(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset < DOORBELL_BYTES);
        // SAFETY: `new`'s caller vouched for this many bytes.
        let word = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: valid as above, and aligned: all offsets are multiples of 8.
        unsafe { &*word.cast::<AtomicU64>() }
    }
}

// SAFETY: offsets 0, 128 and 256 + 8 i do not meet and are below `DOORBELL_BYTES`.
unsafe impl DoorbellMemory for MappedDoorbell {
    #[inline(always)]
    fn summary(&self) -> &AtomicU64 {
        self.at(0)
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        self.at(256 + 8 * (index % WORDS))
    }

    #[inline]
    fn armed(&self) -> &AtomicU64 {
        self.at(128)
    }
}

// SAFETY: a `MappedDoorbell` is a pointer to memory made for being shared, and carries no thread's state.
unsafe impl Send for MappedDoorbell {}
