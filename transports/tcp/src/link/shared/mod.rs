//! What the connections of an interface share: scratch memory, buffers, limits, the handlers, the event set, and what they leave to
//! progress.
//!
//! Built on `Agenda`, `Timers`, `Places` and `Announced`. It knows connections by their numbers only.

mod room;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;
use ucs::Error;
use ucs::admission::Places;
use ucs::event_set::{EventSet, Events};
use ucs::log::Limited;
use ucs::sys::SystemError;
use ucs::units::Time;
use uct_plugin::memory::{Access, Accessor, Allocation, Regions};
use uct_plugin::rma::{REQUEST_HEADER, RESPONSE_HEADER, Request, Target};
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{AmHandlers, AmPlacer, Completion, Disposition, Failure, Result};

use super::agenda::{Agenda, RequestProgress};
use super::announced::Announced;
use super::conn_id::ConnId;
use super::timers::Timers;
use crate::io::buffer::{RxBuffer, RxPool, TxBuffer, TxPool};
use crate::io::socket::Options;
use crate::proto::fill::MAX_FILL;
use crate::proto::wire::{
    FEATURE_FILL, FEATURE_RMA, FRAME_HEADER, Hello, HelloKind, PADDING, control, padded,
};

/// Numbers of the interface's own descriptors in the event set; connections have higher ones.
pub(crate) const LISTENERS: u64 = 1;
pub(crate) const TIMER: u64 = 8;

/// Largest header of a zero-copy message.
pub(crate) const MAX_HEADER: usize = 256;
/// Bytes of one response to a get.
pub(crate) const GET_SEGMENT: usize = 256 << 10;
/// Bytes ahead of the data of the largest short or bcopy operation.
const HEADS: usize = 64;
/// Messages from this length on may be received where the application likes them: for shorter ones a second system call takes longer than the copy.
pub(crate) const PLACED_FROM: usize = 48 << 10;
/// Where the scratch memory begins in its page: data that begin a page are copied behind a head there, and many processors do so slowly
/// if the place is a few bytes ahead within a page (`proto::fill`).
const SCRATCH_OFFSET: usize = 64;
const _: () = assert!(HEADS >= FRAME_HEADER + uct_plugin::rma::MAX_REQUEST + PADDING);

/// The configuration of connections.
pub(crate) struct Settings {
    pub(crate) seg_size: usize,
    pub(crate) rx_seg_size: usize,
    pub(crate) tx_buf_size: usize,
    pub(crate) tx_queue_size: usize,
    pub(crate) answer_queue_size: usize,
    pub(crate) max_message: usize,
    pub(crate) max_announced: usize,
    pub(crate) max_announced_per_source: usize,
    pub(crate) max_connections: u32,
    pub(crate) max_connections_per_source: u32,
    pub(crate) max_conn_retries: u32,
    pub(crate) max_refused: u32,
    pub(crate) connect_timeout: Duration,
    pub(crate) linger_timeout: Duration,
    pub(crate) keepalive_interval: Time,
    pub(crate) keepalive_timeout: Time,
    pub(crate) socket: Options,
}

/// What the connections of an interface share.
pub(crate) struct Shared {
    // What the data path touches.
    epoch: Cell<u32>,
    pub(crate) agenda: Agenda,
    /// Where the next message is put together that goes straight to a socket: the first half of `_halves`, and the second one while
    /// a message is packed in the first.
    scratch: Cell<*mut u8>,
    scratch_size: usize,
    am: AmHandlers,
    placer: Option<AmPlacer>,
    headroom: usize,
    rx_pool: RxPool,
    /// The buffer that the next receive goes to.
    rx: Cell<Option<RxBuffer>>,
    /// Where messages are copied that had no room for their headroom.
    copies: Cell<Option<RxBuffer>>,
    tx_pool: TxPool,
    /// Connections whose sockets have no room.
    blocked: Cell<i32>,
    seg_size: usize,
    max_message: usize,
    long_message: usize,
    queue_limit: usize,
    answer_limit: usize,

    /// The id of the interface, its name.
    id: u64,
    regions: Arc<Regions>,
    /// Counts accesses to registered memory.
    accessor: Accessor,
    errors: ErrorHandler,
    settings: Box<Settings>,
    events: EventSet,
    pub(crate) timers: Timers,
    /// The connections that peers opened, and those of this side that no endpoint uses any more, which are left to their peers.
    accepted: RefCell<Box<Places<ConnId>>>,
    /// Room for large messages that arrive.
    announced: RefCell<Box<Announced>>,
    owners: Cell<u32>,
    /// What `scratch` points to.
    _halves: Allocation,
    last_failure: RefCell<String>,
    failed: Cell<u64>,
}

impl Shared {
    /// For the interface of this id; what it receives may be kept with so many writable bytes ahead.
    pub(crate) fn new(
        id: u64,
        settings: Settings,
        regions: Arc<Regions>,
        (am, placer): (AmHandlers, Option<AmPlacer>),
        errors: ErrorHandler,
        headroom: usize,
        progress: RequestProgress,
    ) -> Result<Shared, Failure> {
        let system = |error: SystemError| Failure::new(Error::from(&error), error.to_string());
        let events = EventSet::new().map_err(system)?;
        let timers = Timers::new(settings.keepalive_interval, settings.keepalive_timeout).map_err(system)?;
        events.add(timers.descriptor(), Events::READ, TIMER).map_err(system)?;
        let rx_size = settings.rx_seg_size.next_power_of_two();
        if headroom > rx_size / 4 {
            return Err(Failure::new(
                Error::INVALID_PARAM,
                format!("a headroom of {headroom} bytes is too large for rx_seg_size {rx_size}"),
            ));
        }
        let seg_size = settings.seg_size;
        let max_message = settings.max_message.max(seg_size);
        let scratch_size = padded(seg_size + HEADS + MAX_HEADER);
        let halves = Allocation::new(SCRATCH_OFFSET + 2 * scratch_size)?;
        let queue_limit = settings.tx_queue_size.max(scratch_size);
        let accepted =
            Places::new(room::limits(settings.max_connections, settings.max_connections_per_source));
        let announced =
            Announced::new(settings.max_announced, settings.max_announced_per_source, max_message);
        Ok(Shared {
            epoch: Cell::new(1),
            agenda: Agenda::new(progress),
            scratch: Cell::new(halves.address().as_ptr().wrapping_add(SCRATCH_OFFSET)),
            scratch_size,
            am,
            placer,
            headroom,
            rx_pool: RxPool::new(rx_size, headroom),
            rx: Cell::new(None),
            copies: Cell::new(None),
            tx_pool: TxPool::new(settings.tx_buf_size.max(scratch_size)),
            blocked: Cell::new(0),
            seg_size,
            max_message,
            long_message: PLACED_FROM.min(max_message + 1),
            queue_limit,
            answer_limit: queue_limit + settings.answer_queue_size,
            id,
            regions,
            accessor: Accessor::default(),
            errors,
            settings: Box::new(settings),
            events,
            timers,
            accepted: RefCell::new(Box::new(accepted)),
            announced: RefCell::new(Box::new(announced)),
            owners: Cell::new(0),
            _halves: halves,
            last_failure: RefCell::default(),
            failed: Cell::new(0),
        })
    }

    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    #[inline]
    pub(crate) fn next_epoch(&self) {
        self.epoch.set(self.epoch.get().wrapping_add(1));
    }

    /// Runs `pack`, which writes a message to the scratch memory or to a connection's buffer.
    #[inline]
    pub(crate) fn while_packing<T>(&self, pack: impl FnOnce() -> T) -> T {
        let first = self.scratch();
        self.scratch.set(first.wrapping_add(self.scratch_size));
        self.agenda.begin_packing();
        let answer = pack();
        self.agenda.end_packing();
        self.scratch.set(first);
        answer
    }

    /// Where a message is put together that goes straight to a socket.
    #[inline]
    pub(crate) fn scratch(&self) -> *mut u8 {
        self.scratch.get()
    }

    pub(crate) fn scratch_size(&self) -> usize {
        self.scratch_size
    }

    #[inline]
    pub(crate) fn am(&self) -> &AmHandlers {
        &self.am
    }

    /// What takes messages of this id and length where the application likes them.
    pub(crate) fn placer(&self, id: u8, length: usize) -> Option<AmPlacer> {
        self.placer.filter(|placer| length >= PLACED_FROM && placer.takes(id))
    }

    /// Messages from this length on are looked at.
    #[inline]
    pub(crate) fn long_message(&self) -> usize {
        self.long_message
    }

    #[inline]
    pub(crate) fn headroom(&self) -> usize {
        self.headroom
    }

    #[inline]
    pub(crate) fn rx_pool(&self) -> &RxPool {
        &self.rx_pool
    }

    /// The buffer for the next receive.
    #[inline]
    pub(crate) fn take_rx(&self) -> Result<RxBuffer> {
        match self.rx.take() {
            Some(buffer) => {
                if buffer.is_sole() {
                    self.rx_pool.reset(buffer);
                }
                Ok(buffer)
            }
            None => self.rx_pool.get(),
        }
    }

    /// Takes it back. What was kept in it stays, so it is used on behind that as long as there is room.
    #[inline]
    pub(crate) fn give_rx(&self, buffer: RxBuffer) {
        let has_room = buffer.is_sole() || buffer.size() - buffer.fill() >= buffer.size() / 2;
        if has_room && let Some(other) = self.rx.replace(Some(buffer)) {
            self.rx_pool.release(other);
        } else if !has_room {
            self.rx_pool.release(buffer);
        }
    }

    /// Delivers a copy, which has the headroom that the original lacks.
    #[cold]
    pub(crate) fn deliver_copy(&self, id: u8, message: &[u8]) {
        let needed = self.headroom + message.len() + PADDING;
        let buffer = match self.copies.take() {
            Some(buffer) if buffer.size() - buffer.fill() >= needed => Ok(buffer),
            Some(buffer) if buffer.is_sole() && needed <= self.rx_pool.capacity() => {
                self.rx_pool.reset(buffer);
                Ok(buffer)
            }
            other => {
                if let Some(full) = other {
                    self.rx_pool.release(full);
                }
                if needed <= self.rx_pool.capacity() {
                    self.rx_pool.get()
                } else {
                    self.rx_pool.get_large(needed)
                }
            }
        };
        let Ok(buffer) = buffer else {
            static LINES: Limited = Limited::new(Limited::LINES_A_SECOND);
            if let Some(left_out) = LINES.admit() {
                let length = message.len();
                ucs::log::error!("no memory for a received message of {length} bytes: it is lost{left_out}");
            }
            return;
        };
        let place = padded(buffer.fill() + self.headroom);
        buffer.set_fill((place + message.len()).next_multiple_of(16).min(buffer.size()));
        // SAFETY: the buffer has room for headroom and message, and nothing else writes there.
        unsafe { buffer.at(place).copy_from_nonoverlapping(message.as_ptr(), message.len()) };
        buffer.retain();
        let is_shared = buffer.size() == self.rx_pool.capacity() + self.rx_pool.start();
        if is_shared && let Some(other) = self.copies.replace(Some(buffer)) {
            self.rx_pool.release(other);
        }
        // SAFETY: the message was just written, and the buffer lives until it is released.
        if unsafe { self.am.deliver_desc(id, buffer.at(place), message.len()) } == Disposition::Consumed {
            self.rx_pool.release(buffer);
        }
        if !is_shared {
            self.rx_pool.release(buffer);
        }
    }

    pub(crate) fn tx_buffer(&self) -> Result<TxBuffer> {
        self.tx_pool.get()
    }

    /// Queued bytes from which on a system call is worth it.
    pub(crate) fn collected_bytes(&self) -> usize {
        self.settings.tx_buf_size
    }

    /// Lets a connection take what it has sent off its queue.
    pub(crate) fn sent(&self, advance: impl FnOnce(&TxPool, &mut VecDeque<Completion>)) {
        self.agenda.collect_ended(|ended| advance(&self.tx_pool, ended));
    }

    pub(crate) fn queue_limit(&self) -> usize {
        self.queue_limit
    }

    /// Bytes that may be queued before a peer that makes this side queue more is not read from.
    pub(crate) fn answer_limit(&self) -> usize {
        self.answer_limit
    }

    /// Largest payload of an active message.
    pub(crate) fn max_message(&self) -> usize {
        self.max_message
    }

    /// Largest payload of a short or bcopy message, its header included.
    #[inline]
    pub(crate) fn seg_size(&self) -> usize {
        self.seg_size
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    pub(crate) fn accessor(&self) -> &Accessor {
        &self.accessor
    }

    /// Begins the access of a put whose data are on the way.
    pub(crate) fn admit_put(&self, request: &Request) -> Result<Access<'_>> {
        Target::admit_put(&self.regions, &self.accessor, request)
    }

    /// Whether a frame may be so long; the refusal is the reason.
    pub(crate) fn check_length(&self, kind: u8, length: usize) -> Result<(), &'static str> {
        let limit = match kind {
            control::REQUEST => self.max_message + REQUEST_HEADER,
            control::RESPONSE => GET_SEGMENT + RESPONSE_HEADER,
            _ if usize::from(kind) < uct_plugin::abi::UCT_AM_IDS => self.max_message,
            control::FILL => MAX_FILL,
            _ => 0,
        };
        if length > limit { Err("a frame is longer than the peers agreed on") } else { Ok(()) }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn errors(&self) -> &ErrorHandler {
        &self.errors
    }

    pub(crate) fn events(&self) -> &EventSet {
        &self.events
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Has the event set watch a connection's socket.
    pub(crate) fn add_socket(&self, conn: ConnId, socket: &Socket, events: Events) -> std::io::Result<()> {
        let added = self.events.add(socket, events, conn.token());
        added.map_err(|error| std::io::Error::from_raw_os_error(error.errno))
    }

    pub(crate) fn remove_socket(&self, socket: &Socket) {
        // One that is not in the set any more need not be removed.
        let _ = self.events.remove(socket);
    }

    /// Changes what the event set watches a connection's socket for.
    pub(crate) fn watch(&self, conn: ConnId, socket: &Socket, events: Events) {
        if let Err(error) = self.events.modify(socket, events, conn.token()) {
            ucs::log::error!("{error}");
        }
    }

    pub(crate) fn count_blocked(&self, change: i32) {
        self.blocked.set(self.blocked.get() + change);
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.get() > 0
    }

    /// Counts a connection that has failed.
    pub(crate) fn note_failure(&self, words: String) {
        self.failed.set(self.failed.get() + 1);
        *self.last_failure.borrow_mut() = words;
    }

    /// Connections that have failed.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.get()
    }

    /// Why the last connection failed.
    pub(crate) fn last_failure(&self) -> String {
        self.last_failure.borrow().clone()
    }

    /// What this side reports of itself.
    pub(crate) fn hello(&self, kind: HelloKind) -> Hello {
        Hello {
            kind,
            features: FEATURE_RMA | FEATURE_FILL,
            sender: self.id(),
            key: 0,
            token: 0,
            max_message: self.max_message as u64,
            refusal: None,
            in_use: false,
            wants_own: false,
            claim: None,
        }
    }

    /// A number that identifies an endpoint of a connection.
    pub(crate) fn next_owner(&self) -> u32 {
        self.owners.set(self.owners.get().wrapping_add(1));
        self.owners.get()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for buffer in self.rx.take().into_iter().chain(self.copies.take()) {
            self.rx_pool.release(buffer);
        }
    }
}
