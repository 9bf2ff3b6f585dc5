//! The state of an interface that its timers work on as well: connections, queues, buffers.
//!
//! Here are its parts, what timers do, and how it ends; each file beside has one kind of operations on it. Nothing here calls
//! the application.

mod buffers;
mod clock;
mod output;
mod pending_work;
mod receive;
mod retire;
mod send;

use std::collections::{HashSet, VecDeque};

use uct_ib::verbs::Context;
use uct_plugin::{AsyncId, Error, Failure, Result, Worker};

use crate::io::packet::{HEADER, Packet};
use crate::io::packets::PacketPool;
use crate::io::path::Path;
use crate::io::queue::Queue;
use crate::io::receives::{Arrival, ReceivePool};
use crate::link::paths::Paths;
use crate::proto::addr::{origin, pack_request, parse_request};
use crate::proto::{ConnectionId, HEADER_SIZE, Handles, Origin, Settings, Table, Time};
use buffers::Spare;
use clock::Clock;
use pending_work::PendingWork;
use receive::DeferredAck;
pub(crate) use receive::InOrder;
pub(crate) use retire::Collected;

const _: () = assert!(HEADER == HEADER_SIZE, "datagrams have room for the header");

/// What the protocol keeps of ours.
pub(crate) struct UdHandles;

impl Handles for UdHandles {
    type Send = Packet;
    type Receive = Arrival;
    type Path = Path;

    fn origin(address: &[u8]) -> Option<Origin> {
        let (device, qp) = parse_request(address)?;
        Some(origin(&device, qp))
    }
}

/// The state of an interface.
pub(crate) struct Core {
    // First, so that the device is done before memory and address handles go.
    pub(crate) queue: Queue,
    pub(crate) table: Table<UdHandles>,
    packets: PacketPool,
    receives: ReceivePool,
    pub(crate) paths: Paths,
    pub(crate) clock: Clock,
    /// Datagrams that were taken from the device and not yet handled.
    pub(crate) arrivals: VecDeque<Arrival>,
    /// Connections for which a timer has received datagrams: progress has to check them.
    heard_of: HashSet<ConnectionId>,
    /// Packets that the protocol is done with, but not the device.
    zombies: VecDeque<Packet>,
    /// Receive buffers that the device has.
    posted: u32,
    spare: Spare,
    /// Ticks since the application last called progress.
    pub(crate) idle_ticks: u32,
    /// The timer that runs while something is in flight.
    pub(crate) timer: Option<AsyncId>,
    /// It ticks fast, as a thread that does not sleep needs it.
    pub(crate) is_ticking: bool,
    /// Since the worker was last about to sleep it has not been seen awake for long: the timer does not tick before this.
    pub(crate) asleep_until: Option<Time>,
    /// What the worker's thread has done since.
    pub(crate) calls_since_sleep: u32,
    /// Ticks in a row for which the timer was not needed.
    pub(crate) quiet_ticks: u32,
    pub(crate) worker: Worker,
    /// When the events of the device were last due to be checked, and whether they are due.
    device_checked_at: Time,
    pub(crate) must_check_device: bool,
    /// There may be work that no datagram causes.
    pub(crate) pending_work: PendingWork,
    /// The failure of the queue pair has been handled.
    is_broken: bool,
    deferred: Option<DeferredAck>,
    /// Datagrams too short to be one.
    pub(crate) malformed: u64,
}

// SAFETY: raw pointers in here (pools, packets, arrivals) are to memory that the core owns; one thread at a time works on
// it (`Lock`). Completions are only carried, and completed by the worker's thread.
unsafe impl Send for Core {}

/// Nanoseconds between two checks of the events of the device.
const DEVICE_CHECK_INTERVAL: u64 = 400_000_000;

/// Nanoseconds that a device which has failed is given to end what was posted.
const DYING: u64 = 100_000_000;

/// Receive buffers that go to the device at a time.
const BATCH: u32 = 16;

impl Core {
    /// Makes an empty table, and gives the device its first receive buffers.
    pub(crate) fn new(
        queue: Queue,
        (packets, receives): (PacketPool, ReceivePool),
        paths: Paths,
        settings: Settings,
        worker: Worker,
    ) -> Result<Core, Failure> {
        let address = pack_request(&paths.port.device_address(), queue.number());
        let table = Table::new(settings, &address)
            .map_err(|error| Failure::new(Error::INVALID_PARAM, error.to_string()))?;
        let mut core = Core {
            queue,
            table,
            packets,
            receives,
            paths,
            clock: Clock::default(),
            arrivals: VecDeque::new(),
            heard_of: HashSet::new(),
            zombies: VecDeque::new(),
            posted: 0,
            spare: Spare::NEW,
            idle_ticks: 0,
            timer: None,
            is_ticking: false,
            asleep_until: None,
            calls_since_sleep: 0,
            quiet_ticks: 0,
            worker,
            device_checked_at: Time::default(),
            must_check_device: false,
            pending_work: PendingWork::SOME,
            is_broken: false,
            deferred: None,
            malformed: 0,
        };
        core.clock.read();
        core.fill(1);
        if core.posted == 0 {
            return Err(Failure::new(Error::NO_MEMORY, "the device accepted no receive buffer"));
        }
        Ok(core)
    }

    /// Leaves what there is to do to the next progress, unless the protocol has something to send; returns whether it did.
    #[inline]
    pub(crate) fn leave_work(&mut self) -> bool {
        self.clock.expire();
        let may_leave = !self.table.has_output();
        if may_leave {
            self.pending_work.add();
        }
        may_leave
    }

    /// Finds out whether there is work that no datagram causes.
    pub(crate) fn has_pending_work(&mut self) -> bool {
        let has_work = self.has_reports()
            || self.table.has_output()
            || self.queue.should_reap()
            || !self.zombies.is_empty()
            || (self.queue.broken.is_some() && !self.is_broken)
            || self.must_check_device;
        self.pending_work.set(has_work);
        has_work
    }

    /// Handles all timers. Called by the asynchronous context, or by progress in its place.
    pub(crate) fn tick(&mut self) {
        self.clock.read();
        self.process_deferred();
        self.idle_ticks = self.idle_ticks.saturating_add(1);
        if self.clock.now().since(self.device_checked_at) > DEVICE_CHECK_INTERVAL {
            self.device_checked_at = self.clock.now();
            self.must_check_device = true;
        }
        if self.idle_ticks > 2 {
            self.listen();
        }
        self.table.handle_timeout(self.clock.now());
        self.transmit();
        self.paths.drop_unused(&self.queue);
        self.pending_work.add();
        // A send before the next progress may be much later.
        self.clock.expire();
    }

    /// Reads the tables of the port again, if it is that of this number: its addresses may have moved. Requests then carry the
    /// address from which they come.
    pub(crate) fn refresh_port(&mut self, context: &Context, number: u8) {
        if self.paths.refresh(context, number) {
            let address = pack_request(&self.paths.port.device_address(), self.queue.number());
            self.table.set_address(&address).expect("an address is as long as the one before");
        }
    }

    /// Whether it is time to read the events of the device: now and then, and when something has failed, whose reason they may have.
    pub(crate) fn take_device_check(&mut self) -> bool {
        let has_just_failed = self.queue.broken.is_some() && !self.is_broken;
        std::mem::take(&mut self.must_check_device) || has_just_failed
    }

    /// The interface fails for this reason, unless that has been handled.
    pub(crate) fn set_broken(&mut self, reason: &str) {
        if !self.is_broken {
            self.queue.broken = Some(reason.to_owned());
        }
    }

    /// Once the queue pair or the device has failed: ends all traffic and fails every connection; returns why. Nothing if
    /// it has not failed, or this was called before.
    pub(crate) fn give_up(&mut self) -> Option<String> {
        if self.is_broken {
            return None;
        }
        let reason = self.queue.broken.clone()?;
        self.is_broken = true;
        // Posted requests end with it, so that nothing waits for the device in vain.
        self.stop(DYING);
        self.table.break_all(self.clock.now());
        Some(reason)
    }

    /// Why no connection can be made any more.
    ///
    /// # Errors
    /// [`Error::IO_ERROR`] once the queue pair or the device has failed.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &self.queue.broken {
            None => Ok(()),
            Some(reason) => Err(Failure::new(
                Error::IO_ERROR,
                format!("the interface has failed, open another: {reason}"),
            )),
        }
    }

    /// Ends all traffic, and takes every buffer back; waits for the device no longer than `limit` ns.
    pub(crate) fn stop(&mut self, limit: u64) {
        self.clock.read();
        let end = self.clock.now().plus(limit);
        self.queue.stop();
        while (self.posted > 0 || self.queue.is_sending()) && self.clock.now() < end {
            self.queue.reap();
            self.poll_device();
            while let Some(arrival) = self.arrivals.pop_front() {
                self.receives.put(arrival);
            }
            self.clock.read();
        }
        self.queue.all_ended();
        if self.posted > 0 {
            ucs::log::warn!(buffers = self.posted, "the device has not returned all receive buffers");
        }
    }
}
