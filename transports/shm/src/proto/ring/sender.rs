//! The sending side of a ring.
//!
//! Used by endpoints. Built on [`RingMemory`]. Never blocks: a send on a full ring returns [`Refused::Full`].

use std::cell::Cell;

use ucs::sync::atomic::{AtomicU64, Ordering};

use super::barrier;
use super::control::{Control, Credit, FIRST, Place, STEP};
use super::layout::slot_of;
use super::{Corrupt, RingMemory};

/// Never equal to a credit word, so that every message takes the slow path.
const NEVER: u64 = u64::MAX;

/// What the caller has to do after a message was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// Nothing.
    Quiet,
    /// The receiver's word has changed: call [`Sender::attend`].
    Attend,
}

/// Why a message was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No slot or no block is free; nothing happened.
    #[error("the ring is full")]
    Full,
    /// The receiver wrote invalid values; the ring cannot be used any more.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// A block that is the sender's to fill. Give it to [`Sender::send_block`] or back to [`Sender::cancel`].
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Block {
    place: Place,
    index: u32,
}

/// Which blocks of a pool are in use; see [`Receiver`](super::Receiver) for the other half.
#[derive(Debug)]
struct Blocks {
    /// Free as of the last look at the release word.
    free: Cell<u64>,
    /// Toggled when a block is reserved; free again when the receiver has toggled its own.
    taken: Cell<u64>,
    /// A bit for each block that exists.
    all: u64,
}

impl Blocks {
    fn new(count: u32) -> Blocks {
        let all = u64::MAX >> (64 - count);
        Blocks { free: Cell::new(all), taken: Cell::new(0), all }
    }
}

impl Blocks {
    /// Takes a free block, or gives a taken one back.
    #[inline]
    fn toggle(&self, index: u32) {
        self.free.set(self.free.get() ^ 1 << index);
        self.taken.set(self.taken.get() ^ 1 << index);
    }
}

/// The sending side of a ring. One per ring. State sits in cells, since what fills a block may send again meanwhile.
#[derive(Debug)]
pub struct Sender<M> {
    memory: M,
    /// Position of the next message.
    tail: Cell<u64>,
    /// First position for which there is no credit.
    limit: Cell<u64>,
    /// [`Layout::slot_mask`](super::Layout).
    mask: usize,
    /// The receiver requires full barriers.
    fenced: Cell<bool>,
    /// The credit word as last seen, or [`NEVER`].
    seen: Cell<u64>,
    /// The credit word of an idle receiver that was woken last.
    woken: Cell<u64>,
    small: Blocks,
    bulk: Blocks,
}

impl<M: RingMemory> Sender<M> {
    /// A sender on zeroed memory to which nothing was sent yet.
    pub fn new(memory: M) -> Sender<M> {
        let geometry = *memory.layout().geometry();
        Sender {
            tail: Cell::new(FIRST),
            limit: Cell::new(FIRST + u64::from(geometry.slots) * STEP),
            mask: memory.layout().slot_mask(),
            fenced: Cell::new(true),
            seen: Cell::new(NEVER),
            woken: Cell::new(NEVER),
            small: Blocks::new(geometry.small.count),
            bulk: Blocks::new(geometry.bulk.count),
            memory,
        }
    }

    /// Writes the first credit word on behalf of a receiver that is not there yet: idle, and with full barriers.
    pub fn prepare(&self) {
        // SYNC: the receiver learns of the ring through a socket, which orders this for it.
        self.memory.credit().store(Credit::new(FIRST, Credit::IDLE | Credit::FENCE).0, Ordering::Relaxed);
    }

    /// Whether a slot is free. May read the receiver's word.
    #[inline(always)]
    pub fn has_room(&self) -> Result<bool, Corrupt> {
        Ok(self.tail.get() != self.limit.get() || self.find_room()?)
    }

    #[cold]
    fn find_room(&self) -> Result<bool, Corrupt> {
        self.refresh()?;
        Ok(self.tail.get() != self.limit.get())
    }

    /// Sends `length` bytes, at most [`INLINE_BYTES`](super::INLINE_BYTES), that `fill` writes into the slot.
    ///
    /// `fill` must write only the first `INLINE_BYTES` bytes of what it is given.
    pub fn send_inline(&self, tag: u8, length: usize, fill: impl FnOnce(*mut u8)) -> Result<Sent, Refused> {
        if !self.has_room()? {
            return Err(Refused::Full);
        }
        let tail = self.tail.get();
        Ok(self.send_slot(tail, Control::new(tail, tag, Place::Inline, length as u32), fill))
    }

    /// As [`send_inline`](Sender::send_inline), for a tag below 32, if there is room as far as is known; else `None`.
    #[inline(always)]
    pub fn try_short(&self, tag: u8, length: usize, fill: impl FnOnce(*mut u8)) -> Option<Sent> {
        let tail = self.tail.get();
        if tail == self.limit.get() {
            return None;
        }
        Some(self.send_slot(tail, Control::short(tail, tag, length), fill))
    }

    /// Sends a message out of the ring, if there is room as far as is known. `publish` gets its position.
    #[inline(always)]
    pub fn try_out_of_ring(&self, publish: impl FnOnce(u64)) -> Option<Sent> {
        let tail = self.tail.get();
        if tail == self.limit.get() {
            return None;
        }
        publish(tail);
        self.tail.set(tail.wrapping_add(STEP));
        Some(self.sent(self.memory.credit()))
    }

    /// Whether there is room for a message of any length, as far as is known.
    #[inline(always)]
    pub fn has_room_for_any(&self) -> bool {
        self.tail.get() != self.limit.get() && self.bulk.free.get() != 0
    }

    /// Reserves a block of a pool; `place` is not `Inline`. `None`: all are in use.
    pub fn reserve(&self, place: Place) -> Option<Block> {
        let blocks = self.blocks(place);
        // The word is read for each bulk block: the lowest free block was used most recently and is still in caches.
        if place == Place::Bulk || blocks.free.get() == 0 {
            // SYNC: pairs with the Release in `Receiver::release`: its reads of the block are over.
            let released = self.memory.release(place).load(Ordering::Acquire);
            blocks.free.set(!(blocks.taken.get() ^ released) & blocks.all);
        }
        let free = blocks.free.get();
        if free == 0 {
            return None;
        }
        blocks.toggle(free.trailing_zeros());
        Some(Block { place, index: free.trailing_zeros() })
    }

    /// Whether a block of a pool is free.
    pub fn has_block(&self, place: Place) -> bool {
        self.reserve(place).map(|block| self.cancel(block)).is_some()
    }

    /// Lets `fill` write into a reserved block.
    #[inline]
    pub fn fill_block<R>(&self, block: &Block, fill: impl FnOnce(*mut u8) -> R) -> R {
        self.memory.block(block.place, block.index, fill)
    }

    /// Gives back a reserved block unused.
    pub fn cancel(&self, block: Block) {
        self.blocks(block.place).toggle(block.index);
    }

    #[inline]
    fn blocks(&self, place: Place) -> &Blocks {
        if place == Place::Bulk { &self.bulk } else { &self.small }
    }

    /// Sends the first `length` bytes of a block. Without room the block is given back.
    pub fn send_block(&self, tag: u8, block: Block, length: usize) -> Result<Sent, Refused> {
        if !self.has_room()? {
            self.cancel(block);
            return Err(Refused::Full);
        }
        let tail = self.tail.get();
        let control = Control::new(tail, tag, block.place, block.index);
        // SAFETY: a body has 56 bytes, aligned to 8, and the slot is the sender's until it is published.
        Ok(self.send_slot(tail, control, |body| unsafe { body.cast::<u64>().write(length as u64) }))
    }

    /// Fills the slot of `tail` and publishes it.
    #[inline(always)]
    fn send_slot(&self, tail: u64, control: Control, fill: impl FnOnce(*mut u8)) -> Sent {
        let slot = slot_of(tail, self.mask);
        // Computed before the writes, after which the compiler would load all of it again.
        // SAFETY: for this call, as the sender that it is.
        let memory = unsafe { self.memory.alias() };
        let (word, credit) = (memory.control(slot), memory.credit());
        memory.body_mut(slot, fill);
        // SYNC: pairs with the Acquire in `Receiver::next`: slot and block are written before the number is seen.
        word.store(control.0, Ordering::Release);
        self.tail.set(tail.wrapping_add(STEP));
        memory.prefetch(slot);
        self.sent(credit)
    }

    /// What the caller has to do for a published message.
    #[inline(always)]
    fn sent(&self, credit: &AtomicU64) -> Sent {
        // SYNC: with the heavy barrier in `settle`: the receiver sees the message, or we see that it is idle.
        barrier::light(self.fenced.get());
        if credit.load(Ordering::Relaxed) == self.seen.get() { Sent::Quiet } else { Sent::Attend }
    }

    /// Reads the receiver's word after a message. Returns whether the doorbell must be rung.
    #[cold]
    pub fn attend(&self) -> Result<bool, Corrupt> {
        Ok(self.attend_idle()?.is_some())
    }

    /// As [`attend`](Sender::attend). `Some(true)`: this is the first message that finds the receiver idle at its position. Other peers can
    /// write to the doorbell, but not to this ring.
    pub fn attend_idle(&self) -> Result<Option<bool>, Corrupt> {
        if self.fenced.get() {
            // SYNC: as the light barrier in `publish`, for a receiver without a heavy one.
            barrier::full();
        }
        let credit = self.refresh()?;
        // The receiver has this position and is idle again only after it has received that first message.
        Ok(credit.is_idle().then(|| self.woken.replace(credit.0) != credit.0))
    }

    /// Reads the receiver's word, checks it, and takes position and flags from it.
    fn refresh(&self) -> Result<Credit, Corrupt> {
        // SYNC: pairs with the Release in `Receiver::grant`: its reads of the slots are over.
        let credit = Credit(self.memory.credit().load(Ordering::Acquire));
        let all = u64::from(self.memory.layout().geometry().slots) * STEP;
        let limit = credit.head().wrapping_add(all);
        // In flight must be within 0..=all, and credit never shrinks.
        let in_flight = self.tail.get().wrapping_sub(credit.head());
        if in_flight > all || limit.wrapping_sub(self.limit.get()) > all {
            return Err(Corrupt::Credit { head: credit.head() / STEP, tail: self.tail.get() / STEP });
        }
        self.limit.set(limit);
        self.fenced.set(credit.wants_fence());
        self.seen.set(if credit.is_idle() || credit.wants_fence() { NEVER } else { credit.0 });
        Ok(credit)
    }

    /// Begins at another position, as if that many messages had passed.
    #[cfg(all(test, not(loom)))]
    pub fn start_at(&self, position: u64) {
        self.tail.set(position);
        self.limit.set(position.wrapping_add(u64::from(self.memory.layout().geometry().slots) * STEP));
    }

    /// Position of the next message.
    pub fn position(&self) -> u64 {
        self.tail.get()
    }

    /// The memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}
