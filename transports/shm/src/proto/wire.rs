//! The messages over the socket, and the tags of messages in a ring.
//!
//! Used by channels. Built on `zerocopy`. All fields are in the machine's byte order and come from a peer that is not trusted. Sizes are
//! checked here, values where they are used.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::proto::ring::{Geometry, Pool};

/// Starts every message over the socket.
const MAGIC: u32 = u32::from_le_bytes(*b"uSHM");
/// Grows when a message changes, or what is in shared memory.
const VERSION: u32 = 9;

/// Largest message over the socket.
pub(crate) const MAX_CONTROL: usize = 512;

/// What a message over the socket is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Control {
    /// From the side that connects; [`Hello`]. Descriptors: doorbell, table of registrations, ring (none for System V).
    Hello = 1,
    /// From the side that accepts; [`Welcome`]. Descriptors: doorbell, table of registrations.
    Welcome = 2,
    /// From a side that does not accept: the reason as text.
    Refusal = 3,
    /// Wakes a receiver that sleeps.
    Wake = 4,
    /// Asks for the segment of a registration; [`SegmentRequest`].
    SegmentRequest = 5,
    /// Answers; [`SegmentReply`]. Descriptor: the segment.
    SegmentReply = 6,
}

/// The head of a message over the socket.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Head {
    magic: u32,
    version: u32,
    kind: u32,
    length: u32,
}

/// One side of a connection: the facts that it sends to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Side {
    /// Number of the interface.
    pub(crate) iface: u64,
    /// The interface's key, which the peer compares with the one in the address.
    pub(crate) key: u64,
    /// The process's table of registrations.
    pub(crate) table: u64,
    /// Address of the process's beacon.
    pub(crate) beacon: u64,
    /// Number of the ring for which the peer rings this side's doorbell.
    pub(crate) doorbell_number: u32,
    /// 1 if the process has registered for heavy barriers.
    pub(crate) heavy_barrier: u32,
}

/// The first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Hello {
    /// The side that connects.
    pub(crate) from: Side,
    /// The key of the interface that accepts, from its address.
    pub(crate) to_key: u64,
    /// The System V segment with the rings, else -1.
    pub(crate) sysv_segment: i32,
    /// Which transport.
    pub(crate) kind: u32,
    /// 1 if the side that connects knows the process that accepts. A ping-pong line is shared only if each side knows the other's process.
    pub(crate) knows_process: u32,
    /// 0.
    pub(crate) reserved: u32,
    /// Ring towards the side that accepts.
    pub(crate) forward: Shape,
    /// Ring towards the side that connects.
    pub(crate) backward: Shape,
}

/// The reply to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Welcome {
    /// The side that accepts.
    pub(crate) from: Side,
    /// The channel whose ping-pong line this one shares from now on: the number that the accepting side has for its own
    /// connection to the peer, plus one; 0 if none.
    pub(crate) shares: u32,
    /// 0.
    pub(crate) reserved: u32,
}

/// A ring's geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Shape {
    slots: u32,
    first: u32,
    small_count: u32,
    small_stride: u32,
    bulk_count: u32,
    bulk_stride: u32,
}

/// Asks for the segment of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SegmentRequest {
    /// The registration.
    pub(crate) key: u64,
    /// The secret of the key, which proves that the peer was given the key.
    pub(crate) secret: u64,
}

/// Answers a request for a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct SegmentReply {
    /// The registration.
    pub(crate) key: u64,
    /// What was shown for it.
    pub(crate) secret: u64,
    /// Its length in bytes; 0 if there is no segment to share.
    pub(crate) length: u64,
    /// The System V segment, else -1.
    pub(crate) sysv_segment: i32,
    /// 1 if it may be mapped writable.
    pub(crate) is_writable: u32,
}

impl From<Geometry> for Shape {
    fn from(geometry: Geometry) -> Shape {
        Shape {
            slots: geometry.slots,
            first: geometry.first,
            small_count: geometry.small.count,
            small_stride: geometry.small.stride,
            bulk_count: geometry.bulk.count,
            bulk_stride: geometry.bulk.stride,
        }
    }
}

impl From<Shape> for Geometry {
    fn from(shape: Shape) -> Geometry {
        Geometry {
            slots: shape.slots,
            first: shape.first,
            small: Pool { count: shape.small_count, stride: shape.small_stride },
            bulk: Pool { count: shape.bulk_count, stride: shape.bulk_stride },
        }
    }
}

/// A message over the socket: head and body.
pub(crate) fn control(kind: Control, body: &[u8]) -> Vec<u8> {
    debug_assert!(size_of::<Head>() + body.len() <= MAX_CONTROL);
    let head = Head { magic: MAGIC, version: VERSION, kind: kind as u32, length: body.len() as u32 };
    [head.as_bytes(), body].concat()
}

/// Takes a message over the socket apart. The error describes what is wrong.
pub(crate) fn parse_control(message: &[u8]) -> Result<(Control, &[u8]), String> {
    if message.is_empty() {
        // What `socket::receive` makes of one that did not arrive whole.
        return Err("a message arrived truncated, or without its descriptors: the process that received it may be at its limit of \
                    open files (ulimit -n)"
            .to_owned());
    }
    let (head, body) = Head::read_from_prefix(message).map_err(|_| "a message without a head".to_owned())?;
    if head.magic != MAGIC {
        return Err("a message of another program".to_owned());
    }
    if head.version != VERSION {
        return Err(format!("the peer has version {}, this side version {VERSION}", head.version));
    }
    if head.length as usize != body.len() {
        return Err(format!("a message of {} bytes that announces {}", body.len(), head.length));
    }
    let kind = match head.kind {
        1 => Control::Hello,
        2 => Control::Welcome,
        3 => Control::Refusal,
        4 => Control::Wake,
        5 => Control::SegmentRequest,
        6 => Control::SegmentReply,
        other => return Err(format!("a message of unknown kind {other}")),
    };
    Ok((kind, body))
}

/// Reads the body of a message.
pub(crate) fn body<T: FromBytes>(bytes: &[u8]) -> Result<T, String> {
    T::read_from_bytes(bytes)
        .map_err(|_| format!("a body of {} bytes where {} are expected", bytes.len(), size_of::<T>()))
}

/// Tags of ring messages; those below 32 are active message ids.
pub(crate) mod tag {
    /// Number of message ids of the application, which are the tags below.
    pub(crate) const AM_IDS: u8 = 32;
    /// A request of the engine for operations on remote memory.
    pub(crate) const REQUEST: u8 = 32;
    /// A response of the engine.
    pub(crate) const ANSWER: u8 = 33;
    /// Nothing: the sender uses the first slots again.
    pub(crate) const NOTHING: u8 = 34;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_bytes() {
        let reply = SegmentReply { key: 3, secret: 5, length: 4096, sysv_segment: -1, is_writable: 1 };
        let bytes = control(Control::SegmentReply, reply.as_bytes());
        let (kind, rest) = parse_control(&bytes).unwrap();
        assert_eq!((kind, body::<SegmentReply>(rest)), (Control::SegmentReply, Ok(reply)));
        assert_eq!(parse_control(&control(Control::Wake, &[])), Ok((Control::Wake, &[][..])));
    }

    #[test]
    fn anything_else_is_refused_in_words() {
        let good = control(Control::Wake, &[1, 2, 3]);
        assert!(parse_control(&[]).unwrap_err().contains("ulimit -n"));
        assert!(parse_control(&good[..15]).unwrap_err().contains("without a head"));
        assert!(parse_control(&good[..18]).unwrap_err().contains("2 bytes that announces 3"));
        let changed = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            parse_control(&bytes).unwrap_err()
        };
        assert!(changed(0).contains("another program"));
        assert!(changed(4).contains("version"));
        assert!(changed(8).contains("unknown kind"));
        assert!(changed(12).contains("announces"));
        assert!(body::<Welcome>(&[0; 3]).unwrap_err().contains("3 bytes"));
    }

    #[test]
    fn the_sizes_on_the_wire_stay() {
        assert_eq!(size_of::<Hello>(), 112);
        assert_eq!(size_of::<Welcome>(), 48);
    }
}
