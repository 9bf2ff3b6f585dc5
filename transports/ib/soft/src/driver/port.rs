//! The device with its socket: what it needs to work, behind the driver's lock.
//!
//! For the driver and for `abi`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::{Notices, Options};
use crate::engine::{Config, CqId, Device, Event, Incoming, Nanos, Outgoing, Personality, SrqId};
use crate::network::faults::{Faults, Rates};
use crate::network::slot::{LARGEST_PASSED, NUMBER_BITS, Slot};
use crate::network::udp::Udp;
use crate::script::Script;

/// Packets of the device before those that have arrived are looked at again.
const BUDGET: usize = 32;
/// Turns of receiving and sending in one call.
const TURNS: usize = 16;
/// How much later a packet leaves that is late.
const LATE: Nanos = 200_000;
/// After so long a socket that was full is tried again.
const SOCKET_FULL: Nanos = 50_000;

/// A completion queue of the application, and where its announcements go. The number is the address of the application's object.
#[derive(Clone)]
pub struct CqTarget {
    /// Its channel, if it has one.
    pub channel: Option<Arc<Notices<usize>>>,
    /// Events about it.
    pub events: EventTarget,
}

/// Where events about an object go: the queue of its context, with the address of the application's object.
#[derive(Clone)]
pub struct EventTarget {
    /// The queue of the context that it was made in.
    pub queue: Arc<Notices<(Event, usize)>>,
    /// The address of the application's object.
    pub object: usize,
}

/// Where completions and events are reported.
#[derive(Default)]
pub struct Targets {
    /// Of completion queues.
    pub cqs: HashMap<CqId, CqTarget>,
    /// Of shared receive queues.
    pub srqs: HashMap<SrqId, EventTarget>,
    /// Of queue pairs.
    pub qps: HashMap<u32, EventTarget>,
    /// Of contexts, for what concerns the port or the device.
    pub contexts: Vec<Arc<Notices<(Event, usize)>>>,
}

/// A device and its socket.
pub struct Port {
    /// The device.
    pub device: Device,
    /// Where completions and events are reported.
    pub targets: Targets,
    udp: Udp,
    /// The part of an address that is shared.
    slot: Option<Slot>,
    /// Packets that leave, in their order.
    leaving: VecDeque<Outgoing>,
    /// Packets for this device itself, which need no socket.
    own: VecDeque<Outgoing>,
    /// Packets that leave later: when, and in which order those of the same time.
    late: BTreeMap<(Nanos, u64), Outgoing>,
    /// Packets that were late so far.
    late_count: u64,
    faults: Option<Faults>,
    /// Whether the device could have sent more than its turn was.
    has_more: bool,
}

impl Port {
    /// A device on a socket of its own.
    pub(super) fn open(options: &Options) -> io::Result<Port> {
        let udp = Udp::bind(options.address)?;
        let slot = options.address.map(Slot::take).transpose()?;
        let qp_bits = if slot.is_some() { NUMBER_BITS } else { 24 };
        let config = Config {
            addresses: vec![udp.address()],
            mtu: 4096,
            personality: Personality::Specification,
            // Packets that are left of an earlier device on this address should find no queue pair.
            first_qp: slot.as_ref().map_or(0, Slot::first_qp) | fastrand::u32(..) & ((1 << qp_bits) - 1),
            qp_bits,
        };
        let Script { rates, plan } = options.faults.clone();
        let faults = (rates != Rates::default()).then(|| Faults::new(rates, plan.seed));
        let mut device = Device::new(config);
        device.plan(plan);
        Ok(Port {
            device,
            targets: Targets::default(),
            udp,
            slot,
            leaving: VecDeque::new(),
            own: VecDeque::new(),
            late: BTreeMap::new(),
            late_count: 0,
            faults,
            has_more: false,
        })
    }

    /// Readable when packets have arrived.
    pub(super) fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let slot = self.slot.iter().map(AsFd::as_fd);
        [self.udp.as_fd()].into_iter().chain(slot).map(|fd| fd.try_clone_to_owned()).collect()
    }

    pub(super) fn address(&self) -> IpAddr {
        self.udp.address()
    }

    /// Receives, does what is due, sends, reports.
    pub(super) fn work(&mut self, now: Nanos) {
        for _ in 0..TURNS {
            let mut arrived = self.receive(now);
            for _ in 0..self.own.len().min(BUDGET) {
                let Some(packet) = self.own.pop_front() else { break };
                let Outgoing { source, destination, bytes } = &packet;
                self.device.receive(Incoming { source: *source, destination: *destination, bytes }, now);
                arrived += 1;
            }
            while let Some(first) = self.late.first_entry().filter(|first| first.key().0 <= now) {
                let packet = first.remove();
                self.leave(packet);
            }
            // What the socket does not take waits, and the device with it.
            self.has_more = self.leaving.is_empty() && self.device.run(now, BUDGET);
            while let Some(packet) = self.device.next_outgoing() {
                self.launch(packet, now);
            }
            self.udp.send(&mut self.leaving);
            if arrived == 0 && !self.has_more && self.own.is_empty() {
                break;
            }
        }
        self.report();
    }

    /// Takes what has arrived, a batch; how many packets.
    fn receive(&mut self, now: Nanos) -> usize {
        let Port { udp, slot, device, .. } = self;
        let Some(slot) = slot else { return udp.receive(|packet| device.receive(packet, now)) };
        let mut arrived = udp.receive(|packet| {
            if slot.owns(packet.bytes) {
                device.receive(packet, now);
            } else {
                slot.pass_on(packet.source, packet.bytes);
            }
        });
        let destination = udp.address();
        let mut buffer = [0; LARGEST_PASSED];
        for _ in 0..BUDGET {
            let Some((source, bytes)) = slot.receive(&mut buffer) else { break };
            device.receive(Incoming { source, destination, bytes }, now);
            arrived += 1;
        }
        arrived
    }

    /// When there is something to do, unless something arrives before.
    pub(super) fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        if self.has_more || !self.own.is_empty() {
            return Some(now);
        }
        if !self.leaving.is_empty() {
            return Some(now + SOCKET_FULL);
        }
        let late = self.late.keys().next().map(|(time, _)| *time);
        self.device.next_deadline().into_iter().chain(late).min()
    }

    /// A packet leaves, unless something goes wrong with it.
    fn launch(&mut self, packet: Outgoing, now: Nanos) {
        let Some(faults) = &mut self.faults else { return self.leave(packet) };
        for copy in faults.fate().copies {
            // What is damaged does not pass the check of its CRC.
            if copy.damage.is_some() {
                continue;
            }
            let packet = packet.clone();
            let delay = copy.delay + if copy.is_late { LATE } else { 0 };
            if delay > 0 {
                self.late_count += 1;
                self.late.insert((now + delay, self.late_count), packet);
            } else {
                self.leave(packet);
            }
        }
    }

    fn leave(&mut self, packet: Outgoing) {
        if packet.destination == self.udp.address() {
            match &self.slot {
                Some(slot) if !slot.owns(&packet.bytes) => slot.pass_on(packet.source, &packet.bytes),
                _ => self.own.push_back(packet),
            }
        } else {
            self.leaving.push_back(packet);
        }
    }

    /// Reports announcements and events to their objects.
    pub fn report(&mut self) {
        while let Some(cq) = self.device.next_announced() {
            if let Some(CqTarget { channel: Some(channel), events }) = self.targets.cqs.get(&cq) {
                channel.push(events.object);
            }
        }
        while let Some(event) = self.device.next_event() {
            let target = match event {
                Event::CqError(cq) => self.targets.cqs.get(&cq).map(|target| &target.events),
                Event::SrqError(srq) | Event::SrqLimitReached(srq) => self.targets.srqs.get(&srq),
                Event::QpFatal(qp)
                | Event::QpRequestError(qp)
                | Event::QpAccessError(qp)
                | Event::CommunicationEstablished(qp)
                | Event::SendQueueDrained(qp)
                | Event::LastReceiveReached(qp) => self.targets.qps.get(&qp),
                Event::DeviceFatal
                | Event::PortActive
                | Event::PortError
                | Event::LidChange
                | Event::PkeyChange
                | Event::SubnetManagerChange
                | Event::ClientReregister
                | Event::GidChange => {
                    self.targets.contexts.iter().for_each(|queue| queue.push((event, 0)));
                    continue;
                }
            };
            if let Some(EventTarget { queue, object }) = target {
                queue.push((event, *object));
            }
        }
    }
}
