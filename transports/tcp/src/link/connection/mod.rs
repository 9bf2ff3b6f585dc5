//! A connection: one socket between two interfaces, which all endpoints between them share.
//!
//! Built on a non-blocking socket and on what it shares with its siblings. `connect` and `life` establish and end it, `identity` finds
//! out whose it is, `send` and `receive` move frames, `frames` treats those that are no active messages, `acknowledge` tells the peer
//! that they were; `part` is what frames are put together from.

mod acknowledge;
mod connect;
mod frames;
mod identity;
mod life;
pub(crate) mod part;
mod queue;
mod receive;
mod send;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::rc::{Rc, Weak};

use socket2::Socket;
use ucs::Error;
use ucs::clock::Deadline;
use ucs::event_set::Events;
use uct_plugin::rma::{Initiator, Limits, Target};
use uct_plugin::{Completion, PendingQueue};

use crate::io::buffer::RxBuffer;
use crate::link::conn_id::ConnId;
use crate::link::member::Member;
use crate::link::shared::{GET_SEGMENT, Shared};
use crate::proto::addr::IfaceAddress;
use crate::proto::wire::FEATURE_RMA;
use acknowledge::Manner;
use connect::Connecting;
use queue::Queue;
use receive::Rest;
use ucs::admission::Source;

/// Bytes of gets that a connection may have outstanding.
const GET_BYTES: usize = 1 << 20;
/// Operations on remote memory that a connection may have outstanding; consecutive ones without a completion count once.
const OPERATIONS: usize = 4096;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Being established.
    Connecting,
    /// Messages pass.
    Established,
    /// Ended; every operation returns the error.
    Closed(Error),
}

/// Whether one side has endpoints on the connection. It goes forward only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// It never had.
    Never,
    /// It has.
    Using,
    /// It had, and will have none any more.
    Over,
}

/// Who opened the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenedBy {
    /// This side.
    Own,
    Peer,
    /// The application handed it over, for one endpoint of each side.
    Application,
}

/// A connection. It belongs to the interface, which hands what its connections share to every call.
pub(crate) struct Conn {
    // What a send touches.
    fd: Cell<RawFd>,
    /// Established with an empty queue: a message may be sent directly.
    ready: Cell<bool>,
    /// The progress during which something was last sent: more messages wait for each other until the next.
    sent_epoch: Cell<u32>,
    /// Where the next message is appended, and how many bytes fit there.
    tail: Cell<*mut u8>,
    tail_left: Cell<usize>,
    queue: RefCell<Queue>,
    /// The application packs a message into a buffer of this connection.
    packing: Cell<bool>,
    /// The socket is full; the event set reports when it has room.
    blocked: Cell<bool>,
    /// It is in the agenda's list of connections to be flushed.
    dirty: Cell<bool>,
    /// A send has failed: what has arrived is still delivered, then the connection fails.
    broken: Cell<Option<Error>>,

    // What a receive touches.
    rx: Cell<Option<RxBuffer>>,
    rx_start: Cell<usize>,
    rx_end: Cell<usize>,
    /// A large frame whose rest is received straight to where it belongs.
    rest: RefCell<Rest>,
    /// Why frames are not just read from the socket (`receive::hold`).
    hold: Cell<u8>,
    /// Something has arrived since the last look.
    heard: Cell<bool>,

    // Operations on remote memory.
    pub(crate) initiator: Initiator,
    target: Target,
    /// How what the target has carried out is acknowledged, and the progress during which that was last done at once.
    manner: Cell<Manner>,
    acknowledged_epoch: Cell<u32>,
    /// Flushes that wait until what was queued ahead of them has left.
    flushes: RefCell<Vec<(u32, Completion)>>,
    /// Requests of its endpoints that wait for room.
    pub(crate) pending: PendingQueue,
    /// It is in the agenda's list of connections whose requests are to be served.
    is_pending: Cell<bool>,

    // Its life.
    id: ConnId,
    state: Cell<State>,
    socket: RefCell<Option<Socket>>,
    /// The peer's interface: of a connection that this side opened the one whose address it was given, else the one that the peer
    /// says to be.
    pub(crate) peer: u64,
    /// The address that endpoints were created to, if any were.
    destination: Option<Rc<IfaceAddress>>,
    opened_by: Cell<OpenedBy>,
    /// Random, chosen by the side that opened the socket, and sent over it alone.
    token: u64,
    /// The source of the peer, once the connection is established.
    source: Cell<Source>,
    /// Its number among those of the interface: later ones have higher numbers.
    number: u32,
    /// Feature bits of the peer, those that this side knows.
    features: Cell<u8>,
    connecting: RefCell<Option<Box<Connecting>>>,
    members: RefCell<Vec<Weak<Member>>>,
    own_use: Cell<Use>,
    peer_use: Cell<Use>,
    /// The peer was notified that this side uses the connection.
    use_told: Cell<bool>,
    /// When a connection that is done with is closed without its peer's help.
    linger: Cell<Deadline>,
    /// Requests of the peer for remote memory that were refused.
    refused: Cell<u16>,
    /// Checks of a peer that has not answered.
    silent: Cell<u32>,
    probing: Cell<bool>,
}

impl Conn {
    pub(crate) fn new(
        id: ConnId,
        number: u32,
        peer: u64,
        token: u64,
        destination: Option<Rc<IfaceAddress>>,
    ) -> Conn {
        Conn {
            fd: Cell::new(-1),
            ready: Cell::new(false),
            sent_epoch: Cell::new(0),
            tail: Cell::new(ptr::null_mut()),
            tail_left: Cell::new(0),
            queue: RefCell::default(),
            packing: Cell::new(false),
            blocked: Cell::new(false),
            dirty: Cell::new(false),
            broken: Cell::new(None),
            rx: Cell::new(None),
            rx_start: Cell::new(0),
            rx_end: Cell::new(0),
            rest: RefCell::new(Rest::None),
            hold: Cell::new(0),
            heard: Cell::new(false),
            initiator: Initiator::new(Limits {
                operations: OPERATIONS,
                get_segment: GET_SEGMENT,
                get_bytes: GET_BYTES,
            }),
            target: Target::default(),
            manner: Cell::new(Manner::AtOnce),
            acknowledged_epoch: Cell::new(0),
            flushes: RefCell::default(),
            pending: PendingQueue::default(),
            is_pending: Cell::new(false),
            id,
            state: Cell::new(State::Connecting),
            socket: RefCell::default(),
            peer,
            opened_by: Cell::new(if destination.is_some() { OpenedBy::Own } else { OpenedBy::Peer }),
            destination,
            token,
            source: Cell::new(Source::UNKNOWN),
            number,
            features: Cell::new(0),
            connecting: RefCell::default(),
            members: RefCell::default(),
            own_use: Cell::new(Use::Never),
            peer_use: Cell::new(Use::Never),
            use_told: Cell::new(false),
            linger: Cell::new(Deadline::NEVER),
            refused: Cell::new(0),
            silent: Cell::new(0),
            probing: Cell::new(false),
        }
    }

    /// Its number in the interface.
    pub(crate) fn id(&self) -> ConnId {
        self.id
    }

    /// What its peer shares limits with.
    pub(crate) fn source(&self) -> Source {
        self.source.get()
    }

    /// The address that endpoints were created to, if any were.
    pub(crate) fn destination(&self) -> Option<&IfaceAddress> {
        self.destination.as_deref()
    }

    /// How far it is.
    #[inline(always)]
    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    /// The error that every operation returns, if none can be started: that of an ended connection. A connection that can no longer
    /// send ends as soon as progress has delivered its received messages and has failed its endpoints. Until then it has no room.
    #[inline]
    pub(crate) fn error(&self) -> Option<Error> {
        match self.state.get() {
            State::Closed(error) => Some(error),
            _ => self.broken.get().map(|_| Error::NO_RESOURCE),
        }
    }

    /// Whether something waits to be sent.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    /// Whether the peer's interface serves put, get and atomics; only meaningful once the connection is established.
    pub(crate) fn serves_rma(&self) -> bool {
        self.has_feature(FEATURE_RMA)
    }

    fn has_feature(&self, feature: u64) -> bool {
        u64::from(self.features.get()) & feature != 0
    }

    /// The socket; only while the connection is established.
    #[inline(always)]
    fn fd(&self) -> BorrowedFd<'_> {
        debug_assert!(self.fd.get() >= 0);
        // SAFETY: `adopt` set the number with the socket, and `close_socket` takes both back; callers hold no borrow beyond a
        // system call.
        unsafe { BorrowedFd::borrow_raw(self.fd.get()) }
    }

    /// Changes what the event set watches the socket for, if there is one.
    fn watch(&self, shared: &Shared, events: Events) {
        if let Some(socket) = self.socket.borrow().as_ref() {
            shared.watch(self.id, socket, events);
        }
    }

    fn adopt(&self, socket: Socket) {
        self.fd.set(socket.as_raw_fd());
        *self.socket.borrow_mut() = Some(socket);
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn")
            .field("peer", &format_args!("{:016x}", self.peer))
            .field("state", &self.state.get())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod size {
    use super::*;

    #[test]
    fn an_idle_connection_costs_less_than_a_kilobyte() {
        assert!(size_of::<Conn>() <= 768, "{} bytes", size_of::<Conn>());
    }
}
