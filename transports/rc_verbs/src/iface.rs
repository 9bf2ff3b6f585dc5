//! The interface: what its connections share, their table, and how it is opened.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ucs::datastruct::mpool::{Mpool, MpoolParams};
use uct_ib::verbs::{Access, Cq, Qp, RegisteredChunks, Srq};
use uct_ib::{DeviceAddress, PortAddress, PortPreferences, device};
use uct_plugin::{AmHandlers, Error, Failure, IfaceParams, PeerAddress, PendingQueue, Result};

use crate::config::RcConfig;
use crate::io::buffer::{Buffers, MAX_HEADER};
use crate::io::completions::Completions;
use crate::io::receive::{ReceiveRing, RxElements};
use crate::io::wakeup::Wakeup;
use crate::io::watches::Watches;
use crate::limits::limits;
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

/// Bytes by which a pool of buffers grows.
const POOL_STEP: usize = 512 << 10;
/// For so long a queue pair answers its peer behind the end of its endpoint.
pub(crate) const FAREWELL: Duration = Duration::from_millis(3);

/// An interface.
pub(crate) struct RcIface {
    pub(crate) am: AmHandlers,
    pub(crate) shared: Rc<Shared>,
    /// Consecutive polls that may still skip the receive queue.
    pub(crate) rx_passes: Cell<u8>,
    /// Polls that received nothing while no send completion was awaited.
    pub(crate) empty_polls: Cell<u8>,
    pub(crate) conns: ConnTable,
    /// Connections removed from the table during a progress that may be using them.
    pub(crate) reaped: RefCell<VecDeque<(Instant, Rc<Conn>)>>,
    /// Number of ticks so far.
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

impl RcIface {
    pub(crate) fn open(md: &Arc<RcMd>, params: IfaceParams<'_>) -> Result<RcIface, Failure> {
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
            credit_updates: Cell::new(0),
            read_bytes: Cell::new(0),
            errors: params.errors,
            salt,
            mark: u64::from(salt) << 32 | u64::from(salt ^ 0x5bd1_e995),
        };
        Ok(RcIface {
            am: params.am,
            shared: Rc::new(shared),
            rx_passes: Cell::new(0),
            empty_polls: Cell::new(0),
            conns: ConnTable::default(),
            reaped: RefCell::default(),
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
        // SAFETY: the caller's promise: the table holds it, or `reaped` does until the end of this progress (`RcIface::reap`).
        unsafe { ep.as_ref() }
    }

    /// A queue pair for a connection.
    pub(crate) fn new_qp(&self) -> Result<Qp, Failure> {
        let Completions { rx_cq, tx_cq, .. } = &self.shared.completions;
        self.shared.limits.new_qp(&self.md.pd, tx_cq, rx_cq, &self.shared.rx.ring.srq, self.max_inline_wanted)
    }

    /// Asks for the port's addresses again, which may have changed.
    pub(crate) fn refresh_port(&self) {
        let number = self.port.borrow().port.number;
        match PortAddress::new(&self.md.device.context, number, self.preferences) {
            Ok(port) => {
                if port.gid.entry != self.port.borrow().gid.entry {
                    ucs::log::info!(device = %self.name, gid = %port.gid.entry, "rc_verbs: the GID changed");
                }
                self.port.replace(port);
            }
            Err(error) => ucs::log::warn!(%error, "rc_verbs: the port cannot be used for new connections"),
        }
    }

    /// Why the peer cannot be reached, if it cannot.
    pub(crate) fn reach(&self, peer: PeerAddress<'_>) -> Result<(), String> {
        addr::check_iface(peer.iface)?;
        let device = DeviceAddress::parse(peer.device).map_err(|reason| reason.to_string())?;
        self.port.borrow().device_address().reach(&device).map_err(|reason| reason.to_string())
    }
}

/// A number that differs from process to process.
fn salt() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id()) as u32
}
