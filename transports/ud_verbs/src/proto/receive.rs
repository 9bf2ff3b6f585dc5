//! What arrives: in-order messages, and everything else.
//!
//! Built on `table` and `connection`; the interface calls it with every datagram.

use super::connection::{Connection, ConnectionId, Failure, Handles, Phase, is_message};
use super::control::{
    Ack, Handshake, Reason, read_ack, read_challenge, read_handshake, read_ping, read_reject, read_reset,
};
use super::header::{HEADER_SIZE, Header, kind};
use super::origin::Origin;
use super::receiver::Place;
use super::table::Table;
use super::time::Time;

/// What became of a sequenced packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<R> {
    /// The next message: to be delivered now, and after it what [`Table::pop_ready`] returns.
    Deliver(ConnectionId, R),
    /// It is for this connection, but waits for a packet ahead of it.
    Held(ConnectionId),
    /// Nothing is to be delivered, the buffer is free. The connection, if there is one, may have news.
    Discard(Option<ConnectionId>, R, Discard),
}

/// Why a packet is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// No connection with its origin has its key: late, stray, or garbage.
    Unknown,
    /// It has been received before.
    Duplicate,
    /// It is too far ahead, or too many wait already.
    TooFarAhead,
    /// It acknowledges what was never sent.
    Bogus,
    /// The connection is over.
    Over,
    /// It was for the protocol itself.
    Consumed,
}

impl<T: Handles> Table<T> {
    /// Takes a sequenced packet in (see [`Header::is_sequenced`]); `packet` is the buffer that it is in.
    #[inline]
    pub fn receive(
        &mut self,
        now: Time,
        origin: &Origin,
        header: Header,
        packet: T::Receive,
    ) -> Received<T::Receive> {
        let Some((id, connection)) = find_from(&mut self.connections, origin, header) else {
            self.counters.discarded += 1;
            return Received::Discard(None, packet, Discard::Unknown);
        };
        if !connection.is_connected() {
            return self.receive_unconnected(now, id, header, packet);
        }
        if header.ack() != connection.sender.unacknowledged() && !self.acknowledge(now, id, header, None) {
            self.counters.discarded += 1;
            return Received::Discard(Some(id), packet, Discard::Bogus);
        }
        self.receive_sequenced(now, id, header, packet)
    }

    /// As [`Table::receive`], for the next message of a connection that is as it should be, which most packets are: it is
    /// to be delivered, and nothing waited for it. The rest goes to [`Table::complete_plain`]: at once, or after the reply to the
    /// message if it `has_news` of what this side has sent. `None` for any other packet, which is to be received otherwise,
    /// and for one whose acknowledgement `cannot_wait`, called with the packet that has been outstanding longest.
    #[inline(always)]
    pub fn receive_plain(
        &mut self,
        origin: &Origin,
        header: Header,
        cannot_wait: impl FnOnce(&T::Send) -> bool,
    ) -> Option<(ConnectionId, bool)> {
        let (id, connection) = find_from(&mut self.connections, origin, header)?;
        let is_plain = connection.is_connected()
            && is_message(header.kind())
            && connection.receiver.is_plain_next(header.psn());
        if !is_plain {
            return None;
        }
        let sender = &connection.sender;
        let has_news = header.ack() != sender.unacknowledged();
        if has_news
            && !(sender.is_ack_in_range(header.ack()) && sender.oldest().is_some_and(|it| !cannot_wait(it)))
        {
            return None;
        }
        connection.receiver.take_next();
        Some((id, has_news))
    }

    /// Does what [`Table::receive_plain`] has left of a packet: the peer is alive, is to be acknowledged, and acknowledges.
    #[inline]
    pub fn complete_plain(&mut self, now: Time, header: Header) {
        let Some((id, connection)) = find(&mut self.connections, header) else { return };
        if !connection.is_connected() {
            return;
        }
        let has_news = header.ack() != connection.sender.unacknowledged();
        self.on_in_order(now, id, header);
        if has_news {
            // It was in range when it arrived; acknowledgements that were handled since may have overtaken it.
            let _ = self.acknowledge(now, id, header, None);
        }
    }

    #[inline]
    fn receive_sequenced(
        &mut self,
        now: Time,
        id: ConnectionId,
        header: Header,
        packet: T::Receive,
    ) -> Received<T::Receive> {
        let connection = &mut self.connections[id.index()];
        if connection.receiver.is_plain_next(header.psn()) && header.kind() != kind::FINISH {
            connection.receiver.take_next();
            self.on_in_order(now, id, header);
            return Received::Deliver(id, packet);
        }
        connection.last_received = now;
        self.receive_unusual(id, header, packet)
    }

    /// Schedules the acknowledgement of an in-order packet, unless a packet that was sent since carries it.
    #[inline]
    fn on_in_order(&mut self, now: Time, id: ConnectionId, header: Header) {
        let connection = &mut self.connections[id.index()];
        connection.last_received = now;
        self.room += connection.receiver.on_window(header.window());
        let unacknowledged = connection.receiver.unacknowledged();
        if unacknowledged == 0 {
            return;
        }
        if header.requests_ack() || unacknowledged >= self.settings.ack_every {
            connection.due.ack = true;
            self.schedule_output(id);
        } else if connection.deadlines.ack == Time::NEVER {
            let deadline = now.plus(self.timing.ack_delay);
            connection.deadlines.ack = deadline;
            self.schedule(id, deadline);
        }
    }

    /// FINISH, or a packet that is not simply the next.
    #[cold]
    fn receive_unusual(
        &mut self,
        id: ConnectionId,
        header: Header,
        packet: T::Receive,
    ) -> Received<T::Receive> {
        let connection = &mut self.connections[id.index()];
        self.room += connection.receiver.on_window(header.window());
        connection.due.ack = true;
        let received = match connection.receiver.place(header.psn()) {
            Place::Next => {
                connection.receiver.take_next_before_held();
                if header.kind() == kind::FINISH {
                    self.note_finish(id);
                    Received::Discard(Some(id), packet, Discard::Consumed)
                } else {
                    Received::Deliver(id, packet)
                }
            }
            Place::Ahead(ahead) if self.held < self.settings.held_max => {
                connection.receiver.hold(ahead, header.kind(), packet);
                self.held += 1;
                self.counters.reordered += 1;
                Received::Held(id)
            }
            Place::Duplicate => {
                self.counters.duplicates += 1;
                Received::Discard(Some(id), packet, Discard::Duplicate)
            }
            Place::Ahead(_) | Place::Beyond => {
                self.counters.discarded += 1;
                Received::Discard(Some(id), packet, Discard::TooFarAhead)
            }
        };
        self.schedule_output(id);
        received
    }

    /// A message that waited for one which has been delivered: what it is and where. To be called after every
    /// [`Received::Deliver`] until there is none, also after a [`Discard::Consumed`].
    pub fn pop_ready(&mut self, id: ConnectionId) -> Option<Ready<T::Receive>> {
        let connection = &mut self.connections[id.index()];
        if connection.is_over() {
            return None;
        }
        let (kind, packet) = connection.receiver.pop_held()?;
        self.held -= 1;
        connection.due.ack = true;
        self.schedule_output(id);
        if kind == kind::FINISH {
            self.note_finish(id);
            return Some(Ready::Free(packet));
        }
        Some(Ready::Deliver(packet))
    }

    /// The peer may send before this side has its address.
    #[cold]
    fn receive_unconnected(
        &mut self,
        now: Time,
        id: ConnectionId,
        header: Header,
        packet: T::Receive,
    ) -> Received<T::Receive> {
        let connection = &mut self.connections[id.index()];
        match connection.phase {
            Phase::Unconnected | Phase::Connecting => self.receive_sequenced(now, id, header, packet),
            Phase::Connected | Phase::Finished => {
                self.repeat_ack(now, id);
                Received::Discard(Some(id), packet, Discard::Over)
            }
            Phase::Failed(_) | Phase::Aborted => {
                connection.due.reset = connection.path.is_some() && connection.to != 0;
                self.schedule_output(id);
                Received::Discard(Some(id), packet, Discard::Over)
            }
        }
    }

    /// The peer has not received the last acknowledgement: it may take more than one.
    fn repeat_ack(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        connection.receiver.require_ack();
        connection.due.ack = true;
        if !connection.is_owned {
            connection.deadlines.end = now.plus(self.timing.linger);
        }
        self.schedule_output(id);
    }

    /// Handles what a packet's header acknowledges; returns whether that is in range.
    pub(super) fn acknowledge(
        &mut self,
        now: Time,
        id: ConnectionId,
        header: Header,
        delay: Option<u64>,
    ) -> bool {
        let connection = &mut self.connections[id.index()];
        let window = connection.sender.window();
        let Ok(count) = connection.sender.on_ack(now.stamp(), header.ack(), delay) else {
            return false;
        };
        if count == 0 {
            return true;
        }
        self.adapt(id);
        let connection = &mut self.connections[id.index()];
        if connection.sender.window() != window {
            connection.advertise_window();
        }
        connection.restart_retransmission(&mut self.wheel, id, now);
        if connection.sender.is_disturbed() {
            self.detect_losses(now, id);
        }
        if self.connections[id.index()].sender.should_pause() {
            self.pause(now, id);
        }
        if self.connections[id.index()].finish_sent {
            self.finish_if_acknowledged(now, id);
        }
        true
    }

    /// Nothing is to be sent for a while.
    #[cold]
    fn pause(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        let gap = connection.sender.pause();
        let gap = connection.spread(gap);
        let deadline = connection.deadlines.retransmit.min(now.plus(gap));
        connection.deadlines.retransmit = deadline;
        self.schedule(id, deadline);
    }

    /// Finds lost packets, and schedules their retransmission.
    pub(super) fn detect_losses(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        let again = connection.sender.detect_losses(now.stamp());
        connection.deadlines.loss = again.map_or(Time::NEVER, |rest| now.plus(rest));
        let deadline = connection.deadlines.loss;
        let resends = connection.sender.may_resend();
        self.schedule(id, deadline);
        if resends {
            self.schedule_output(id);
        }
    }

    /// Takes in what a sequenced packet acknowledges, and lets its sender know that this side lives. The packet itself
    /// is to be received later, in the order in which it came: nothing acknowledges it before. For times in which no
    /// message can be delivered.
    pub fn receive_later(&mut self, now: Time, origin: &Origin, header: Header) -> Option<ConnectionId> {
        let (id, connection) = find_from(&mut self.connections, origin, header)?;
        if !connection.is_connected() || !self.acknowledge(now, id, header, None) {
            return None;
        }
        let connection = &mut self.connections[id.index()];
        connection.last_received = now;
        connection.receiver.require_ack();
        connection.due.ack = true;
        self.schedule_output(id);
        Some(id)
    }

    /// Takes a control packet in, header and all; returns the connection that may have news.
    /// `resolve` makes a path of an interface's packed address that came with a CONNECT, and is that of its origin.
    pub fn receive_control(
        &mut self,
        now: Time,
        origin: &Origin,
        packet: &[u8],
        resolve: impl FnOnce(&[u8]) -> Option<T::Path>,
    ) -> Option<ConnectionId> {
        let body = packet.get(HEADER_SIZE..).unwrap_or(&[]);
        let taken = match Header::read(packet) {
            Some(header) if header.kind() == kind::CONNECT => self.take_connect(now, origin, body, resolve),
            Some(header) => self.take_control(now, origin, header, body).map(Some),
            None => None,
        };
        if taken.is_none() {
            self.counters.discarded += 1;
        }
        taken.flatten()
    }

    fn take_control(
        &mut self,
        now: Time,
        origin: &Origin,
        header: Header,
        body: &[u8],
    ) -> Option<ConnectionId> {
        let (id, connection) = find_from(&mut self.connections, origin, header)?;
        match (header.kind(), connection.phase) {
            (kind::CHALLENGE, Phase::Connecting) => self.take_challenge(now, id, read_challenge(body)?),
            (kind::ACCEPT, Phase::Connecting) => {
                let Handshake::Same(invitation) = read_handshake(body)? else { return None };
                self.establish(now, id, invitation);
            }
            (kind::REJECT, Phase::Connecting) => {
                let ((major, minor), _) = read_reject(body)?;
                self.fail(now, id, Failure::OtherVersion(major, minor));
            }
            (kind::ACK, Phase::Connected) => {
                let contents = read_ack(body)?;
                if connection.sender.is_contradiction(header.ack(), &contents) {
                    self.refuse(now, id, Reason::MALFORMED);
                    return Some(id);
                }
                connection.sender.set_pace(contents.pace);
                if !self.acknowledge(now, id, header, Some(contents.delay)) {
                    return None;
                }
                self.take_gaps(now, id, header, &contents)?;
                self.mark_alive(now, id);
            }
            (kind::PING, Phase::Connected) => {
                if !self.acknowledge(now, id, header, None) {
                    return None;
                }
                let connection = &mut self.connections[id.index()];
                connection.receiver.pinged(read_ping(body)?);
                connection.due.ack = true;
                self.schedule_output(id);
                self.mark_alive(now, id);
            }
            (kind::PING, Phase::Finished) => {
                connection.receiver.pinged(read_ping(body)?);
                self.repeat_ack(now, id);
            }
            (kind::PING, Phase::Failed(_) | Phase::Aborted) => {
                connection.due.reset = connection.path.is_some() && connection.to != 0;
                self.schedule_output(id);
            }
            (kind::RESET, Phase::Connected) => {
                if !connection.is_in_step(header) {
                    return None;
                }
                let failure = match read_reset(body)? {
                    Reason::ACCESS => Failure::AccessRefused,
                    Reason::MALFORMED => Failure::Malformed,
                    _ => Failure::Reset,
                };
                self.fail(now, id, failure);
            }
            // A repeated PING gets a second response; a late one contains nothing new.
            (kind::ACCEPT..=kind::CHALLENGE, _) => {}
            _ => return None,
        }
        Some(id)
    }

    /// Handles the contents of an ACK beyond its header; `None` if they contradict what was sent.
    fn take_gaps(&mut self, now: Time, id: ConnectionId, header: Header, contents: &Ack) -> Option<()> {
        let connection = &mut self.connections[id.index()];
        let news = connection.sender.on_gaps(now.stamp(), header.ack(), contents).ok()?;
        self.adapt(id);
        let connection = &mut self.connections[id.index()];
        if news.arrived {
            connection.restart_retransmission(&mut self.wheel, id, now);
        }
        if news.arrived || news.echoed {
            self.detect_losses(now, id);
        }
        Some(())
    }

    /// Has the timeout follow the round trip.
    #[inline]
    fn adapt(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        if connection.sender.round_trip.take_change()
            && let Some(timeout) = connection.sender.round_trip.timeout(self.timing.ack_delay)
        {
            connection.timeout = timeout.clamp(self.timing.minimum, self.timing.maximum);
        }
    }

    /// The peer is alive.
    fn mark_alive(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        connection.last_received = now;
        if connection.is_probing {
            connection.is_probing = false;
            connection.due.ping = false;
            connection.sender.resume();
            connection.restart_retransmission(&mut self.wheel, id, now);
        }
    }
}

/// What [`Table::pop_ready`] returns.
#[derive(Debug, PartialEq, Eq)]
pub enum Ready<R> {
    /// A message to be delivered.
    Deliver(R),
    /// A packet that was for the protocol itself: the buffer is free.
    Free(R),
}

/// The connection that a packet is for, if it comes from there.
#[inline(always)]
fn find_from<'a, T: Handles>(
    connections: &'a mut [Connection<T>],
    origin: &Origin,
    header: Header,
) -> Option<(ConnectionId, &'a mut Connection<T>)> {
    let (id, connection) = find(connections, header)?;
    connection.accepts_from(origin).then_some((id, connection))
}

/// The connection that a packet names.
#[inline]
fn find<T: Handles>(
    connections: &mut [Connection<T>],
    header: Header,
) -> Option<(ConnectionId, &mut Connection<T>)> {
    let index = header.key().index();
    let connection = connections.get_mut(index)?;
    (connection.key == header.key()).then_some((ConnectionId(index as u32), connection))
}
