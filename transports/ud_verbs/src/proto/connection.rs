//! One connection: both halves, its state, its deadlines, and what it has to send.
//!
//! Built on `sender` and `receiver`; the [table](super::table) owns the connections and calls them.

use super::control::{Invitation, Reason};
use super::header::{self, Header, Key, kind};
use super::origin::{Origin, Pairing};
use super::psn::Psn;
use super::receiver::Receiver;
use super::sender::Sender;
use super::settings::Settings;
use super::time::Time;
use super::wheel::Wheel;

/// The transport's handles that a table keeps.
pub trait Handles {
    /// A packet that has been sent and may have to be sent again; small, a pointer or an index.
    type Send;
    /// A packet that has been received and waits for one ahead of it; small as well.
    type Receive;
    /// How to reach a peer: an address handle and its queue pair's number.
    type Path;

    /// The origin that datagrams of an interface with this packed address have; `None` if it is none.
    fn origin(address: &[u8]) -> Option<Origin>;
}

/// Names a connection of a table, from its creation to [`Table::remove`](super::Table::remove).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(super) u32);

impl ConnectionId {
    /// The number of the connection, dense from 0.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// In the list of output: a response to a request that has no connection.
    pub(super) const ANSWER: ConnectionId = ConnectionId(u32::MAX);
}

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer did not respond for the time to give up.
    #[error("the peer has not responded in time: its process, its port or the network is down")]
    Silent,
    /// The peer reports that the connection is gone.
    #[error("the peer has closed its interface or this connection")]
    Reset,
    /// The peer refused an access to its memory.
    #[error(
        "the peer refused an access to its memory: the key is wrong or stale, or the range is outside of it"
    )]
    AccessRefused,
    /// The peer requested memory that it may not access.
    #[error("the peer requested memory that it may not access: the connection was closed")]
    AccessForbidden,
    /// This side cannot send or receive any more.
    #[error("the queue pair or the device of this interface has failed")]
    Broken,
    /// One side did not understand the other.
    #[error("a malformed message was received: the connection was closed")]
    Malformed,
    /// The peer refused the connection because of its wire version (major, minor).
    #[error(
        "the peer has wire version {0}.{1}, this side {major}.{minor}: use the same release on both sides",
        major = super::control::WIRE_VERSION.0, minor = super::control::WIRE_VERSION.1
    )]
    OtherVersion(u8, u8),
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Created to be connected to an endpoint that is not named yet.
    Unconnected,
    /// A request was sent to the peer's interface.
    Connecting,
    /// Messages may be sent.
    Connected,
    /// Both sides have sent FINISH.
    Finished,
    /// The peer is lost or the connection was given up.
    Failed(Failure),
    /// This side has cut it off.
    Aborted,
}

/// The control packets that a connection has to send; several may be due.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Due {
    pub(super) connect: bool,
    pub(super) accept: bool,
    pub(super) reset: bool,
    pub(super) ping: bool,
    pub(super) ack: bool,
    pub(super) finish: bool,
}

/// The points in time at which a connection has something to do; [`Time::NEVER`] where it has nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// A response is overdue: send again.
    pub(super) retransmit: Time,
    /// An acknowledgement has waited long enough.
    pub(super) ack: Time,
    /// Packets may turn out lost.
    pub(super) loss: Time,
    /// The end of closing, or of lingering.
    pub(super) end: Time,
}

impl Deadlines {
    pub(super) const NONE: Deadlines =
        Deadlines { retransmit: Time::NEVER, ack: Time::NEVER, loss: Time::NEVER, end: Time::NEVER };

    pub(super) fn earliest(&self) -> Time {
        self.retransmit.min(self.ack).min(self.loss).min(self.end)
    }
}

/// How a connection with an interface was requested.
pub(super) struct Opening {
    pub(super) pairing: Pairing,
    /// The last that the peer has requested, or 0.
    pub(super) cookie: u64,
}

pub(super) struct Connection<T: Handles> {
    pub(super) key: Key,
    /// Datagrams from elsewhere are ignored, once it is known; [`Origin::NONE`] until then.
    pub(super) origin: Origin,
    /// The first word of headers to the peer, kind and flags being zero: its key and this side's window. Meaningless until
    /// connected.
    pub(super) to: u64,
    pub(super) sender: Sender<T::Send>,
    pub(super) receiver: Receiver<T::Receive>,
    pub(super) last_received: Time,
    /// Since when a response is awaited, while one is.
    pub(super) waiting_since: Time,
    pub(super) deadlines: Deadlines,
    /// For when the table's wheel has it: no deadline is earlier. One that moves back leaves it where it is.
    pub(super) examined_at: Time,
    /// Time to the next retransmission, in nanoseconds, without back-off.
    pub(super) timeout: u64,
    /// Retransmissions in a row that nothing came of.
    pub(super) attempts: u8,
    pub(super) phase: Phase,
    pub(super) due: Due,
    /// The reason in a RESET.
    pub(super) reset_reason: Reason,
    /// An endpoint of this side's user uses it.
    pub(super) is_owned: bool,
    /// A response to a PING is awaited.
    pub(super) is_probing: bool,
    /// The peer, which has made the connection, has acknowledged nothing on it yet.
    pub(super) is_expected: bool,
    pub(super) finish_sent: bool,
    pub(super) finish_received: bool,
    /// It is in the table's queue of connections with something to send.
    pub(super) is_queued: bool,
    /// The period in which `Pacing` has counted it last.
    pub(super) counted: u8,
    /// A peer has made it: it counts among those of its port.
    pub(super) is_peers: bool,
    pub(super) opening: Option<Box<Opening>>,
    pub(super) path: Option<T::Path>,
}

impl<T: Handles> Connection<T> {
    pub(super) fn new(
        key: Key,
        first_psn: Psn,
        settings: &Settings,
        timeout: u64,
        is_owned: bool,
    ) -> Connection<T> {
        Connection {
            key,
            origin: Origin::NONE,
            to: 0,
            sender: Sender::new(settings),
            receiver: Receiver::new(first_psn, settings.window_max),
            last_received: Time::default(),
            waiting_since: Time::default(),
            deadlines: Deadlines::NONE,
            examined_at: Time::NEVER,
            timeout,
            attempts: 0,
            phase: Phase::Unconnected,
            due: Due::default(),
            reset_reason: Reason::GONE,
            is_owned,
            is_probing: false,
            is_expected: false,
            finish_sent: false,
            finish_received: false,
            is_queued: false,
            counted: 0,
            is_peers: false,
            opening: None,
            path: None,
        }
    }

    /// Whether a datagram with this connection's key may come from there. Before the peer is known, any sender with the key is accepted.
    #[inline]
    pub(super) fn accepts_from(&self, origin: &Origin) -> bool {
        self.origin == *origin || self.phase == Phase::Unconnected
    }

    /// The peer is known: messages may be sent.
    pub(super) fn establish(&mut self, now: Time, peer: Invitation, settings: &Settings) {
        self.to = peer.key.word();
        self.sender.open(peer, settings);
        self.advertise_window();
        self.phase = Phase::Connected;
        self.last_received = now;
        self.due.connect = false;
        self.attempts = 0;
        self.deadlines.retransmit = Time::NEVER;
    }

    /// Writes the window to headers from now on.
    #[inline]
    pub(super) fn advertise_window(&mut self) {
        self.to = header::with_window(self.to, self.sender.window());
    }

    #[inline]
    pub(super) fn is_connected(&self) -> bool {
        matches!(self.phase, Phase::Connected)
    }

    /// Whether the connection only responds to late packets any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Finished | Phase::Failed(_) | Phase::Aborted)
    }

    /// Whether a response of the peer is awaited.
    pub(super) fn is_waiting(&self) -> bool {
        self.phase == Phase::Connecting || self.sender.outstanding() != 0 || self.is_probing
    }

    /// A header from here to the peer, with the acknowledgement of what has arrived.
    #[inline]
    pub(super) fn header(&self, kind: u8, flags: u8) -> Header {
        Header::new(self.to, kind, flags, self.sender.next(), self.receiver.next())
    }

    /// Whether a header's sequence numbers are such as this connection's peer has: both within what is in flight. A sender that
    /// has only the key has to guess them.
    pub(super) fn is_in_step(&self, header: Header) -> bool {
        self.receiver.may_be_next_of_peer(header.psn()) && self.sender.is_ack_in_range(header.ack())
    }

    /// Whether FINISH should be sent now.
    pub(super) fn should_finish(&self) -> bool {
        self.is_connected()
            && !self.is_owned
            && !self.finish_sent
            && (self.due.finish || self.finish_received)
    }

    /// Whether both FINISH have arrived.
    pub(super) fn is_finished(&self) -> bool {
        self.is_connected() && self.finish_sent && self.finish_received && self.sender.outstanding() == 0
    }

    /// Whether there is something that [`Table::poll_transmit`](super::Table::poll_transmit) would send.
    pub(super) fn has_output(&self) -> bool {
        let due = &self.due;
        match self.phase {
            Phase::Unconnected => false,
            Phase::Connecting => due.connect,
            Phase::Connected => {
                due.accept
                    || due.ping
                    || self.should_ack()
                    || self.should_finish()
                    || self.sender.may_resend()
            }
            Phase::Finished => self.should_ack(),
            Phase::Failed(_) | Phase::Aborted => due.reset,
        }
    }

    /// Whether an acknowledgement is due that nothing sent meanwhile has carried.
    pub(super) fn should_ack(&self) -> bool {
        self.due.ack && self.receiver.needs_ack()
    }

    /// Time to the first retransmission, in nanoseconds. A request is repeated after half the time: when many peers connect at once, most
    /// requests are lost because the receiver has no buffer, and it is idle if they are repeated late.
    pub(super) fn first_wait(&self) -> u64 {
        if self.phase == Phase::Connecting { self.timeout / 2 } else { self.timeout }
    }

    /// A time between half of `wait` and all of it: connections that wait for the same thing do not all go on at the same time.
    pub(super) fn spread(&self, wait: u64) -> u64 {
        let salt = self.key.word() ^ u64::from(self.sender.next().0) << 8 ^ u64::from(self.attempts);
        let fraction = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        let half = wait / 2;
        half + (half >> 16) * fraction
    }

    /// Has the timer examine it at `deadline`, unless it will earlier. A deadline that moves back, which most do with every message, costs no
    /// more than this comparison.
    #[inline]
    pub(super) fn examine_by(&mut self, wheel: &mut Wheel, id: ConnectionId, deadline: Time) {
        if deadline < self.examined_at {
            self.examine_at(wheel, id, deadline);
        }
    }

    /// Has the timer examine it then and not earlier.
    #[inline(never)]
    pub(super) fn examine_at(&mut self, wheel: &mut Wheel, id: ConnectionId, deadline: Time) {
        self.examined_at = deadline;
        wheel.set(id.0, deadline);
    }

    /// There is progress: what is still awaited is overdue a timeout from now.
    #[inline]
    pub(super) fn restart_retransmission(&mut self, wheel: &mut Wheel, id: ConnectionId, now: Time) {
        self.attempts = 0;
        self.is_expected = false;
        self.deadlines.retransmit = if self.is_waiting() { now.plus(self.timeout) } else { Time::NEVER };
        self.examine_by(wheel, id, self.deadlines.retransmit);
    }
}

/// Whether a packet of this kind is the transport's own.
pub(super) fn is_message(kind: u8) -> bool {
    kind < kind::MESSAGE_END
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::core::UdHandles;

    #[test]
    fn a_connection_is_no_bigger_than_documented() {
        let bytes = size_of::<Connection<UdHandles>>();
        assert!(bytes <= 336, "{bytes} bytes");
    }
}
