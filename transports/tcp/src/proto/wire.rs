//! What crosses a socket: first a hello each way, then frames. Pure functions; everything read is untrusted.
//!
//! Numbers are little-endian. The hello of the side that connects, and the response of the other:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `UCTt` |
//! | 4..6 | version of the wire; the first eight bytes are the same in all versions |
//! | 6..8 | [`HelloKind`] |
//! | 8..16 | feature bits of the sender |
//! | 16..24 | id of the sender's interface; 0 in a refusal |
//! | 24..32 | first hello: the key of the interface that is meant, from its address; else 0 |
//! | 32..40 | first hello: token of this connection, random; else 0 |
//! | 40..48 | largest message that the sender may send |
//! | 48..52 | [`Refusal`], else 0 |
//! | 52..56 | 1: the sender has endpoints on the connection; 2: it wants a connection of its own, whatever others there are |
//! | 56..64 | token of another connection, which the receiver may have opened, else 0 |
//! | 64..84 | where that one was accepted, as in an address (`addr`), else 0 |
//! | 84..104 | where it came from, in the same way, else 0 |
//! | 104..112 | check sum of the bytes ahead (FNV-1a) |
//!
//! A frame is eight bytes of header, its payload, and zeros up to a multiple of eight bytes, so that every payload is aligned to
//! eight bytes where it arrives:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | below 32: the id of an active message; else [`control`] |
//! | 1..4 | 0 |
//! | 4..8 | bytes of payload |

use std::net::SocketAddr;

use crate::proto::addr::{SOCKET, read_socket, write_socket};
use crate::proto::version::VERSION;

/// `UCTt`.
pub(crate) const MAGIC: [u8; 4] = *b"UCTt";
/// Bytes of a hello.
pub(crate) const HELLO: usize = 112;
/// Bytes of a frame's header.
pub(crate) const FRAME_HEADER: usize = 8;

/// Bytes that a frame's place needs behind it, for the zeros.
pub(crate) const PADDING: usize = 8;

/// Where the two ends of a claimed connection are in a hello.
const LISTENER: usize = 64;
const SOURCE: usize = LISTENER + SOCKET;
/// Where the check sum of a hello begins.
const SUM: usize = HELLO - 8;

/// The flags of a hello.
const IN_USE: u32 = 1;
const WANTS_OWN: u32 = 2;

/// Feature: put, get and atomics are served.
pub(crate) const FEATURE_RMA: u64 = 1 << 0;
/// Feature: [`control::FILL`] is understood.
pub(crate) const FEATURE_FILL: u64 = 1 << 1;

/// Kinds of frames that are no active messages.
pub(crate) mod control {
    /// A request for put, get or an atomic (`uct_plugin::rma`).
    pub(crate) const REQUEST: u8 = 32;
    /// The response to one.
    pub(crate) const RESPONSE: u8 = 33;
    /// Requests a pong.
    pub(crate) const PING: u8 = 34;
    /// The response to a ping.
    pub(crate) const PONG: u8 = 35;
    /// The sender has endpoints on this connection now.
    pub(crate) const USE: u8 = 36;
    /// The sender has no endpoints on this connection any more, and will have none.
    pub(crate) const UNUSE: u8 = 37;
    /// Nothing: up to 24 bytes that are ignored. Sent to peers with the feature only.
    pub(crate) const FILL: u8 = 38;
}

/// What a hello is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum HelloKind {
    /// The first, by the side that connects.
    Hello = 1,
    /// The connection is established.
    Accept = 2,
    /// It does not, and the socket is closed.
    Refuse = 3,
    /// The other connection that the first hello names was opened by this side and is alive: it is to be used, and this socket is
    /// closed.
    Same = 4,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Refusal {
    /// The versions differ.
    Version = 1,
    /// The key is not that of the interface that listens here now.
    WrongIface = 2,
    /// The refusing side has a connection of its own to the sender's id, or is opening one: the sender looks for it.
    Duplicate = 3,
    /// The peer may send larger messages than are accepted here.
    MessageSize = 4,
    /// There is no room for another connection now.
    Full = 5,
}

/// A connection that was accepted from a peer by its own account, as the accepting side names it to that peer's listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) token: u64,
    /// The accepting side's end of it.
    pub(crate) listener: SocketAddr,
    /// The end of the side that opened it.
    pub(crate) source: SocketAddr,
}

/// A hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) kind: HelloKind,
    pub(crate) features: u64,
    pub(crate) sender: u64,
    pub(crate) key: u64,
    pub(crate) token: u64,
    pub(crate) max_message: u64,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) in_use: bool,
    pub(crate) wants_own: bool,
    pub(crate) claim: Option<Claim>,
}

/// Bytes that are no hello of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadHello {
    /// Not of this kind at all.
    #[error("the peer does not use this protocol")]
    Foreign,
    /// Of another version.
    #[error(
        "the peer has version {0} of the wire, this side version {VERSION}: use the same release on both sides"
    )]
    Version(u16),
    /// Damaged.
    #[error("the peer's hello is damaged")]
    Damaged,
}

impl Hello {
    /// The bytes.
    pub(crate) fn write(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.features.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sender.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.key.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.token.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.max_message.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.refusal.map_or(0, |refusal| refusal as u32).to_le_bytes());
        let flags = (u32::from(self.in_use) * IN_USE) | (u32::from(self.wants_own) * WANTS_OWN);
        bytes[52..56].copy_from_slice(&flags.to_le_bytes());
        if let Some(claim) = &self.claim {
            bytes[56..64].copy_from_slice(&claim.token.to_le_bytes());
            write_socket(&mut bytes[LISTENER..SOURCE], &claim.listener);
            write_socket(&mut bytes[SOURCE..SOURCE + SOCKET], &claim.source);
        }
        let sum = check_sum(&bytes[..SUM]);
        bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a whole hello.
    pub(crate) fn read(bytes: &[u8; HELLO]) -> Result<Hello, BadHello> {
        check_start(bytes)?;
        if word(bytes, SUM) != check_sum(&bytes[..SUM]) {
            return Err(BadHello::Damaged);
        }
        let kind = match u16::from_le_bytes([bytes[6], bytes[7]]) {
            1 => HelloKind::Hello,
            2 => HelloKind::Accept,
            3 => HelloKind::Refuse,
            4 => HelloKind::Same,
            _ => return Err(BadHello::Damaged),
        };
        let refusal = match half(bytes, 48) {
            0 => None,
            1 => Some(Refusal::Version),
            2 => Some(Refusal::WrongIface),
            3 => Some(Refusal::Duplicate),
            4 => Some(Refusal::MessageSize),
            5 => Some(Refusal::Full),
            _ => return Err(BadHello::Damaged),
        };
        let claim = match word(bytes, 56) {
            0 => None,
            token => {
                let end = |at| read_socket(&bytes[at..at + SOCKET]).map_err(|_| BadHello::Damaged);
                Some(Claim { token, listener: end(LISTENER)?, source: end(SOURCE)? })
            }
        };
        let flags = half(bytes, 52);
        Ok(Hello {
            kind,
            features: word(bytes, 8),
            sender: word(bytes, 16),
            key: word(bytes, 24),
            token: word(bytes, 32),
            max_message: word(bytes, 40),
            refusal,
            in_use: flags & IN_USE != 0,
            wants_own: flags & WANTS_OWN != 0,
            claim,
        })
    }
}

/// Checks the received part of a hello's first eight bytes, so that another protocol is detected early.
pub(crate) fn check_start(bytes: &[u8]) -> Result<(), BadHello> {
    if bytes.iter().zip(MAGIC).any(|(byte, magic)| *byte != magic) {
        return Err(BadHello::Foreign);
    }
    match bytes.get(4..6) {
        Some(version) if version != VERSION.to_le_bytes() => {
            Err(BadHello::Version(u16::from_le_bytes([version[0], version[1]])))
        }
        _ => Ok(()),
    }
}

/// Compares a secret with the one that a peer sent. One comparison of two registers: how long it takes does not depend on where they
/// differ.
pub(crate) fn is_same(secret: u64, said: u64) -> bool {
    std::hint::black_box(secret ^ said) == 0
}

/// The header of a frame as a number, to be written in native order on a little-endian machine.
#[inline(always)]
pub(crate) const fn frame_header(kind: u8, length: usize) -> u64 {
    (kind as u64 | (length as u64) << 32).to_le()
}

/// Kind and length of a frame from the number that its header is in native order.
#[inline(always)]
pub(crate) const fn parse_frame(header: u64) -> (u8, usize) {
    let header = u64::from_le(header);
    (header as u8, (header >> 32) as usize)
}

/// Bytes of a payload or frame with the zeros behind it.
#[inline(always)]
pub(crate) const fn padded(bytes: usize) -> usize {
    (bytes + 7) & !7
}

fn check_sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

fn word(bytes: &[u8; HELLO], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn half(bytes: &[u8; HELLO], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Entry for fuzzing: reads arbitrary bytes as a hello and as the header of a frame.
#[cfg(any(test, feature = "testing"))]
pub fn fuzz_hello(bytes: &[u8]) {
    let _ = check_start(bytes);
    if let Some(bytes) = bytes.first_chunk::<HELLO>()
        && let Ok(hello) = Hello::read(bytes)
    {
        assert_eq!(Hello::read(&hello.write()), Ok(hello));
    }
    if let Some(bytes) = bytes.first_chunk::<FRAME_HEADER>() {
        let (kind, length) = parse_frame(u64::from_ne_bytes(*bytes));
        assert_eq!(parse_frame(frame_header(kind, length)), (kind, length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            kind: HelloKind::Refuse,
            features: 5,
            sender: u64::MAX,
            key: 7,
            token: 3,
            max_message: 1 << 30,
            refusal: Some(Refusal::Duplicate),
            in_use: true,
            wants_own: true,
            claim: Some(Claim {
                token: 11,
                listener: "[fd00::1]:89".parse().unwrap(),
                source: "10.0.0.2:4567".parse().unwrap(),
            }),
        }
    }

    #[test]
    fn a_hello_survives_the_wire() {
        assert_eq!(Hello::read(&hello().write()), Ok(hello()));
    }

    #[test]
    fn another_version_is_named_with_both_numbers() {
        let mut bytes = hello().write();
        bytes[4] = 9;
        let error = Hello::read(&bytes).unwrap_err();
        assert_eq!(error, BadHello::Version(9));
        let words = error.to_string();
        assert!(words.contains("version 9") && words.contains(&format!("version {VERSION}")), "{words}");
    }

    #[test]
    fn a_foreign_peer_is_noticed_by_its_first_byte() {
        assert_eq!(check_start(b"G"), Err(BadHello::Foreign));
        assert_eq!(check_start(b"UCTt"), Ok(()));
        assert_eq!(check_start(b""), Ok(()));
    }

    #[test]
    fn every_single_flipped_bit_is_noticed() {
        let bytes = hello().write();
        for bit in 0..HELLO * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Hello::read(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_header_of_a_frame_has_its_documented_bytes() {
        assert_eq!(frame_header(31, 0x0102_0304).to_ne_bytes(), [31, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(parse_frame(frame_header(31, 0x0102_0304)), (31, 0x0102_0304));
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            fuzz_hello(&bytes);
        }
    }
}
