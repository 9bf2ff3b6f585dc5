//! The interface: its doorbell, its listener, and its connections to peers.
//!
//! Its methods are in other files: `peers` (connects to peers), `listen` (accepts peers) and `progress`. Built on `link`.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use ucs::event_set::EventSet;
use ucs::log::Limited;
use ucs::sys::SystemError;
use ucs::sys::process::credentials;
use ucs::units::{MemSize, Ternary};
use uct_plugin::memory::{Accessor, Allocation};
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{Error, Failure, FlushSet, IfaceParams, Result};

use crate::config::{CmaConfig, Peers, ShmConfig};
use crate::io::cma;
use crate::io::socket::Listener;
use crate::link::connection::Connection;
use crate::link::door::Door;
use crate::link::emulation::largest_piece;
use crate::link::handshake::Identity;
use crate::link::limits::Limits;
use crate::link::peer::new_doorbell;
use crate::link::place;
use crate::link::receive::Handlers;
use crate::link::remote::{SegmentCache, registry};
use crate::link::ring_pair::RingPair;
use crate::link::table::Table;
use crate::link::work::PendingWork;
use crate::md::ShmMd;
use crate::proto::addr::{DeviceAddress, IfaceAddress};
use crate::proto::ring::{Doorbell, MappedDoorbell, Watch, register_heavy_barrier};
use crate::proto::schedule::{LINE_INTERVAL, Schedule};

/// Token of the listener in the event set. The token of a channel is its number.
pub(crate) const LISTENER: u64 = u64::MAX;
/// Token of the timer.
pub(crate) const TIMER: u64 = u64::MAX - 1;
/// Token of a half-open connection, to which its number is added.
pub(crate) const HALF_OPEN: u64 = 1 << 63;
/// Channels with a bit of their own in the doorbell.
pub(crate) const DOORBELL_BITS: usize = Doorbell::<MappedDoorbell>::RINGS as usize;

/// An interface.
pub(crate) struct ShmIface {
    /// The word that the next message changes: in the memory of the first active channel, or the doorbell.
    pub(crate) watch: Cell<Watch>,
    pub(crate) schedule: Schedule,
    /// Shared with the channels, which leave work to progress.
    pub(crate) work: PendingWork,
    /// Shared with the channels, which keep segments of peers in it.
    pub(crate) cache: Rc<SegmentCache>,
    pub(crate) doorbell: Doorbell<MappedDoorbell>,
    pub(crate) is_working: Cell<bool>,
    /// Pending requests are running. They run outside handlers.
    pub(crate) is_serving: Cell<bool>,
    pub(crate) max_poll: u32,
    pub(crate) poll_interval: u32,
    pub(crate) handlers: Handlers,
    pub(crate) active: RefCell<Vec<Rc<Connection>>>,
    pub(crate) epoch: Cell<u32>,
    pub(crate) rescanned: Cell<usize>,
    pub(crate) trimmed: Cell<usize>,
    /// Time without messages to a peer after which memory of its ring is given back.
    pub(crate) trim_timeout: Duration,
    /// Connections with pending requests.
    pub(crate) waiting: RefCell<Vec<Rc<Connection>>>,
    pub(crate) flushes: FlushSet<()>,
    pub(crate) table: Table,
    pub(crate) door: Box<Door>,
    pub(crate) events: EventSet,
    pub(crate) identity: Box<Identity>,
    /// The kernel is expected to copy from and to registered memory of peers.
    pub(crate) kernel_copies: bool,
    pub(crate) limits: Limits,
    /// Counts accesses to mapped memory.
    pub(crate) accessor: Accessor,
    pub(crate) counts: Counts,
    pub(crate) errors: ErrorHandler,
    pub(crate) next_ep: Cell<u32>,
    /// Buffer for packing and unpacking. `None` while it is in use.
    pub(crate) scratch: Cell<Option<Allocation>>,
    pub(crate) listener: Listener,
    pub(crate) device: DeviceAddress,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) config: Box<ShmConfig>,
}

/// The counters that the interface reports.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Operations on remote memory that were carried out by the kernel.
    pub(crate) by_kernel: Cell<u64>,
    /// Operations on remote memory that were carried out by the peer.
    pub(crate) by_peer: Cell<u64>,
    /// Keys that were bound to a segment at their first operation.
    pub(crate) bound: Cell<u64>,
    /// Operations that were blocked.
    pub(crate) no_resource: Cell<u64>,
    /// Messages that were sent in the ping-pong line.
    pub(crate) sent_in_line: Cell<u64>,
    /// How often this interface was armed to sleep.
    pub(crate) slept: Cell<u64>,
}

/// Increments a counter.
pub(crate) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl ShmIface {
    pub(crate) fn open(md: &ShmMd, params: &IfaceParams<'_>) -> Result<ShmIface, Failure> {
        registry()?;
        let system = |error: SystemError| Failure::new(Error::from(&error), error.to_string());
        let config = ShmConfig::from_settings(&params.settings)?;
        if !register_heavy_barrier() {
            ucs::log::debug!("the kernel has no membarrier: each message costs a full barrier");
        }
        let ptracer = CmaConfig::from_settings(&params.settings)?.ptracer;
        if ptracer {
            cma::permit_any_tracer();
        }
        let kernel_copies = config.cma != Ternary::No && cma::is_likely(ptracer);
        let (doorbell, doorbell_segment) = new_doorbell().map_err(system)?;
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
        let (most, bytes) = (config.max_cached_segments as usize, config.max_cached_bytes.bytes());
        let cache = SegmentCache::new(most, bytes).populating(params.settings.populates());
        let iface = ShmIface {
            watch: Cell::new(doorbell.watch()),
            schedule: Schedule::new(config.poll_interval),
            work: PendingWork::default(),
            cache: Rc::new(cache),
            doorbell,
            is_working: Cell::new(false),
            is_serving: Cell::new(false),
            max_poll: config.fifo_max_poll,
            poll_interval: config.poll_interval,
            handlers: Handlers::new(params.am),
            active: RefCell::default(),
            epoch: Cell::new(0),
            rescanned: Cell::new(0),
            trimmed: Cell::new(0),
            trim_timeout: config.trim_timeout.to_duration(),
            waiting: RefCell::default(),
            flushes: FlushSet::default(),
            table: Table::default(),
            door: Box::new(Door::new().map_err(system)?),
            events,
            device: place::device_address(md.kind, directory.as_deref()),
            identity: Box::new(Identity {
                kind: md.kind,
                address,
                origin: md.origin.clone(),
                trust: md.trust(),
                limits,
                admits_others: public,
                refusals: Limited::new(1),
                doorbell: doorbell_segment,
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

    /// Adds work, which the next call of progress does.
    pub(crate) fn raise(&self, sources: u8) {
        self.work.raise(sources);
        self.schedule.slow_path_within(1);
    }

    /// Watches the next message of the first active channel, or the doorbell if no channel is active.
    pub(crate) fn watch_first(&self) {
        self.watch.set(match self.active.borrow().first() {
            Some(first) => first.channel.rings.watch(),
            None => self.doorbell.watch(),
        });
    }

    /// A message was sent in the line of a channel: the reply arrives there, and a message that was sent before it in a ring.
    #[inline(never)]
    pub(crate) fn expect_reply(&self, rings: &RingPair) {
        count(&self.counts.sent_in_line);
        let active = self.active.borrow();
        if let Some(Connection { channel, .. }) = active.first().map(|first| &**first)
            && channel.rings.has_line_of(rings)
        {
            channel.rings.expect_reply();
            self.watch.set(channel.rings.watch());
            self.schedule.slow_path_within(LINE_INTERVAL);
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
        // SAFETY: the allocation is zeroed when it is made, has this length, and is used by this call only.
        let bytes = unsafe { std::slice::from_raw_parts_mut(scratch.address().as_ptr(), self.limits.bulk) };
        let result = body(bytes);
        self.scratch.set(Some(scratch));
        result
    }
}
