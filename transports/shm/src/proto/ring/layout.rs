//! Where things are in a ring's memory.
//!
//! Used by [`MappedRing`](super::MappedRing), and by the side that accepts a ring from a peer. Built on nothing. The numbers of a
//! [`Geometry`] may come from a peer. [`Layout::new`] checks them, and all offsets come from a [`Layout`].
//!
//! ```text
//! 0      credit word of the receiver           (a cache line of its own)
//! 128    release words: small pool, bulk pool  (a cache line of their own), behind them the receiver's word that it has closed
//! 256    ping-pong line                       (a cache line of its own; in the ring towards the side that accepts)
//! 384    the sender's word on what the kernel copies (a cache line of its own)
//! 512    slots, 64 bytes each
//! ...    small blocks, then bulk blocks, each pool aligned to a page
//! ```
//! Lines that different sides write are 128 bytes apart, since processors fetch lines in pairs.

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
/// How far ahead of a message lines are fetched for writing. Close to the end of the slots that is a line of the blocks, at no
/// harm. The next slot would be wrong: that is the line at which the receiver looks while it waits.
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
    /// Blocks for messages that do not fit a slot.
    pub small: Pool,
    /// Blocks for large messages.
    pub bulk: Pool,
}

/// Why a geometry is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Not a power of two from 4 to 65536.
    #[error("{0} slots; a power of two from 4 to 65536 is needed")]
    Slots(u32),
    /// Not 1 to 64 blocks.
    #[error("a pool of {0} blocks; 1 to 64 are possible")]
    Count(u32),
    /// Not a multiple of 64 from 64 to [`MAX_STRIDE`].
    #[error("blocks of {0} bytes; a multiple of 64 from 64 to {MAX_STRIDE} is needed")]
    Stride(u32),
}

/// The offset among the slots of the one in which the message at `position` travels. `mask` is [`Layout::slot_mask`]'s.
#[inline(always)]
pub(super) fn slot_of(position: u64, mask: usize) -> usize {
    bytes_of(position) & mask
}

/// Bytes of as many slots as `distance` is messages.
#[inline(always)]
pub(super) fn bytes_of(distance: u64) -> usize {
    (distance / (STEP / SLOT_BYTES as u64)) as usize
}

/// Largest block, in bytes.
pub const MAX_STRIDE: u32 = 4 << 20;

/// Checked offsets of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    geometry: Geometry,
    small_offset: usize,
    bulk_offset: usize,
    size: usize,
}

impl Layout {
    /// Checks `geometry` and computes the offsets.
    pub fn new(geometry: Geometry) -> Result<Layout, LayoutError> {
        if !geometry.slots.is_power_of_two() || !(4..=65536).contains(&geometry.slots) {
            return Err(LayoutError::Slots(geometry.slots));
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
        let slots_end = SLOT_OFFSET + geometry.slots as usize * SLOT_BYTES;
        let small_offset = slots_end.next_multiple_of(PAGE);
        let small_end = small_offset + geometry.small.count as usize * geometry.small.stride as usize;
        let bulk_offset = small_end.next_multiple_of(PAGE);
        let bulk_end = bulk_offset + geometry.bulk.count as usize * geometry.bulk.stride as usize;
        Ok(Layout { geometry, small_offset, bulk_offset, size: bulk_end.next_multiple_of(PAGE) })
    }

    /// The numbers it was made from.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes of memory that the ring takes, a multiple of 4096.
    pub fn size(&self) -> usize {
        self.size
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

    /// Offset of a slot, from its offset among the slots.
    #[inline(always)]
    pub(super) fn slot(&self, slot: usize) -> usize {
        debug_assert!(slot <= self.slot_mask() && slot.is_multiple_of(SLOT_BYTES));
        SLOT_OFFSET + slot
    }

    /// What leaves of a position's slot, as [`slot_of`] takes it.
    pub(super) fn slot_mask(&self) -> usize {
        (self.geometry.slots as usize - 1) * SLOT_BYTES
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
