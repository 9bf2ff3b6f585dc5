//! The interface: a device, the sockets it listens on, its connections, and what they share.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

use socket2::Socket;
use ucs::Error;
use ucs::clock::Deadline;
use ucs::datastruct::slot_map::{SlotId, SlotMap};
use ucs::event_set::{EventSet, Events, TimerFd};
use ucs::sys::net;
use uct_plugin::abi::*;
use uct_plugin::memory::{Allocation, Regions};
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{
    AmHandlers, Completion, Device, Disposition, EpParams, Failure, Flush, Iface, IfaceAttr, IfaceParams,
    Outcome, PeerAddress, PendingQueue, Result, Scope, Settings, Transport, attr,
};

use crate::addr::{self, DeviceAddress, IfaceAddress};
use crate::config::TcpConfig;
use crate::connection::buffer::{RxBuffer, RxPool, TxBuffer, TxPool};
use crate::connection::{Conn, State};
use crate::device::{self, Family};
use crate::ep::{MAX_HEADER, TcpEp};
use crate::listen::{self, HalfOpenList};
use crate::md::TcpMd;
use crate::progress::{LISTENERS, TIMER};
use crate::wire::{FEATURE_RMA, FRAME_HEADER, Hello, HelloKind};

/// Bytes ahead of the data of the largest short or bcopy operation.
const HEADS: usize = 64;

/// The transport `tcp`.
pub(crate) struct TcpTransport;

/// An interface of `tcp`.
pub(crate) struct TcpIface {
    // What the data path touches.
    epoch: Cell<u32>,
    busy: Cell<bool>,
    scratch: Allocation,
    scratch_size: usize,
    am: AmHandlers,
    headroom: usize,
    pending: PendingQueue,
    rx_pool: RxPool,
    /// The buffer that the next receive goes to.
    shared: Cell<Option<RxBuffer>>,
    /// Where messages are copied that had no room for their headroom.
    copies: Cell<Option<RxBuffer>>,
    tx_pool: TxPool,
    hot: RefCell<Option<Rc<Conn>>>,
    misses: Cell<u32>,
    turn: Cell<u32>,
    blocked: Cell<i32>,
    serving: Cell<bool>,
    pub(crate) seg_size: usize,
    pub(crate) sendv_thresh: usize,
    pub(crate) max_iov: usize,
    max_message: usize,
    queue_limit: usize,

    md: Arc<TcpMd>,
    errors: ErrorHandler,
    config: TcpConfig,
    device: net::Device,
    families: Vec<Family>,
    is_default: bool,
    id: u64,
    address: IfaceAddress,
    listeners: Vec<Socket>,
    half_open: RefCell<HalfOpenList>,
    events: EventSet,
    timer: TimerFd,
    next_tick: Cell<Deadline>,
    next_look: Cell<Deadline>,
    conns: RefCell<SlotMap<Rc<Conn>>>,
    /// The connection that new endpoints to a peer use, by the peer's id.
    current: RefCell<HashMap<u64, Rc<Conn>>>,
    incarnations: Cell<u64>,
    owners: Cell<u32>,

    dirty: RefCell<Vec<SlotId>>,
    broken: RefCell<Vec<SlotId>>,
    failing: RefCell<VecDeque<(Rc<Conn>, Error, String)>>,
    ended: RefCell<VecDeque<Completion>>,
    flushes: RefCell<Vec<Completion>>,
    last_failure: RefCell<String>,
    made: Cell<u64>,
    dropped: Cell<u64>,
    failed: Cell<u64>,
}

impl Transport for TcpTransport {
    const NAME: &'static str = "tcp";
    type Md = TcpMd;
    type Iface = TcpIface;

    fn devices(_md: &TcpMd, settings: &Settings<'_>) -> Result<Vec<Device>, Failure> {
        let config = TcpConfig::from_settings(settings)?;
        device::list(&device::families(&config)?)
    }

    fn open(md: &Arc<TcpMd>, params: IfaceParams<'_>) -> Result<Rc<TcpIface>, Failure> {
        let config = TcpConfig::from_settings(&params.settings)?;
        let families = device::families(&config)?;
        let device = device::find(params.device, &families)?;
        let system = |error: ucs::sys::SystemError| Failure::new(Error::from(&error), error.to_string());
        // Random, so that interfaces of all processes of all machines differ.
        let id = RandomState::new().hash_one(std::process::id());
        let (listeners, address) = listen::listen(&device, &families, &config, id)?;
        let events = EventSet::new().map_err(system)?;
        for (number, listener) in (LISTENERS..).zip(&listeners) {
            events.add(listener, Events::READ, number).map_err(system)?;
        }
        let timer = TimerFd::new().map_err(system)?;
        events.add(&timer, Events::READ, TIMER).map_err(system)?;

        let seg_size = config.tx_seg_size.to_usize();
        let rx_size = config.rx_seg_size.to_usize().next_power_of_two();
        if params.rx_headroom > rx_size / 4 {
            return Err(Failure::new(
                Error::INVALID_PARAM,
                format!("a headroom of {} bytes is too large for rx_seg_size {rx_size}", params.rx_headroom),
            ));
        }
        let max_message = config.max_message.to_usize().max(seg_size);
        let scratch_size = seg_size + HEADS + MAX_HEADER;
        let iface = TcpIface {
            epoch: Cell::new(1),
            busy: Cell::new(false),
            scratch: Allocation::new(scratch_size)?,
            scratch_size,
            am: params.am,
            headroom: params.rx_headroom,
            pending: PendingQueue::default(),
            rx_pool: RxPool::new(rx_size, params.rx_headroom),
            shared: Cell::new(None),
            copies: Cell::new(None),
            tx_pool: TxPool::new(config.tx_buf_size.to_usize().max(scratch_size)),
            hot: RefCell::default(),
            misses: Cell::new(0),
            turn: Cell::new(0),
            blocked: Cell::new(0),
            serving: Cell::new(false),
            seg_size,
            sendv_thresh: config.sendv_thresh.to_usize().min(seg_size),
            max_iov: config.max_iov as usize,
            max_message,
            queue_limit: config.tx_queue_size.to_usize().max(scratch_size),
            md: Arc::clone(md),
            errors: params.errors,
            is_default: config.prefer_default && device::is_default(&device),
            config,
            device,
            families,
            id,
            address,
            listeners,
            half_open: RefCell::default(),
            events,
            timer,
            next_tick: Cell::new(Deadline::NEVER),
            next_look: Cell::new(Deadline::NEVER),
            conns: RefCell::default(),
            current: RefCell::default(),
            incarnations: Cell::new(0),
            owners: Cell::new(0),
            dirty: RefCell::default(),
            broken: RefCell::default(),
            failing: RefCell::default(),
            ended: RefCell::default(),
            flushes: RefCell::default(),
            last_failure: RefCell::default(),
            made: Cell::new(0),
            dropped: Cell::new(0),
            failed: Cell::new(0),
        };
        iface.schedule_look();
        Ok(Rc::new(iface))
    }
}

/// What connections and progress use.
impl TcpIface {
    #[inline(always)]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.get()
    }

    #[inline(always)]
    pub(crate) fn next_epoch(&self) {
        self.epoch.set(self.epoch.get().wrapping_add(1));
    }

    #[inline(always)]
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.get()
    }

    pub(crate) fn note_busy(&self) {
        self.busy.set(true);
    }

    pub(crate) fn clear_busy(&self) {
        self.busy.set(false);
    }

    /// Where a message is put together that goes straight to a socket.
    #[inline(always)]
    pub(crate) fn scratch(&self) -> *mut u8 {
        self.scratch.address().as_ptr()
    }

    pub(crate) fn scratch_size(&self) -> usize {
        self.scratch_size
    }

    #[inline(always)]
    pub(crate) fn am(&self) -> &AmHandlers {
        &self.am
    }

    #[inline(always)]
    pub(crate) fn headroom(&self) -> usize {
        self.headroom
    }

    #[inline(always)]
    pub(crate) fn pending(&self) -> &PendingQueue {
        &self.pending
    }

    #[inline(always)]
    pub(crate) fn rx_pool(&self) -> &RxPool {
        &self.rx_pool
    }

    /// The buffer for the next receive.
    #[inline(always)]
    pub(crate) fn take_rx(&self) -> Result<RxBuffer> {
        match self.shared.take() {
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
    #[inline(always)]
    pub(crate) fn give_rx(&self, buffer: RxBuffer) {
        let has_room = buffer.is_sole() || buffer.size() - buffer.fill() >= buffer.size() / 2;
        if has_room && let Some(other) = self.shared.replace(Some(buffer)) {
            self.rx_pool.release(other);
        } else if !has_room {
            self.rx_pool.release(buffer);
        }
    }

    /// Delivers a copy, which has the headroom that the original lacks.
    #[cold]
    pub(crate) fn deliver_copy(&self, id: u8, message: &[u8]) {
        let needed = self.headroom + message.len();
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
                    self.rx_pool.get_large(message.len() + self.headroom)
                }
            }
        };
        let Ok(buffer) = buffer else {
            tracing::error!("no memory for a received message of {} bytes: it is lost", message.len());
            return;
        };
        let place = buffer.fill() + self.headroom;
        buffer.set_fill((place + message.len()).next_multiple_of(16).min(buffer.size()));
        // SAFETY: the buffer has room for headroom and message, and nobody else writes there.
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

    pub(crate) fn tx_buffer(&self) -> TxBuffer {
        self.tx_pool.get()
    }

    /// Lets a connection take what it has sent off its queue.
    pub(crate) fn sent(&self, advance: impl FnOnce(&TxPool, &mut VecDeque<Completion>)) {
        let mut ended = self.ended.borrow_mut();
        advance(&self.tx_pool, &mut ended);
        if !ended.is_empty() {
            self.busy.set(true);
        }
    }

    pub(crate) fn queue_limit(&self) -> usize {
        self.queue_limit
    }

    /// Largest payload of an active message.
    pub(crate) fn max_message(&self) -> usize {
        self.max_message
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.md.regions
    }

    pub(crate) fn config(&self) -> &TcpConfig {
        &self.config
    }

    pub(crate) fn events(&self) -> &EventSet {
        &self.events
    }

    pub(crate) fn listeners(&self) -> &[Socket] {
        &self.listeners
    }

    pub(crate) fn half_open(&self) -> &RefCell<HalfOpenList> {
        &self.half_open
    }

    pub(crate) fn errors(&self) -> &ErrorHandler {
        &self.errors
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn own_address(&self) -> &IfaceAddress {
        &self.address
    }

    /// What this side says of itself.
    pub(crate) fn hello(&self, kind: HelloKind) -> Hello {
        Hello {
            kind,
            features: FEATURE_RMA,
            sender: self.id,
            receiver: 0,
            incarnation: 0,
            max_message: self.max_message as u64,
            refusal: None,
            in_use: false,
        }
    }

    /// A number that tells the endpoints of a connection apart.
    pub(crate) fn next_owner(&self) -> u32 {
        self.owners.set(self.owners.get().wrapping_add(1));
        self.owners.get()
    }
}

/// Lists of what is to be done.
impl TcpIface {
    pub(crate) fn note_dirty(&self, id: SlotId) {
        self.dirty.borrow_mut().push(id);
        self.busy.set(true);
    }

    pub(crate) fn next_dirty(&self) -> Option<SlotId> {
        self.dirty.borrow_mut().pop()
    }

    pub(crate) fn note_broken(&self, id: SlotId) {
        self.broken.borrow_mut().push(id);
        self.busy.set(true);
    }

    pub(crate) fn next_broken(&self) -> Option<SlotId> {
        self.broken.borrow_mut().pop()
    }

    pub(crate) fn next_ended(&self) -> Option<Completion> {
        self.ended.borrow_mut().pop_front()
    }

    /// Has progress fail a connection, since this is not the place for it.
    pub(crate) fn fail_later(&self, conn: &Rc<Conn>, error: Error, reason: String) {
        self.failing.borrow_mut().push_back((Rc::clone(conn), error, reason));
        self.busy.set(true);
    }

    pub(crate) fn next_failing(&self) -> Option<(Rc<Conn>, Error, String)> {
        self.failing.borrow_mut().pop_front()
    }

    pub(crate) fn note_failure(&self, words: String) {
        self.failed.set(self.failed.get() + 1);
        *self.last_failure.borrow_mut() = words;
    }

    pub(crate) fn count_dropped(&self) {
        self.dropped.set(self.dropped.get() + 1);
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.serving.get()
    }

    pub(crate) fn set_serving(&self, serving: bool) {
        self.serving.set(serving);
    }

    /// Ends the interface's flushes once nothing is outstanding.
    pub(crate) fn end_flushes(&self) {
        if self.flushes.borrow().is_empty() {
            return;
        }
        if self.all_conns().iter().any(|conn| conn.has_unfinished()) {
            return;
        }
        for completion in self.flushes.take() {
            completion.complete(Ok(()));
        }
    }

    pub(crate) fn has_flushes(&self) -> bool {
        !self.flushes.borrow().is_empty()
    }
}

/// Connections.
impl TcpIface {
    pub(crate) fn conn(&self, id: SlotId) -> Option<Rc<Conn>> {
        self.conns.borrow().get(id).cloned()
    }

    pub(crate) fn all_conns(&self) -> Vec<Rc<Conn>> {
        self.conns.borrow().iter().map(|(_, conn)| Rc::clone(conn)).collect()
    }

    pub(crate) fn has_connections(&self) -> bool {
        !self.conns.borrow().is_empty()
    }

    /// A connection that nobody uses yet.
    pub(crate) fn new_conn(&self, peer: u64) -> Result<Rc<Conn>, Failure> {
        self.incarnations.set(self.incarnations.get() + 1);
        let incarnation = self.incarnations.get();
        let mut conns = self.conns.borrow_mut();
        let id = conns
            .insert_with(|id| Rc::new(Conn::new(id, peer, incarnation)))
            .ok_or_else(|| Failure::new(Error::EXCEEDS_LIMIT, "the interface has too many connections"))?;
        self.made.set(self.made.get() + 1);
        conns.get(id).cloned().ok_or_else(|| Failure::from(Error::NO_ELEM))
    }

    /// The connection that new endpoints to a peer use.
    pub(crate) fn current(&self, peer: u64) -> Option<Rc<Conn>> {
        self.current.borrow().get(&peer).cloned()
    }

    pub(crate) fn set_current(&self, conn: &Rc<Conn>) {
        self.current.borrow_mut().insert(conn.peer, Rc::clone(conn));
    }

    pub(crate) fn forget_current(&self, conn: &Rc<Conn>) {
        let mut current = self.current.borrow_mut();
        if current.get(&conn.peer).is_some_and(|other| Rc::ptr_eq(other, conn)) {
            current.remove(&conn.peer);
        }
    }

    /// Forgets a connection that is over.
    pub(crate) fn forget(&self, conn: &Rc<Conn>) {
        self.forget_current(conn);
        self.conns.borrow_mut().remove(conn.id());
        let is_hot = self.hot.borrow().as_ref().is_some_and(|hot| Rc::ptr_eq(hot, conn));
        if is_hot {
            self.set_hot(None);
        }
    }

    /// The connection for a new endpoint to a peer.
    pub(crate) fn conn_to(&self, device: &DeviceAddress, peer: &IfaceAddress) -> Result<Rc<Conn>, Failure> {
        if let Some(conn) = self.current(peer.id).filter(|conn| conn.is_open_to_endpoints()) {
            return Ok(conn);
        }
        let way = device::way(&self.device, &self.families, device, peer, Scope::Network)
            .map_err(|reason| Failure::new(Error::UNREACHABLE, reason))?;
        let conn = self.new_conn(peer.id)?;
        self.set_current(&conn);
        conn.connect(self, way.peer, way.source);
        if !self.config.conn_nb {
            self.await_system(&conn)?;
        }
        Ok(conn)
    }

    /// Waits until the system has connected.
    fn await_system(&self, conn: &Rc<Conn>) -> Result<(), Failure> {
        let limit = self.config.connect_timeout.to_duration();
        let outcome = self.wait_for(limit, || !conn.awaits_system());
        if let State::Closed(error) = conn.state() {
            return Err(Failure::new(error, self.last_failure.borrow().clone()));
        }
        outcome
            .map_err(|error| Failure::new(error, "the peer's system has not answered within connect_timeout"))
    }

    pub(crate) fn add_socket(&self, conn: &Conn, socket: &Socket) -> std::io::Result<()> {
        self.add(conn, socket, Events::READ)
    }

    pub(crate) fn add_connecting(&self, conn: &Conn, socket: &Socket) -> std::io::Result<()> {
        self.add(conn, socket, Events::WRITE)
    }

    fn add(&self, conn: &Conn, socket: &Socket, events: Events) -> std::io::Result<()> {
        let added = self.events.add(socket, events, conn.id().get().into());
        added.map_err(|error| std::io::Error::from_raw_os_error(error.errno))
    }

    pub(crate) fn remove_socket(&self, socket: &Socket) {
        // One that is not in the set any more need not be removed.
        let _ = self.events.remove(socket);
    }

    /// Changes what the event set watches a connection for.
    pub(crate) fn watch(&self, conn: &Conn, events: Events) {
        conn.with_socket(|socket| {
            if let Err(error) = self.events.modify(socket, events, conn.id().get().into()) {
                tracing::error!("{error}");
            }
        });
    }

    pub(crate) fn count_blocked(&self, change: i32) {
        self.blocked.set(self.blocked.get() + change);
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.get() > 0
    }

    #[inline(always)]
    pub(crate) fn hot(&self) -> Option<Rc<Conn>> {
        self.hot.borrow().clone()
    }

    pub(crate) fn set_hot(&self, conn: Option<&Rc<Conn>>) {
        *self.hot.borrow_mut() = conn.cloned();
    }

    #[inline(always)]
    pub(crate) fn has_one_connection(&self) -> bool {
        self.conns.borrow().len() == 1
    }

    #[inline(always)]
    pub(crate) fn misses(&self) -> u32 {
        self.misses.get()
    }

    #[inline(always)]
    pub(crate) fn set_misses(&self, misses: u32) {
        self.misses.set(misses);
    }

    #[inline(always)]
    pub(crate) fn next_turn(&self) -> u32 {
        self.turn.set(self.turn.get().wrapping_add(1));
        self.turn.get()
    }
}

/// Time.
impl TcpIface {
    /// Has the timer wake progress by then.
    pub(crate) fn want_tick(&self, at: Deadline) {
        if at == Deadline::NEVER || at >= self.next_tick.get() {
            return;
        }
        match self.timer.set(at.remaining()) {
            Ok(()) => self.next_tick.set(at),
            Err(error) => tracing::error!("{error}"),
        }
    }

    pub(crate) fn drain_timer(&self) {
        self.timer.drain();
        self.next_tick.set(Deadline::NEVER);
    }

    /// When connections are looked at next.
    pub(crate) fn next_look(&self) -> Deadline {
        self.next_look.get()
    }

    pub(crate) fn schedule_look(&self) {
        let interval = self.config.keepalive_interval;
        let next = if interval.is_inf() { Deadline::NEVER } else { Deadline::after(interval.to_duration()) };
        self.next_look.set(next);
    }

    /// When connections are looked at next, for one that is new.
    pub(crate) fn keepalive_tick(&self) -> Deadline {
        if self.next_look.get().expired() {
            self.schedule_look();
        }
        self.next_look.get()
    }

    /// How many looks a peer may leave unanswered.
    pub(crate) fn most_silent_ticks(&self) -> u32 {
        let interval = self.config.keepalive_interval.seconds().max(1e-3);
        let timeout = self.config.keepalive_timeout.seconds();
        (timeout / interval).ceil().clamp(1.0, f64::from(u32::MAX)) as u32
    }
}

impl Iface for TcpIface {
    type Md = TcpMd;
    type Ep = TcpEp;

    fn attributes(&self) -> IfaceAttr {
        let rma = UctOpLimits {
            max_short: self.seg_size,
            max_bcopy: self.seg_size,
            max_zcopy: self.max_message,
            max_iov: self.max_iov,
            ..attr::blank().put
        };
        let atomics = UctAtomicOps {
            post: attr::ALL_POST,
            fetch: attr::ALL_FETCH,
            post_emulated: attr::ALL_POST,
            fetch_emulated: attr::ALL_FETCH,
        };
        let puts = UCT_CAP_PUT_SHORT | UCT_CAP_PUT_BCOPY | UCT_CAP_PUT_ZCOPY;
        let puts = if self.config.put_enable { puts } else { 0 };
        let remote = puts | UCT_CAP_GET_SHORT | UCT_CAP_GET_BCOPY | UCT_CAP_GET_ZCOPY;
        IfaceAttr {
            capabilities: UCT_CAP_AM_SHORT
                | UCT_CAP_AM_BCOPY
                | UCT_CAP_AM_ZCOPY
                | UCT_CAP_PENDING
                | remote
                | UCT_CAP_ATOMIC_CPU
                | UCT_CAP_ERRHANDLE_SHORT_BUF
                | UCT_CAP_ERRHANDLE_ZCOPY_BUF
                | UCT_CAP_ERRHANDLE_REMOTE_MEM
                | UCT_CAP_ERRHANDLE_PEER_FAILURE
                | UCT_CAP_EP_CHECK
                | UCT_CAP_EP_KEEPALIVE
                | UCT_CAP_CONNECT_TO_IFACE
                | UCT_CAP_CONNECT_TO_EP
                | UCT_CAP_CB_SYNC
                | UCT_CAP_INTER_NODE,
            emulated: remote,
            events: UCT_EVENT_SEND_COMP | UCT_EVENT_RECV | UCT_EVENT_RECV_SIG,
            am: UctOpLimits {
                max_short: self.seg_size - size_of::<u64>(),
                max_bcopy: self.seg_size,
                max_zcopy: self.max_message,
                max_iov: self.max_iov,
                max_hdr: MAX_HEADER,
                ..attr::blank().am
            },
            put: if self.config.put_enable { rma } else { attr::blank().put },
            get: rma,
            atomic32: atomics,
            atomic64: atomics,
            device_addr_len: addr::DEVICE,
            iface_addr_len: addr::IFACE,
            ep_addr_len: addr::EP,
            overhead: device::overhead(),
            latency: device::latency(&self.device, &self.config),
            bandwidth_shared: device::bandwidth(&self.device, &self.config),
            emulated_round_trips: 1,
            priority: u32::from(self.is_default),
            ..attr::blank()
        }
    }

    fn device_address(&self, buffer: &mut [u8]) -> Result {
        device::address(&self.device).write(buffer);
        Ok(())
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        self.address.write(buffer);
        Ok(())
    }

    fn is_reachable(&self, peer: PeerAddress<'_>, scope: Scope) -> Result<(), String> {
        let there = DeviceAddress::read(peer.device)?;
        let address = IfaceAddress::read(peer.iface)?;
        device::way(&self.device, &self.families, &there, &address, scope).map(drop)
    }

    #[inline(always)]
    fn progress(&self) -> u32 {
        self.advance()
    }

    fn create_ep(self: &Rc<Self>, params: EpParams<'_>) -> Result<Rc<TcpEp>, Failure> {
        TcpEp::create(self, params)
    }

    fn close(&self) {
        self.drain();
        for conn in self.all_conns() {
            conn.discard_received(self);
            conn.fail(self, Error::CANCELED, "the interface is closed");
        }
    }

    unsafe fn release(&self, data: *mut u8) {
        // SAFETY: the host releases what a handler kept, once (`Iface::release`).
        unsafe { self.rx_pool.release_kept(data) };
    }

    fn event_fd(&self) -> Result<RawFd> {
        Ok(self.events.as_raw_fd())
    }

    fn arm(&self, _events: u32) -> Result {
        if self.busy.get() {
            return Err(Error::BUSY);
        }
        let mut buffer = ucs::event_set::EventBuffer::<1>::new();
        let ready = self.events.wait(&mut buffer, Some(std::time::Duration::ZERO)).map_err(Error::from)?;
        if ready.len() > 0 { Err(Error::BUSY) } else { Ok(()) }
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        if flags.cancel {
            for conn in self.all_conns() {
                conn.cancel_all();
            }
            return Ok(Outcome::Done);
        }
        self.next_epoch();
        let conns = self.all_conns();
        for conn in &conns {
            conn.flush_unless_blocked(self);
        }
        if !conns.iter().any(|conn| conn.has_unfinished()) {
            return Ok(Outcome::Done);
        }
        self.flushes.borrow_mut().extend(completion);
        Ok(Outcome::InProgress)
    }

    fn fence(&self) -> Result {
        // Every connection delivers in order, and a target carries out in order.
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("connections", self.conns.borrow().len() as u64),
            ("connections_made", self.made.get()),
            ("connections_ended", self.failed.get()),
            ("connections_refused", self.dropped.get()),
            ("half_open", self.half_open.borrow().len() as u64),
            ("registrations", self.regions().len() as u64),
        ]
    }
}

impl Drop for TcpIface {
    fn drop(&mut self) {
        for buffer in self.shared.take().into_iter().chain(self.copies.take()) {
            self.rx_pool.release(buffer);
        }
    }
}

const _: () = assert!(HEADS >= FRAME_HEADER + uct_plugin::rma::MAX_REQUEST);
