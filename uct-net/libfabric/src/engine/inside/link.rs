//! How frames get to a peer.

use uct_net::local;

use super::super::Buffers;
use super::Shared;

/// Frames that wait for an endpoint of this domain. Beyond it its senders wait.
const MAX_LOCAL: usize = 64;
/// Longest frame between endpoints of this domain.
pub(super) const LOCAL_FRAGMENT: usize = 64 << 10;

/// The way to a peer.
pub(super) enum Link {
    /// There is none, until something is to be sent.
    Closed,
    /// This side calls.
    Calling,
    /// The peer calls, or is expected to.
    Called,
    /// Within this domain, to this endpoint, where this one is the peer with this number.
    Local { endpoint: usize, peer: u32 },
    /// A connection, its longest frame, and the longest message that goes in one frame.
    Net { connection: local::Connection, fragment: usize, eager: usize },
}

/// A frame from one endpoint of the domain to another.
pub(super) struct LocalFrame {
    pub(super) endpoint: usize,
    pub(super) peer: u32,
    pub(super) bytes: Vec<u8>,
}

impl Shared {
    #[inline(never)]
    fn send_local(&mut self, endpoint: usize, peer: u32, head: &[u8], parts: &[&[u8]]) -> bool {
        if self.local.len() >= MAX_LOCAL {
            return false;
        }
        let mut bytes = head.to_vec();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        self.local.push_back(LocalFrame { endpoint, peer, bytes });
        true
    }
}

impl Link {
    /// Whether frames can be sent.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Link::Net { .. } | Link::Local { .. })
    }

    /// Longest frame; 0 if none can be sent yet.
    #[inline]
    pub(super) fn fragment(&self) -> usize {
        match self {
            Link::Net { fragment, .. } => *fragment,
            Link::Local { .. } => LOCAL_FRAGMENT,
            Link::Closed | Link::Calling | Link::Called => 0,
        }
    }

    /// Sends a frame; false if there is no room now. A connection that has failed has none, until its end is reported.
    #[inline]
    pub(super) fn try_send(&self, shared: &mut Shared, head: &[u8], parts: &[&[u8]]) -> bool {
        match self {
            Link::Net { connection, .. } => connection.try_send(head, parts).unwrap_or(false),
            Link::Local { endpoint, peer } => shared.send_local(*endpoint, *peer, head, parts),
            Link::Closed | Link::Calling | Link::Called => false,
        }
    }

    /// As [`Link::try_send`], with bytes of the program.
    #[inline]
    pub(super) fn try_send_buffers(&self, shared: &mut Shared, head: &[u8], buffers: &Buffers) -> bool {
        buffers.with_slices(|parts| self.try_send(shared, head, parts))
    }
}
