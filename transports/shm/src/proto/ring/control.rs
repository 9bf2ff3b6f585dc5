//! The control word of a slot and the credit word of a receiver.
//!
//! Used by sender and receiver. Built on nothing. Each is one `u64`, so that one load gives a consistent state. They are in native byte
//! order, because both sides run on the same machine.

/// Bytes of a message that travel in the slot itself, beside the control word.
pub const INLINE_BYTES: usize = 56;

/// The same, in words of 8 bytes.
pub const BODY_WORDS: usize = INLINE_BYTES / 8;

/// Bytes of a message that fit into a ping-pong line: two cache lines without the words of both ends.
pub const TURN_LINE_BYTES: usize = 2 * SLOT_BYTES - 2 * size_of::<u64>();

/// The same, in words of 8 bytes.
pub const TURN_LINE_WORDS: usize = TURN_LINE_BYTES / 8;

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

/// From one message's position to the next.
///
/// A position is the sequence number of a message times this, so that the number and the other fields of a word are added and
/// taken apart by one instruction. Positions wrap with `u64`.
pub const STEP: u64 = 1 << 19;
/// Position of the first message. Not 0, so that zeroed memory holds no message.
pub const FIRST: u64 = STEP;

/// Low bits of a tag. The other bits, which only tags of the transport have, are stored separately.
const TAG_BITS: u32 = 5;
/// Position of the tag's low bits: usable as an offset into a table without a shift.
const TAG_SHIFT: u32 = 3;
/// Position of the length, or of the block's index: a byte of its own, which one instruction extracts.
const DETAIL_SHIFT: u32 = 8;
/// Position of the place.
const PLACE_SHIFT: u32 = 14;
/// In a ping-pong line: the message is in a block, and in a small one.
const IN_BLOCK: u64 = 1 << 15;
const IN_SMALL_BLOCK: u64 = 1 << 14;
/// Position of the tag's high bits.
const TAG_HIGH_SHIFT: u32 = 16;
/// Largest difference between the word of a short message of at most so many bytes and its position.
const fn short_max(length: usize) -> u64 {
    (length as u64) << DETAIL_SHIFT | ((1 << DETAIL_SHIFT) - 1)
}

/// The control word: what is in a slot.
///
/// | bits | meaning |
/// |---|---|
/// | 0 | [`WRAPS`](Control::WRAPS) |
/// | 1..3 | 0 |
/// | 3..8 | tag, its low bits |
/// | 8..14 | inline: length in bytes; otherwise: index of the block, the length is the first word of the body |
/// | 14..16 | [`Place`] |
/// | 16..19 | tag, its high bits; of a short message in a ping-pong line: [`SHARED`](Control::SHARED) or 0 |
/// | 19..64 | sequence number of the message; the first one has 1 |
///
/// In a ping-pong line the length of a message has bits 8..15, and bit 15 is 0. It is 1 for a message in a block, whose place is bit 14: 1 for a small one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control(pub u64);

impl Control {
    /// The next message is in the first slot. Otherwise it is in the next slot, which after the last of the first slots is the first one of
    /// the rest. A message with a tag below 32 has it in the last slot of a part only.
    pub const WRAPS: u64 = 1;

    /// Added to the position of a message in a ping-pong line that another channel's rings have as well: a short message's word has
    /// nothing else there.
    pub const SHARED: u64 = 1 << TAG_HIGH_SHIFT;

    /// A word that publishes the message at `position`. `detail` is below 64.
    pub fn new(position: u64, tag: u8, place: Place, detail: u32) -> Control {
        debug_assert!(detail < 64);
        let (low, high) = (u64::from(tag) & ((1 << TAG_BITS) - 1), u64::from(tag) >> TAG_BITS);
        let tag = low << TAG_SHIFT | high << TAG_HIGH_SHIFT;
        Control(position | tag | u64::from(detail) << DETAIL_SHIFT | (place as u64) << PLACE_SHIFT)
    }

    /// As [`new`](Control::new) for an inline message with a tag below 32, in a slot or a ping-pong line.
    #[inline(always)]
    pub fn short(position: u64, tag: u8, length: usize) -> Control {
        debug_assert!(length <= TURN_LINE_BYTES && tag < 1 << TAG_BITS);
        Control(position + (u64::from(tag) << TAG_SHIFT) + ((length as u64) << DETAIL_SHIFT))
    }

    /// A word in a ping-pong line that publishes a message in a block, with a tag below 32.
    pub fn block_in_line(position: u64, tag: u8, place: Place, index: u32) -> Control {
        debug_assert!(tag < 1 << TAG_BITS && index < 64 && place != Place::Inline);
        let place = if place == Place::Small { IN_SMALL_BLOCK } else { 0 } | IN_BLOCK;
        Control(position + (u64::from(tag) << TAG_SHIFT) + (u64::from(index) << DETAIL_SHIFT) + place)
    }

    /// Tag, place and index, if the word in a ping-pong line publishes the message at `position` in a block.
    pub fn as_block_in_line(self, position: u64) -> Option<(u8, Place, u32)> {
        let low = self.0.wrapping_sub(position);
        let place = if low & IN_SMALL_BLOCK == 0 { Place::Bulk } else { Place::Small };
        (low & !(IN_BLOCK - 1) == IN_BLOCK).then_some((Short(low).tag(), place, Control(low).detail()))
    }

    /// Whether the word publishes the message at `position`.
    #[inline(always)]
    pub fn is(self, position: u64) -> bool {
        self.0.wrapping_sub(position) < STEP
    }

    /// The short message, if the word publishes the message at `position`, inline, with a tag below 32 and at most `longest` bytes.
    ///
    /// One comparison checks all four, because the fields that are checked are in higher bits than the others. The bits of the position are
    /// not among those that a [`Short`] reads.
    #[inline(always)]
    pub fn as_short(self, position: u64, longest: usize) -> Option<Short> {
        let low = self.0.wrapping_sub(position);
        (low <= short_max(longest)).then_some(Short(self.0))
    }

    /// Whether the next message is in the first slot.
    #[inline(always)]
    pub fn wraps(self) -> bool {
        self.0 & Control::WRAPS != 0
    }

    /// The tag.
    pub fn tag(self) -> u8 {
        let (low, high) = (self.0 >> TAG_SHIFT, self.0 >> TAG_HIGH_SHIFT);
        (low & ((1 << TAG_BITS) - 1) | (high & 7) << TAG_BITS) as u8
    }

    /// The place as a number; not yet checked.
    pub fn place(self) -> u8 {
        (self.0 >> PLACE_SHIFT) as u8 & 3
    }

    /// Length or index, below 64; not yet checked.
    pub fn detail(self) -> u32 {
        (self.0 >> DETAIL_SHIFT) as u32 & 63
    }
}

/// A message in a block that a ping-pong line announces, as the peer wrote it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InBlock {
    /// The sender's tag, below 32.
    pub tag: u8,
    /// Which pool.
    pub place: Place,
    /// Which block; below 64, not yet checked.
    pub index: u32,
    /// Length in bytes; not yet checked.
    pub length: u64,
}

/// The control word of a short message, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short(u64);

impl Short {
    /// The control word.
    #[inline(always)]
    pub(super) fn control(self) -> Control {
        Control(self.0)
    }

    /// The tag, below 32.
    #[inline(always)]
    pub fn tag(self) -> u8 {
        (self.0 >> TAG_SHIFT) as u8 & ((1 << TAG_BITS) - 1)
    }

    /// The length in bytes.
    #[inline(always)]
    pub fn length(self) -> usize {
        // With the place, which is 0, or has a bit of the length in a ping-pong line: a byte.
        (self.0 >> DETAIL_SHIFT) as usize & 0xff
    }
}

/// The credit word: the position of a receiver, and how senders notify it.
///
/// | bits | meaning |
/// |---|---|
/// | 0 | [`IDLE`](Credit::IDLE) |
/// | 1 | [`FENCE`](Credit::FENCE) |
/// | 19..64 | sequence number of the first message not yet received |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit(pub u64);

impl Credit {
    /// The receiver does not poll this ring: ring its doorbell.
    pub const IDLE: u64 = 1;
    /// The receiver has no heavy barrier: use a full one after each message.
    pub const FENCE: u64 = 2;

    /// A word with a position and a combination of the flags.
    pub fn new(head: u64, flags: u64) -> Credit {
        Credit(head | flags)
    }

    /// Position of the first message not yet received.
    pub fn head(self) -> u64 {
        self.0 & !(STEP - 1)
    }

    /// Whether the sender must ring the doorbell.
    pub fn is_idle(self) -> bool {
        self.0 & Credit::IDLE != 0
    }

    /// Whether the sender must use full barriers.
    pub fn wants_fence(self) -> bool {
        self.0 & Credit::FENCE != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_control_word_says_what_was_put_in() {
        for position in [FIRST, 7 * STEP, STEP.wrapping_neg()] {
            for (tag, place, detail) in [(0, Place::Inline, 0), (31, Place::Small, 63), (255, Place::Bulk, 9)]
            {
                let word = Control::new(position, tag, place, detail);
                assert_eq!((word.tag(), word.place(), word.detail()), (tag, place as u8, detail));
                assert!(word.is(position) && !word.is(position.wrapping_add(STEP)));
                assert!(!word.is(position.wrapping_sub(STEP)));
            }
        }
    }

    #[test]
    fn one_comparison_tells_a_short_message_from_all_others() {
        let as_short = |word: Control, position, longest| {
            word.as_short(position, longest).map(|short| (short.tag(), short.length()))
        };
        for position in [FIRST, STEP.wrapping_neg()] {
            for tag in 0..=255 {
                for length in 0..64 {
                    let word = Control::new(position, tag, Place::Inline, length as u32);
                    for longest in [0, 16, INLINE_BYTES] {
                        let is_short = tag < 32 && length <= longest;
                        assert_eq!(as_short(word, position, longest), is_short.then_some((tag, length)));
                        assert_eq!(as_short(word, position.wrapping_add(STEP), longest), None);
                        assert_eq!(as_short(word, position.wrapping_sub(STEP), longest), None);
                    }
                    if tag < 32 && length <= INLINE_BYTES {
                        assert_eq!(Control::short(position, tag, length), word);
                    }
                }
            }
            assert_eq!(as_short(Control::new(position, 1, Place::Small, 1), position, INLINE_BYTES), None);
            assert_eq!(as_short(Control::new(position, 1, Place::Bulk, 1), position, INLINE_BYTES), None);
        }
        assert_eq!(as_short(Control(0), FIRST, INLINE_BYTES), None, "zeroed memory holds no message");
    }
}
