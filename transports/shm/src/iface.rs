//! The interface: its doorbell, its listener, and its connections to peers.
//!
//! Its methods are in other files: `peers` (connects to peers), `listen` (accepts peers) and `progress`. Built on `link`.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::rc::Rc;

use ucs::event_set::EventSet;
use ucs::log::Limited;
use ucs::sys::SystemError;
use ucs::sys::process::credentials;
use ucs::units::{MemSize, Ternary};
use uct_plugin::memory::{Accessor, Allocation};
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{AmHandlers, Error, Failure, FlushSet, IfaceParams, Result};

use crate::config::{CmaConfig, Peers, ShmConfig};
use crate::io::cma;
use crate::io::socket::Listener;
use crate::link::channel::Channel;
use crate::link::connection::Connection;
use crate::link::door::Door;
use crate::link::emulation::largest_piece;
use crate::link::handshake::Identity;
use crate::link::limits::Limits;
use crate::link::peer::new_doorbell;
use crate::link::place;
use crate::link::remote::registry;
use crate::link::schedule::{Schedule, source};
use crate::link::table::Table;
use crate::md::ShmMd;
use crate::proto::addr::{DeviceAddress, IfaceAddress};
use crate::proto::ring::{Doorbell, MappedDoorbell, Watch, register_heavy_barrier};

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
    /// The word that the next message changes.
    pub(crate) watch: Cell<Watch>,
    /// The active channel that contains the watched word.
    pub(crate) watched: Cell<Option<NonNull<Channel>>>,
    /// The peer owns the line: the next message comes in the ring or in the line, and one of the two is watched.
    pub(crate) peer_owns_line: Cell<bool>,
    /// After a burst: the doorbell is watched instead of the active channel for a few calls, so that messages accumulate in the ring.
    pub(crate) is_backing_off: Cell<bool>,
    /// Calls that were left until the slow path when messages were last received.
    pub(crate) received_at: Cell<u32>,
    pub(crate) doorbell: Doorbell<MappedDoorbell>,
    pub(crate) schedule: Schedule,
    /// Calls of progress until the next epoch, in which sockets are polled.
    pub(crate) until_epoch: Cell<u32>,
    pub(crate) is_working: Cell<bool>,
    /// Pending requests are running. They run outside handlers.
    pub(crate) is_serving: Cell<bool>,
    pub(crate) max_poll: u32,
    pub(crate) poll_interval: u32,
    pub(crate) am: AmHandlers,
    /// Message id of the last short message.
    pub(crate) last_id: Cell<u8>,
    pub(crate) active: RefCell<Vec<Rc<Connection>>>,
    pub(crate) epoch: Cell<u32>,
    pub(crate) rescanned: Cell<usize>,
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
    pub(crate) shuttled: Cell<u64>,
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
            tracing::debug!("the kernel has no membarrier: each message costs a full barrier");
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
        let iface = ShmIface {
            watch: Cell::new(doorbell.watch()),
            watched: Cell::new(None),
            peer_owns_line: Cell::new(false),
            is_backing_off: Cell::new(false),
            received_at: Cell::new(0),
            doorbell,
            schedule: Schedule::new(),
            until_epoch: Cell::new(config.poll_interval),
            is_working: Cell::new(false),
            is_serving: Cell::new(false),
            max_poll: config.fifo_max_poll,
            poll_interval: config.poll_interval,
            am: params.am,
            last_id: Cell::new(0),
            active: RefCell::default(),
            epoch: Cell::new(0),
            rescanned: Cell::new(0),
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

    /// The next call of progress polls the sockets.
    pub(crate) fn schedule_sockets(&self) {
        self.until_epoch.set(0);
        self.schedule.raise(source::CHANNEL);
    }

    /// Watches the doorbell, because no ring is active.
    pub(crate) fn watch_doorbell(&self) {
        self.watch.set(self.doorbell.watch());
        self.watched.set(None);
        self.peer_owns_line.set(false);
    }

    /// Watches the next message of an active channel.
    #[inline(always)]
    pub(crate) fn watch_channel(&self, channel: &Channel) {
        self.watched.set(Some(NonNull::from(channel)));
        let owns_line = channel.lane.owns_line();
        self.watch.set(if owns_line { channel.lane.receiver.watch() } else { channel.lane.watch() });
        self.is_backing_off.set(false);
        self.peer_owns_line.set(!owns_line);
    }

    /// A message was sent in the line of a channel. The reply arrives in the line; a message that was sent before it arrives in the ring.
    #[inline(never)]
    pub(crate) fn expect_reply(&self, channel: &Channel) {
        count(&self.counts.shuttled);
        // SAFETY: it is active (`watch_channel`).
        let watched = self.watched.get().map(|watched| unsafe { watched.as_ref() });
        if let Some(watched) = watched.filter(|watched| watched.lane.has_line_of(&channel.lane)) {
            self.watch_channel(watched);
            self.schedule.schedule_slow_path();
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
