//! The bodies of control packets, behind the [header](super::header).
//!
//! Built on `header`. Whatever the bytes, reading ends in a value or in `None`; nothing is trusted.
//!
//! Handshake, the first 20 bytes of CONNECT and ACCEPT. Their place is the same in every version:
//!
//! | offset | width | field |
//! |---|---|---|
//! | 0 | u32 | magic, "udrv" |
//! | 4 | u8 | version, major: must be equal |
//! | 5 | u8 | version, minor: informs |
//! | 6 | 14 bytes | [`Invitation`] of the sender |
//!
//! CONNECT goes on:
//!
//! | offset | width | field |
//! |---|---|---|
//! | 20 | u32 | ordinal: how many connections this interface had requested from the peer before |
//! | 24 | u64 | identity of the asking interface |
//! | 32 | u8 | length of the address |
//! | 33 | bytes | address of the asking interface, opaque here |
//! | behind it | u64 | cookie of the last CHALLENGE; 0 while there was none |
//!
//! CHALLENGE: magic, version major, version minor, u16 zero, u64 cookie.
//!
//! REJECT: magic, version major, version minor, u16 [`Refusal`].
//!
//! ACK:
//!
//! | offset | width | field |
//! |---|---|---|
//! | 0 | u32 | delay: ns / 1024 since the last arrival |
//! | 4 | u32 | duplicates seen so far, wrapping |
//! | 8 | u32 | echo: the time in the last PING since the last ACK, or 0 |
//! | 12 | u32 | pace: round trips to wait between packets, because there is no room for one of each peer; 0: there is |
//! | 16 | 0 to 4 × u64 | bit i set: packet `ack + 1 + i` has arrived |
//!
//! PING:
//!
//! | offset | width | field |
//! |---|---|---|
//! | 0 | u32 | the sender's time, in a unit of its own, not 0 |
//!
//! RESET:
//!
//! | offset | width | field |
//! |---|---|---|
//! | 0 | u16 | [`Reason`] |
//!
//! It counts only if its header's psn and ack are within what is in flight.
//!
//! All fields are little-endian.

use super::header::Key;
use super::psn::Psn;

/// "udrv", read as little-endian.
const MAGIC: u32 = u32::from_le_bytes(*b"udrv");
/// Version of what is on the wire: major, minor.
pub const WIRE_VERSION: (u8, u8) = (4, 0);
/// Packets that one acknowledgement can describe beyond the first missing one, and the largest window.
pub const WINDOW_LIMIT: u32 = 256;
/// Longest address that a CONNECT carries.
pub const ADDRESS_LIMIT: usize = 96;

const HANDSHAKE_SIZE: usize = 20;

/// What a peer must know to send to a connection: the body of an endpoint address.
///
/// | offset | width | field |
/// |---|---|---|
/// | 0 | u16 | packets that may be outstanding to it at first, at least 1 and no more than the most |
/// | 2 | u32 | destination field of packets sent to it |
/// | 6 | u16 | token field of packets sent to it |
/// | 8 | u16 | most packets that may be outstanding to it, 1..=256 |
/// | 10 | u32 | sequence number of the first packet sent to it |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invitation {
    pub(super) first_window: u16,
    pub(super) key: Key,
    pub(super) window: u16,
    pub(super) first_psn: Psn,
}

impl Invitation {
    /// Bytes of a packed invitation.
    pub const SIZE: usize = 14;

    /// The invitation, packed.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..2].copy_from_slice(&self.first_window.to_le_bytes());
        bytes[2..6].copy_from_slice(&self.key.destination().to_le_bytes());
        bytes[6..8].copy_from_slice(&self.key.token().to_le_bytes());
        bytes[8..10].copy_from_slice(&self.window.to_le_bytes());
        bytes[10..].copy_from_slice(&self.first_psn.0.to_le_bytes());
        bytes
    }

    /// The invitation at the start of `bytes`, or `None` if they are too few or a window is out of its range.
    pub fn from_bytes(bytes: &[u8]) -> Option<Invitation> {
        let mut input = Input(bytes);
        let first_window = input.u16()?;
        let key = input.key()?;
        let window = input.u16()?;
        let first_psn = Psn(input.u32()?);
        let are_windows = (1..=window).contains(&first_window) && u32::from(window) <= WINDOW_LIMIT;
        are_windows.then_some(Invitation { first_window, key, window, first_psn })
    }
}

/// Why a connection was refused, as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub u16);

impl Refusal {
    /// The other side has another major version.
    pub const VERSION: Refusal = Refusal(1);
}

/// Why a connection was cut off, as on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reason(pub u16);

impl Reason {
    /// The sender has closed its interface, or given the connection up.
    pub const GONE: Reason = Reason(0);
    /// The receiver of this requested memory that it may not access.
    pub const ACCESS: Reason = Reason(1);
    /// The receiver of this has sent what makes no sense.
    pub const MALFORMED: Reason = Reason(2);
}

/// A handshake, as read.
pub(super) enum Handshake {
    Same(Invitation),
    /// The key of the sender's connection is at the same place in every version.
    OtherVersion {
        key: Key,
    },
}

/// A CONNECT, as read.
pub(super) struct Connect<'a> {
    pub(super) handshake: Handshake,
    pub(super) ordinal: u32,
    pub(super) identity: u64,
    pub(super) address: &'a [u8],
    /// 0 in a request of another version.
    pub(super) cookie: u64,
}

/// An ACK, as read. `bitmap` bit i is packet `ack + 1 + i`.
pub(super) struct Ack {
    pub(super) delay: u64,
    pub(super) duplicates: u32,
    pub(super) echo: u32,
    pub(super) pace: u32,
    pub(super) bitmap: Bitmap,
}

/// Which packets after the first missing one have arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bitmap([u64; Self::WORDS]);

impl Bitmap {
    const WORDS: usize = WINDOW_LIMIT as usize / 64;

    pub(super) fn set(&mut self, bit: u32) {
        self.0[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    /// The bits that are set, lowest first.
    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        self.0.into_iter().enumerate().flat_map(|(word, mut bits)| {
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(word as u32 * 64 + bit)
            })
        })
    }

    /// Words up to the last that is not empty.
    fn used(&self) -> &[u64] {
        let words = self.0.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        &self.0[..words]
    }
}

pub(super) fn write_connect(
    out: &mut Vec<u8>,
    invitation: Invitation,
    ordinal: u32,
    identity: u64,
    address: &[u8],
    cookie: u64,
) {
    write_handshake(out, invitation);
    out.extend_from_slice(&ordinal.to_le_bytes());
    out.extend_from_slice(&identity.to_le_bytes());
    out.push(address.len() as u8);
    out.extend_from_slice(address);
    out.extend_from_slice(&cookie.to_le_bytes());
}

pub(super) fn write_challenge(out: &mut Vec<u8>, cookie: u64) {
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[WIRE_VERSION.0, WIRE_VERSION.1, 0, 0]);
    out.extend_from_slice(&cookie.to_le_bytes());
}

pub(super) fn write_handshake(out: &mut Vec<u8>, invitation: Invitation) {
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[WIRE_VERSION.0, WIRE_VERSION.1]);
    out.extend_from_slice(&invitation.to_bytes());
}

pub(super) fn write_reject(out: &mut Vec<u8>, refusal: Refusal) {
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[WIRE_VERSION.0, WIRE_VERSION.1]);
    out.extend_from_slice(&refusal.0.to_le_bytes());
}

pub(super) fn write_reset(out: &mut Vec<u8>, reason: Reason) {
    out.extend_from_slice(&reason.0.to_le_bytes());
}

pub(super) fn write_ack(out: &mut Vec<u8>, ack: &Ack) {
    let delay = u32::try_from(ack.delay >> 10).unwrap_or(u32::MAX);
    out.extend_from_slice(&delay.to_le_bytes());
    out.extend_from_slice(&ack.duplicates.to_le_bytes());
    out.extend_from_slice(&ack.echo.to_le_bytes());
    out.extend_from_slice(&ack.pace.to_le_bytes());
    for word in ack.bitmap.used() {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

pub(super) fn read_connect(body: &[u8]) -> Option<Connect<'_>> {
    let handshake = read_handshake(body)?;
    let mut input = Input(body.get(HANDSHAKE_SIZE..)?);
    let ordinal = input.u32()?;
    let identity = input.u64()?;
    let length = usize::from(input.u8()?);
    let (address, rest) = input.0.split_at_checked(length)?;
    if length > ADDRESS_LIMIT {
        return None;
    }
    let cookie = match handshake {
        Handshake::Same(_) => Input(rest).u64()?,
        Handshake::OtherVersion { .. } => 0,
    };
    Some(Connect { handshake, ordinal, identity, address, cookie })
}

/// The cookie of a CHALLENGE of this version.
pub(super) fn read_challenge(body: &[u8]) -> Option<u64> {
    let mut input = Input(body);
    let (magic, major) = (input.u32()?, input.u8()?);
    input.u8()?;
    input.u16()?;
    let cookie = input.u64()?;
    (magic == MAGIC && major == WIRE_VERSION.0).then_some(cookie)
}

pub(super) fn read_handshake(body: &[u8]) -> Option<Handshake> {
    let mut input = Input(body);
    if input.u32()? != MAGIC {
        return None;
    }
    let major = input.u8()?;
    input.u8()?;
    if major == WIRE_VERSION.0 {
        return Invitation::from_bytes(input.0).map(Handshake::Same);
    }
    input.u16()?;
    Some(Handshake::OtherVersion { key: input.key()? })
}

/// The time that a PING carries.
pub(super) fn read_ping(body: &[u8]) -> Option<u32> {
    Input(body).u32()
}

/// The major and minor version of the refusing side, and the reason.
pub(super) fn read_reject(body: &[u8]) -> Option<((u8, u8), Refusal)> {
    let mut input = Input(body);
    if input.u32()? != MAGIC {
        return None;
    }
    Some(((input.u8()?, input.u8()?), Refusal(input.u16()?)))
}

pub(super) fn read_reset(body: &[u8]) -> Option<Reason> {
    Input(body).u16().map(Reason)
}

pub(super) fn read_ack(body: &[u8]) -> Option<Ack> {
    let mut input = Input(body);
    let delay = u64::from(input.u32()?) << 10;
    let duplicates = input.u32()?;
    let echo = input.u32()?;
    let pace = input.u32()?;
    let mut bitmap = Bitmap::default();
    let mut words = bitmap.0.iter_mut();
    while !input.0.is_empty() {
        *words.next()? = input.u64()?;
    }
    Some(Ack { delay, duplicates, echo, pace, bitmap })
}

/// Bytes yet to be read.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A key as the header's destination and token fields.
    fn key(&mut self) -> Option<Key> {
        let destination = self.u32()?;
        Some(Key::from_parts(destination, self.u16()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation() -> Invitation {
        Invitation {
            first_window: 0x10,
            key: Key::from_parts(0x0102_0304, 0x0506),
            window: 0x0100,
            first_psn: Psn(0x0a0b_0c0d),
        }
    }

    #[test]
    fn a_connect_is_laid_out_as_documented_and_reads_back() {
        let mut bytes = Vec::new();
        write_connect(&mut bytes, invitation(), 7, 0x1122_3344_5566_7788, b"addr", 0x0102_0304_0506_0708);
        assert_eq!(&bytes[..8], b"udrv\x04\x00\x10\x00");
        assert_eq!(&bytes[8..20], [4, 3, 2, 1, 6, 5, 0, 1, 0x0d, 0x0c, 0x0b, 0x0a]);
        assert_eq!(
            &bytes[20..],
            b"\x07\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11\x04addr\x08\x07\x06\x05\x04\x03\x02\x01"
        );
        let read = read_connect(&bytes).expect("what was written");
        assert!(matches!(read.handshake, Handshake::Same(read) if read == invitation()));
        assert_eq!((read.ordinal, read.identity, read.address), (7, 0x1122_3344_5566_7788, &b"addr"[..]));
        assert_eq!(read.cookie, 0x0102_0304_0506_0708);
        for short in 0..bytes.len() {
            assert!(read_connect(&bytes[..short]).is_none(), "{short} bytes are not a connect");
        }
    }

    #[test]
    fn another_major_version_is_distinguished_from_garbage() {
        let mut bytes = Vec::new();
        write_handshake(&mut bytes, invitation());
        bytes[4] += 1;
        let key = invitation().key;
        assert!(matches!(read_handshake(&bytes), Some(Handshake::OtherVersion { key: read }) if read == key));
        bytes[0] ^= 1;
        assert!(read_handshake(&bytes).is_none());
    }

    #[test]
    fn a_request_of_the_version_before_can_be_refused() {
        let mut bytes = Vec::new();
        write_connect(&mut bytes, invitation(), 7, 1, b"addr", 0);
        // It had no first window.
        bytes[4] = 3;
        bytes[6] = 0;
        let read = read_connect(&bytes).expect("all that it needs to be refused");
        let key = invitation().key;
        assert!(matches!(read.handshake, Handshake::OtherVersion { key: read } if read == key));
        assert_eq!(read.address, b"addr");
    }

    #[test]
    fn a_challenge_reads_back_and_another_versions_does_not() {
        let mut bytes = Vec::new();
        write_challenge(&mut bytes, 0x1122_3344_5566_7788);
        assert_eq!(bytes, b"udrv\x04\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11");
        assert_eq!(read_challenge(&bytes), Some(0x1122_3344_5566_7788));
        assert!((0..bytes.len()).all(|short| read_challenge(&bytes[..short]).is_none()));
        bytes[4] += 1;
        assert_eq!(read_challenge(&bytes), None);
    }

    #[test]
    fn an_ack_carries_only_the_words_it_needs() {
        for (bits, length) in [(&[][..], 16), (&[0, 63][..], 24), (&[64][..], 32), (&[3, 255][..], 48)] {
            let mut bitmap = Bitmap::default();
            bits.iter().for_each(|bit| bitmap.set(*bit));
            let mut bytes = Vec::new();
            write_ack(&mut bytes, &Ack { delay: 5 << 10, duplicates: 9, echo: 7, pace: 3, bitmap });
            assert_eq!(bytes.len(), length);
            let read = read_ack(&bytes).expect("what was written");
            assert_eq!((read.delay, read.duplicates, read.echo, read.pace), (5 << 10, 9, 7, 3));
            assert_eq!(read.bitmap.iter().collect::<Vec<_>>(), bits);
        }
        assert!(read_ack(&[0; 20]).is_none(), "half a word");
        assert!(read_ack(&[0; 56]).is_none(), "five words");
    }

    #[test]
    fn a_connect_carries_an_address_of_the_longest_length_and_no_longer_one() {
        for (length, is_read) in [(0, true), (ADDRESS_LIMIT, true), (ADDRESS_LIMIT + 1, false), (255, false)]
        {
            let (mut bytes, address) = (Vec::new(), vec![7; length]);
            write_connect(&mut bytes, invitation(), 7, 1, &address, 5);
            assert_eq!(read_connect(&bytes).map(|read| read.address.len()), is_read.then_some(length));
        }
    }

    #[test]
    fn the_reasons_of_a_refusal_and_of_a_reset_and_the_time_of_a_ping_read_back() {
        let mut bytes = Vec::new();
        write_reject(&mut bytes, Refusal(0x0102));
        assert_eq!(bytes, b"udrv\x04\x00\x02\x01");
        assert_eq!(read_reject(&bytes), Some((WIRE_VERSION, Refusal(0x0102))));
        assert!((0..bytes.len()).all(|short| read_reject(&bytes[..short]).is_none()));
        bytes[0] ^= 1;
        assert_eq!(read_reject(&bytes), None);
        let mut bytes = Vec::new();
        write_reset(&mut bytes, Reason(0x0102));
        assert_eq!((&bytes[..], read_reset(&bytes)), (&[2, 1][..], Some(Reason(0x0102))));
        assert_eq!(read_reset(&bytes[..1]), None);
        assert_eq!(read_ping(&[4, 3, 2, 1]), Some(0x0102_0304));
        assert_eq!(read_ping(&[4, 3, 2]), None);
    }

    #[test]
    fn a_window_of_zero_or_beyond_the_bitmap_is_no_invitation() {
        for (first_window, window) in [(0, 0), (0, 256), (1, 0), (1, 257), (1, u16::MAX), (9, 8)] {
            let bytes = Invitation { first_window, window, ..invitation() }.to_bytes();
            assert_eq!(Invitation::from_bytes(&bytes), None, "{first_window} of {window}");
        }
        for (first_window, window) in [(1, 1), (1, 256), (256, 256)] {
            let invitation = Invitation { first_window, window, ..invitation() };
            assert_eq!(Invitation::from_bytes(&invitation.to_bytes()), Some(invitation));
        }
    }
}
