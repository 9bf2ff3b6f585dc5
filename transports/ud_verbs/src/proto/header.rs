//! The 16-byte header in front of every datagram.
//!
//! Built on nothing else. The data path builds it with two stores and checks it with two loads and two compares.
//!
//! | offset | width | field | meaning |
//! |---|---|---|---|
//! | 0 | u8 | kind | below 0x80: takes a sequence number; from 0x80: control, see [`kind`] |
//! | 1 | 4 bits | flags | [`flag`] |
//! | 1.5 | 4 bits | window | packets that the sender has in flight at most, in steps of 16, less one; not updated when it shrinks |
//! | 2 | u16 | token | random part of the destination's [`Key`] |
//! | 4 | u32 | destination | the receiver's connection: index in the low 20 bits, the rest random |
//! | 8 | u32 | psn | sequence number of this packet; control packets carry the next one to be used |
//! | 12 | u32 | ack | next sequence number that the sender of this packet expects |
//!
//! All fields are little-endian.

use super::psn::Psn;

/// Bytes of the header.
pub const HEADER_SIZE: usize = 16;

/// What a packet is.
pub mod kind {
    /// The kinds below this one are the transport's own, delivered once and in order; 0..=31 are active message ids.
    pub const MESSAGE_END: u8 = 0x7f;
    /// Sequenced: the sender's user has closed its endpoint and sends no more.
    pub const FINISH: u8 = 0x7f;
    /// The kinds from this one on carry no sequence number.
    pub const CONTROL: u8 = 0x80;
    /// Requests a connection from an interface.
    pub const CONNECT: u8 = 0x80;
    /// Accepts a [`CONNECT`].
    pub const ACCEPT: u8 = 0x81;
    /// Refuses [`CONNECT`].
    pub const REJECT: u8 = 0x82;
    /// An acknowledgement by itself, with the gaps.
    pub const ACK: u8 = 0x83;
    /// Requests an acknowledgement: when none came in time, for keepalive and for flush.
    pub const PING: u8 = 0x84;
    /// The connection is gone at the sender's side.
    pub const RESET: u8 = 0x85;
    /// The reply to a [`CONNECT`] without a valid cookie: it is to be repeated with the cookie of this.
    pub const CHALLENGE: u8 = 0x86;
}

/// Bits of the flags field, of which there are four. Unknown bits are ignored.
pub mod flag {
    /// The receiver should acknowledge at once.
    pub const ACK_REQUEST: u8 = 1;
    /// The receiver should be woken (the packet was sent solicited).
    pub const WAKE: u8 = 2;
}

/// The window is written in steps of so many packets.
pub(super) const WINDOW_STEP: u32 = 16;
/// Where the window is in the first word.
const WINDOW_SHIFT: u32 = 12;
const WINDOW_MASK: u64 = 0xf << WINDOW_SHIFT;

/// Where the key is in the first word.
const KEY_SHIFT: u32 = 16;

/// A header's first word with a window of so many packets.
#[inline]
pub(super) fn with_window(word: u64, packets: u32) -> u64 {
    let steps = packets.saturating_sub(1) / WINDOW_STEP;
    word & !WINDOW_MASK | u64::from(steps.min(0xf)) << WINDOW_SHIFT
}

/// Names a connection at its receiver: 20 bits of index and 28 random ones, so that a packet meant for an
/// earlier user of the index, or for no connection, is noticed. No defence against a process that reads the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u64);

impl Key {
    /// Bits of the key that are the index.
    pub const INDEX_BITS: u32 = 20;
    /// A key that no packet carries: a header's key has 48 bits.
    pub(super) const VACANT: Key = Key(u64::MAX);

    const INDEX_MASK: u32 = (1 << Self::INDEX_BITS) - 1;

    /// The key of connection `index`; `random` fills the rest.
    pub(super) fn new(index: u32, random: u64) -> Key {
        debug_assert!(index <= Self::INDEX_MASK);
        let destination = index | (random as u32 & !Self::INDEX_MASK);
        Key::from_parts(destination, (random >> 32) as u16)
    }

    /// The key of these two header fields.
    pub(super) fn from_parts(destination: u32, token: u16) -> Key {
        Key(u64::from(token) | u64::from(destination) << 16)
    }

    /// The header's destination field.
    pub(super) fn destination(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// The header's token field.
    pub(super) fn token(self) -> u16 {
        self.0 as u16
    }

    /// The index in the receiver's table.
    #[inline]
    pub(super) fn index(self) -> usize {
        (self.destination() & Self::INDEX_MASK) as usize
    }

    /// This key where the header's first word has it, kind and flags being zero.
    pub(super) fn word(self) -> u64 {
        self.0 << KEY_SHIFT
    }

    /// Whether a header's first word carries this key.
    pub(super) fn is_in(self, word: u64) -> bool {
        self.0 == word >> KEY_SHIFT
    }
}

/// A header as two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    first: u64,
    second: u64,
}

impl Header {
    /// Puts a header together; `to` is the receiver's [`Key::word`], perhaps [`with_window`].
    #[inline]
    pub(super) fn new(to: u64, kind: u8, flags: u8, psn: Psn, ack: Psn) -> Header {
        Header {
            first: to | u64::from(kind) | u64::from(flags) << 8,
            second: u64::from(psn.0) | u64::from(ack.0) << 32,
        }
    }

    /// The header of `packet`, or `None` if that is too short to have one.
    #[inline]
    pub fn read(packet: &[u8]) -> Option<Header> {
        let bytes = packet.first_chunk::<HEADER_SIZE>()?;
        let (first, second) = bytes.split_at(8);
        Some(Header {
            first: u64::from_le_bytes(first.try_into().ok()?),
            second: u64::from_le_bytes(second.try_into().ok()?),
        })
    }

    /// The header as it goes onto the wire.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..8].copy_from_slice(&self.first.to_le_bytes());
        bytes[8..].copy_from_slice(&self.second.to_le_bytes());
        bytes
    }

    /// What the packet is: see [`kind`].
    #[inline]
    pub fn kind(self) -> u8 {
        self.first as u8
    }

    /// Whether the packet takes a sequence number; if not, it is a control packet.
    #[inline]
    pub fn is_sequenced(self) -> bool {
        self.kind() < kind::CONTROL
    }

    /// Whether the packet requests an acknowledgement at once.
    #[inline]
    pub fn requests_ack(self) -> bool {
        self.first & (u64::from(flag::ACK_REQUEST) << 8) != 0
    }

    /// Packets that the sender has in flight at most, rounded up to a step.
    #[inline]
    pub(super) fn window(self) -> u16 {
        (((self.first & WINDOW_MASK) >> WINDOW_SHIFT) as u16 + 1) * WINDOW_STEP as u16
    }

    /// The connection that the packet is for.
    #[inline]
    pub(super) fn key(self) -> Key {
        Key(self.first >> 16)
    }

    /// The packet's sequence number.
    #[inline]
    pub fn psn(self) -> Psn {
        Psn(self.second as u32)
    }

    /// The sequence number that the packet's sender expects next.
    #[inline]
    pub fn ack(self) -> Psn {
        Psn((self.second >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_at_its_offset_in_the_table() {
        let key = Key::from_parts(0xa1b2_c3d4, 0xe5f6);
        let header = Header::new(key.word(), 0x11, flag::ACK_REQUEST, Psn(0x0102_0304), Psn(0x0506_0708));
        let bytes = header.to_bytes();
        assert_eq!(
            bytes,
            [0x11, 1, 0xf6, 0xe5, 0xd4, 0xc3, 0xb2, 0xa1, 0x04, 0x03, 0x02, 0x01, 0x08, 0x07, 0x06, 0x05]
        );
        let read = Header::read(&bytes).expect("a whole header");
        assert_eq!(read, header);
        assert_eq!(read.key(), key);
        assert_eq!(key.index(), 0x2_c3d4);
        assert!(read.requests_ack() && read.is_sequenced());
    }

    #[test]
    fn what_a_packet_is_and_whom_it_is_for_is_told_by_its_own_bits_alone() {
        let key = Key::from_parts(0xa1b2_c3d4, 0xe5f6);
        for flags in 0..16 {
            for number in [0, kind::FINISH, kind::CONTROL, 0xff] {
                let header = Header::new(key.word(), number, flags, Psn(0x0102_0304), Psn(0x0506_0708));
                assert_eq!((header.kind(), header.is_sequenced()), (number, number < kind::CONTROL));
                assert_eq!(header.requests_ack(), flags & flag::ACK_REQUEST != 0, "flags {flags}");
                assert_eq!((header.psn(), header.ack()), (Psn(0x0102_0304), Psn(0x0506_0708)));
                let word = with_window(key.word(), 256) | u64::from(number) | u64::from(flags) << 8;
                assert!(key.is_in(word) && (16..64).all(|bit| !key.is_in(word ^ 1 << bit)));
            }
        }
    }

    #[test]
    fn the_window_is_encoded_in_steps_beside_the_flags() {
        for (packets, encoded) in [(0, 16), (1, 16), (16, 16), (17, 32), (255, 256), (256, 256)] {
            let word = with_window(u64::MAX << 16, packets);
            let header = Header::new(word, 0x11, flag::ACK_REQUEST | flag::WAKE, Psn(0), Psn(0));
            assert_eq!(header.window(), encoded);
            assert_eq!(with_window(word, 1), u64::MAX << 16, "it can be replaced");
            assert_eq!((header.kind(), header.requests_ack()), (0x11, true));
            assert_eq!(header.key(), Key(u64::MAX >> 16));
        }
    }

    #[test]
    fn fifteen_bytes_are_not_a_header() {
        assert_eq!(Header::read(&[0; 15]), None);
    }

    #[test]
    fn no_packet_carries_the_vacant_key() {
        assert_ne!(Header::read(&[0xff; 16]).expect("a whole header").key(), Key::VACANT);
    }

    #[test]
    fn a_key_keeps_its_index_whatever_the_random_part() {
        for random in [0, u64::MAX, 0x1234_5678_9abc_def0] {
            assert_eq!(Key::new(77, random).index(), 77);
        }
    }
}
