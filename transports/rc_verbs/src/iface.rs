//! The interface: the queues that all endpoints share, and how they are opened and closed.
//!
//! For: the host. Stands on `uct_ib` for the device, on `rx`, `progress`, `event` and `failure` for what happens there.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ucs::datastruct::mpool::{Mpool, MpoolParams};
use uct_ib::verbs::{Access, Cq, RegisteredChunks, Srq};
use uct_ib::{DEVICE_ADDRESS_LENGTH, DeviceAddress, Port, PortAddress, PortPreferences, device};
use uct_plugin::{
    AmHandlers, Completion, Device, DeviceKind, EpParams, Error, Failure, Flush, Iface, IfaceAttr,
    IfaceParams, Outcome, PeerAddress, PendingQueue, Result, Scope, Settings, Transport,
};

use crate::config::RcConfig;
use crate::ep::RcEp;
use crate::io::buffer::{Buffers, MAX_HEADER};
use crate::io::completions::Completions;
use crate::io::receive::{ReceiveRing, RxElements};
use crate::io::wakeup::Wakeup;
use crate::io::watches::Watches;
use crate::limits::{attributes, limits};
use crate::link::agenda::Agenda;
use crate::link::conn::Conn;
use crate::link::flushes::Flushes;
use crate::link::receiving::Receiving;
use crate::link::shared::Shared;
use crate::link::table::ConnTable;
use crate::md::RcMd;
use crate::proto::addr;
use crate::proto::liveness::Schedule;
use crate::proto::window::Windows;

/// The transport `rc_verbs`.
pub(crate) struct RcTransport;

/// Bytes by which a pool of buffers grows.
const POOL_STEP: usize = 512 << 10;

/// An interface.
pub(crate) struct RcIface {
    pub(crate) am: AmHandlers,
    pub(crate) shared: Rc<Shared>,
    /// Looks in a row that may still pass by what was received.
    pub(crate) rx_passes: Cell<u8>,
    /// Looks that have found nothing received while nobody waited for the end of a send.
    pub(crate) quiet_looks: Cell<u8>,
    pub(crate) conns: ConnTable,
    /// Endpoints that have left the table while progress, which may be at work on them, goes on.
    pub(crate) buried: RefCell<Vec<Rc<Conn>>>,
    /// Looks at the peers so far.
    pub(crate) ticks: Cell<u32>,
    pub(crate) schedule: Schedule,
    pub(crate) flushes: Flushes,
    pub(crate) wakeup: Wakeup,
    pub(crate) watches: Watches,
    pub(crate) port: RefCell<PortAddress>,
    preferences: PortPreferences,
    pub(crate) name: String,
    max_inline_wanted: u32,
    md: Arc<RcMd>,
}

impl Transport for RcTransport {
    const NAME: &'static str = "rc_verbs";
    type Md = RcMd;
    type Iface = RcIface;

    fn devices(md: &RcMd, _settings: &Settings<'_>) -> Result<Vec<Device>, Failure> {
        let context = &md.device.context;
        let mut devices = Vec::new();
        let mut reasons = Vec::new();
        for number in 1..=md.device.ports() {
            match Port::query(context, number).and_then(|port| port.require_active()) {
                Ok(()) => devices.push(Device {
                    name: format!("{}:{number}", context.device_name()),
                    kind: DeviceKind::Network,
                    numa_node: md.device.numa_node(),
                }),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        if devices.is_empty() { Err(Failure::new(Error::NO_DEVICE, reasons.join("; "))) } else { Ok(devices) }
    }

    fn open(md: &Arc<RcMd>, params: IfaceParams<'_>) -> Result<Rc<RcIface>, Failure> {
        RcIface::open(md, params).map(Rc::new)
    }
}

impl RcIface {
    fn open(md: &Arc<RcMd>, params: IfaceParams<'_>) -> Result<RcIface, Failure> {
        let config = RcConfig::from_settings(&params.settings)?;
        let refuse = |reason| Failure::new(Error::NO_DEVICE, reason);
        let (device_name, number) = device::parse_device_name(params.device).map_err(refuse)?;
        let context = &md.device.context;
        if device_name != context.device_name() {
            return Err(refuse(format!(
                "{device_name} is not of the memory domain {}",
                context.device_name()
            )));
        }
        let preferences = config.port_preferences();
        let port = PortAddress::new(context, number, preferences)?;
        let mut limits = limits(&config, &md.device, &port);

        let wakeup = Wakeup::new(context)?;
        let tx_cq = Cq::new(context, limits.tx_cq_len, Some(&wakeup.tx), 0)?;
        let rx_cq = Cq::new(context, limits.rx_queue_len, Some(&wakeup.rx), 0)?;
        let srq = Srq::new(&md.pd, limits.rx_queue_len)?;
        let max_inline_wanted = config.max_inline.bytes() as u32;
        let probe = limits.new_qp(&md.pd, &tx_cq, &rx_cq, &srq, max_inline_wanted)?;
        limits.set_inline(probe.caps().max_inline as usize);
        drop(probe);

        // Registered memory is pinned whole, so a pool grows by a little at a time.
        let pool = |name: &str, size: usize| MpoolParams {
            elems_per_chunk: (POOL_STEP / size).clamp(8, 128) as u32,
            ..MpoolParams::new(format!("rc_verbs {name}"), size)
        };
        let registered = || RegisteredChunks::new(&md.pd, Access::LOCAL_WRITE);
        let memory =
            |error: ucs::datastruct::mpool::MpoolError| Failure::new(Error::NO_MEMORY, error.to_string());
        let messages = Mpool::new(pool("send", limits.seg_size), registered(), ()).map_err(memory)?;
        let smalls = Mpool::new(pool("header", MAX_HEADER), registered(), ()).map_err(memory)?;
        smalls.reserve(1).map_err(memory)?;
        // SAFETY: the pools have elements of these sizes in registered chunks, aligned to a cache line, and are fields of
        // `Shared`, which each connection holds behind its queue pair.
        let sends = unsafe { Buffers::new(messages, smalls) };
        let sink_buffer = sends.small().ok_or(Error::NO_MEMORY)?;
        let sink = sink_buffer.piece(8);
        let elements = RxElements::default();
        let headroom = ReceiveRing::headroom_for(params.rx_headroom);
        let receive = MpoolParams {
            max_elems: u32::try_from(config.rx_max_bufs.number()).unwrap_or(u32::MAX).max(1),
            ..pool("receive", headroom + limits.seg_size)
        };
        let buffers = Mpool::new(receive, registered(), elements.hooks()).map_err(memory)?;
        let max_window = config.fc_window as u16;
        let windows = Windows::new(srq.capacity(), max_window);
        let ring = ReceiveRing::new(srq, buffers, elements, headroom, limits.seg_size);
        let rx = Receiving { ring, windows };
        let salt = salt();
        let schedule = Schedule::new(config.peer_timeout, config.keepalive_interval);
        let watches = Watches::new(&md.device, params.worker, schedule.tick)?;
        let shared = Shared {
            completions: Completions::new(rx_cq, tx_cq),
            cq_available: Cell::new(limits.tx_cq_len),
            tx_wanted: Cell::new(false),
            agenda: Agenda::default(),
            limits,
            rx,
            pending: PendingQueue::default(),
            buffers: sends,
            sink,
            sink_buffer: Cell::new(Some(sink_buffer)),
            lone_grants: Cell::new(0),
            read_bytes: Cell::new(0),
            errors: params.errors,
            salt,
            mark: u64::from(salt) << 32 | u64::from(salt ^ 0x5bd1_e995),
        };
        Ok(RcIface {
            am: params.am,
            shared: Rc::new(shared),
            rx_passes: Cell::new(0),
            quiet_looks: Cell::new(0),
            conns: ConnTable::default(),
            buried: RefCell::default(),
            ticks: Cell::new(0),
            schedule,
            flushes: Flushes::default(),
            wakeup,
            watches,
            port: RefCell::new(port),
            preferences,
            name: params.device.to_owned(),
            max_inline_wanted,
            md: Arc::clone(md),
        })
    }

    /// An endpoint of the table, while progress runs.
    ///
    /// # Safety
    /// Progress runs, and the table has given the pointer since it began.
    #[inline(always)]
    pub(crate) unsafe fn during_progress(&self, ep: NonNull<Conn>) -> &Conn {
        debug_assert!(self.shared.agenda.is_running());
        // SAFETY: the caller's promise: the table holds it, or `buried` does until the end of this progress (`RcIface::bury`).
        unsafe { ep.as_ref() }
    }

    /// Asks for the port's addresses again, which may have changed.
    pub(crate) fn refresh_port(&self) {
        let number = self.port.borrow().port.number;
        match PortAddress::new(&self.md.device.context, number, self.preferences) {
            Ok(port) => {
                if port.gid.entry != self.port.borrow().gid.entry {
                    tracing::info!(device = %self.name, gid = %port.gid.entry, "rc_verbs: the GID changed");
                }
                self.port.replace(port);
            }
            Err(error) => tracing::warn!(%error, "rc_verbs: the port cannot be used for new connections"),
        }
    }

    fn describe(&self, peer: PeerAddress<'_>) -> Result<(), String> {
        addr::check_iface(peer.iface)?;
        let device = DeviceAddress::parse(peer.device).map_err(|reason| reason.to_string())?;
        self.port.borrow().device_address().reach(&device).map_err(|reason| reason.to_string())
    }
}

impl Iface for RcIface {
    type Md = RcMd;
    type Ep = RcEp;

    fn attributes(&self) -> IfaceAttr {
        attributes(&self.shared.limits, &self.port.borrow())
    }

    fn device_address(&self, buffer: &mut [u8]) -> Result {
        let buffer: &mut [u8; DEVICE_ADDRESS_LENGTH] =
            buffer.try_into().map_err(|_| Error::BUFFER_TOO_SMALL)?;
        *buffer = self.port.borrow().device_address().pack();
        Ok(())
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        buffer.copy_from_slice(&addr::IFACE);
        Ok(())
    }

    fn is_reachable(&self, peer: PeerAddress<'_>, _scope: Scope) -> Result<(), String> {
        self.describe(peer)
    }

    #[inline(always)]
    fn progress(&self) -> u32 {
        self.make_progress()
    }

    fn create_ep(self: &Rc<Self>, params: EpParams<'_>) -> Result<Rc<RcEp>, Failure> {
        if params.peer.is_some() {
            return Err(Failure::unsupported(
                "connecting to an interface (create the endpoint without a peer, then connect it to the peer's endpoint)",
            ));
        }
        let qp = self.shared.limits.new_qp(
            &self.md.pd,
            &self.shared.completions.tx_cq,
            &self.shared.completions.rx_cq,
            &self.shared.rx.ring.srq,
            self.max_inline_wanted,
        )?;
        let window = self.shared.rx.join();
        let conn = Rc::new(Conn::new(&self.shared, qp, self.conns.next_index(), window, params.user));
        self.conns.insert(Rc::clone(&conn));
        Ok(Rc::new(RcEp { conn, iface: Rc::clone(self) }))
    }

    fn close(&self) {
        self.shared.agenda.run();
        let deadline = Instant::now() + self.shared.limits.linger;
        while self.conns.all().iter().any(|ep| !ep.may_close()) && Instant::now() < deadline {
            self.work_off();
            self.poll_tx();
            self.do_deferred();
            std::thread::yield_now();
        }
        for ep in self.conns.all() {
            tracing::debug!(qp = ep.qp.number(), "rc_verbs: closed with something under way");
            // The device lets go of the memory before its owners are told.
            if let Err(error) = ep.qp.reset() {
                tracing::warn!(%error, "rc_verbs: a queue pair does not stop");
            }
            // SAFETY: what was posted has ended with the reset, or with the device, which does nothing for a queue pair that it cannot
            // reset any more.
            unsafe { ep.abandon(Error::CANCELED) };
            self.conns.remove(&ep);
        }
        self.flushes.cancel();
        self.buried.take();
        // No queue pair is left that could write to it.
        if let Some(sink) = self.shared.sink_buffer.take() {
            self.shared.buffers.put_small(sink);
        }
        // SAFETY: nor to what is posted.
        unsafe { self.shared.rx.ring.collect() };
    }

    unsafe fn release(&self, data: *mut u8) {
        let Some(data) = NonNull::new(data) else { return };
        // SAFETY: the host releases what a handler kept, once (`Iface::release`).
        let element = unsafe { self.shared.rx.ring.released(data) };
        self.shared.rx.ring.put(element);
        if !self.shared.rx.ring.fill(1) || self.shared.agenda.has_deferred() {
            self.shared.agenda.ask();
        }
    }

    fn event_fd(&self) -> Result<RawFd> {
        Ok(self.wakeup.fd())
    }

    fn arm(&self, events: u32) -> Result {
        self.arm_for(events)
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        self.flushes.start(&self.conns, &self.shared.agenda, flags, completion)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let eps = self.conns.all();
        let sum = |what: fn(&Conn) -> u64| eps.iter().map(|ep| what(ep)).sum::<u64>();
        vec![
            ("endpoints", eps.len() as u64),
            ("tx_under_way", sum(|ep| u64::from(ep.queue.under_way()))),
            ("tx_unsignaled", sum(|ep| u64::from(ep.queue.unsignaled_count()))),
            ("tx_credits", sum(|ep| u64::from(ep.queue.credits()))),
            ("tx_cq_available", u64::from(self.shared.cq_available.get())),
            ("emulated_atomics", sum(|ep| ep.emulated.borrow().len() as u64)),
            ("rx_posted", u64::from(self.shared.rx.ring.posted())),
            ("rx_windows", sum(|ep| u64::from(ep.window.size()))),
            ("rx_promised", sum(|ep| u64::from(ep.window.promised()))),
            ("lone_grants", self.shared.lone_grants.get()),
            ("read_bytes", self.shared.read_bytes.get()),
        ]
    }

    fn fence(&self) -> Result {
        for ep in self.conns.all() {
            ep.fence_here();
        }
        Ok(())
    }
}

/// A number that differs from process to process.
fn salt() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id()) as u32
}
