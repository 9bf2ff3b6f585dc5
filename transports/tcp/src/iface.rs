//! The interface: a device, the sockets it listens on, its connections, and what they share.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;

use socket2::Socket;
use ucs::Error;
use ucs::clock::Deadline;
use ucs::datastruct::slot_map::{SlotId, SlotMap};
use ucs::event_set::{EventSet, Events, TimerFd};
use ucs::sys::{net, random};
use uct_plugin::abi::*;
use uct_plugin::memory::{Accessor, Allocation};
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{
    AmHandlers, Completion, Device, EpParams, Failure, Flush, Iface, IfaceAttr, IfaceParams, Outcome,
    PeerAddress, Result, Scope, Settings, Transport, attr,
};

use crate::config::TcpConfig;
use crate::ep::{MAX_HEADER, TcpEp};
use crate::io::buffer::{RxBuffer, RxPool, TxPool};
use crate::io::device::{self, Family};
use crate::io::listener;
use crate::io::socket::Options;
use crate::link::admission::Accepted;
use crate::link::announced::Announced;
use crate::link::connection::Conn;
use crate::link::route;
use crate::listen::HalfOpenList;
use crate::md::{OWN, TcpMd};
use crate::progress::{LISTENERS, TIMER};
use crate::proto::addr::{self, DeviceAddress, IfaceAddress};
use crate::proto::wire::{FRAME_HEADER, PADDING, padded};

/// Bytes ahead of the data of the largest short or bcopy operation.
const HEADS: usize = 64;

/// The transport `tcp`.
pub(crate) struct TcpTransport;

/// An interface of `tcp`.
pub(crate) struct TcpIface {
    // What the data path touches.
    pub(crate) epoch: Cell<u32>,
    /// Whether there is something to do beside receiving, and whether the application packs a message: `BUSY`, `PACKING`.
    pub(crate) state: Cell<u8>,
    /// Where the next message is put together that goes straight to a socket: the first half of `_halves`, and the second one while
    /// a message is packed in the first.
    pub(crate) scratch: Cell<*mut u8>,
    pub(crate) scratch_size: usize,
    pub(crate) am: AmHandlers,
    pub(crate) headroom: usize,
    pub(crate) rx_pool: RxPool,
    /// The buffer that the next receive goes to.
    pub(crate) shared: Cell<Option<RxBuffer>>,
    /// Where messages are copied that had no room for their headroom.
    pub(crate) copies: Cell<Option<RxBuffer>>,
    pub(crate) tx_pool: TxPool,
    /// The connection that had something last, or has at this moment.
    pub(crate) hot: Cell<Option<Rc<Conn>>>,
    pub(crate) misses: Cell<u32>,
    pub(crate) blocked: Cell<i32>,
    pub(crate) serving: Cell<bool>,
    pub(crate) seg_size: usize,
    pub(crate) sendv_thresh: usize,
    pub(crate) max_iov: usize,
    pub(crate) max_message: usize,
    pub(crate) queue_limit: usize,
    pub(crate) answer_limit: usize,
    /// Progress, handlers and completions that are running, one inside the other.
    pub(crate) depth: Cell<u32>,

    pub(crate) md: Arc<TcpMd>,
    /// Counts accesses to registered memory.
    pub(crate) accessor: Accessor,
    pub(crate) errors: ErrorHandler,
    pub(crate) config: Box<TcpConfig>,
    pub(crate) socket_options: Box<Options>,
    pub(crate) device: net::Device,
    pub(crate) families: Vec<Family>,
    pub(crate) is_default: bool,
    pub(crate) address: IfaceAddress,
    pub(crate) listeners: Vec<Socket>,
    pub(crate) half_open: RefCell<HalfOpenList>,
    pub(crate) events: EventSet,
    pub(crate) timer: TimerFd,
    pub(crate) next_tick: Cell<Deadline>,
    pub(crate) next_look: Cell<Deadline>,
    pub(crate) conns: RefCell<SlotMap<Rc<Conn>>>,
    /// The connection that new endpoints to an address use.
    pub(crate) current: RefCell<HashMap<Rc<IfaceAddress>, Rc<Conn>>>,
    pub(crate) accepted: RefCell<Box<Accepted>>,
    /// Room for large messages on their way in.
    pub(crate) announced: RefCell<Box<Announced>>,
    pub(crate) owners: Cell<u32>,

    pub(crate) dirty: RefCell<Vec<SlotId>>,
    pub(crate) hungry: RefCell<VecDeque<SlotId>>,
    pub(crate) broken: RefCell<Vec<SlotId>>,
    pub(crate) failing: RefCell<VecDeque<(Rc<Conn>, Error, String)>>,
    pub(crate) ended: RefCell<VecDeque<Completion>>,
    pub(crate) flushes: RefCell<Vec<Completion>>,
    /// Frames that connections owe, and that came up while a message was packed.
    pub(crate) owed: RefCell<VecDeque<(SlotId, Vec<u8>)>>,
    /// What `scratch` points to.
    pub(crate) _halves: Allocation,
    pub(crate) last_failure: RefCell<String>,
    pub(crate) made: Cell<u64>,
    pub(crate) dropped: Cell<u64>,
    pub(crate) failed: Cell<u64>,
}

impl Transport for TcpTransport {
    const NAME: &'static str = "tcp";
    type Md = TcpMd;
    type Iface = TcpIface;

    fn devices(_md: &TcpMd, settings: &Settings<'_>) -> Result<Vec<Device>, Failure> {
        let config = TcpConfig::from_settings(settings)?;
        device::list(&device::families(&config.af_prio)?)
    }

    fn open(md: &Arc<TcpMd>, params: IfaceParams<'_>) -> Result<Rc<TcpIface>, Failure> {
        let config = TcpConfig::from_settings(&params.settings)?;
        TcpIface::open(md, params.device, config, params.am, params.errors, params.rx_headroom)
    }
}

impl TcpIface {
    /// Opens an interface on a device.
    pub(crate) fn open(
        md: &Arc<TcpMd>,
        device: &str,
        config: TcpConfig,
        am: AmHandlers,
        errors: ErrorHandler,
        headroom: usize,
    ) -> Result<Rc<TcpIface>, Failure> {
        let families = device::families(&config.af_prio)?;
        let device = device::find(device, &families)?;
        let system = |error: ucs::sys::SystemError| Failure::new(Error::from(&error), error.to_string());
        // Interfaces of all processes of all machines differ, and nobody guesses their keys.
        let (id, key) = (random::secret().map_err(system)?, random::secret().map_err(system)?);
        let socket_options = Box::new(config.socket_options());
        let (listeners, sockets) = listener::listen(&device, &families, config.port_range, &socket_options)?;
        let address = IfaceAddress { id, key, sockets };
        let events = EventSet::new().map_err(system)?;
        for (number, listener) in (LISTENERS..).zip(&listeners) {
            events.add(listener, Events::READ, number).map_err(system)?;
        }
        let timer = TimerFd::new().map_err(system)?;
        events.add(&timer, Events::READ, TIMER).map_err(system)?;

        let seg_size = config.tx_seg_size.to_usize();
        let rx_size = config.rx_seg_size.to_usize().next_power_of_two();
        if headroom > rx_size / 4 {
            return Err(Failure::new(
                Error::INVALID_PARAM,
                format!("a headroom of {headroom} bytes is too large for rx_seg_size {rx_size}"),
            ));
        }
        let max_message = config.max_message.to_usize().max(seg_size);
        let scratch_size = padded(seg_size + HEADS + MAX_HEADER);
        let halves = Allocation::new(2 * scratch_size)?;
        let accepted = RefCell::new(Box::new(Accepted::new(&config)));
        let announced = RefCell::new(Box::new(Announced::new(&config, max_message)));
        let iface = TcpIface {
            epoch: Cell::new(1),
            state: Cell::new(0),
            scratch: Cell::new(halves.address().as_ptr()),
            scratch_size,
            am,
            headroom,
            rx_pool: RxPool::new(rx_size, headroom),
            shared: Cell::new(None),
            copies: Cell::new(None),
            tx_pool: TxPool::new(config.tx_buf_size.to_usize().max(scratch_size)),
            hot: Cell::default(),
            misses: Cell::new(0),
            blocked: Cell::new(0),
            serving: Cell::new(false),
            seg_size,
            sendv_thresh: config.sendv_thresh.to_usize().min(seg_size),
            max_iov: config.max_iov as usize,
            max_message,
            queue_limit: config.tx_queue_size.to_usize().max(scratch_size),
            answer_limit: config.tx_queue_size.to_usize().max(scratch_size)
                + config.answer_queue_size.to_usize(),
            depth: Cell::new(0),
            md: Arc::clone(md),
            accessor: Accessor::default(),
            errors,
            is_default: config.prefer_default && device::is_default(&device),
            config: Box::new(config),
            socket_options,
            device,
            families,
            address,
            listeners,
            half_open: RefCell::default(),
            events,
            timer,
            next_tick: Cell::new(Deadline::NEVER),
            next_look: Cell::new(Deadline::NEVER),
            conns: RefCell::default(),
            current: RefCell::default(),
            accepted,
            announced,
            owners: Cell::new(0),
            dirty: RefCell::default(),
            hungry: RefCell::default(),
            broken: RefCell::default(),
            failing: RefCell::default(),
            ended: RefCell::default(),
            flushes: RefCell::default(),
            owed: RefCell::default(),
            _halves: halves,
            last_failure: RefCell::default(),
            made: Cell::new(0),
            dropped: Cell::new(0),
            failed: Cell::new(0),
        };
        iface.schedule_look();
        OWN.add(md.regions.identity(), md);
        Ok(Rc::new(iface))
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
            latency: device::latency(&self.device, self.config.latency),
            bandwidth_shared: device::bandwidth(&self.device, self.config.bandwidth),
            emulated_round_trips: 1,
            priority: u32::from(self.is_default),
            ..attr::blank()
        }
    }

    fn device_address(&self, buffer: &mut [u8]) -> Result {
        route::address(&self.device).write(buffer);
        Ok(())
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        self.address.write(buffer);
        Ok(())
    }

    fn is_reachable(&self, peer: PeerAddress<'_>, scope: Scope) -> Result<(), String> {
        let there = DeviceAddress::read(peer.device)?;
        let address = IfaceAddress::read(peer.iface)?;
        route::way(&self.device, &self.families, &there, &address, scope).map(drop)
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
        if self.is_busy() {
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
        self.begin_epoch();
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

const _: () = assert!(HEADS >= FRAME_HEADER + uct_plugin::rma::MAX_REQUEST + PADDING);
