//! One end of the ping-pong line: a pair of cache lines in which two sides reply to each other.
//!
//! Used by channels, which have one in addition to their two rings. Built on control words and on memory that implements
//! [`TurnLineMemory`].
//!
//! Over two rings, each round trip transfers two cache lines, because each message is written to another one. The ping-pong line serves
//! both directions: the side that consumes a message finds the line in its cache and may reply in place.
//!
//! - **Ownership.** Only the owner writes the line. It sends one message there, and the peer becomes the owner when it consumes
//!   that message. All other messages go through the ring.
//! - **Length.** A short message is in the line itself: in its first half, which costs the transfer of one cache line, or in both. Of a longer one
//!   the line contains the block and the length, as a slot does.
//! - **Order.** A message that is sent out of the ring has a position like those in the ring, and its slot stays unused. A receiver
//!   expects one position and finds it in the ring or in the line. It checks the line only while the peer owns it.
//! - **Words.** Each direction has its own control word in the line, so that no side takes its own message for one of the peer's.
//!
//! The line is not trusted, as the rings are not: a message is copied out once, with a checked length. The receiver of the ring checks a block.

use std::cell::Cell;
use std::ptr::NonNull;

use ucs::sync::atomic::{AtomicU64, Ordering};

use super::control::{Control, InBlock, Short, TURN_LINE_BYTES};
use super::copy::copy_turn_line;
use super::receiver::{Body, Watch};

/// The line, as one end sees it.
///
/// # Safety
///
/// The words are distinct and stay valid as long as the implementor lives. The body is [`TURN_LINE_BYTES`] bytes aligned to 8,
/// and belongs to the owner of the line; the closures get a pointer that is good for that end while they run.
pub unsafe trait TurnLineMemory {
    /// The word that this end writes.
    fn own(&self) -> &AtomicU64;
    /// The word that the other end writes.
    fn other(&self) -> &AtomicU64;
    /// The body, to be read.
    fn body<R>(&self, read: impl FnOnce(*const u8) -> R) -> R;
    /// The body, to be written.
    fn body_mut<R>(&self, write: impl FnOnce(*mut u8) -> R) -> R;
}

/// One end of the ping-pong line.
#[derive(Debug)]
pub struct TurnLine<M> {
    memory: M,
    is_owner: Cell<bool>,
}

impl<M: TurnLineMemory> TurnLine<M> {
    /// An end on zeroed memory. One of the two ends is the first owner.
    pub fn new(memory: M, begins: bool) -> TurnLine<M> {
        TurnLine { memory, is_owner: Cell::new(begins) }
    }

    /// Whether this end owns the line.
    #[inline(always)]
    pub fn is_owner(&self) -> bool {
        self.is_owner.get()
    }

    /// Sends a message at its position: `fill` writes it, at most [`TURN_LINE_BYTES`]. This end owns the line, and the peer does afterwards.
    #[inline(always)]
    pub fn send(&self, control: Control, fill: impl FnOnce(*mut u8)) {
        debug_assert!(self.is_owner());
        self.memory.body_mut(fill);
        // SYNC: pairs with the Acquire in `take`: the body is written before the number is seen.
        self.memory.own().store(control.0, Ordering::Release);
        self.is_owner.set(false);
    }

    /// Copies the message at `position` out, if it is here; this end then owns the line. Called while the peer owns it.
    #[inline(always)]
    pub fn take(&self, position: u64, copy: &mut Body) -> Option<Short> {
        debug_assert!(!self.is_owner());
        // SYNC: pairs with the Release in `send`.
        let control = Control(self.memory.other().load(Ordering::Acquire));
        let short = control.as_short(position, TURN_LINE_BYTES)?;
        // SAFETY: a body is TURN_LINE_BYTES readable bytes, aligned to 8, and the copy has room for more.
        self.memory.body(|body| unsafe { copy_turn_line(body.cast(), copy.words(), short.length()) });
        // Our reads are over before the other end sees our next message, which is when it writes again.
        self.is_owner.set(true);
        Some(short)
    }

    /// Sends a message in a block, as [`send`](TurnLine::send): `control` names the block, the line contains the length.
    pub fn send_block(&self, control: Control, length: usize) {
        // SAFETY: a body is larger than a word and aligned to it.
        self.send(control, |body| unsafe { body.cast::<u64>().write(length as u64) });
    }

    /// The message at `position`, if it is announced here and is in a block; this end then owns the line. Called while the peer owns it.
    pub fn take_block(&self, position: u64) -> Option<InBlock> {
        debug_assert!(!self.is_owner());
        // SYNC: pairs with the Release in `send`.
        let control = Control(self.memory.other().load(Ordering::Acquire));
        let (tag, place, index) = control.as_block_in_line(position)?;
        // SAFETY: a body is at least 8 readable bytes, aligned to 8; read once.
        let length = self.memory.body(|body| unsafe { body.cast::<u64>().read() });
        self.is_owner.set(true);
        Some(InBlock { tag, place, index, length })
    }

    /// Whether the message at `position` is here. False while this end owns the line.
    #[inline(always)]
    pub fn has(&self, position: u64) -> bool {
        // SYNC: only a hint; `take` and `take_block` read the word again with Acquire.
        let control = || Control(self.memory.other().load(Ordering::Relaxed));
        !self.is_owner()
            && (control().as_short(position, TURN_LINE_BYTES).is_some()
                || control().as_block_in_line(position).is_some())
    }

    /// The word that the message at `position` changes, if it is sent out of the ring.
    #[inline(always)]
    pub fn watch(&self, position: u64) -> Watch {
        Watch::new(self.memory.other(), position)
    }
}

/// A line of mapped memory, that another process maps too: the words of both ends, and the body behind them.
#[derive(Debug)]
pub struct MappedTurnLine {
    own: NonNull<AtomicU64>,
    other: NonNull<AtomicU64>,
    body: NonNull<u8>,
}

impl MappedTurnLine {
    /// The line at `line`, for one of its two ends.
    ///
    /// # Safety
    ///
    /// `line` is aligned to 128, and 128 bytes from it are readable and writable and stay so while this value lives. This
    /// process accesses them through the two ends only; other processes may write to them at any time.
    pub unsafe fn new(line: NonNull<u8>, is_first: bool) -> MappedTurnLine {
        let first = line.cast::<AtomicU64>();
        // SAFETY: inside the line.
        let second = unsafe { first.add(1) };
        // SAFETY: as above.
        let body = unsafe { second.add(1) }.cast();
        let (own, other) = if is_first { (first, second) } else { (second, first) };
        MappedTurnLine { own, other, body }
    }
}

// SAFETY: the words are the first two of a line, the body the 112 bytes behind them, in memory that `new`'s caller vouched
// for.
unsafe impl TurnLineMemory for MappedTurnLine {
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
unsafe impl Send for MappedTurnLine {}
