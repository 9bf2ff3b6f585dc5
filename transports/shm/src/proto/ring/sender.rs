//! The sending side of a ring.
//!
//! Used by endpoints. Built on [`RingMemory`]. Never blocks: a send on a full ring returns [`Refused::Full`].

use std::cell::Cell;
use std::ops::Range;

use ucs::sync::atomic::Ordering;

use super::barrier;
use super::control::{Control, Credit, FIRST, Place, SLOT_BYTES, STEP};
use super::layout::Part;
use super::{Corrupt, RingMemory};

/// A round through the first slots or blocks is busy if it takes less than this time, in nanoseconds. The receiver's words are then read so
/// often that it costs a noticeable part of the time.
const BUSY: u64 = 20_000;
/// Busy rounds in a row after which more slots or blocks are used.
const BUSY_ROUNDS: u32 = 4;
/// Blocks of a small pool that are used at first: one page of them.
const FIRST_BLOCKS: u32 = 2;
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

/// What [`Sender::trim`] has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trim {
    /// There is nothing to give back now.
    Nothing,
    /// The next message is in another page than the first. The caller sends one that has no meaning, with a tag of the transport, and the one
    /// behind it is in the first page.
    Return,
    /// Nothing is in this part of the ring, and the sender uses it again only when there is more traffic. The caller gives its memory back.
    Free(Range<usize>),
}

/// Which blocks of a pool are in use; see [`Receiver`](super::Receiver) for the other half.
#[derive(Debug)]
struct Blocks {
    /// Free according to the release word when it was last read.
    free: Cell<u64>,
    /// Toggled when a block is reserved; free again when the receiver has toggled its own.
    taken: Cell<u64>,
    /// A bit for each block that is used.
    window: Cell<u64>,
    /// The same at first.
    first: u64,
    /// A bit for each block that exists.
    all: u64,
    rounds: Rounds,
}

/// Counts busy rounds in a row.
#[derive(Debug, Default)]
struct Rounds {
    ended_at: Cell<u64>,
    busy: Cell<u32>,
}

impl Rounds {
    /// A round ends, which is busy in any case if there was no room in it. Returns whether there were enough busy rounds.
    fn end(&self, now: u64, was_full: bool) -> bool {
        let is_busy = was_full || now.wrapping_sub(self.ended_at.replace(now)) < BUSY;
        self.busy.set(if is_busy { self.busy.get() + 1 } else { 0 });
        self.busy.get() >= BUSY_ROUNDS
    }

    fn reset(&self) {
        self.busy.set(0);
    }
}

/// A bit for each of so many blocks, at least one.
fn bits(count: u32) -> u64 {
    u64::MAX >> (64 - count)
}

impl Blocks {
    /// `first`: how many of the blocks are used at first.
    fn new(count: u32, first: u32) -> Blocks {
        let (all, first) = (bits(count), bits(count.min(first)));
        let (free, window) = (Cell::new(first), Cell::new(first));
        Blocks { free, taken: Cell::new(0), window, first, all, rounds: Rounds::default() }
    }

    /// Takes note of the receiver's word. Uses twice as many blocks if none is free, or after busy rounds.
    fn update(&self, released: u64, clock: Clock) {
        self.free.set(!(self.taken.get() ^ released) & self.window.get());
        if self.window.get() == self.all {
            return;
        }
        if self.rounds.end(clock(), false) || self.free.get() == 0 {
            let window = self.window.get();
            self.window.set((window << window.count_ones() | window) & self.all);
            self.free.set(!(self.taken.get() ^ released) & self.window.get());
        }
    }

    /// Whether the receiver has returned all blocks.
    fn are_free(&self, released: u64) -> bool {
        (self.taken.get() ^ released) & self.all == 0
    }

    /// Uses as many blocks as at first. All are free.
    fn reset(&self) {
        self.window.set(self.first);
        self.free.set(self.first);
        self.rounds.reset();
    }

    /// Takes a free block, or gives a taken one back.
    #[inline]
    fn toggle(&self, index: u32) {
        self.free.set(self.free.get() ^ 1 << index);
        self.taken.set(self.taken.get() ^ 1 << index);
    }
}

/// Nanoseconds since some time.
pub type Clock = fn() -> u64;

/// The sending side of a ring. One per ring. State sits in cells, since what fills a block may send again meanwhile.
#[derive(Debug)]
pub struct Sender<M> {
    memory: M,
    /// Position of the next message.
    tail: Cell<u64>,
    /// First position for which there is no credit.
    limit: Cell<u64>,
    /// First position that the receiver has not reported as received.
    acknowledged: Cell<u64>,
    /// Offset of the slot of the next message.
    slot: Cell<usize>,
    /// Offset of the last slot in this part. The message in it tells the receiver where the next one is.
    last: Cell<usize>,
    /// How many positions may be in flight: as many as slots are used.
    window: Cell<u64>,
    /// Slots other than the first ones are used.
    is_grown: Cell<bool>,
    /// A bulk block was used.
    bulk_used: Cell<bool>,
    /// Rounds through the first slots.
    rounds: Rounds,
    /// No slot was free in this round.
    was_full: Cell<bool>,
    /// Position at the last call of `trim` that found another one, and its time.
    quiet_since: Cell<(u64, u64)>,
    clock: Clock,
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
    pub fn new(memory: M, clock: Clock) -> Sender<M> {
        let geometry = *memory.layout().geometry();
        let first = memory.layout().first_part();
        Sender {
            tail: Cell::new(FIRST),
            limit: Cell::new(FIRST + first.window()),
            acknowledged: Cell::new(FIRST),
            slot: Cell::new(first.start),
            last: Cell::new(first.last),
            window: Cell::new(first.window()),
            is_grown: Cell::new(false),
            bulk_used: Cell::new(false),
            rounds: Rounds::default(),
            was_full: Cell::new(false),
            quiet_since: Cell::new((FIRST, 0)),
            clock,
            fenced: Cell::new(true),
            seen: Cell::new(NEVER),
            woken: Cell::new(NEVER),
            small: Blocks::new(geometry.small.count, FIRST_BLOCKS),
            bulk: Blocks::new(geometry.bulk.count, geometry.bulk.count),
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
        let has_room = self.tail.get() != self.limit.get();
        if !has_room {
            self.was_full.set(true);
        }
        Ok(has_room)
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

    /// As [`send_inline`](Sender::send_inline), for a tag below 32. `None`: there is no room as far as is known, or this is the last slot of a
    /// part.
    #[inline(always)]
    pub fn try_short(&self, tag: u8, length: usize, fill: impl FnOnce(*mut u8)) -> Option<Sent> {
        let (tail, slot) = (self.tail.get(), self.slot.get());
        if tail == self.limit.get() || slot == self.last.get() {
            return None;
        }
        self.slot.set(slot + SLOT_BYTES);
        Some(self.publish(tail, slot, Control::short(tail, tag, length), fill))
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
        Some(self.sent(&self.memory))
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
            blocks.update(self.released(place), self.clock);
        }
        let free = blocks.free.get();
        if free == 0 {
            return None;
        }
        blocks.toggle(free.trailing_zeros());
        Some(Block { place, index: free.trailing_zeros() })
    }

    /// The receiver's word on a pool.
    fn released(&self, place: Place) -> u64 {
        // SYNC: pairs with the Release in `Receiver::release`: its reads of the blocks are over.
        self.memory.release(place).load(Ordering::Acquire)
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
        let (place, index) = self.admit(block)?;
        let tail = self.tail.get();
        let control = Control::new(tail, tag, place, index);
        // SAFETY: a body has 56 bytes, aligned to 8, and the slot is the sender's until it is published.
        Ok(self.send_slot(tail, control, |body| unsafe { body.cast::<u64>().write(length as u64) }))
    }

    /// As [`send_block`](Sender::send_block), out of the ring: `publish` gets the position of the message, the pool, and the block's index.
    pub fn send_block_out_of_ring(
        &self,
        block: Block,
        publish: impl FnOnce(u64, Place, u32),
    ) -> Result<Sent, Refused> {
        let (place, index) = self.admit(block)?;
        self.try_out_of_ring(|position| publish(position, place, index)).ok_or(Refused::Full)
    }

    /// A block that is about to be sent, if there is room for its message; otherwise it is given back.
    fn admit(&self, block: Block) -> Result<(Place, u32), Refused> {
        if !self.has_room()? {
            self.cancel(block);
            return Err(Refused::Full);
        }
        if block.place == Place::Bulk {
            self.bulk_used.set(true);
        }
        Ok((block.place, block.index))
    }

    /// Sends a message in the next slot, and chooses the slot behind it.
    #[inline(always)]
    fn send_slot(&self, tail: u64, control: Control, fill: impl FnOnce(*mut u8)) -> Sent {
        let slot = self.slot.get();
        let control = if slot == self.last.get() {
            self.end_part(control)
        } else {
            self.slot.set(slot + SLOT_BYTES);
            control
        };
        self.publish(tail, slot, control, fill)
    }

    /// Fills a slot and publishes it as that of `tail`.
    #[inline(always)]
    fn publish(&self, tail: u64, slot: usize, control: Control, fill: impl FnOnce(*mut u8)) -> Sent {
        // SAFETY: for this call, as the sender that it is.
        let memory = unsafe { self.memory.alias() };
        memory.body_mut(slot, fill);
        // SYNC: pairs with the Acquire in `Receiver::next`: slot and block are written before the number is seen.
        memory.control(slot).store(control.0, Ordering::Release);
        self.tail.set(tail.wrapping_add(STEP));
        memory.prefetch(slot);
        self.sent(&memory)
    }

    /// The message is in the last slot of this part: chooses where the next message is. Returns the control word that reports it.
    ///
    /// A slot is used again when the receiver has received the message in it. The distance of two messages in one slot is at least the window
    /// at the time of the second: the number of first slots while only those are used, and otherwise of all slots.
    #[cold]
    #[inline(never)]
    fn end_part(&self, control: Control) -> Control {
        let layout = *self.memory.layout();
        let (first, rest) = (layout.first_part(), layout.rest_part());
        if layout.part_of(self.slot.get()) == first
            && layout.can_grow()
            && (self.is_grown.get() || self.rounds.end((self.clock)(), self.was_full.take()))
        {
            self.is_grown.set(true);
            self.enter(rest);
            self.window.set(rest.window());
            self.limit.set(self.acknowledged.get().wrapping_add(rest.window()));
            return control;
        }
        self.enter(first);
        Control(control.0 | Control::WRAPS)
    }

    fn enter(&self, part: Part) {
        self.slot.set(part.start);
        self.last.set(part.last);
    }

    /// Uses only the first slots from now on. Everything is received.
    fn shrink(&self) {
        self.is_grown.set(false);
        self.rounds.reset();
        self.window.set(self.memory.layout().first_part().window());
        self.limit.set(self.tail.get().wrapping_add(self.window.get()));
    }

    /// Whether more of the ring is used than at first.
    pub fn can_trim(&self) -> bool {
        self.is_grown.get() || self.bulk_used.get() || self.small.window.get() != self.small.first
    }

    /// Finds what can be given back if nothing was sent for `idle` nanoseconds and the receiver has received everything.
    pub fn trim(&self, idle: u64) -> Result<Trim, Corrupt> {
        let layout = *self.memory.layout();
        if !self.can_trim() {
            return Ok(Trim::Nothing);
        }
        let (now, tail) = ((self.clock)(), self.tail.get());
        let (position, since) = self.quiet_since.get();
        if position != tail {
            self.quiet_since.set((tail, now));
            return Ok(Trim::Nothing);
        }
        if now.wrapping_sub(since) < idle || self.refresh()?.head() != tail {
            return Ok(Trim::Nothing);
        }
        let pools = [(&self.small, Place::Small), (&self.bulk, Place::Bulk)];
        if !pools.iter().all(|(blocks, place)| blocks.are_free(self.released(*place))) {
            return Ok(Trim::Nothing);
        }
        if layout.part_of(self.slot.get()) != layout.first_part() {
            self.shrink();
            // The next message ends this part. The memory is given back another time.
            self.last.set(self.slot.get());
            self.bulk_used.set(true);
            return Ok(Trim::Return);
        }
        self.shrink();
        self.small.reset();
        self.bulk_used.set(false);
        Ok(Trim::Free(layout.rest()))
    }

    /// What the caller has to do for a published message.
    #[inline(always)]
    fn sent(&self, memory: &M) -> Sent {
        // SYNC: with the heavy barrier in `publish_idle`: the receiver sees the message, or we see that it is idle.
        barrier::light(self.fenced.get());
        let credit = memory.credit().load(Ordering::Relaxed);
        if credit == self.seen.get() { Sent::Quiet } else { Sent::Attend }
    }

    /// Reads the receiver's word after a message. `Some` if the doorbell must be rung; `Some(true)` if this is the first message that finds the
    /// receiver idle at its position. Other peers can write to the doorbell, but not to this ring. `None` if all messages are received: who has sent
    /// none since would use up the wake-up of the next one.
    pub fn attend(&self) -> Result<Option<bool>, Corrupt> {
        if self.fenced.get() {
            // SYNC: as the light barrier in `publish`, for a receiver without a heavy one.
            barrier::full();
        }
        let credit = self.refresh()?;
        // The receiver has this position and is idle again only after it has received that first message.
        let is_awaited = credit.is_idle() && credit.head() != self.tail.get();
        Ok(is_awaited.then(|| self.woken.replace(credit.0) != credit.0))
    }

    /// Reads the receiver's word, checks it, and takes position and flags from it.
    fn refresh(&self) -> Result<Credit, Corrupt> {
        // SYNC: pairs with the Release in `Receiver::grant`: its reads of the slots are over.
        let credit = Credit(self.memory.credit().load(Ordering::Acquire));
        let all = u64::from(self.memory.layout().geometry().slots) * STEP;
        let head = credit.head();
        // In flight must be within 0..=all, and credit never shrinks.
        let in_flight = self.tail.get().wrapping_sub(head);
        if in_flight > all || head.wrapping_sub(self.acknowledged.get()) > all {
            return Err(Corrupt::Credit { head: head / STEP, tail: self.tail.get() / STEP });
        }
        self.acknowledged.set(head);
        self.limit.set(head.wrapping_add(self.window.get()));
        self.fenced.set(credit.wants_fence());
        self.seen.set(if credit.is_idle() || credit.wants_fence() { NEVER } else { credit.0 });
        Ok(credit)
    }

    /// Begins at another position, as if that many messages had passed.
    #[cfg(all(test, not(loom)))]
    pub fn start_at(&self, position: u64) {
        self.tail.set(position);
        self.acknowledged.set(position);
        self.limit.set(position.wrapping_add(self.window.get()));
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
