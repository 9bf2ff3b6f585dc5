//! The shuttle: one cache line in which two ends answer each other.
//!
//! For: channels, which have one beside their two rings. Stands on control words and on memory that implements
//! [`ShuttleMemory`].
//!
//! Two ends that wait for each other's answers move two lines for each round trip over rings, and each has to be taken from
//! the other's cache before it can be written. The shuttle is one line for both directions: who has read a message in it
//! has the line, and writes the answer there.
//!
//! - **Turns.** The line is one end's to write. It sends one short message in it, and then the line is the other's, who knows
//!   as soon as it has taken that message. Who has not the turn, or has more to say, sends over its ring.
//! - **Order.** A message in the shuttle has a position like those of its ring, and its slot there stays unused. A receiver
//!   that expects a position finds it here or there, and looks in the shuttle only while it is the other's turn.
//! - **Words.** Each direction has a control word of its own in the line, so that nobody takes its own message for an answer.
//!
//! The line is as little trusted as the rings: a message is copied out once, with a length that was checked.

use std::cell::Cell;
use std::ptr::NonNull;

use ucs::sync::atomic::{AtomicU64, Ordering};

use super::control::{Control, SHUTTLE_BYTES, Short};
use super::copy::copy_shuttle;
use super::receiver::{Body, Watch};

/// The line, as one end sees it.
///
/// # Safety
///
/// The words are distinct and stay valid as long as the implementor lives. The body is [`SHUTTLE_BYTES`] bytes aligned to 8,
/// and belongs to whose turn it is; the closures get a pointer that is good for that end while they run.
pub unsafe trait ShuttleMemory {
    /// The word that this end writes.
    fn own(&self) -> &AtomicU64;
    /// The word that the other end writes.
    fn other(&self) -> &AtomicU64;
    /// The body, to be read.
    fn body<R>(&self, read: impl FnOnce(*const u8) -> R) -> R;
    /// The body, to be written.
    fn body_mut<R>(&self, write: impl FnOnce(*mut u8) -> R) -> R;
}

/// One end of a shuttle.
#[derive(Debug)]
pub struct Shuttle<M> {
    memory: M,
    is_mine: Cell<bool>,
}

impl<M: ShuttleMemory> Shuttle<M> {
    /// An end on zeroed memory. One of the two has the first turn.
    pub fn new(memory: M, begins: bool) -> Shuttle<M> {
        Shuttle { memory, is_mine: Cell::new(begins) }
    }

    /// Whether it is this end's turn.
    #[inline(always)]
    pub fn is_mine(&self) -> bool {
        self.is_mine.get()
    }

    /// Sends a message at its position: `fill` writes it, at most [`SHUTTLE_BYTES`]. It is this end's turn.
    #[inline(always)]
    pub fn send(&self, control: Control, fill: impl FnOnce(*mut u8)) {
        debug_assert!(self.is_mine());
        self.memory.body_mut(fill);
        // SYNC: pairs with the Acquire in `take`: the body is written before the number is seen.
        self.memory.own().store(control.0, Ordering::Release);
        self.is_mine.set(false);
    }

    /// Copies the message at `position` out, if it is here; then it is this end's turn. To be asked while it is the other's.
    #[inline(always)]
    pub fn take(&self, position: u64, copy: &mut Body) -> Option<Short> {
        debug_assert!(!self.is_mine());
        // SYNC: pairs with the Release in `send`.
        let control = Control(self.memory.other().load(Ordering::Acquire));
        let short = control.as_short(position, SHUTTLE_BYTES)?;
        // SAFETY: a body is SHUTTLE_BYTES readable bytes, aligned to 8, and the copy has room for more.
        self.memory.body(|body| unsafe { copy_shuttle(body.cast(), copy.words(), short.length()) });
        // Our reads are over before the other end sees our next message, which is when it writes again.
        self.is_mine.set(true);
        Some(short)
    }

    /// Whether the message at `position` is here. False while it is this end's turn.
    #[inline(always)]
    pub fn has(&self, position: u64) -> bool {
        // SYNC: only a hint; `take` reads the word again with Acquire.
        let control = || Control(self.memory.other().load(Ordering::Relaxed));
        !self.is_mine() && control().as_short(position, SHUTTLE_BYTES).is_some()
    }

    /// What the message at `position` changes, if it comes here.
    #[inline(always)]
    pub fn watch(&self, position: u64) -> Watch {
        Watch::new(self.memory.other(), position)
    }
}

/// A line of mapped memory, that another process maps too: the words of both ends, the body between them.
#[derive(Debug)]
pub struct MappedShuttle {
    own: NonNull<AtomicU64>,
    other: NonNull<AtomicU64>,
    body: NonNull<u8>,
}

impl MappedShuttle {
    /// The line at `line`, for one of its two ends.
    ///
    /// # Safety
    ///
    /// `line` is aligned to 64, and 64 bytes from it are readable and writable and stay so while the shuttle lives. Nobody in
    /// this process accesses them but through the two ends; other processes may write to them at any time.
    pub unsafe fn new(line: NonNull<u8>, is_first: bool) -> MappedShuttle {
        // SAFETY: inside the line.
        let body = unsafe { line.add(size_of::<u64>()) };
        // SAFETY: as above.
        let last = unsafe { body.add(SHUTTLE_BYTES) };
        let (first, last) = (line.cast(), last.cast());
        let (own, other) = if is_first { (first, last) } else { (last, first) };
        MappedShuttle { own, other, body }
    }
}

// SAFETY: the words are the first and the last of a line, the body the 48 bytes between, in memory that `new`'s caller vouched
// for.
unsafe impl ShuttleMemory for MappedShuttle {
    #[inline(always)]
    fn own(&self) -> &AtomicU64 {
        // SAFETY: valid and aligned (`new`); shared with another process, which is what an atomic is for.
        unsafe { self.own.as_ref() }
    }

    #[inline(always)]
    fn other(&self) -> &AtomicU64 {
        // SAFETY: as in `own`.
        unsafe { self.other.as_ref() }
    }

    #[inline(always)]
    fn body<R>(&self, read: impl FnOnce(*const u8) -> R) -> R {
        read(self.body.as_ptr())
    }

    #[inline(always)]
    fn body_mut<R>(&self, write: impl FnOnce(*mut u8) -> R) -> R {
        write(self.body.as_ptr())
    }
}

// SAFETY: pointers to memory made for being shared, without a thread's state.
unsafe impl Send for MappedShuttle {}
