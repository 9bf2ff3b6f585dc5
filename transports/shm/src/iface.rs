//! The interface: a bell that its peers ring, a socket on which they connect, and channels to them.
//!
//! For: the host, and endpoints. Stands on channels; progress lies in a file of its own.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use ucs::event_set::EventSet;
use ucs::log::Limited;
use ucs::sys::SystemError;
use ucs::sys::process::credentials;
use ucs::units::{MemSize, Ternary};
use uct_plugin::abi::*;
use uct_plugin::memory::{Accessor, Allocation};
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{
    AmHandlers, Completion, Device, DeviceKind, Endpoint, Error, Failure, Flush, Iface, IfaceAttr,
    IfaceParams, Outcome, PeerAddress, Result, Scope, Settings, Transport, attr,
};
use zerocopy::IntoBytes;

use crate::config::{CmaConfig, Peers, ShmConfig};
use crate::door::Door;
use crate::ep::{MAX_HEADER, ShmEp};
use crate::io::cma;
use crate::io::socket::Listener;
use crate::link::attention::{Attention, flag};
use crate::link::channel::Channel;
use crate::link::connection::Connection;
use crate::link::emulation::largest_piece;
use crate::link::handshake::Party;
use crate::link::limits::Limits;
use crate::link::peer::new_bell;
use crate::link::place;
use crate::link::table::Table;
use crate::md::{Flavor, ShmMd};
use crate::proto::addr::{self, DeviceAddress, IfaceAddress};
use crate::proto::kind::Kind;
use crate::proto::ring::{Bell, MappedBell, Watch, register_heavy_barrier};

/// A transport: `posix`, `sysv` or `cma`.
pub(crate) struct ShmTransport<F>(PhantomData<F>);

/// Tells the listener from channels, which are known by their numbers.
pub(crate) const LISTENER: u64 = u64::MAX;
/// Tells the timer from them.
pub(crate) const TIMER: u64 = u64::MAX - 1;
/// Tells a connection without a hello, whose number is added.
pub(crate) const GREETING: u64 = 1 << 63;
/// Channels with a bit of their own in the bell.
pub(crate) const BELL_RINGS: usize = Bell::<MappedBell>::RINGS as usize;

/// An interface.
pub(crate) struct ShmIface {
    /// What the next message changes.
    pub(crate) watch: Cell<Watch>,
    /// The hot channel that is watched.
    pub(crate) watched: Cell<Option<NonNull<Channel>>>,
    /// The next message comes in its ring or in its shuttle, one of which is watched.
    pub(crate) is_beside: Cell<bool>,
    /// The bell is watched in the place of a hot channel for a few calls, so that messages gather there.
    pub(crate) is_resting: Cell<bool>,
    /// Calls of progress that were left when it last received something.
    pub(crate) received_at: Cell<u32>,
    pub(crate) bell: Bell<MappedBell>,
    pub(crate) attention: Attention,
    /// Calls of progress until sockets are looked at.
    pub(crate) until_turn: Cell<u32>,
    pub(crate) is_working: Cell<bool>,
    /// Pending requests are being tried, which is work outside handlers.
    pub(crate) is_serving: Cell<bool>,
    pub(crate) max_poll: u32,
    pub(crate) poll_interval: u32,
    pub(crate) am: AmHandlers,
    /// Id of the last short message of a run.
    pub(crate) last_id: Cell<u8>,
    pub(crate) hot: RefCell<Vec<Rc<Connection>>>,
    pub(crate) turn: Cell<u32>,
    pub(crate) swept: Cell<usize>,
    /// Connections with pending requests.
    pub(crate) waiting: RefCell<Vec<Rc<Connection>>>,
    pub(crate) flushes: RefCell<Vec<Completion>>,
    pub(crate) table: Table,
    pub(crate) door: Box<Door>,
    pub(crate) events: EventSet,
    pub(crate) party: Box<Party>,
    /// The kernel copies to and from registered memory of peers, presumably.
    kernel_copies: bool,
    pub(crate) limits: Limits,
    /// Accesses to memory that is mapped here.
    pub(crate) accessor: Accessor,
    pub(crate) counts: Counts,
    pub(crate) errors: ErrorHandler,
    pub(crate) next_ep: Cell<u32>,
    /// What is packed and unpacked passes through it; none while that is under way.
    pub(crate) scratch: Cell<Option<Allocation>>,
    pub(crate) listener: Listener,
    pub(crate) device: DeviceAddress,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) config: Box<ShmConfig>,
}

/// What has happened, for people.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Operations on remote memory that the kernel has carried out.
    pub(crate) by_kernel: Cell<u64>,
    /// Those that the peer has.
    pub(crate) by_peer: Cell<u64>,
    /// Keys that were bound to a segment late.
    pub(crate) bound: Cell<u64>,
    /// Operations that lacked room, or an answer.
    pub(crate) no_resource: Cell<u64>,
    /// Messages that were sent in a shuttle.
    pub(crate) shuttled: Cell<u64>,
    /// Times that this interface went to sleep.
    pub(crate) slept: Cell<u64>,
}

/// Counts one up.
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl<F: Flavor> Transport for ShmTransport<F> {
    const NAME: &'static str = F::KIND.name();
    type Md = ShmMd;
    type Iface = ShmIface;

    fn devices(_md: &ShmMd, settings: &Settings<'_>) -> Result<Vec<Device>, Failure> {
        if F::KIND == Kind::Cma {
            cma::probe_self().map_err(|reason| Failure::new(Error::UNSUPPORTED, reason))?;
            if ShmConfig::from_settings(settings)?.cma == Ternary::No {
                return Err(Failure::new(Error::UNSUPPORTED, "it is switched off (UCT_SHM_CMA=n)"));
            }
        }
        Ok(vec![Device { name: "memory".to_owned(), kind: DeviceKind::SharedMemory, numa_node: None }])
    }

    fn open(md: &Arc<ShmMd>, params: IfaceParams<'_>) -> Result<Rc<ShmIface>, Failure> {
        ShmIface::open(md, &params).map(Rc::new)
    }
}

impl ShmIface {
    fn open(md: &ShmMd, params: &IfaceParams<'_>) -> Result<ShmIface, Failure> {
        crate::link::remote::registry()?;
        let system = |error: SystemError| Failure::new(Error::from(&error), error.to_string());
        let config = ShmConfig::from_settings(&params.settings)?;
        if !register_heavy_barrier() {
            tracing::debug!("the kernel has no membarrier: each message costs a full barrier");
        }
        let ptracer = CmaConfig::from_settings(&params.settings)?.ptracer;
        if ptracer {
            cma::permit_any_tracer();
        }
        let kernel_copies = config.cma != Ternary::No && cma::is_likely(ptracer);
        let (bell, bell_segment) = new_bell().map_err(system)?;
        let directory = place::directory(&config.dir);
        let id = RandomState::new().hash_one(std::process::id()) | 1;
        let key = RandomState::new().hash_one(id);
        let public = config.peers == Peers::Any;
        let listener = Listener::new(id, directory.as_deref(), public).map_err(system)?;
        let events = EventSet::new().map_err(system)?;
        let pid = std::process::id();
        let address = IfaceAddress { id, key, uid: credentials().effective_uid, pid };
        let rounded = |size: MemSize| (size.bytes() as usize).next_multiple_of(64);
        let (small, bulk) = (rounded(config.small_seg_size), rounded(config.seg_size));
        let limits = Limits { short: small, bulk, remote: largest_piece(bulk) };
        let iface = ShmIface {
            watch: Cell::new(bell.watch()),
            watched: Cell::new(None),
            is_beside: Cell::new(false),
            is_resting: Cell::new(false),
            received_at: Cell::new(0),
            bell,
            attention: Attention::new(),
            until_turn: Cell::new(config.poll_interval),
            is_working: Cell::new(false),
            is_serving: Cell::new(false),
            max_poll: config.fifo_max_poll,
            poll_interval: config.poll_interval,
            am: params.am,
            last_id: Cell::new(0),
            hot: RefCell::default(),
            turn: Cell::new(0),
            swept: Cell::new(0),
            waiting: RefCell::default(),
            flushes: RefCell::default(),
            table: Table::default(),
            door: Box::new(Door::new().map_err(system)?),
            events,
            device: place::device_address(md.kind, directory.as_deref()),
            party: Box::new(Party {
                kind: md.kind,
                address,
                origin: md.origin.clone(),
                trust: md.trust(),
                limits,
                peers: config.peers,
                refusals: Limited::new(1),
                bell: bell_segment,
            }),
            kernel_copies,
            limits,
            accessor: Accessor::default(),
            counts: Counts::default(),
            errors: params.errors,
            next_ep: Cell::new(0),
            scratch: Cell::new(None),
            listener,
            directory,
            config: Box::new(config),
        };
        iface.open_door().map_err(system)?;
        Ok(iface)
    }

    /// Makes progress look at the sockets at its next call.
    pub(crate) fn hurry(&self) {
        self.until_turn.set(0);
        self.attention.raise(flag::ALARM);
    }

    /// Watches the bell, for want of a ring.
    pub(crate) fn watch_bell(&self) {
        self.watch.set(self.bell.watch());
        self.watched.set(None);
        self.is_beside.set(false);
    }

    /// Watches what comes next from a hot channel.
    #[inline(always)]
    pub(crate) fn watch_channel(&self, channel: &Channel) {
        self.watched.set(Some(NonNull::from(channel)));
        self.watch.set(channel.watch());
        self.is_resting.set(false);
        self.is_beside.set(!channel.seat.is_mine());
    }

    /// Something was sent in the shuttle of a channel: the answer comes there, or crosses it in a ring.
    #[inline(always)]
    pub(crate) fn expect_shuttle(&self, channel: &Channel) {
        count(&self.counts.shuttled);
        // SAFETY: it is hot (`watch_channel`).
        let watched = self.watched.get().map(|watched| unsafe { watched.as_ref() });
        if let Some(watched) = watched.filter(|watched| watched.seat.is_beside(&channel.seat)) {
            self.watch_channel(watched);
            self.attention.hasten();
        }
    }

    /// Whether nothing is outstanding or pending.
    pub(crate) fn is_flushed(&self) -> bool {
        self.waiting.borrow().is_empty() && self.table.is_idle()
    }

    /// Runs `body` with a buffer of the largest message's size, aligned to a page.
    pub(crate) fn with_scratch<R>(&self, body: impl FnOnce(&mut [u8]) -> Result<R>) -> Result<R> {
        let scratch = match self.scratch.take() {
            Some(scratch) => scratch,
            None => Allocation::new(self.limits.bulk).map_err(|failure| failure.status)?,
        };
        // SAFETY: the allocation is zeroed at first, has as many bytes, and is this call's.
        let bytes = unsafe { std::slice::from_raw_parts_mut(scratch.address().as_ptr(), self.limits.bulk) };
        let result = body(bytes);
        self.scratch.set(Some(scratch));
        result
    }
}

impl Iface for ShmIface {
    type Md = ShmMd;
    type Ep = ShmEp;

    fn attributes(&self) -> IfaceAttr {
        let Limits { short: small, bulk, remote } = self.limits;
        let rma = UctOpLimits {
            max_short: usize::MAX >> 1,
            max_bcopy: remote,
            max_zcopy: usize::MAX >> 1,
            opt_zcopy_align: 64,
            align_mtu: 64,
            max_iov: ShmEp::MAX_IOV,
            ..attr::blank().put
        };
        // UCX's figures for its transports of the same names.
        let (overhead, bandwidth) = match self.party.kind {
            Kind::Cma => (2e-6, 11145e6),
            _ => (10e-9, 15360e6),
        };
        IfaceAttr {
            capabilities: attr::AM
                | attr::PUT_GET
                | attr::ERRHANDLE_MEMORY
                | UCT_CAP_PENDING
                | UCT_CAP_ATOMIC_CPU
                | UCT_CAP_ERRHANDLE_PEER_FAILURE
                | UCT_CAP_EP_CHECK
                | UCT_CAP_EP_KEEPALIVE
                | UCT_CAP_CONNECT_TO_IFACE
                | UCT_CAP_CONNECT_TO_EP
                | UCT_CAP_CB_SYNC,
            // Memory from the memory domain is mapped. Other memory, which is what zero copy is for, the peer itself has to
            // copy if the kernel may not.
            emulated: if self.kernel_copies { 0 } else { UCT_CAP_PUT_ZCOPY | UCT_CAP_GET_ZCOPY },
            events: UCT_EVENT_SEND_COMP | UCT_EVENT_RECV | UCT_EVENT_RECV_SIG,
            am: UctOpLimits {
                max_short: small - size_of::<u64>(),
                max_bcopy: bulk,
                max_zcopy: bulk,
                max_iov: ShmEp::MAX_IOV,
                max_hdr: MAX_HEADER,
                ..attr::blank().am
            },
            put: rma,
            get: rma,
            atomic32: attr::ALL_ATOMICS,
            atomic64: attr::ALL_ATOMICS,
            device_addr_len: addr::DEVICE_LENGTH,
            iface_addr_len: addr::IFACE_LENGTH,
            ep_addr_len: addr::EP_LENGTH,
            overhead: attr::model(overhead),
            latency: attr::model(80e-9),
            bandwidth_dedicated: attr::model(bandwidth),
            ..attr::blank()
        }
    }

    fn device_address(&self, buffer: &mut [u8]) -> Result {
        self.device.write_to(buffer).map_err(|_| Error::BUFFER_TOO_SMALL)
    }

    fn address(&self, buffer: &mut [u8]) -> Result {
        self.party.address.write_to(buffer).map_err(|_| Error::BUFFER_TOO_SMALL)
    }

    fn is_reachable(&self, peer: PeerAddress<'_>, _scope: Scope) -> Result<(), String> {
        self.whereabouts(peer).map(drop)
    }

    fn is_impeded(&self, peer: PeerAddress<'_>) -> bool {
        DeviceAddress::parse(peer.device).is_ok_and(|peer| self.device.is_beside(&peer))
    }

    #[inline(always)]
    fn progress(&self) -> u32 {
        self.advance()
    }

    fn create_ep(self: &Rc<Self>, params: uct_plugin::EpParams<'_>) -> Result<Rc<ShmEp>, Failure> {
        let ep = ShmEp::new(self, params.user);
        if let Some(peer) = params.peer {
            ep.attach(&self.connection_to(peer)?);
        }
        Ok(ep)
    }

    fn close(&self) {
        self.hot.borrow_mut().clear();
        self.watch_bell();
        self.waiting.borrow_mut().clear();
        for connection in self.table.all() {
            connection.emulation.fail(Error::CANCELED);
        }
        self.table.clear();
        self.door.close();
    }

    fn event_fd(&self) -> Result<RawFd> {
        Ok(self.events_fd())
    }

    fn arm(&self, events: u32) -> Result {
        if events & UCT_EVENT_SEND_COMP != 0 && !self.waiting.borrow().is_empty() {
            // Room in a ring makes no noise.
            return Err(Error::BUSY);
        }
        if self.is_working.get() || self.look_at_sockets() > 0 || !self.fall_asleep() {
            return Err(Error::BUSY);
        }
        count(&self.counts.slept);
        Ok(())
    }

    fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        if flags.cancel {
            for connection in self.table.all() {
                connection.members().iter().for_each(|member| connection.cancel(member));
            }
            return Ok(Outcome::Done);
        }
        if self.is_flushed() {
            return Ok(Outcome::Done);
        }
        if let Some(completion) = completion {
            self.flushes.borrow_mut().push(completion);
            self.attention.raise(flag::FLUSH);
        }
        Ok(Outcome::InProgress)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Counts { by_kernel, by_peer, bound, no_resource, shuttled, slept } = &self.counts;
        vec![
            ("rma_by_kernel", by_kernel.get()),
            ("rma_by_peer", by_peer.get()),
            ("keys_bound_late", bound.get()),
            ("no_resource", no_resource.get()),
            ("shuttled", shuttled.get()),
            ("slept", slept.get()),
            ("peers", self.table.len() as u64),
            ("rings_polled", self.hot.borrow().len() as u64),
        ]
    }

    fn fence(&self) -> Result {
        for connection in self.table.all() {
            connection.members().iter().for_each(|member| connection.fence(member));
        }
        Ok(())
    }
}

impl ShmIface {
    fn events_fd(&self) -> RawFd {
        use std::os::fd::AsFd;
        self.events.as_fd().as_raw_fd()
    }
}
