//! The beginning and the end of a connection.
//!
//! Built on `table` and `connection`; the interface and its endpoints call it.

use super::answer::{Answer, Reply};
use super::connection::{ConnectionId, Failure, Handles, Opening, Phase};
use super::control::{Handshake, Invitation, Reason, read_connect};
use super::origin::{Origin, Pairing};
use super::table::{Event, Table};
use super::time::Time;

/// Why a connection could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError<E> {
    /// There are as many as there may be.
    #[error("this interface has its {0} connections already: close some, or raise the limit")]
    Full(u32),
    /// The path could not be made.
    #[error(transparent)]
    Path(E),
}

impl<T: Handles> Table<T> {
    /// Makes an owned connection to the interface of this `identity`, whose datagrams come from `origin`: one that is served already, or a new one that
    /// [`Event::Connected`] or [`Event::Failed`] will name. `resolve` makes the path if it is needed.
    ///
    /// # Errors
    /// [`ConnectError`]; nothing has changed then.
    pub fn connect<E>(
        &mut self,
        now: Time,
        identity: u64,
        origin: Origin,
        resolve: impl FnOnce() -> Result<T::Path, E>,
    ) -> Result<ConnectionId, ConnectError<E>> {
        let ordinal = self.ordinals.get(&(identity, origin)).copied().unwrap_or(0);
        let pairing = Pairing { identity, origin, ordinal };
        let id = match self.adoptable(pairing) {
            Some(id) => id,
            None => {
                let path = resolve().map_err(ConnectError::Path)?;
                let id = self.allocate(now, true).ok_or(ConnectError::Full(self.settings.connections_max))?;
                self.request(now, id, pairing, path);
                id
            }
        };
        self.connections[id.index()].is_owned = true;
        self.ordinals.insert((identity, origin), ordinal.wrapping_add(1));
        Ok(id)
    }

    /// The connection that the peer has made for the same purpose, if it is there.
    fn adoptable(&self, pairing: Pairing) -> Option<ConnectionId> {
        let id = *self.pairings.get(&pairing)?;
        let connection = &self.connections[id.index()];
        let is_closing = connection.finish_received || connection.finish_sent || connection.due.finish;
        (connection.is_connected() && !connection.is_owned && !is_closing).then_some(id)
    }

    fn request(&mut self, now: Time, id: ConnectionId, pairing: Pairing, path: T::Path) {
        let connection = &mut self.connections[id.index()];
        connection.phase = Phase::Connecting;
        connection.opening = Some(Box::new(Opening { pairing, cookie: 0 }));
        connection.origin = pairing.origin;
        connection.path = Some(path);
        connection.due.connect = true;
        connection.waiting_since = now;
        let deadline = now.plus(connection.spread(connection.first_wait()));
        connection.deadlines.retransmit = deadline;
        self.pairings.insert(pairing, id);
        self.schedule(id, deadline);
        self.schedule_output(id);
    }

    /// Makes an owned connection whose peer [`Table::connect_to`] names later.
    ///
    /// # Errors
    /// [`ConnectError::Full`].
    pub fn create(&mut self, now: Time) -> Result<ConnectionId, ConnectError<std::convert::Infallible>> {
        self.allocate(now, true).ok_or(ConnectError::Full(self.settings.connections_max))
    }

    /// Sets the peer of a connection made by [`Table::create`], from the peer's address.
    ///
    /// # Errors
    /// The path, if the connection is not waiting for a peer.
    pub fn connect_to(
        &mut self,
        now: Time,
        id: ConnectionId,
        peer: Invitation,
        origin: Origin,
        path: T::Path,
    ) -> Result<(), T::Path> {
        let connection = &mut self.connections[id.index()];
        if connection.phase != Phase::Unconnected {
            return Err(path);
        }
        connection.origin = origin;
        connection.path = Some(path);
        self.establish(now, id, peer);
        Ok(())
    }

    /// Closes the user's side: what has been sent is still delivered, the peer may go on sending. In the end
    /// [`Event::Over`] requests the removal.
    pub fn close(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        if !std::mem::take(&mut connection.is_owned) {
            return;
        }
        let wait = match connection.phase {
            Phase::Connecting | Phase::Connected => {
                connection.due.finish = true;
                self.timing.close
            }
            Phase::Unconnected => {
                connection.phase = Phase::Aborted;
                0
            }
            Phase::Finished | Phase::Failed(_) | Phase::Aborted => self.timing.linger,
        };
        let deadline = now.plus(wait);
        connection.deadlines.end = deadline;
        self.schedule(id, deadline);
        self.schedule_output(id);
    }

    /// Cuts a connection off: what is outstanding is abandoned, the peer is notified once. An owned connection stays
    /// until [`Table::close`].
    pub fn abort(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        if connection.is_over() {
            return;
        }
        connection.due.reset = connection.is_connected();
        self.end(now, id, Phase::Aborted);
    }

    /// Cuts a connection off because of what the peer sent; the user is notified as of any failure, the peer gets the reason.
    pub fn refuse(&mut self, now: Time, id: ConnectionId, reason: Reason) {
        let connection = &mut self.connections[id.index()];
        if connection.is_over() {
            return;
        }
        connection.due.reset = connection.is_connected();
        connection.reset_reason = reason;
        let failure = if reason == Reason::ACCESS { Failure::AccessForbidden } else { Failure::Malformed };
        self.fail(now, id, failure);
    }

    /// Fails every connection, because nothing can be sent or received any more.
    pub fn break_all(&mut self, now: Time) {
        for id in self.ids().collect::<Vec<_>>() {
            self.fail(now, id, Failure::Broken);
        }
    }

    /// Cuts every connection off. The interface sends what [`Table::poll_transmit`] then returns, and is gone.
    pub fn shutdown(&mut self, now: Time) {
        for id in self.ids().collect::<Vec<_>>() {
            self.abort(now, id);
        }
    }

    /// Takes over the peer's key and address: messages may be sent.
    pub(super) fn establish(&mut self, now: Time, id: ConnectionId, peer: Invitation) {
        let connection = &mut self.connections[id.index()];
        let is_requested = connection.is_owned;
        connection.establish(now, peer, &self.settings);
        connection.due.ack |= connection.receiver.needs_ack();
        if is_requested {
            self.events.push_back(Event::Connected(id));
        }
        self.schedule_output(id);
    }

    /// Takes the body of a CONNECT in; returns the connection that it concerns, if it is not answered without one, or
    /// `None` if it is discarded. Until it carries the cookie that was sent to its origin, nothing here changes for it
    /// but one of a limited number of responses.
    pub(super) fn take_connect(
        &mut self,
        now: Time,
        origin: &Origin,
        body: &[u8],
        resolve: impl FnOnce(&[u8]) -> Option<T::Path>,
    ) -> Option<Option<ConnectionId>> {
        let connect = read_connect(body)?;
        if T::origin(connect.address)? != *origin {
            return None;
        }
        let pairing = Pairing { identity: connect.identity, origin: *origin, ordinal: connect.ordinal };
        let invitation = match connect.handshake {
            Handshake::Same(invitation) => invitation,
            Handshake::OtherVersion { key } => {
                let path = resolve(connect.address)?;
                self.answer(Answer { path, to: key, reply: Reply::Reject });
                return Some(None);
            }
        };
        let known = self.pairings.get(&pairing).copied();
        if let Some(id) = known {
            let connection = &mut self.connections[id.index()];
            if invitation.key.is_in(connection.to) && connection.phase != Phase::Connecting {
                // It has not received the acceptance, or this is a late copy from an earlier connection.
                connection.due.accept = connection.is_connected();
                self.schedule_output(id);
                return Some(Some(id));
            }
        }
        if !self.secret.is_cookie(now, &pairing, invitation.key, connect.cookie) {
            let path = resolve(connect.address)?;
            let cookie = self.secret.cookie(now, &pairing, invitation.key);
            self.answer(Answer { path, to: invitation.key, reply: Reply::Challenge(cookie) });
            self.counters.challenges += 1;
            return Some(None);
        }
        if let Some(id) = known {
            let connection = &mut self.connections[id.index()];
            match connection.phase {
                // Both have sent a request.
                Phase::Connecting => {
                    connection.due.accept = true;
                    self.establish(now, id, invitation);
                    return Some(Some(id));
                }
                Phase::Connected if connection.is_owned || !connection.finish_sent => return None,
                // This one is ending: the peer has begun anew.
                _ => {}
            }
        }
        if !self.admits(origin) {
            return None;
        }
        let path = resolve(connect.address)?;
        let id = self.allocate(now, false)?;
        self.count_peer(origin);
        let connection = &mut self.connections[id.index()];
        connection.is_peers = true;
        connection.origin = *origin;
        connection.opening = Some(Box::new(Opening { pairing, cookie: 0 }));
        connection.path = Some(path);
        connection.due.accept = true;
        self.pairings.insert(pairing, id);
        self.establish(now, id, invitation);
        self.expect_life(now, id);
        Some(Some(id))
    }

    /// The peer has to use the connection that it has requested within the time to give up. It is not probed at once: it is
    /// likely to send something, and if it has not received the acceptance, it repeats its request.
    fn expect_life(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        connection.waiting_since = now;
        connection.is_expected = true;
        let deadline = now.plus(self.timing.give_up / 2);
        connection.deadlines.retransmit = deadline;
        self.schedule(id, deadline);
    }

    /// The request is to be repeated with this cookie.
    pub(super) fn take_challenge(&mut self, now: Time, id: ConnectionId, cookie: u64) {
        let connection = &mut self.connections[id.index()];
        let Some(opening) = &mut connection.opening else { return };
        if opening.cookie == cookie {
            return;
        }
        opening.cookie = cookie;
        connection.due.connect = true;
        // Half of the way is done, and the peer has just had room for a request.
        connection.attempts = 0;
        // A peer that has a new challenge each time is no more than one that is silent.
        let silent_since = connection.last_received.max(connection.waiting_since).max(self.awake_since);
        let wait = connection.spread(connection.first_wait());
        let deadline = now.plus(wait).min(silent_since.plus(self.timing.give_up));
        connection.deadlines.retransmit = deadline;
        self.schedule(id, deadline);
        self.schedule_output(id);
    }

    /// The peer's user has closed its endpoint.
    pub(super) fn note_finish(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        connection.finish_received = true;
        let now = connection.last_received;
        self.finish_if_acknowledged(now, id);
        self.schedule_output(id);
    }

    /// Checks how far the exchange of FINISH has come.
    pub(super) fn finish_if_acknowledged(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        if connection.is_finished() {
            connection.receiver.require_ack();
            connection.due.ack = true;
            self.end(now, id, Phase::Finished);
        } else if connection.finish_sent && connection.sender.outstanding() == 0 {
            // The peer's user goes on: this side serves it.
            connection.deadlines.end = Time::NEVER;
        }
    }

    /// The peer is lost.
    pub(super) fn fail(&mut self, now: Time, id: ConnectionId, failure: Failure) {
        if self.connections[id.index()].is_over() {
            return;
        }
        self.counters.failures += 1;
        if self.connections[id.index()].is_owned {
            self.events.push_back(Event::Failed(id, failure));
        }
        self.end(now, id, Phase::Failed(failure));
    }

    /// Ends a connection: it lingers until the user has closed it, and a while longer.
    pub(super) fn end(&mut self, now: Time, id: ConnectionId, phase: Phase) {
        let connection = &mut self.connections[id.index()];
        connection.phase = phase;
        connection.is_probing = false;
        connection.sender.close();
        let deadline = if connection.is_owned { Time::NEVER } else { now.plus(self.timing.linger) };
        connection.deadlines =
            super::connection::Deadlines { end: deadline, ..super::connection::Deadlines::NONE };
        self.schedule(id, deadline);
        self.schedule_output(id);
    }
}
