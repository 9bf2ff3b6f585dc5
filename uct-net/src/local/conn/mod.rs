//! One connection as the engine sees it: messages to be sent, messages that have arrived, and the tasks that wait.
//!
//! Handlers of messages run inside the transports. They queue and wake, and send nothing: what they find to send makes the
//! connection due, and [`Conn::pump`] sends it after the transports have returned.

pub(crate) mod delivery;
mod end;
mod into;
mod kept;
mod large;
mod moves;
mod offer;
mod operations;
mod receive;
mod report;
mod room;
mod send;
mod spans;
mod staging;
mod state;
mod wakers;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "tls")]
use std::task::Waker;

use self::delivery::Sink;
pub(crate) use self::large::Large;
pub(crate) use self::moves::{MAX_NOTICE, Moves, Part};
pub(crate) use self::operations::Entry;
use self::operations::Operations;
pub(crate) use self::room::RoomPlace;
use self::room::RoomQueue;
pub(crate) use self::spans::Spans;
use self::state::State;
pub(crate) use self::state::Ticket;
use super::accepted::Place;
use super::agenda::Agenda;
use super::lane::Lane;
use super::message::KeptCount;
use crate::error::Error;
use crate::proto::envelope::{Envelope, Token};
use crate::proto::window::SendWindow;

/// Of the connection that was begun last in this process.
static NUMBER: AtomicU64 = AtomicU64::new(0);

pub(crate) struct Conn {
    agenda: Rc<Agenda>,
    token: Token,
    /// Counts the connections of the process.
    number: u64,
    peer: String,
    peer_pid: Cell<Option<u32>>,
    max_message: usize,
    kept: KeptCount,
    large: Large,
    lane: OnceCell<Lane>,
    is_due: Cell<bool>,
    waits_for_room: Cell<bool>,
    /// A stream waits for the transport's room as well.
    is_awaited: Cell<bool>,
    /// Operations that wait for it.
    room: RefCell<RoomQueue>,
    /// Transfers under way, the next one to go on first.
    moves: RefCell<VecDeque<Rc<Moves>>>,
    /// Operations on remote memory under way.
    operations: Rc<Operations>,
    /// Its spans, from the end of the handshake to the first failure.
    spans: RefCell<Option<Spans>>,
    /// Among those that callers have opened.
    place: RefCell<Option<Rc<Place>>>,
    /// The net has forgotten it; woken then is what moves the bytes of its lane.
    #[cfg(feature = "tls")]
    is_forgotten: Cell<bool>,
    #[cfg(feature = "tls")]
    pump: OnceCell<Waker>,
    /// Takes what arrives, in place of the queue.
    sink: OnceCell<Rc<dyn Sink>>,
    /// The envelope of a fragment that the sink takes while it arrives.
    arriving: Cell<Option<Envelope>>,
    /// The sink waits for credit and room, for a message of this length.
    blocked: Cell<Option<usize>>,
    has_told_end: Cell<bool>,
    /// Why the lane fails, if that is known before the transport notices.
    broken_lane: OnceCell<Error>,
    state: RefCell<State>,
}

impl Conn {
    /// A connection without a lane, of a window and a longest message.
    pub(crate) fn new(
        (window, max_message): (u32, usize),
        agenda: Rc<Agenda>,
        kept: KeptCount,
        large: Large,
        token: Token,
        peer: String,
    ) -> Rc<Conn> {
        let state = RefCell::new(State::new(window, large.worker.buffers()));
        Rc::new(Conn {
            agenda,
            token,
            // SYNC: only the number counts.
            number: NUMBER.fetch_add(1, Ordering::Relaxed) + 1,
            peer,
            peer_pid: Cell::new(None),
            max_message,
            kept,
            large,
            lane: OnceCell::new(),
            is_due: Cell::new(false),
            waits_for_room: Cell::new(false),
            is_awaited: Cell::new(false),
            room: RefCell::default(),
            moves: RefCell::default(),
            operations: Rc::default(),
            spans: RefCell::new(None),
            place: RefCell::new(None),
            #[cfg(feature = "tls")]
            is_forgotten: Cell::new(false),
            #[cfg(feature = "tls")]
            pump: OnceCell::new(),
            sink: OnceCell::new(),
            arriving: Cell::new(None),
            blocked: Cell::new(None),
            has_told_end: Cell::new(false),
            broken_lane: OnceCell::new(),
            state,
        })
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// The system has named the process at the other end.
    pub(crate) fn set_peer_pid(&self, pid: Option<u32>) {
        self.peer_pid.set(pid);
    }

    /// An operation on remote memory does not end at once.
    pub(crate) fn begin_operation(&self) -> Entry {
        self.operations.begin()
    }

    pub(crate) fn lane(&self) -> Option<&Lane> {
        self.lane.get()
    }

    /// The lane to the peer is open; the peer takes `window` bytes unread.
    pub(crate) fn open(&self, lane: Lane, window: u32) {
        self.state.borrow_mut().send = SendWindow::new(window);
        let _ = self.lane.set(lane);
        // The peer's first message may have come before.
        self.become_due();
    }

    /// It counts among those that callers have opened.
    pub(crate) fn take_place(&self, place: Rc<Place>) {
        self.place.replace(Some(place));
    }

    /// It does not count any more.
    pub(crate) fn give_up_place(&self) {
        drop(self.place.take());
    }

    /// The net has no entry for it any more. It counts for as long as a lane inside TLS needs to end.
    pub(crate) fn forget(&self) {
        self.give_up_place();
        #[cfg(feature = "tls")]
        {
            self.is_forgotten.set(true);
            if let Some(pump) = self.pump.get() {
                pump.wake_by_ref();
            }
        }
    }

    /// Whether [`Conn::forget`] was called.
    #[cfg(feature = "tls")]
    pub(crate) fn is_forgotten(&self) -> bool {
        self.is_forgotten.get()
    }

    /// Its lane's bytes are moved by what this wakes.
    #[cfg(feature = "tls")]
    pub(crate) fn set_pump(&self, pump: Waker) {
        let _ = self.pump.set(pump);
    }

    /// Its place among those that callers have opened, if it has one.
    #[cfg(feature = "tls")]
    pub(crate) fn place(&self) -> Option<Rc<Place>> {
        self.place.borrow().clone()
    }

    /// Has the engine call [`Conn::pump_due`] after the transports have returned.
    fn become_due(&self) {
        if !self.is_due.replace(true) {
            self.agenda.add(self.token);
        }
    }

    /// Sends what it became due for.
    pub(crate) fn pump_due(self: &Rc<Conn>) {
        self.is_due.set(false);
        self.pump();
        self.pump_moves();
        if !self.waits_for_room.get() && self.is_awaited.take() {
            let writers = self.state.borrow_mut().writers.take();
            writers.wake();
        }
        self.wake_for_room();
        self.serve_sink();
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("peer", &self.peer).finish_non_exhaustive()
    }
}
