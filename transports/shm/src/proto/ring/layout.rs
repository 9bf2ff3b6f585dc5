//! Where things are in a ring's memory.
//!
//! Used by [`MappedRing`](super::MappedRing), and by the side that accepts a ring from a peer. Built on nothing. The numbers of a
//! [`Geometry`] may come from a peer. [`Layout::new`] checks them, and all offsets come from a [`Layout`].
//!
//! ```text
//! 0      credit word of the receiver           (a cache line of its own)
//! 128    release words: small pool, bulk pool  (a cache line of their own), behind them the receiver's word that it has closed
//! 256    ping-pong line                       (two cache lines of its own; in the ring towards the side that accepts)
//! 384    the sender's word on what the kernel copies (a cache line of its own)
//! 512    the first slots, 64 bytes each
//! 2048   end of the part that every ring uses
//! rest   further slots, then small blocks, then bulk blocks, each aligned to a page
//! ```
//! Lines that different sides write are 128 bytes apart, since processors fetch lines in pairs. The first parts of both rings of a connection
//! are in one page. The rest takes memory when it is used.

use std::ops::Range;

use super::control::{SLOT_BYTES, STEP};

/// Offset of the receiver's credit word.
pub(super) const CREDIT_OFFSET: usize = 0;
/// Offset of the release words.
pub(super) const RELEASE_OFFSET: usize = 128;
/// Offset of the ping-pong line.
const TURN_LINE_OFFSET: usize = 256;
/// Offset of the word in which the receiver marks the ring as closed.
const CLOSED_OFFSET: usize = RELEASE_OFFSET + 16;
/// Offset of the word in which the sender names what the kernel copies.
const NAMED_OFFSET: usize = 384;
/// Offset of the first slot.
pub(super) const SLOT_OFFSET: usize = 512;
/// Bytes of the first part of a ring.
pub const FIRST_BYTES: usize = 2048;
/// Largest number of first slots.
pub const FIRST_SLOTS: u32 = ((FIRST_BYTES - SLOT_OFFSET) / SLOT_BYTES) as u32;
/// How far ahead of a message lines are fetched for writing. Close to the end of the slots that is a line that this side writes too, at no
/// harm. The next slot would be wrong: that is the line that the receiver polls.
pub(super) const AHEAD: usize = 4 * SLOT_BYTES;
const PAGE: usize = 4096;

/// One pool of equal blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Number of blocks, 1 to 64.
    pub count: u32,
    /// Bytes from one block to the next, a multiple of 64.
    pub stride: u32,
}

/// The shape of a ring: numbers that sender and receiver agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Number of slots, a power of two from 4 to 65536.
    pub slots: u32,
    /// Number of those that are always used, at most [`FIRST_SLOTS`]. The others are used while there is much traffic.
    pub first: u32,
    /// Blocks for messages that do not fit a slot.
    pub small: Pool,
    /// Blocks for large messages.
    pub bulk: Pool,
}

/// Consecutive slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Offset of the first one.
    pub(super) start: usize,
    /// Offset of the last one.
    pub(super) last: usize,
    /// Number of slots in use while messages are sent here.
    pub(super) in_use: u32,
}

impl Part {
    fn new(start: usize, count: u32, in_use: u32) -> Part {
        Part { start, last: start + (count as usize).saturating_sub(1) * SLOT_BYTES, in_use }
    }

    /// Messages from one publication of the receiver's position to the next: a quarter of the slots in use.
    pub(super) fn batch(&self) -> usize {
        (self.in_use as usize / 4).max(1)
    }

    /// Positions that may be in flight.
    pub(super) fn window(&self) -> u64 {
        u64::from(self.in_use) * STEP
    }
}

/// Why a geometry is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Not a power of two from 4 to 65536.
    #[error("{0} slots; a power of two from 4 to 65536 is needed")]
    Slots(u32),
    /// Not 1 to [`FIRST_SLOTS`], or more than there are slots.
    #[error("{0} first slots; 1 to {FIRST_SLOTS} are possible, and no more than there are slots")]
    First(u32),
    /// Not 1 to 64 blocks.
    #[error("a pool of {0} blocks; 1 to 64 are possible")]
    Count(u32),
    /// Not a multiple of 64 from 64 to [`MAX_STRIDE`].
    #[error("blocks of {0} bytes; a multiple of 64 from 64 to {MAX_STRIDE} is needed")]
    Stride(u32),
}

/// Largest block, in bytes.
pub const MAX_STRIDE: u32 = 4 << 20;

/// Checked offsets of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    geometry: Geometry,
    rest: usize,
    small_offset: usize,
    bulk_offset: usize,
    end: usize,
}

impl Layout {
    /// Checks `geometry` and computes the offsets of a ring whose rest is in the page behind its first part.
    #[cfg(any(test, all(feature = "testing", not(loom))))]
    pub fn new(geometry: Geometry) -> Result<Layout, LayoutError> {
        Layout::with_rest(geometry, PAGE)
    }

    /// Checks `geometry` and computes the offsets. `rest` is that of the rest, at least [`FIRST_BYTES`] and at most 2^40, at a page.
    pub fn with_rest(geometry: Geometry, rest: usize) -> Result<Layout, LayoutError> {
        if !geometry.slots.is_power_of_two() || !(4..=65536).contains(&geometry.slots) {
            return Err(LayoutError::Slots(geometry.slots));
        }
        if !(1..=FIRST_SLOTS.min(geometry.slots)).contains(&geometry.first) {
            return Err(LayoutError::First(geometry.first));
        }
        for pool in [geometry.small, geometry.bulk] {
            if !(1..=64).contains(&pool.count) {
                return Err(LayoutError::Count(pool.count));
            }
            if !pool.stride.is_multiple_of(64) || !(64..=MAX_STRIDE).contains(&pool.stride) {
                return Err(LayoutError::Stride(pool.stride));
            }
        }
        // No sum below can overflow: each factor has been bounded above.
        let pages = |bytes: usize| bytes.next_multiple_of(PAGE);
        let pool = |pool: Pool| pages(pool.count as usize * pool.stride as usize);
        let small_offset = rest + pages((geometry.slots - geometry.first) as usize * SLOT_BYTES);
        let bulk_offset = small_offset + pool(geometry.small);
        Ok(Layout { geometry, rest, small_offset, bulk_offset, end: bulk_offset + pool(geometry.bulk) })
    }

    /// The numbers it was made from.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes from the start of the ring to its end.
    pub fn size(&self) -> usize {
        self.end
    }

    /// Where the rest is, which takes memory when it is used.
    pub fn rest(&self) -> Range<usize> {
        self.rest..self.end
    }

    /// Whether there are other slots than the first ones.
    pub(super) fn can_grow(&self) -> bool {
        self.geometry.first < self.geometry.slots
    }

    /// The part of the slots in which a slot is.
    pub(super) fn part_of(&self, slot: usize) -> Part {
        if slot < FIRST_BYTES { self.first_part() } else { self.rest_part() }
    }

    /// The first slots.
    pub(super) fn first_part(&self) -> Part {
        Part::new(SLOT_OFFSET, self.geometry.first, self.geometry.first)
    }

    /// The other slots, which are used in addition to the first ones.
    pub(super) fn rest_part(&self) -> Part {
        Part::new(self.rest, self.geometry.slots - self.geometry.first, self.geometry.slots)
    }

    /// Offset of the ping-pong line, for the ring that has it.
    pub fn turn_line(&self) -> usize {
        TURN_LINE_OFFSET
    }

    /// Offset of the sender's word on what the kernel copies.
    pub fn named(&self) -> usize {
        NAMED_OFFSET
    }

    /// Offset of the receiver's word that it has closed the ring.
    pub fn closed(&self) -> usize {
        CLOSED_OFFSET
    }

    /// Offset of a small block's payload. `index` is below the count.
    #[inline]
    pub(super) fn small(&self, index: u32) -> usize {
        debug_assert!(index < self.geometry.small.count);
        self.small_offset + index as usize * self.geometry.small.stride as usize
    }

    /// Offset of a bulk block's payload. `index` is below the count.
    #[inline]
    pub(super) fn bulk(&self, index: u32) -> usize {
        debug_assert!(index < self.geometry.bulk.count);
        self.bulk_offset + index as usize * self.geometry.bulk.stride as usize
    }

    /// Payload bytes of a small block.
    #[inline]
    pub fn small_capacity(&self) -> usize {
        self.geometry.small.stride as usize
    }

    /// Payload bytes of a bulk block.
    #[inline]
    pub fn bulk_capacity(&self) -> usize {
        self.geometry.bulk.stride as usize
    }
}
