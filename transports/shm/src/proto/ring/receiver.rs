//! The receiving side of a ring.
//!
//! Used by interfaces. Built on [`RingMemory`]. Nothing in the memory is trusted: a control word is read once, a short message is copied
//! out of its slot, and the block of a longer message is checked.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

use ucs::sync::atomic::{AtomicU64, Ordering};

use super::barrier;
use super::control::{
    BODY_WORDS, Control, Credit, FIRST, INLINE_BYTES, InBlock, Place, SLOT_BYTES, STEP, Short,
    TURN_LINE_WORDS,
};
use super::copy::{START_BYTES, copy_rest, copy_start};
use super::layout::{FIRST_BYTES, Part};
use super::{Corrupt, RingMemory};

/// A received message.
#[derive(Debug)]
pub struct Message {
    /// The sender's tag.
    pub tag: u8,
    /// Where the data are.
    pub data: Delivery,
}

/// The data of a message.
#[derive(Debug)]
pub enum Delivery {
    /// In the caller's buffer: a private copy.
    Inline {
        /// Length in bytes.
        length: usize,
    },
    /// In shared memory, until [`Receiver::release`]. The sender may, if it misbehaves, change them meanwhile.
    Block {
        /// Which pool.
        place: Place,
        /// Which block.
        index: u32,
        /// Length in bytes, checked against the block.
        length: usize,
    },
}

/// The receiving side of a ring. One per ring.
#[derive(Debug)]
pub struct Receiver<M> {
    memory: M,
    /// Position of the next message.
    head: Cell<u64>,
    /// Offset of its slot.
    slot: Cell<usize>,
    /// Offset of the slot whose message ends a batch or the part.
    stop: Cell<usize>,
    /// Messages out of the ring end a batch from this position on.
    grant_at: Cell<u64>,
    /// Flags of the credit word.
    flags: Cell<u64>,
    small: Held,
    bulk: Held,
}

/// Blocks of one pool, from the receiver's side.
#[derive(Debug, Default)]
struct Held {
    /// Toggled with every release; the value of the release word.
    released: Cell<u64>,
    /// Blocks that were received and not yet released.
    held: Cell<u64>,
}

impl<M: RingMemory> Receiver<M> {
    /// A receiver of a ring from which nothing was received yet.
    pub fn new(memory: M) -> Receiver<M> {
        let first = memory.layout().first_part();
        Receiver {
            head: Cell::new(FIRST),
            slot: Cell::new(first.start),
            // The first message is reported at once.
            stop: Cell::new(first.start),
            grant_at: Cell::new(FIRST.wrapping_add(STEP)),
            flags: Cell::new(Credit::IDLE | Credit::FENCE),
            small: Held::default(),
            bulk: Held::default(),
            memory,
        }
    }

    /// Whether the next message has arrived.
    #[inline(always)]
    pub fn has_message(&self) -> bool {
        // SYNC: only a hint; `next` reads the word again with Acquire.
        Control(self.memory.control(self.slot.get()).load(Ordering::Relaxed)).is(self.head.get())
    }

    /// Receives short messages, those with a tag below 32, until the next message is of another kind or `limit` are received. Returns how many.
    /// `each` gets the checked control word and a private copy of the data, aligned to 16, when the state is up to date.
    #[inline(always)]
    pub fn take_shorts(&self, limit: u32, mut each: impl FnMut(Short, &[u8])) -> u32 {
        // SAFETY: for this call, as the receiver that it is.
        let memory = unsafe { self.memory.alias() };
        let mut copy = Body::new();
        let first = self.head.get();
        for _ in 0..limit {
            let (head, slot) = (self.head.get(), self.slot.get());
            let Some(short) = take_short(&memory, slot, head, &mut copy) else { break };
            // A short message has `WRAPS` in the last slot of a part only, which is a stop.
            self.advance(slot, short.control(), slot == self.stop.get());
            each(short, copy.bytes(short));
        }
        (self.head.get().wrapping_sub(first) / STEP) as u32
    }

    /// Position of the next message.
    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.head.get()
    }

    /// The next message was sent out of the ring. Its slot is that of the message behind it.
    ///
    /// A batch of messages in slots ends at `stop`, and one of these at `grant_at`. Both together are less than the slots in use.
    #[inline(always)]
    pub fn pass(&self) {
        let head = self.head.get().wrapping_add(STEP);
        self.head.set(head);
        if head.wrapping_sub(self.grant_at.get()).cast_signed() >= 0 {
            self.grant();
        }
    }

    /// The message in `slot` is received. The next one is in the slot behind it, if this is not the end of a batch or of a part.
    #[inline(always)]
    fn advance(&self, slot: usize, control: Control, is_end: bool) {
        self.head.set(self.head.get().wrapping_add(STEP));
        if is_end {
            self.end_batch(control);
        } else {
            self.slot.set(slot + SLOT_BYTES);
        }
    }

    /// As [`advance`](Self::advance), at an end.
    #[cold]
    #[inline(never)]
    fn end_batch(&self, control: Control) {
        let (layout, slot) = (self.memory.layout(), self.slot.get());
        let part = layout.part_of(slot);
        if slot != part.last && !control.wraps() {
            self.slot.set(slot + SLOT_BYTES);
            return self.grant_in(part);
        }
        let is_first = slot < FIRST_BYTES;
        let next = if is_first && layout.can_grow() && !control.wraps() {
            layout.rest_part()
        } else {
            layout.first_part()
        };
        self.slot.set(next.start);
        self.grant_in(next);
    }

    /// Takes the next message. A short one is copied to `inline`; the block of a long one is the caller's until `release`.
    #[inline(always)]
    pub fn next(&self, inline: &mut [u64; BODY_WORDS]) -> Result<Option<Message>, Corrupt> {
        let (head, slot) = (self.head.get(), self.slot.get());
        // SYNC: pairs with the Release in `Sender::send_slot`.
        let control = Control(self.memory.control(slot).load(Ordering::Acquire));
        if !control.is(head) {
            return Ok(None);
        }
        let data = if control.place() == Place::Inline as u8 {
            let length = control.detail() as usize;
            if length > INLINE_BYTES {
                return Err(Corrupt::Inline { length: length as u32 });
            }
            // SAFETY: a body is 56 readable bytes, aligned to 8; any bits are a u64. It is copied once, so what is
            // used later cannot change.
            *inline = self.memory.body(slot, |body| unsafe { body.cast::<[u64; BODY_WORDS]>().read() });
            Delivery::Inline { length }
        } else {
            self.accept_block(slot, control)?
        };
        self.advance(slot, control, control.wraps() || slot == self.stop.get());
        Ok(Some(Message { tag: control.tag(), data }))
    }

    /// Accepts the block that a slot names.
    fn accept_block(&self, slot: usize, control: Control) -> Result<Delivery, Corrupt> {
        let place = match control.place() {
            1 => Place::Small,
            2 => Place::Bulk,
            _ => return Err(Corrupt::Place { control: control.0 }),
        };
        // SAFETY: a body is at least 8 readable bytes, aligned to 8; read once.
        let length = self.memory.body(slot, |body| unsafe { body.cast::<u64>().read() });
        self.hold(place, control.detail(), length)
    }

    /// Accepts a message whose block the ping-pong line names. It is the next one: [`take_block`](super::TurnLine::take_block) was given its position.
    pub fn accept_out_of_ring(&self, message: InBlock) -> Result<Message, Corrupt> {
        let data = self.hold(message.place, message.index, message.length)?;
        self.pass();
        Ok(Message { tag: message.tag, data })
    }

    /// Checks a block that the peer names, below 64, and takes hold of it.
    fn hold(&self, place: Place, index: u32, length: u64) -> Result<Delivery, Corrupt> {
        let layout = self.memory.layout();
        let (pool, capacity, count) = match place {
            Place::Bulk => (&self.bulk, layout.bulk_capacity(), layout.geometry().bulk.count),
            _ => (&self.small, layout.small_capacity(), layout.geometry().small.count),
        };
        if index >= count || pool.held.get() & 1 << index != 0 {
            return Err(Corrupt::Block { index });
        }
        if length > capacity as u64 {
            return Err(Corrupt::Length {
                length: length.min(u64::from(u32::MAX)) as u32,
                capacity: capacity as u32,
            });
        }
        pool.held.set(pool.held.get() | 1 << index);
        Ok(Delivery::Block { place, index, length: length as usize })
    }

    /// Calls `access` with the payload of a block that was received and not yet released.
    #[inline]
    pub fn block<R>(&self, place: Place, index: u32, access: impl FnOnce(*mut u8) -> R) -> R {
        self.memory.block(place, index, access)
    }

    /// What the next message changes.
    #[inline(always)]
    pub fn watch(&self) -> Watch {
        Watch::new(self.memory.control(self.slot.get()), self.head.get())
    }

    /// Number of blocks of a pool that were received and not yet released.
    #[cfg(all(test, not(loom)))]
    pub fn held(&self, place: Place) -> u32 {
        let pool = if place == Place::Bulk { &self.bulk } else { &self.small };
        pool.held.get().count_ones()
    }

    /// Gives a block back to the sender. A block that is not held is left alone.
    #[inline]
    pub fn release(&self, place: Place, index: u32) {
        let pool = if place == Place::Bulk { &self.bulk } else { &self.small };
        let bit = 1u64 << (index & 63);
        debug_assert!(pool.held.get() & bit != 0, "block {index} is not held");
        if pool.held.get() & bit == 0 {
            return;
        }
        pool.held.set(pool.held.get() ^ bit);
        pool.released.set(pool.released.get() ^ bit);
        // SYNC: pairs with the Acquire in `Sender::reserve`: our reads of the block are over.
        self.memory.release(place).store(pool.released.get(), Ordering::Release);
    }

    /// Publishes the receiver's position, which begins a batch.
    #[cold]
    fn grant(&self) {
        self.grant_in(self.memory.layout().part_of(self.slot.get()));
    }

    /// As [`grant`](Self::grant), in the part of the next slot.
    #[inline]
    fn grant_in(&self, part: Part) {
        let (head, batch) = (self.head.get(), part.batch());
        self.stop.set(part.last.min(self.slot.get() + (batch - 1) * SLOT_BYTES));
        self.grant_at.set(head.wrapping_add(batch as u64 * STEP));
        // SYNC: pairs with the Acquire in `Sender::refresh`: our reads of the slots are over.
        self.memory.credit().store(Credit::new(head, self.flags.get()).0, Ordering::Release);
    }

    /// Whether the ring is marked idle.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.flags.get() & Credit::IDLE != 0
    }

    /// Marks the ring idle: the sender rings the doorbell from now on.
    ///
    /// A message that is being sent at this moment may arrive without a ring of the doorbell. Poll the ring for some time longer, or call
    /// [`publish_idle`] and poll once more.
    pub fn set_idle(&self) {
        self.flags.set(self.flags.get() | Credit::IDLE);
        self.grant();
    }

    /// Marks the ring active: the sender need not ring the doorbell.
    pub fn set_active(&self) {
        self.flags.set(self.flags.get() & !Credit::IDLE);
        self.grant();
    }

    /// Sets whether the sender must use full barriers. It must unless both sides have registered for heavy ones.
    pub fn set_fence(&self, fence: bool) {
        let flags = self.flags.get() & !Credit::FENCE;
        self.flags.set(if fence { flags | Credit::FENCE } else { flags });
        self.grant();
    }

    /// Begins at another position, as if that many messages had passed.
    #[cfg(all(test, not(loom)))]
    pub fn start_at(&self, position: u64) {
        self.head.set(position);
        self.grant_at.set(position.wrapping_add(STEP));
    }
}

/// Room for a short message, as it lies in a slot or a ping-pong line.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Body(MaybeUninit<[u64; TURN_LINE_WORDS]>);

impl Body {
    /// Nothing yet.
    #[inline(always)]
    pub fn new() -> Body {
        Body(MaybeUninit::uninit())
    }

    /// Where to copy to.
    #[inline(always)]
    pub(super) fn words(&mut self) -> *mut u64 {
        self.0.as_mut_ptr().cast()
    }

    /// The bytes of the message that was just copied here.
    #[inline(always)]
    pub fn bytes(&self, short: Short) -> &[u8] {
        // SAFETY: each function that returns a `Short` has written at least its length, which is up to 112.
        unsafe { slice::from_raw_parts(self.0.as_ptr().cast(), short.length()) }
    }
}

/// Copies the message at `head` out of its slot if it is there and is a short one.
#[inline(always)]
fn take_short<M: RingMemory>(memory: &M, slot: usize, head: u64, copy: &mut Body) -> Option<Short> {
    // SYNC: pairs with the Release in `Sender::send_slot`.
    let control = Control(memory.control(slot).load(Ordering::Acquire));
    let place = copy.words();
    let short = match control.as_short(head, START_BYTES) {
        Some(short) => short,
        None => {
            let short = control.as_short(head, INLINE_BYTES)?;
            // SAFETY: a body is 56 readable bytes, aligned to 8, and the copy has room for as many.
            memory.body(slot, |body| unsafe { copy_rest(body.cast(), place) });
            short
        }
    };
    // SAFETY: as above.
    memory.body(slot, |body| unsafe { copy_start(body.cast(), place) });
    Some(short)
}

/// A word that the next message changes, and the value from which on it has arrived.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    word: NonNull<AtomicU64>,
    position: u64,
}

impl Watch {
    /// A word, and the position of the message.
    #[inline(always)]
    pub fn new(word: &AtomicU64, position: u64) -> Watch {
        Watch { word: NonNull::from(word), position }
    }

    /// Whether the message may have arrived. The word of a ring held an earlier message before, and a correct peer writes no later one there.
    ///
    /// # Safety
    ///
    /// The word is still mapped.
    #[inline(always)]
    pub unsafe fn has_news(self) -> bool {
        // SAFETY: the caller's promise.
        let word = unsafe { self.word.as_ref() };
        // SYNC: only a hint; the receiver reads the word again with Acquire.
        word.load(Ordering::Relaxed) >= self.position
    }
}

/// Makes `set_idle` of any number of rings and `arm` of a doorbell visible to all senders. A message that is not in its ring after this call
/// will ring the doorbell.
pub fn publish_idle() {
    // SYNC: pairs with the barriers in `Sender::send_slot`, `Sender::attend` and `Doorbell::ring`.
    barrier::heavy();
}
