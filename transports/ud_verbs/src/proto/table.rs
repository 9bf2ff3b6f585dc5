//! All connections of an interface, and the sending side of their data path.
//!
//! Built on `connection`; [receiving](super::receive), [connecting](super::connect), [timers](super::timer) and
//! [output](super::output) are further methods of the same table. The interface is built on it.

use std::collections::{HashMap, VecDeque};

use super::answer::Answer;
use super::backlog::Backlog;
use super::connection::{Connection, ConnectionId, Failure, Handles, Opening, Phase};
use super::control::Invitation;
use super::header::{HEADER_SIZE, Key, flag};
use super::keepalive::Keepalive;
use super::origin::{Origin, Pairing};
use super::pacing::Pacing;
use super::psn::Psn;
use super::secret::Secret;
use super::settings::{SettingError, Settings};
use super::time::{Time, nanos};
use super::wheel::Wheel;

/// One in so many connections is reserved for this side's own endpoints.
const OWN_SHARE: u32 = 8;

/// A new peer may fill one in so many of the buffers that are not for the first windows of others.
const FIRST_SHARE: u32 = 16;

/// Something that the interface must know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A requested connection is established: messages may be sent.
    Connected(ConnectionId),
    /// Messages may be sent again, though nothing has arrived.
    Ready(ConnectionId),
    /// An owned connection has failed: fetch what was outstanding with [`Table::pop_abandoned`] and
    /// [`Table::pop_undelivered`], and notify the user, once.
    Failed(ConnectionId, Failure),
    /// A connection without an owner is over: fetch what is left as for `Failed`, then [`Table::remove`] it.
    Over(ConnectionId),
}

/// What has happened since the table was made; all wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent again.
    pub resent: u64,
    /// Times that no acknowledgement came in time.
    pub timeouts: u64,
    /// Packets that had been received before.
    pub duplicates: u64,
    /// Packets that came before one ahead of them.
    pub reordered: u64,
    /// Packets that were discarded: malformed, for no connection, from elsewhere than its peer, absurd, or too far ahead.
    pub discarded: u64,
    /// Requests for a connection that were answered with a challenge.
    pub challenges: u64,
    /// Acknowledgements sent by themselves.
    pub acknowledgements: u64,
    /// Connections that failed.
    pub failures: u64,
    /// Connections that timers have examined, whether or not anything was due.
    pub examined: u64,
}

/// The settings as numbers of nanoseconds.
pub(super) struct Timing {
    pub(super) initial: u64,
    pub(super) minimum: u64,
    pub(super) maximum: u64,
    pub(super) ack_delay: u64,
    pub(super) give_up: u64,
    pub(super) close: u64,
    pub(super) linger: u64,
}

/// All connections of one interface: the state machine that the module describes.
pub struct Table<T: Handles> {
    pub(super) connections: Vec<Connection<T>>,
    pub(super) settings: Settings,
    pub(super) timing: Timing,
    /// Connections with something to send, in the order in which they came.
    pub(super) output_queue: VecDeque<ConnectionId>,
    /// Connections with a deadline.
    pub(super) wheel: Wheel,
    pub(super) keepalive: Keepalive,
    pub(super) pacing: Pacing,
    pub(super) backlog: Backlog,
    /// When [`Table::handle_timeout`] last had something to do.
    pub(super) checked_at: Time,
    /// Since when this side has been looking at its deadlines in time: a silence counts from here at the earliest.
    pub(super) awake_since: Time,
    pub(super) events: VecDeque<Event>,
    pub(super) counters: Counters,
    /// Packets that wait for one ahead of them, over all connections.
    pub(super) held: u32,
    /// See [`Table::room`].
    pub(super) room: u32,
    /// The sum of the first windows of all connections.
    first_windows: u32,
    pub(super) pairings: HashMap<Pairing, ConnectionId>,
    /// How many connections have been requested, by interface.
    pub(super) ordinals: HashMap<(u64, Origin), u32>,
    /// Connections that peers have made, by port, and all together.
    pub(super) peers_of_port: HashMap<[u8; 16], u32>,
    pub(super) peers: u32,
    /// Returns to requests that have no connection; for each there is [`ConnectionId::ANSWER`] among the output_queue.
    pub(super) answers: VecDeque<Answer<T::Path>>,
    /// The last of them that was sent.
    pub(super) answered: Option<Answer<T::Path>>,
    pub(super) secret: Secret,
    pub(super) identity: u64,
    /// This interface's address, as CONNECT carries it.
    pub(super) address: Box<[u8]>,
    pub(super) scratch: Vec<u8>,
    vacant: Vec<ConnectionId>,
}

/// The next message on a connection that can take one.
pub struct Next<'a, T: Handles> {
    id: ConnectionId,
    connection: &'a mut Connection<T>,
    wheel: &'a mut Wheel,
}

impl<T: Handles> Next<'_, T> {
    /// Its header. `flags` is 0 or [`flag::WAKE`](super::header::flag::WAKE), `kind` below
    /// [`kind::MESSAGE_END`](super::header::kind::MESSAGE_END).
    #[inline]
    pub fn header(&self, kind: u8, flags: u8) -> [u8; HEADER_SIZE] {
        debug_assert!(super::connection::is_message(kind));
        let ack_request = if self.connection.sender.should_request_ack() { flag::ACK_REQUEST } else { 0 };
        self.connection.header(kind, flags | ack_request).to_bytes()
    }

    /// How to reach the peer.
    #[inline]
    pub fn path(&self) -> Option<&T::Path> {
        self.connection.path.as_ref()
    }

    /// Whether nothing is outstanding.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.connection.sender.outstanding() == 0
    }

    /// Takes over the packet that was sent with [`Next::header`], and the same kind and flags.
    #[inline(always)]
    pub fn sent(self, now: Time, kind: u8, flags: u8, packet: T::Send) {
        let was_idle = self.is_first();
        let Next { id, connection, wheel } = self;
        if was_idle {
            connection.waiting_since = now;
            let deadline = now.plus(connection.timeout);
            connection.deadlines.retransmit = deadline;
            connection.examine_by(wheel, id, deadline);
        }
        connection.receiver.acknowledged_by_header();
        connection.deadlines.ack = Time::NEVER;
        connection.sender.sent(now.stamp(), kind, flags, Some(packet));
    }
}

impl<T: Handles> Table<T> {
    /// A table of an interface whose packed address, of up to [`ADDRESS_LIMIT`](super::ADDRESS_LIMIT) bytes, is
    /// `address`.
    ///
    /// # Errors
    /// A setting, or the address's length, that is out of range.
    pub fn new(settings: Settings, address: &[u8]) -> Result<Table<T>, SettingError> {
        let settings = settings.checked()?;
        let timing = Timing {
            initial: nanos(settings.timeout_initial),
            minimum: nanos(settings.timeout_min),
            maximum: nanos(settings.timeout_max),
            ack_delay: nanos(settings.ack_delay),
            give_up: nanos(settings.give_up),
            close: nanos(settings.close_timeout),
            linger: nanos(settings.linger),
        };
        let mut table = Table {
            connections: Vec::new(),
            secret: Secret::new(settings.seed),
            keepalive: Keepalive::new(settings.keepalive.map(nanos)),
            settings,
            timing,
            output_queue: VecDeque::new(),
            wheel: Wheel::new(),
            pacing: Pacing::default(),
            backlog: Backlog::default(),
            checked_at: Time::default(),
            awake_since: Time::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            held: 0,
            room: 0,
            first_windows: 0,
            pairings: HashMap::new(),
            ordinals: HashMap::new(),
            peers_of_port: HashMap::new(),
            peers: 0,
            answers: VecDeque::new(),
            answered: None,
            identity: 0,
            address: Box::default(),
            scratch: Vec::with_capacity(HEADER_SIZE + 64 + super::ADDRESS_LIMIT),
            vacant: Vec::new(),
        };
        table.identity = table.secret.draw();
        table.set_address(address)?;
        Ok(table)
    }

    /// Has requests from now on carry this address of the interface, from whose origin they come: the port's may change.
    ///
    /// # Errors
    /// A length that is out of range.
    pub fn set_address(&mut self, address: &[u8]) -> Result<(), SettingError> {
        if address.len() > super::ADDRESS_LIMIT {
            return Err(SettingError {
                name: "length of the interface's address",
                value: address.len().to_string(),
                expected: "at most 96 bytes",
            });
        }
        self.address = address.into();
        Ok(())
    }

    /// The identity of this interface: part of its address, see [`Table::connect`].
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// What has happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The next event for the interface. To be called after every call that takes a time.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether [`Table::poll_event`] has something.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What is needed to send a message on a connection, or `None` if none can be sent: the window is full, or the
    /// connection is not (any more) connected, which [`Table::phase`] returns.
    #[inline(always)]
    pub fn next(&mut self, id: ConnectionId) -> Option<Next<'_, T>> {
        let connection = self.connections.get_mut(id.index())?;
        if !connection.sender.may_send() {
            return None;
        }
        Some(Next { id, connection, wheel: &mut self.wheel })
    }

    /// Whether a message may be sent: the connection is established and the window has room.
    #[inline]
    pub fn may_send(&self, id: ConnectionId) -> bool {
        self.connections[id.index()].sender.may_send()
    }

    /// The phase of a connection.
    pub fn phase(&self, id: ConnectionId) -> Phase {
        self.connections[id.index()].phase
    }

    /// Messages that the peer has not acknowledged.
    #[inline]
    pub fn outstanding(&self, id: ConnectionId) -> u32 {
        let connection = &self.connections[id.index()];
        let finish = u32::from(connection.finish_sent);
        connection.sender.outstanding().saturating_sub(finish)
    }

    /// The place of the next message among all that are sent on the connection: what was sent so far is acknowledged
    /// when [`Table::has_reached`] returns true for it.
    pub fn mark(&self, id: ConnectionId) -> Psn {
        self.connections[id.index()].sender.next()
    }

    /// Whether the peer has acknowledged all messages ahead of a place that [`Table::mark`] returned.
    pub fn has_reached(&self, id: ConnectionId, mark: Psn) -> bool {
        !self.connections[id.index()].sender.unacknowledged().is_before(mark)
    }

    /// A message that the peer has acknowledged, oldest first. To be called after every [`Table::receive`] and
    /// [`Table::receive_control`] for the connection that they name.
    #[inline]
    pub fn pop_acknowledged(&mut self, id: ConnectionId) -> Option<T::Send> {
        let sender = &mut self.connections[id.index()].sender;
        while sender.has_acknowledged() {
            if let Some(packet) = sender.pop_acknowledged()? {
                return Some(packet);
            }
        }
        None
    }

    /// A message whose fate is unknown, oldest first, when the connection is over.
    pub fn pop_abandoned(&mut self, id: ConnectionId) -> Option<T::Send> {
        let connection = &mut self.connections[id.index()];
        if !connection.is_over() {
            return None;
        }
        while let Some(packet) = connection.sender.abandon() {
            if packet.is_some() {
                return packet;
            }
        }
        None
    }

    /// A packet that waited for one ahead of it, when the connection is over.
    pub fn pop_undelivered(&mut self, id: ConnectionId) -> Option<T::Receive> {
        let connection = &mut self.connections[id.index()];
        if !connection.is_over() {
            return None;
        }
        let packet = connection.receiver.abandon()?;
        self.held -= 1;
        Some(packet)
    }

    /// Requests an acknowledgement of what is outstanding at once; nothing if nothing is.
    pub fn request_ack(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        if connection.is_connected() && connection.sender.outstanding() != 0 {
            connection.due.ping = true;
            self.schedule_output(id);
        }
    }

    /// Probes the peer; if it does not respond in the time to give up, the connection fails.
    pub fn probe(&mut self, now: Time, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        if !connection.is_connected() || connection.is_probing {
            return;
        }
        if !connection.is_waiting() {
            connection.waiting_since = now;
        }
        connection.is_probing = true;
        connection.due.ping = true;
        let deadline = connection.deadlines.retransmit.min(now.plus(connection.timeout));
        connection.deadlines.retransmit = deadline;
        self.schedule(id, deadline);
        self.schedule_output(id);
    }

    /// Whether the response to [`Table::probe`] is awaited.
    pub fn is_probing(&self, id: ConnectionId) -> bool {
        self.connections[id.index()].is_probing
    }

    /// Frees a connection that is [over](Event::Over); returns the path, which nothing uses any more.
    /// A connection that is not over, or is owned, stays.
    pub fn remove(&mut self, id: ConnectionId) -> Option<T::Path> {
        let connection = self.connections.get_mut(id.index())?;
        if !connection.is_over() || connection.is_owned || connection.key == Key::VACANT {
            return None;
        }
        while self.pop_abandoned(id).is_some() {}
        while self.pop_undelivered(id).is_some() {}
        let connection = &mut self.connections[id.index()];
        let mut empty = Connection::new(Key::VACANT, Psn(0), &self.settings, self.timing.initial, false);
        empty.phase = Phase::Aborted;
        empty.is_queued = connection.is_queued;
        self.wheel.set(id.0, Time::NEVER);
        let old = std::mem::replace(connection, empty);
        self.room -= old.receiver.room();
        self.first_windows -= u32::from(old.receiver.first_window());
        if let Some(Opening { pairing, .. }) = old.opening.as_deref()
            && self.pairings.get(pairing) == Some(&id)
        {
            self.pairings.remove(pairing);
        }
        if old.is_peers {
            self.forget_peer(&old.origin);
        }
        self.vacant.push(id);
        old.path
    }

    /// Connections that exist, lingering ones included.
    pub fn len(&self) -> usize {
        self.connections.len() - self.vacant.len()
    }

    /// Packets that peers may have in flight to here before an acknowledgement reaches them: the sum of what each connection needs room for.
    #[inline]
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Whether no connection exists.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every connection that exists, lingering ones included.
    pub fn ids(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        let vacant = |connection: &Connection<T>| connection.key == Key::VACANT;
        let occupied = self.connections.iter().enumerate().filter(move |(_, entry)| !vacant(entry));
        occupied.map(|(index, _)| ConnectionId(index as u32))
    }

    /// A new connection, or `None` if there are as many as there may be.
    pub(super) fn allocate(&mut self, now: Time, is_owned: bool) -> Option<ConnectionId> {
        let random = self.secret.draw();
        let id = match self.vacant.pop() {
            Some(id) => id,
            None if self.connections.len() < self.settings.connections_max as usize => {
                let id = ConnectionId(self.connections.len() as u32);
                self.connections.push(Connection::new(
                    Key::VACANT,
                    Psn(0),
                    &self.settings,
                    self.timing.initial,
                    false,
                ));
                id
            }
            None => return None,
        };
        let key = Key::new(id.0, random);
        let first_psn = self.first_psn(key);
        let old = &mut self.connections[id.index()];
        let is_queued = old.is_queued;
        *old = Connection::new(key, first_psn, &self.settings, self.timing.initial, is_owned);
        old.is_queued = is_queued;
        old.last_received = now;
        self.room += old.receiver.room();
        // A part of what is left, so that some is left for peers to come.
        let left = self.settings.receives.saturating_sub(self.first_windows);
        let first_window = (left / FIRST_SHARE).clamp(1, self.settings.window_initial);
        old.receiver.permit_first(first_window as u16);
        self.first_windows += first_window;
        self.keepalive.grow(now, self.connections.len());
        Some(id)
    }

    /// What a peer must know to send to the connection: part of an endpoint's address.
    pub fn invitation(&self, id: ConnectionId) -> Invitation {
        let Connection { key, receiver, .. } = &self.connections[id.index()];
        Invitation {
            first_window: receiver.first_window(),
            key: *key,
            window: self.settings.window_max as u16,
            first_psn: self.first_psn(*key),
        }
    }

    fn first_psn(&self, key: Key) -> Psn {
        self.settings.first_psn.unwrap_or_else(|| self.secret.first_psn(key))
    }

    /// Puts the connection into the queue of those with something to send.
    pub(super) fn schedule_output(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id.index()];
        if !connection.is_queued {
            connection.is_queued = true;
            self.output_queue.push_back(id);
        }
    }

    /// Has the timer serve the connection at `deadline`, which it has set.
    #[inline]
    pub(super) fn schedule(&mut self, id: ConnectionId, deadline: Time) {
        self.connections[id.index()].examine_by(&mut self.wheel, id, deadline);
    }

    /// Whether a peer behind this port may make one more connection.
    pub(super) fn admits(&self, origin: &Origin) -> bool {
        let most = self.settings.connections_max;
        let of_port = self.peers_of_port.get(&origin.port).copied().unwrap_or(0);
        self.peers < most - most / OWN_SHARE && of_port < self.settings.connections_per_port
    }

    /// Counts a connection that a peer has made.
    pub(super) fn count_peer(&mut self, origin: &Origin) {
        self.peers += 1;
        *self.peers_of_port.entry(origin.port).or_default() += 1;
    }

    fn forget_peer(&mut self, origin: &Origin) {
        self.peers -= 1;
        if let Some(count) = self.peers_of_port.get_mut(&origin.port) {
            *count -= 1;
            if *count == 0 {
                self.peers_of_port.remove(&origin.port);
            }
        }
    }
}
