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
            let arrived = self.receive(now);
            for _ in 0..self.own.len().min(BUDGET) {
                let Some(packet) = self.own.pop_front() else { break };
                let Outgoing { source, destination, bytes } = &packet;
                self.device.receive(Incoming { source: *source, destination: *destination, bytes }, now);
            }
            while let Some(first) = self.late.first_entry().filter(|first| first.key().0 <= now) {
                let packet = first.remove();
                self.leave(packet);
            }
            self.udp.send(&mut self.leaving);
            // What the socket does not take waits, and the device with it: then there is a deadline.
            let is_full = !self.leaving.is_empty();
            self.has_more = !is_full && self.device.run(now, BUDGET);
            while let Some(packet) = self.device.next_outgoing() {
                self.launch(packet, now);
            }
            if !is_full {
                self.udp.send(&mut self.leaving);
            }
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use socket2::Type;

    use super::*;
    use crate::engine::wire::{Extra, Headers, Kind, Part};
    use crate::engine::{
        Attributes, Capacity, Mask, Path, Psn, QpConfig, QpKind, QpState, SendData, SendKind, SendRequest,
    };

    const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));
    const FEW: Rates = Rates { loss: 0.0, duplicate: 0.0, reorder: 0.0, corrupt: 0.0, delay: (0, 0) };

    fn port() -> Port {
        Port::open(&Options::default()).expect("a port")
    }

    /// A port with a socket that is one of a pair, and the other one.
    fn of_pair(kind: Type) -> (Port, socket2::Socket) {
        let mut port = port();
        let (udp, end) = Udp::of_pair(port.address(), kind);
        port.udp = udp;
        (port, end)
    }

    fn packet(port: &Port, destination: IpAddr, qp: u32) -> Outgoing {
        let headers = Headers::new(Kind::Acknowledge, Part::Only, qp, Psn::new(1));
        let bytes = headers.encode(0, |_| Ok::<(), std::convert::Infallible>(()));
        let bytes = bytes.unwrap_or_else(|never| match never {});
        Outgoing { source: port.address(), destination, bytes }
    }

    /// So many datagrams for elsewhere are posted.
    fn post(port: &mut Port, count: usize) {
        let device = &mut port.device;
        let (pd, cq) = (device.alloc_pd(), device.create_cq(1));
        let capacity = Capacity { sends: count, receives: 1, send_pieces: 1, receive_pieces: 1, inline: 4 };
        let config = QpConfig {
            kind: QpKind::Ud,
            pd,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            capacity,
            signals_all: false,
        };
        let qp = device.create_qp(config).expect("a queue pair");
        for (state, mask) in [
            (QpState::Init, Mask::PORT | Mask::PKEY_INDEX | Mask::QKEY),
            (QpState::ReadyToReceive, Mask::empty()),
            (QpState::ReadyToSend, Mask::SEND_PSN),
        ] {
            let attributes = Attributes { state, ..Attributes::default() };
            device.modify_qp(qp, &attributes, mask | Mask::STATE).expect("a transition");
        }
        let path = Path { destination: ELSEWHERE, source_index: 0 };
        let request = SendRequest {
            wr_id: 0,
            kind: SendKind::Datagram { path, qp: 5, qkey: 0 },
            data: SendData::Inline(vec![7; 4]),
            extra: Extra::None,
            is_signaled: false,
            is_solicited: false,
            is_fenced: false,
        };
        for _ in 0..count {
            device.post_send(qp, request.clone()).expect("posted");
        }
    }

    #[test]
    fn each_copy_of_a_packet_leaves_when_its_fate_says() {
        for (rates, at_once, later) in [
            (FEW, 1, &[][..]),
            (Rates { loss: 1.0, ..FEW }, 0, &[]),
            (Rates { corrupt: 1.0, ..FEW }, 0, &[]),
            (Rates { duplicate: 1.0, ..FEW }, 2, &[]),
            (Rates { delay: (5, 5), ..FEW }, 0, &[105]),
            (Rates { reorder: 1.0, ..FEW }, 0, &[100 + LATE]),
            (Rates { reorder: 1.0, duplicate: 1.0, delay: (5, 5), ..FEW }, 0, &[105 + LATE, 105 + LATE]),
        ] {
            let mut port = port();
            port.faults = Some(Faults::new(rates, 1));
            port.launch(packet(&port, ELSEWHERE, 5), 100);
            let times: Vec<Nanos> = port.late.keys().map(|(time, _)| *time).collect();
            assert_eq!((port.leaving.len(), &times[..]), (at_once, later), "{rates:?}");
            let next = if at_once > 0 { Some(100 + SOCKET_FULL) } else { later.first().copied() };
            assert_eq!(port.next_deadline(100), next, "{rates:?}");
        }
    }

    #[test]
    fn late_packets_leave_at_their_time_and_in_their_order() {
        let (mut port, mut end) = of_pair(Type::SEQPACKET);
        port.faults = Some(Faults::new(Rates { delay: (5, 5), ..FEW }, 1));
        for (number, now) in [(20, 101), (21, 100), (22, 100)] {
            port.launch(packet(&port, ELSEWHERE, number), now);
        }
        for (now, numbers, next) in
            [(104, &[][..], Some(105)), (105, &[21, 22], Some(106)), (106, &[20], None), (107, &[], None)]
        {
            port.work(now);
            let mut buffer = [0; 64];
            let mut left = Vec::new();
            while end.read(&mut buffer).is_ok() {
                left.push(u32::from(buffer[7]));
            }
            assert_eq!((&left[..], port.next_deadline(now)), (numbers, next), "at {now}");
        }
    }

    #[test]
    fn a_call_sends_some_turns_of_packets_and_says_that_there_are_more() {
        const COUNT: usize = TURNS * BUDGET + 50;
        let mut port = port();
        port.faults = Some(Faults::new(Rates { delay: (9, 9), ..FEW }, 1));
        post(&mut port, COUNT);
        port.work(0);
        assert_eq!((port.late.len(), port.next_deadline(0)), (TURNS * BUDGET, Some(0)));
        port.work(0);
        assert_eq!((port.late.len(), port.next_deadline(0)), (COUNT, Some(9)));
    }

    #[test]
    fn packets_for_itself_need_no_socket_and_are_taken_at_once() {
        let mut port = port();
        for _ in 0..3 * BUDGET {
            port.leave(packet(&port, port.address(), 5));
        }
        assert_eq!((port.own.len(), port.leaving.len()), (3 * BUDGET, 0));
        assert_eq!(port.next_deadline(7), Some(7));
        port.work(7);
        assert_eq!((port.own.len(), port.next_deadline(7)), (0, None));
    }

    #[test]
    fn a_call_takes_all_that_has_arrived() {
        let (mut port, mut end) = of_pair(Type::STREAM);
        // Each packet is as long as there is room for, and from nobody.
        end.set_send_buffer_size(1 << 20).expect("it is set");
        let mut written = 0;
        while let Ok(length) = end.write(&[7; 4096]) {
            written += length;
        }
        assert!(written > 33 * 4200, "more than a batch: {written}");
        port.work(0);
        assert_eq!(port.udp.receive(|_| {}), 0);
    }

    #[test]
    fn a_device_goes_on_when_a_full_socket_has_room_again() {
        const COUNT: usize = 600;
        let (mut port, mut end) = of_pair(Type::SEQPACKET);
        post(&mut port, COUNT);
        let mut left = 0;
        port.work(0);
        assert_eq!((port.leaving.is_empty(), port.next_deadline(0)), (false, Some(SOCKET_FULL)));
        loop {
            while end.read(&mut [0; 256]).is_ok() {
                left += 1;
            }
            if left == COUNT {
                break;
            }
            assert_ne!(port.next_deadline(0), None, "{left} of {COUNT} packets have left");
            port.work(0);
        }
        assert_eq!((left, port.next_deadline(0)), (COUNT, None));
    }

    #[test]
    fn a_packet_for_another_process_on_the_address_is_passed_on() {
        // Of no other test.
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let address = IpAddr::from([127, 192 + high % 32, middle, low]);
        let open = || Port::open(&Options { address: Some(address), ..Options::default() }).expect("a port");
        let (mut a, b) = (open(), open());
        let slot = |port: &Port| port.slot.as_ref().expect("it shares the address").first_qp();
        let (for_a, for_b) = (packet(&a, address, slot(&a) + 5), packet(&a, address, slot(&b) + 5));
        let mut buffer = [0; LARGEST_PASSED];
        let mut passed_to = |port: &Port| {
            let (source, bytes) = port.slot.as_ref()?.receive(&mut buffer)?;
            Some(Outgoing { source, destination: address, bytes: bytes.to_vec() })
        };
        a.leave(for_b.clone());
        assert_eq!((passed_to(&b), passed_to(&a), a.own.len()), (Some(for_b), None, 0));
        a.leave(for_a.clone());
        assert_eq!((passed_to(&b), passed_to(&a), a.own.pop_front()), (None, None, Some(for_a)));
        assert!(a.leaving.is_empty());
        let made = format!("/dev/shm/softverbs-{}/{}", rustix::process::geteuid().as_raw(), address);
        std::fs::remove_dir_all(made).expect("it was this test's");
    }
}
