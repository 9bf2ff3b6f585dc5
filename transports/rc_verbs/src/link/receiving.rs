//! The receive side of all connections: the ring of buffers and the windows that are granted out of it.

use crate::io::receive::ReceiveRing;
use crate::proto::window::{PeerWindow, Windows};

/// The receive buffers, and how many messages each peer may send into them.
pub(crate) struct Receiving {
    pub(crate) ring: ReceiveRing,
    pub(crate) windows: Windows,
}

impl Receiving {
    /// The window of a new connection, granted to its peer.
    pub(crate) fn join(&self) -> PeerWindow {
        let window = self.windows.join();
        self.ring.want(self.windows.wanted());
        self.ring.fill(1);
        window
    }

    /// A connection ends.
    pub(crate) fn leave(&self, peer: &PeerWindow) {
        self.windows.leave(peer);
        self.ring.want(self.windows.wanted());
    }

    /// The peer sends nothing any more.
    pub(crate) fn close(&self, peer: &PeerWindow) {
        self.windows.close(peer);
        self.ring.want(self.windows.wanted());
    }

    /// Grants the peer what its window and the posted buffers permit.
    pub(crate) fn grant_more(&self, peer: &PeerWindow) {
        self.windows.narrow(peer);
        self.ring.want(self.windows.wanted());
        if self.windows.lacks_buffers(peer, self.ring.posted()) {
            self.ring.fill(1);
        }
        self.windows.grant_more(peer, self.ring.posted());
    }

    /// The peer was blocked: its window doubles, if there is room.
    #[cold]
    pub(crate) fn widen(&self, peer: &PeerWindow) {
        self.windows.widen(peer);
        self.ring.want(self.windows.wanted());
    }
}
