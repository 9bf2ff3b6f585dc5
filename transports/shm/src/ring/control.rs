//! The control word of a slot and the credit word of a receiver.
//!
//! For: sender and receiver. Stands on nothing. Both are one `u64` so that one load shows a consistent state; native
//! byte order, since both sides run on the same machine.

/// Bytes of a message that travel in the slot itself, beside the control word.
pub const INLINE_BYTES: usize = 56;

/// Bytes of a slot: one cache line.
pub const SLOT_BYTES: usize = 64;

/// Where a message lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Place {
    /// In the slot, behind the control word.
    Inline = 0,
    /// In a block of the small pool.
    Small = 1,
    /// In a block of the bulk pool.
    Bulk = 2,
}

/// The control word: what is in a slot.
///
/// | bits | meaning |
/// |---|---|
/// | 0..32 | sequence number of the message, plus one (so that zeroed memory holds no message) |
/// | 32..40 | tag: the caller's |
/// | 40..48 | [`Place`] |
/// | 48..64 | inline: length in bytes; otherwise: index of the block, the length is the first word of the body |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control(pub u64);

impl Control {
    /// A word that publishes message `sequence`.
    #[inline(always)]
    pub fn new(sequence: u32, tag: u8, place: Place, detail: u16) -> Control {
        let high = u32::from(tag) | (place as u32) << 8 | u32::from(detail) << 16;
        Control(u64::from(high) << 32 | u64::from(sequence.wrapping_add(1)))
    }

    /// Whether the word publishes message `sequence`.
    #[inline(always)]
    pub fn is(self, sequence: u32) -> bool {
        self.0 as u32 == sequence.wrapping_add(1)
    }

    /// Tag and length if this is a short message: an inline one whose tag is below `tags`, a power of two.
    ///
    /// The length is not checked yet. One test for three conditions: the high half holds length, place and tag.
    #[inline(always)]
    pub fn short(self, tags: u8) -> Option<(u8, usize)> {
        debug_assert!(tags.is_power_of_two());
        let high = (self.0 >> 32) as u32;
        let others = 0xffff & !(u32::from(tags) - 1);
        (high & others == 0).then_some((high as u8, (high >> 16) as usize))
    }

    /// The tag.
    #[inline(always)]
    pub fn tag(self) -> u8 {
        (self.0 >> 32) as u8
    }

    /// The place as a number; not yet checked.
    #[inline(always)]
    pub fn place(self) -> u8 {
        (self.0 >> 40) as u8
    }

    /// Length or index; not yet checked.
    #[inline(always)]
    pub fn detail(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// The credit word: how far a receiver has come and how it wants to be told of news.
///
/// | bits | meaning |
/// |---|---|
/// | 0..32 | sequence number of the first message not yet received |
/// | 32 | [`COLD`](Credit::COLD) |
/// | 33 | [`FENCE`](Credit::FENCE) |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit(pub u64);

impl Credit {
    /// The receiver does not poll this ring: ring its bell.
    pub const COLD: u64 = 1 << 32;
    /// The receiver has no heavy barrier: use a full one after each message.
    pub const FENCE: u64 = 1 << 33;

    /// A word with `head` and a combination of the flags.
    pub fn new(head: u32, flags: u64) -> Credit {
        Credit(u64::from(head) | flags)
    }

    /// Sequence number of the first message not yet received.
    pub fn head(self) -> u32 {
        self.0 as u32
    }

    /// Whether the sender must ring the bell.
    pub fn is_cold(self) -> bool {
        self.0 & Credit::COLD != 0
    }

    /// Whether the sender must use full barriers.
    pub fn wants_fence(self) -> bool {
        self.0 & Credit::FENCE != 0
    }
}
