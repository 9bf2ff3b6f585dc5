//! Proof of identity: which accepted connections belong to the peer whose address an endpoint was created with.
//!
//! A peer can claim any id. Endpoints therefore use connections that this side opened to the given address. An accepted connection
//! is used only if the listener at that address confirms it: this side connects, and its hello contains the token and both socket
//! addresses of the accepted connection. The peer compares them with the connections that it has opened itself.
//! The token is no secret: such a hello discloses it to every listener whose address has the peer's id. docs/tcp.md has the
//! argument ("Proof of identity").

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use socket2::Socket;
use ucs::Error;
use ucs::event_set::Events;

use super::{Conn, OpenedBy, State};
use crate::link::conn_id::ConnId;
use crate::link::shared::Shared;
use crate::proto::wire::{Claim, is_same};

/// Time to wait for the peer's own connection before another one is opened.
const PEERS_TURN: Duration = Duration::from_millis(200);
/// Largest number of accepted connections that the peer is asked to confirm; others may have claimed its id falsely.
const MOST_CLAIMS: u32 = 4;

/// What a connection that is being established has asked its peer.
pub(super) struct Claims {
    /// The accepted connection that the last hello named.
    asked: Option<ConnId>,
    /// Those from this number on were asked about.
    older_than: u32,
    count: u32,
    /// It has waited for one, or waits.
    has_waited: bool,
    waits: bool,
}

impl Default for Claims {
    fn default() -> Claims {
        Claims { asked: None, older_than: u32::MAX, count: 0, has_waited: false, waits: false }
    }
}

impl Conn {
    /// The latest accepted connection of the peer by its own account that was not asked about.
    pub(super) fn next_claim(&self, siblings: &[Rc<Conn>]) -> Option<Claim> {
        let mut connecting = self.connecting.borrow_mut();
        let claims = connecting.as_mut()?.claims();
        claims.waits = false;
        claims.asked = None;
        if claims.count == MOST_CLAIMS {
            return None;
        }
        let claimants =
            siblings.iter().filter(|conn| conn.claims_to_be(self.peer) && conn.number < claims.older_than);
        let conn = claimants.max_by_key(|conn| conn.number)?;
        let (listener, source) = ends(conn.socket.borrow().as_ref()?)?;
        claims.asked = Some(conn.id);
        claims.older_than = conn.number;
        claims.count += 1;
        Some(Claim { token: conn.token, listener, source })
    }

    /// Whether the peer claims to be this one, and may be.
    fn claims_to_be(&self, peer: u64) -> bool {
        let is_alive = self.state.get() == State::Established && self.broken.get().is_none();
        is_alive && self.destination.is_none() && self.peer == peer && self.token != 0
    }

    /// Whether enough was done to find the peer's own connection.
    pub(super) fn wants_own(&self) -> bool {
        let mut connecting = self.connecting.borrow_mut();
        connecting.as_mut().is_some_and(|connecting| {
            let claims = connecting.claims();
            claims.count > 0 || claims.has_waited
        })
    }

    /// Whether the last hello named a connection.
    pub(super) fn has_asked(&self) -> bool {
        let mut connecting = self.connecting.borrow_mut();
        connecting.as_mut().is_some_and(|connecting| connecting.claims().asked.is_some())
    }

    /// The peer has opened a connection, or is opening one: requests confirmation of the candidates, or waits for it once.
    pub(super) fn look_for_peers_own(self: &Rc<Self>, shared: &Shared, siblings: &[Rc<Conn>]) {
        let has_claimants = siblings.iter().any(|conn| conn.claims_to_be(self.peer));
        let has_to_wait = {
            let mut connecting = self.connecting.borrow_mut();
            let Some(connecting) = connecting.as_mut() else { return };
            let claims = connecting.claims();
            let has_to_wait = !has_claimants && claims.count == 0 && !claims.has_waited;
            claims.has_waited |= has_to_wait;
            claims.waits = has_to_wait;
            has_to_wait
        };
        if has_to_wait { self.pause(shared, PEERS_TURN) } else { self.attempt(shared) }
    }

    /// A connection was accepted that the peer claims as its own.
    pub(crate) fn on_claimant(self: &Rc<Self>, shared: &Shared) {
        let waits = match self.connecting.borrow_mut().as_mut() {
            Some(connecting) => std::mem::take(&mut connecting.claims().waits),
            None => false,
        };
        if waits {
            self.attempt(shared);
        }
    }

    /// The peer has confirmed that the connection that was named is its own: its socket takes the place of this one's. Returns that
    /// connection.
    pub(super) fn take_claimed(self: &Rc<Self>, shared: &Shared, siblings: &[Rc<Conn>]) -> Option<Rc<Conn>> {
        self.close_socket(shared);
        let asked = self.connecting.borrow_mut().as_mut().and_then(|connecting| connecting.claims().asked);
        let other = siblings.iter().find(|conn| Some(conn.id) == asked && conn.claims_to_be(self.peer));
        let Some(other) = other else {
            // It has ended meanwhile.
            self.attempt(shared);
            return None;
        };
        self.take_over(shared, other).then(|| Rc::clone(other))
    }

    /// Takes the socket of another connection, which no endpoint uses, and what was begun over it; false if that fails.
    fn take_over(self: &Rc<Self>, shared: &Shared, other: &Rc<Conn>) -> bool {
        other.acknowledge(shared);
        other.unblock(shared);
        let Some(socket) = other.socket.take() else {
            self.attempt(shared);
            return false;
        };
        other.fd.set(-1);
        shared.remove_socket(&socket);
        if shared.add_socket(self.id, &socket, Events::READ).is_err() {
            self.fail(shared, Error::NO_MEMORY, "the socket cannot be added to the event set");
            return false;
        }
        self.adopt(socket);
        self.take_queue(other);
        self.take_received(shared, other);
        self.peer_use.set(other.peer_use.get());
        self.opened_by.set(OpenedBy::Peer);
        other.state.set(State::Closed(Error::CANCELED));
        shared.note_taken_over(other.id, self.id);
        true
    }

    /// Goes on with what was taken over from another connection.
    pub(crate) fn go_on(self: &Rc<Self>, shared: &Shared, other: &Conn) {
        self.features.set(other.features.get());
        self.stand(shared);
        if !self.is_held() {
            self.parse(shared);
        }
    }

    /// Whether this side opened the connection that a peer names, and still uses it.
    pub(crate) fn is_claimed(&self, peer: u64, claim: &Claim) -> bool {
        if !self.is_own_to(peer) || !is_same(self.token, claim.token) {
            return false;
        }
        let socket = self.socket.borrow();
        let ends = socket.as_ref().and_then(ends);
        ends.is_some_and(|(own, there)| is_same_end(own, claim.source) && is_same_end(there, claim.listener))
    }

    /// Whether this side opened it, to the interface that has this id.
    fn is_own_to(&self, peer: u64) -> bool {
        self.opened_by.get() == OpenedBy::Own && self.peer == peer && self.is_open_to_endpoints()
    }

    /// Whether the peer, which connects too, is to use this connection instead. Of two that are being established it is the one of the
    /// interface with the smaller id.
    pub(crate) fn is_instead(&self, own: u64, peer: u64) -> bool {
        self.is_own_to(peer) && (self.state.get() == State::Established || own < peer && self.is_attempting())
    }
}

/// This side's end of a socket, and the peer's.
fn ends(socket: &Socket) -> Option<(SocketAddr, SocketAddr)> {
    Some((socket.local_addr().ok()?.as_socket()?, socket.peer_addr().ok()?.as_socket()?))
}

fn is_same_end(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}
