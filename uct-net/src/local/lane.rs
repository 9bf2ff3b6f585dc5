//! The way to a peer: an endpoint, and the envelopes around what goes over it.

use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;

use smallvec::SmallVec;
use ucs::memory::{copy, copy_few};
use uct_host::cm::{CmEp, CmToken};
use uct_host::{
    AmId, Capabilities, Ep, Error as Status, Iface, IfaceAddress, MemoryDomain, Refused, SendFlags,
    SocketSide,
};

use crate::proto::envelope::{ENVELOPE, Envelope, HEADER, Token};

/// The active message id of this crate; the others are the application's.
pub const AM_ID: AmId = AmId::new(31).unwrap();

/// Shortest message that is read by a get which the peer's progress carries out. A shorter one is faster in parts, which are copied here but need no
/// request.
const CARRIED_OUT: usize = 512 << 10;
/// Longest such message. Its receiver takes the memory before the bytes come, as much as a peer on another host may also fill with a window of messages.
const LONGEST_CARRIED_OUT: usize = 1 << 20;

/// Longest payload that is sent from the stack, where the transport takes that much inline.
const SHORT: usize = 112;

/// An endpoint to a peer's connection.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) ep: Ep,
    /// The connection manager's connection, if one has made it.
    #[expect(dead_code, reason = "its end is the peer's end as well")]
    made_by: Option<CmEp>,
    peer: Token,
    short: usize,
    fragment: usize,
    /// Longest get that is done within its call.
    at_once: usize,
    /// How memory of the peer is read in place.
    pub(crate) large: Option<InPlace>,
    /// Longest message that is read there.
    longest_read: usize,
}

/// Reading memory of the peer in place: see [`Connection::in_place`](super::Connection::in_place).
#[derive(Clone, Debug)]
pub struct InPlace {
    /// Registers memory, and unpacks the keys of the peer's.
    pub domain: MemoryDomain,
    /// How many bytes one operation reads.
    pub sizes: RangeInclusive<usize>,
    /// Longest read by `get_short` in bytes, which needs no registration of its target; 0 where that call waits for the peer.
    pub at_once: usize,
}

/// An endpoint that may need the address of the peer's endpoint before it can send.
#[derive(Debug)]
pub(crate) struct HalfLane {
    ep: Ep,
    is_connected: bool,
}

impl HalfLane {
    /// An endpoint towards an interface of the peer. `failed` is called once if it ever fails.
    pub(crate) fn open(
        iface: &Iface,
        peer: &IfaceAddress,
        failed: impl FnOnce(uct_host::EpFailure) + 'static,
    ) -> Result<HalfLane, Refused> {
        if iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
            return Ok(HalfLane { ep: iface.connect_with(peer, failed)?, is_connected: true });
        }
        HalfLane::apart(iface, failed)
    }

    /// An endpoint that is not connected yet, of an interface whose endpoints connect to each other.
    pub(crate) fn apart(
        iface: &Iface,
        failed: impl FnOnce(uct_host::EpFailure) + 'static,
    ) -> Result<HalfLane, Refused> {
        Ok(HalfLane { ep: iface.create_ep(failed)?, is_connected: false })
    }

    /// What a connection manager needs of it.
    pub(crate) fn cm_token(&self) -> Result<CmToken, Status> {
        self.ep.cm_token()
    }

    /// An endpoint over a socket whose other end is the peer's.
    pub(crate) fn over(
        iface: &Iface,
        peer: &IfaceAddress,
        (socket, side): (OwnedFd, SocketSide),
        failed: impl FnOnce(uct_host::EpFailure) + 'static,
    ) -> Result<HalfLane, Refused> {
        Ok(HalfLane { ep: iface.connect_over(peer, socket, side, failed)?, is_connected: true })
    }

    /// What the peer needs to connect its endpoint; empty where it needs nothing.
    pub(crate) fn address(&self) -> Result<Vec<u8>, Status> {
        if self.is_connected { Ok(Vec::new()) } else { self.ep.address() }
    }

    /// Connects to the peer's endpoint, and makes a lane of it.
    pub(crate) fn connect(
        self,
        iface: &Iface,
        peer: &IfaceAddress,
        endpoint: &[u8],
        token: Token,
    ) -> Result<Lane, Refused> {
        if !self.is_connected {
            self.ep.connect_to_ep(peer, endpoint)?;
        }
        let limits = &iface.attributes().am;
        let get = &iface.attributes().get;
        let native = iface.capabilities().difference(iface.emulated());
        let (from, longest_read) = match native.contains(Capabilities::GET_ZCOPY) {
            true => (get.min_zcopy.max(1), usize::MAX),
            false => (CARRIED_OUT, LONGEST_CARRIED_OUT),
        };
        let can_read = iface.capabilities().contains(Capabilities::GET_ZCOPY) && from <= get.max_zcopy;
        let at_once = if native.contains(Capabilities::GET_SHORT) { get.max_short } else { 0 };
        let large = can_read.then(|| InPlace {
            domain: iface.memory_domain().clone(),
            sizes: from..=get.max_zcopy,
            at_once,
        });
        Ok(Lane {
            ep: self.ep,
            made_by: None,
            peer: token,
            short: SHORT.min(limits.max_short.saturating_sub(ENVELOPE)),
            fragment: limits.max_bcopy.saturating_sub(HEADER + ENVELOPE),
            at_once,
            large,
            longest_read,
        })
    }
}

impl Lane {
    /// How a message of so many bytes is read in place; `None` if it is sent in parts.
    pub(crate) fn reads(&self, length: usize) -> Option<&InPlace> {
        self.large.as_ref().filter(|large| large.sizes.contains(&length) && length <= self.longest_read)
    }

    /// The same endpoint, to another connection of the peer's.
    pub(crate) fn to(&self, peer: Token) -> Lane {
        Lane { peer, ..self.clone() }
    }

    /// With the connection of the connection manager that has made it, which lasts as long as the lane.
    pub(crate) fn made_by(self, cm: CmEp) -> Lane {
        Lane { made_by: Some(cm), ..self }
    }

    /// Whether so many bytes are read within a call.
    pub(crate) fn reads_at_once(&self, length: usize) -> bool {
        length <= self.at_once
    }

    /// Longest payload of one message of the transport, in bytes.
    pub(crate) fn fragment(&self) -> usize {
        self.fragment
    }

    /// Sends one message of the transport: all of it, or nothing and an error; `NO_RESOURCE` until there is room.
    pub(crate) fn send(&self, envelope: Envelope, payload: &[u8]) -> Result<(), Status> {
        let envelope = envelope.to_bytes(self.peer);
        if payload.len() <= self.short {
            let mut message = [0; ENVELOPE + SHORT];
            message[..ENVELOPE].copy_from_slice(&envelope);
            copy_few(&mut message[ENVELOPE..ENVELOPE + payload.len()], payload);
            return self.ep.am_short(AM_ID, self.peer.header(), &message[..ENVELOPE + payload.len()]);
        }
        let pack = |buffer: &mut [u8]| {
            buffer[..HEADER].copy_from_slice(&self.peer.header().to_ne_bytes());
            buffer[HEADER..HEADER + ENVELOPE].copy_from_slice(&envelope);
            copy(&mut buffer[HEADER + ENVELOPE..][..payload.len()], payload);
            HEADER + ENVELOPE + payload.len()
        };
        self.ep.am_bcopy(AM_ID, SendFlags::empty(), pack).map(|_length| ())
    }

    /// As [`Lane::send`], of a message in parts, which are `length` bytes together.
    pub(crate) fn send_parts(
        &self,
        envelope: Envelope,
        head: &[u8],
        parts: &[&[u8]],
        length: usize,
    ) -> Result<(), Status> {
        let envelope = envelope.to_bytes(self.peer);
        if length <= self.short {
            let mut message = [0; ENVELOPE + SHORT];
            message[..ENVELOPE].copy_from_slice(&envelope);
            let mut end = ENVELOPE + head.len();
            copy_few(&mut message[ENVELOPE..end], head);
            for part in parts {
                let start = end;
                end += part.len();
                copy_few(&mut message[start..end], part);
            }
            return self.ep.am_short(AM_ID, self.peer.header(), &message[..end]);
        }
        let mut start = [0; HEADER + ENVELOPE];
        start[..HEADER].copy_from_slice(&self.peer.header().to_ne_bytes());
        start[HEADER..].copy_from_slice(&envelope);
        let mut all = SmallVec::<[&[u8]; 8]>::from_slice(&[&start, head]);
        all.extend_from_slice(parts);
        self.ep.am_bcopy_iov(AM_ID, SendFlags::empty(), &all).map(|_length| ())
    }
}
