//! How many messages peers may send: a window for each, out of the receive buffers that all share.
//!
//! A peer sends only with credits, and there are never more credits than posted buffers, so a message always finds a buffer.
//! When half of the credits are used, new ones travel with the next message of the other direction, or in an explicit credit update if
//! there is none until three quarters are used. A connection starts with a small window. The window doubles when the peer reports that it
//! was blocked and there is room, and shrinks when many connections share the queue. So memory goes to connections whose messages come
//! faster than credits, and an idle connection keeps its small window.

use std::cell::Cell;

use super::wire::{BLOCKED, MAX_GRANT};

/// Messages that a new peer may send.
const FIRST_WINDOW: u16 = 8;
/// Buffers beyond what the windows need: grants that come by themselves use one each, at most two a connection.
const SPARE: u32 = 16;
const SPARE_PER_PEER: u32 = 2;
/// Receive buffers that may be missing before progress posts them again.
pub(crate) const REFILL: u32 = 8;

/// The windows of all peers together.
pub(crate) struct Windows {
    /// Receive buffers that may be posted.
    capacity: u32,
    /// Sum of the credits of all peers.
    granted: Cell<u32>,
    /// Sum of the windows.
    windows: Cell<u32>,
    peers: Cell<u32>,
    max_window: u16,
}

/// The window of one peer.
pub(crate) struct PeerWindow {
    /// Credits of the peer, unadvertised ones included.
    granted: Cell<u32>,
    /// Unadvertised credits, and [`BLOCKED`].
    grant: Cell<u16>,
    /// Largest number of credits of the peer.
    window: Cell<u16>,
}

impl Windows {
    pub(crate) fn new(capacity: u32, max_window: u16) -> Windows {
        Windows { capacity, granted: Cell::new(0), windows: Cell::new(0), peers: Cell::new(0), max_window }
    }

    /// Buffers that the windows need, with the spare ones.
    fn needed(&self) -> u32 {
        SPARE + self.peers.get() * SPARE_PER_PEER + self.windows.get()
    }

    /// Room for further windows; negative if there are too many peers for what they have.
    fn room(&self) -> i64 {
        i64::from(self.capacity) - i64::from(self.needed())
    }

    /// Buffers that should be posted.
    pub(crate) fn wanted(&self) -> u32 {
        self.needed().min(self.capacity)
    }

    /// The window of a new peer, all of it granted.
    pub(crate) fn join(&self) -> PeerWindow {
        self.peers.set(self.peers.get() + 1);
        let room = u16::try_from(self.room().max(1)).unwrap_or(u16::MAX);
        let window = FIRST_WINDOW.min(self.max_window).min(room);
        self.windows.set(self.windows.get() + u32::from(window));
        self.granted.set(self.granted.get() + u32::from(window));
        PeerWindow { granted: Cell::new(u32::from(window)), grant: Cell::new(0), window: Cell::new(window) }
    }

    /// A peer is gone for good.
    pub(crate) fn leave(&self, peer: &PeerWindow) {
        self.close(peer);
        self.peers.set(self.peers.get() - 1);
    }

    /// The peer sends nothing any more.
    pub(crate) fn close(&self, peer: &PeerWindow) {
        self.granted.set(self.granted.get() - peer.granted.replace(0));
        self.windows.set(self.windows.get() - u32::from(peer.window.replace(0)));
        peer.grant.set(0);
    }

    /// A message of the peer has taken a buffer; returns the advertised credits that are left, or `None` if the peer had
    /// none.
    #[inline]
    pub(crate) fn taken(&self, peer: &PeerWindow) -> Option<u32> {
        let left = peer.granted.get().checked_sub(u32::from(peer.unadvertised()) + 1)?;
        peer.granted.set(peer.granted.get() - 1);
        self.granted.set(self.granted.get() - 1);
        Some(left)
    }

    /// The peer was blocked: its window doubles, if there is room.
    #[cold]
    pub(crate) fn widen(&self, peer: &PeerWindow) {
        let window = peer.window.get();
        if self.room() >= i64::from(window) {
            self.resize(peer, window.saturating_mul(2).min(self.max_window));
        }
    }

    /// Halves the window of the peer if there are too many.
    pub(crate) fn narrow(&self, peer: &PeerWindow) {
        let window = peer.window.get();
        if window > 0 && self.room() < 0 {
            self.resize(peer, (window / 2).max(1));
        }
    }

    fn resize(&self, peer: &PeerWindow, window: u16) {
        self.windows.set(self.windows.get() - u32::from(peer.window.replace(window)) + u32::from(window));
    }

    /// Whether more buffers than the `posted` ones are needed for all that the window of the peer allows.
    pub(crate) fn lacks_buffers(&self, peer: &PeerWindow, posted: u32) -> bool {
        peer.missing() > self.free(posted)
    }

    /// Grants the peer what its window and the posted buffers permit.
    pub(crate) fn grant_more(&self, peer: &PeerWindow, posted: u32) {
        if peer.window.get() == 0 {
            return;
        }
        let mut more = peer.missing().min(self.free(posted)).min(u32::from(MAX_GRANT - peer.unadvertised()));
        if more == 0 && peer.granted.get() == 0 && posted > self.granted.get() {
            // A peer without credits gets one as long as there is a buffer; the spare ones are for this.
            more = 1;
        }
        peer.granted.set(peer.granted.get() + more);
        self.granted.set(self.granted.get() + more);
        peer.grant.set(peer.grant.get() + more as u16);
    }

    /// Posted buffers that are not granted, without the spare ones. Progress posts buffers in batches, so up to one batch of the spare
    /// ones is missing: credits against it are posted before they can be used.
    fn free(&self, posted: u32) -> u32 {
        let spare = SPARE + self.peers.get() * SPARE_PER_PEER - (REFILL - 1);
        posted.saturating_sub(self.granted.get() + spare.min(posted / 2))
    }
}

impl PeerWindow {
    /// Largest number of credits of the peer; 0 if it sends nothing any more.
    #[inline]
    pub(crate) fn size(&self) -> u16 {
        self.window.get()
    }

    /// Credits of the peer, unadvertised ones included.
    pub(crate) fn granted(&self) -> u32 {
        self.granted.get()
    }

    fn missing(&self) -> u32 {
        u32::from(self.window.get()).saturating_sub(self.granted.get())
    }

    /// Credits that were granted and not yet sent to the peer.
    #[inline]
    pub(crate) fn unadvertised(&self) -> u16 {
        self.grant.get() & MAX_GRANT
    }

    /// Contents of the next message to the peer: the unadvertised credits, and whether this side was blocked.
    #[inline]
    pub(crate) fn grant(&self) -> u16 {
        self.grant.get()
    }

    /// The grant has been sent.
    #[inline]
    pub(crate) fn note_advertised(&self) {
        self.grant.set(0);
    }

    /// This side had no credits left: the next message reports it to the peer.
    pub(crate) fn note_blocked(&self) {
        self.grant.set(self.grant.get() | BLOCKED);
    }

    /// Whether the peer may send so few messages more, as far as it knows, that a grant must not wait for a message.
    pub(crate) fn is_due(&self) -> bool {
        let left = self.granted.get().saturating_sub(u32::from(self.unadvertised()));
        self.is_low(left)
    }

    /// Whether `left` messages are a quarter of the window at most.
    pub(crate) fn is_low(&self, left: u32) -> bool {
        left <= u32::from(self.window.get()) / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses a window up to the last message that the peer knows of.
    fn use_up(windows: &Windows, peer: &PeerWindow) {
        while windows.taken(peer).is_some() {}
    }

    #[test]
    fn a_peer_may_send_what_it_was_granted_and_no_more() {
        let windows = Windows::new(1000, 256);
        let peer = windows.join();
        assert_eq!((peer.size(), peer.granted(), peer.unadvertised()), (8, 8, 0));
        assert_eq!(windows.taken(&peer), Some(7));
        use_up(&windows, &peer);
        assert_eq!((peer.granted(), windows.granted.get()), (0, 0));
        windows.grant_more(&peer, windows.wanted());
        assert_eq!((peer.granted(), peer.grant()), (8, 8));
        assert_eq!(windows.taken(&peer), None, "the credits are not advertised yet");
        peer.note_advertised();
        assert_eq!(windows.taken(&peer), Some(7));
    }

    #[test]
    fn a_window_doubles_up_to_the_largest_and_halves_when_there_are_too_many() {
        let windows = Windows::new(SPARE + SPARE_PER_PEER + 40, 24);
        let peer = windows.join();
        windows.widen(&peer);
        assert_eq!(peer.size(), 16);
        windows.widen(&peer);
        assert_eq!(peer.size(), 24);
        windows.narrow(&peer);
        assert_eq!(peer.size(), 24, "there is room");
        let others: Vec<PeerWindow> = (0..10).map(|_| windows.join()).collect();
        windows.narrow(&peer);
        assert_eq!(peer.size(), 12);
        for other in &others {
            windows.leave(other);
        }
        windows.leave(&peer);
        assert_eq!((windows.windows.get(), windows.granted.get(), windows.peers.get()), (0, 0, 0));
        assert_eq!(windows.wanted(), SPARE);
    }

    #[test]
    fn one_message_is_granted_as_long_as_there_is_a_buffer() {
        let windows = Windows::new(1000, 256);
        let peer = windows.join();
        use_up(&windows, &peer);
        windows.grant_more(&peer, 0);
        assert_eq!(peer.grant(), 0);
        assert!(windows.lacks_buffers(&peer, 1) && peer.is_due());
        assert!(!windows.lacks_buffers(&peer, 1000), "all that the window allows are there");
        windows.grant_more(&peer, 1);
        assert_eq!(peer.grant(), 1);
        windows.close(&peer);
        windows.grant_more(&peer, 1000);
        assert_eq!((peer.grant(), peer.size(), peer.granted()), (0, 0, 0), "nothing for a peer that is gone");
    }
}
