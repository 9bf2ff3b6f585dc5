//! The state of an interface that its timers work on as well: connections, queues, buffers.
//!
//! For: the interface and its endpoints (through `Lock`) and the asynchronous context. Stands on `proto`, `queue`,
//! `pool` and `path`. Nothing here calls the application.

use std::collections::VecDeque;

use uct_ib::verbs::{Context, Wc, WcBuffer};
use uct_plugin::{AsyncId, Completion, Error, Failure, Result, Worker};

use crate::io::packet::{HEADER, Packet};
use crate::io::path::Path;
use crate::io::pool::{Arrival, PacketPool, ReceivePool, Source};
use crate::io::queue::Queue;
use crate::link::paths::Paths;
use crate::proto::addr::{origin, pack_request, parse_request};
use crate::proto::{
    Body, ConnectionId, HEADER_SIZE, Handles, Header, Origin, Phase, Received, Settings, Table, Time,
};

const _: () = assert!(HEADER == HEADER_SIZE, "datagrams have room for the header");

mod clock;
mod pending_work;
mod receives;
mod send;

use clock::Clock;
use pending_work::PendingWork;
use receives::Spare;

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
    /// Datagrams that were taken from the device and not yet looked at.
    pub(crate) arrivals: VecDeque<Arrival>,
    /// Packets that the protocol is done with, but not the device.
    zombies: VecDeque<Packet>,
    /// Receive buffers that the device has.
    posted: u32,
    spare: Spare,
    /// Ticks since the application last called progress.
    pub(crate) idle_ticks: u32,
    /// The timer that runs while something is in flight.
    pub(crate) timer: Option<AsyncId>,
    /// It ticks fast, as whoever does not sleep needs it.
    pub(crate) is_ticking: bool,
    /// Since the worker was last about to sleep it has not been seen awake for long: the timer does not tick before this.
    pub(crate) asleep_until: Option<Time>,
    /// What the worker's thread has done since.
    pub(crate) calls_since_sleep: u32,
    /// Ticks in a row for which the timer was not needed.
    pub(crate) quiet_ticks: u32,
    pub(crate) worker: Worker,
    /// When the events of the device were last due to be looked at, and whether they are.
    looked_at_device: Time,
    pub(crate) must_look_at_device: bool,
    /// There may be something to do that no datagram tells of.
    pub(crate) pending_work: PendingWork,
    /// The failure of the queue pair has been seen to.
    is_broken: bool,
    /// Datagrams too short to be one.
    pub(crate) malformed: u64,
}

/// An in-order message that acknowledges nothing new.
pub(crate) struct InOrder {
    pub(crate) id: ConnectionId,
    pub(crate) kind: u8,
}

// SAFETY: raw pointers in here (pools, packets, arrivals) are to memory that the core owns; one thread at a time works on
// it (`Lock`). Completions are only carried, and completed by the worker's thread.
unsafe impl Send for Core {}

/// What [`Core::collect`] found.
pub(crate) enum Collected {
    /// A completion to be called.
    Completion(Completion, Result),
    /// The peer has acknowledged messages, whose completions are seen to.
    News,
    /// Nothing.
    Nothing,
}

/// Nanoseconds between two looks at the events of the device.
const LOOK_EVERY: u64 = 400_000_000;

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
            looked_at_device: Time::default(),
            must_look_at_device: false,
            pending_work: PendingWork::SOME,
            is_broken: false,
            malformed: 0,
        };
        core.clock.read();
        core.fill(1);
        if core.posted == 0 {
            return Err(Failure::new(Error::NO_MEMORY, "the device took no receive buffer"));
        }
        Ok(core)
    }

    /// The next datagram that has arrived. An in-order message that acknowledges nothing new is taken in, and only has to be delivered;
    /// any other one is still to be received.
    #[inline]
    pub(crate) fn next_arrival(&mut self) -> Option<(Arrival, Option<InOrder>)> {
        let arrival = self.arrivals.pop_front()?;
        let in_order = self.receive_in_order(&arrival);
        Some((arrival, in_order))
    }

    #[inline]
    fn receive_in_order(&mut self, arrival: &Arrival) -> Option<InOrder> {
        let header = Header::read(arrival.datagram())?;
        self.clock.refresh();
        let origin = self.paths.origin(arrival);
        let id = self.table.receive_in_order(self.clock.now(), &origin, header)?;
        Some(InOrder { id, kind: header.kind() })
    }

    /// Takes in any other sequenced packet.
    #[inline]
    pub(crate) fn receive(&mut self, header: Header, arrival: Arrival) -> Received<Arrival> {
        self.clock.refresh();
        let origin = self.paths.origin(&arrival);
        self.table.receive(self.clock.now(), &origin, header, arrival)
    }

    /// Fetches what the peer has acknowledged, up to the first packet with a completion.
    #[inline]
    pub(crate) fn collect(&mut self, id: ConnectionId) -> Collected {
        let mut collected = Collected::Nothing;
        while let Some(packet) = self.table.pop_acknowledged(id) {
            collected = Collected::News;
            if let Some(completion) = self.retire(packet, Ok(())) {
                return Collected::Completion(completion, Ok(()));
            }
        }
        collected
    }

    /// Takes back a packet that the protocol is done with, now or when the device is; answers whom to tell now.
    #[inline]
    pub(crate) fn retire(&mut self, mut packet: Packet, outcome: Result) -> Option<Completion> {
        if packet.may_be_read() || outcome.is_err() {
            if !self.queue.has_ended(packet.last_post()) {
                self.queue.reap();
            }
            if !self.queue.has_ended(packet.last_post()) {
                packet.set_outcome(outcome);
                self.pending_work.add();
                self.zombies.push_back(packet);
                return None;
            }
        }
        let completion = packet.take_completion();
        self.packets.put(packet);
        completion
    }

    /// Whether packets wait for the device.
    pub(crate) fn has_zombies(&self) -> bool {
        !self.zombies.is_empty()
    }

    /// A packet's completion, of those that waited for the device; `None` if there is none now.
    pub(crate) fn reap_zombie(&mut self) -> Option<(Completion, Result)> {
        for _ in 0..self.zombies.len() {
            let mut packet = self.zombies.pop_front()?;
            if !self.queue.has_ended(packet.last_post()) {
                self.zombies.push_back(packet);
                continue;
            }
            let completion = packet.take_completion();
            let outcome = packet.outcome();
            self.packets.put(packet);
            if let Some(completion) = completion {
                return Some((completion, outcome));
            }
        }
        None
    }

    /// Asks the device for datagrams, and keeps them; returns whether there is anything to do.
    #[inline]
    pub(crate) fn poll(&mut self) -> bool {
        self.idle_ticks = 0;
        self.clock.expire();
        self.poll_device();
        !self.arrivals.is_empty() || !self.pending_work.is_none()
    }

    /// Asks the device for datagrams, and keeps them for the next progress.
    #[inline]
    pub(crate) fn poll_device(&mut self) {
        let mut buffer = WcBuffer::<{ BATCH as usize }>::new();
        for completion in self.queue.poll(&mut buffer) {
            self.keep(completion);
        }
    }

    /// Keeps a datagram that the device has given.
    #[inline]
    fn keep(&mut self, completion: &Wc) {
        self.posted -= 1;
        let length = if completion.is_ok() { completion.byte_length() } else { 0 };
        // SAFETY: the queue pair has only slots of this pool, and the completion ends this one, once.
        let arrival = unsafe { self.receives.arrived(completion.wr_id(), length, Source::of(completion)) };
        let Some(arrival) = arrival else { return };
        if completion.is_ok() {
            self.arrivals.push_back(arrival);
        } else {
            self.pending_work.add();
            let status = completion.status();
            self.queue.broken.get_or_insert_with(|| format!("receiving failed: {status}"));
            self.receives.put(arrival);
        }
    }

    /// Finds out whether there is something to do that no datagram told of.
    pub(crate) fn has_pending_work(&mut self) -> bool {
        let has_work = self.table.has_events()
            || self.table.has_output()
            || self.queue.should_reap()
            || !self.zombies.is_empty()
            || (self.queue.broken.is_some() && !self.is_broken)
            || self.must_look_at_device;
        self.pending_work.set(has_work);
        has_work
    }

    /// Sends what the protocol has to say, while there is room.
    pub(crate) fn transmit(&mut self) {
        if !self.table.has_output() {
            return;
        }
        // Acknowledgements and questions carry times, and a handler may have run for long.
        self.clock.read();
        loop {
            if !self.queue.has_room() {
                self.queue.reap();
                if !self.queue.has_room() {
                    return;
                }
            }
            let Some(transmit) = self.table.poll_transmit(self.clock.now()) else { return };
            // What cannot be sent is as good as lost, and sent again.
            match transmit.body {
                Body::Control(bytes) if bytes.len() <= self.queue.max_inline() => {
                    let _ = self.queue.post_copied(bytes, transmit.path);
                }
                Body::Control(bytes) => {
                    let Some(mut packet) = self.packets.take(bytes.len() - HEADER_SIZE) else { return };
                    packet.begin(bytes.len() - HEADER_SIZE, false);
                    // SAFETY: a control packet is shorter than the smallest MTU, and the buffer is a pool's.
                    unsafe { packet.data().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                    let posted = self.queue.post(&mut packet, transmit.path, true);
                    match posted {
                        Ok(()) => {
                            self.zombies.push_back(packet);
                            self.pending_work.add();
                        }
                        Err(_) => self.packets.put(packet),
                    }
                }
                Body::Message(header, packet) => {
                    packet.set_header(&header);
                    packet.set_resent();
                    let _ = self.queue.post(packet, transmit.path, true);
                }
            }
        }
    }

    /// Sees to everything that time brings. Called by the asynchronous context, or by progress in its place.
    pub(crate) fn tick(&mut self) {
        self.clock.read();
        self.idle_ticks = self.idle_ticks.saturating_add(1);
        if self.clock.now().since(self.looked_at_device) > LOOK_EVERY {
            self.looked_at_device = self.clock.now();
            self.must_look_at_device = true;
        }
        if self.idle_ticks > 2 {
            self.listen();
        }
        self.table.handle_timeout(self.clock.now());
        self.transmit();
        self.paths.drop_unused(&self.queue);
        self.pending_work.add();
        // Who sends before the next progress does so much later.
        self.clock.expire();
    }

    /// Looks at what peers send while the application does not: their acknowledgements count, and they learn that this
    /// side lives; their messages wait.
    pub(crate) fn listen(&mut self) {
        let looked_at = self.arrivals.len();
        self.poll_device();
        // What finds no room is thrown away as if it were lost: it is sent again.
        let room = self.queue.receive_depth() as usize / 2;
        for arrival in self.arrivals.split_off(looked_at) {
            match Header::read(arrival.datagram()) {
                Some(header) if header.is_sequenced() => {
                    let origin = self.paths.origin(&arrival);
                    self.table.receive_later(self.clock.now(), &origin, header);
                    if self.arrivals.len() < room {
                        self.arrivals.push_back(arrival);
                    } else {
                        self.receives.put(arrival);
                    }
                }
                Some(_) => {
                    self.take_control(&arrival);
                    self.receives.put(arrival);
                }
                None => {
                    self.malformed += 1;
                    self.receives.put(arrival);
                }
            }
        }
        self.fill(BATCH);
    }

    /// Takes a control packet in; answers the connection that may have news.
    pub(crate) fn take_control(&mut self, arrival: &Arrival) -> Option<ConnectionId> {
        self.clock.refresh();
        let now = self.clock.now();
        let Core { table, paths, .. } = self;
        let origin = paths.origin(arrival);
        table.receive_control(now, &origin, arrival.datagram(), |address| paths.back(now, arrival, address))
    }

    /// Reads the tables of the port again, if it is that of this number: its addresses may have moved. Requests then carry the
    /// address from which they come.
    pub(crate) fn refresh_port(&mut self, context: &Context, number: u8) {
        if self.paths.refresh(context, number) {
            let address = pack_request(&self.paths.port.device_address(), self.queue.number());
            self.table.set_address(&address).expect("an address is as long as the one before");
        }
    }

    /// Whether a message to be delivered, or news, waits for the application's progress.
    pub(crate) fn has_news(&self) -> bool {
        !self.arrivals.is_empty() || self.table.has_events()
    }

    /// Once the queue pair or the device has failed: ends all traffic and fails every connection; answers why. Nothing if
    /// all is well, or this was seen to before.
    pub(crate) fn give_up(&mut self) -> Option<String> {
        if self.is_broken {
            return None;
        }
        let reason = self.queue.broken.clone()?;
        self.is_broken = true;
        // What was posted ends with it, so that nobody waits for the device in vain.
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
                format!("the interface can neither send nor receive any more, open another: {reason}"),
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
            tracing::warn!(buffers = self.posted, "the device has not given all receive buffers back");
        }
    }

    /// Tells peers and takes the last buffers back when the interface closes; answers completions still to be called.
    pub(crate) fn abandon(&mut self, id: ConnectionId) -> Option<(Completion, Result)> {
        while let Some(packet) = self.table.pop_acknowledged(id) {
            if let Some(completion) = self.retire(packet, Ok(())) {
                return Some((completion, Ok(())));
            }
        }
        while let Some(arrival) = self.table.pop_undelivered(id) {
            self.receives.put(arrival);
        }
        let error = match self.table.phase(id) {
            Phase::Failed(failure) => crate::link::failure::status(failure),
            _ => Error::CANCELED,
        };
        while let Some(packet) = self.table.pop_abandoned(id) {
            if let Some(completion) = self.retire(packet, Err(error)) {
                return Some((completion, Err(error)));
            }
        }
        None
    }

    /// Whether nothing that was accepted for sending on connections without an endpoint is unacknowledged.
    pub(crate) fn is_drained(&self) -> bool {
        self.table.ids().all(|id| self.table.outstanding(id) == 0)
    }
}
