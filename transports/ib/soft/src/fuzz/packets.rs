//! Any packets of a peer, for a device with queue pairs, memory and requests.

use std::convert::Infallible;

use super::*;
use crate::engine::wire::{Aeth, AtomicEth, Deth, Kind, Nak, Part, Reth, Syndrome};
use crate::engine::{Incoming, Nanos, ReceiveRequest};

/// A device with three connected queue pairs, and a peer that sends any packets.
pub fn fuzz_packets(data: &[u8]) {
    let mut input = Input(data);
    let mut victim = Victim::new();
    for _ in 0..STEPS {
        if input.0.is_empty() {
            break;
        }
        victim.step(&mut input);
    }
    victim.check();
}

struct Victim {
    device: Device,
    pd: PdId,
    cq: CqId,
    srq: SrqId,
    /// Two connected, the second with the shared queue; one of datagrams.
    qps: [u32; 3],
    writable: Arena,
    readable: Arena,
    /// Of the writable region, of the other, and one that is none.
    keys: [u32; 3],
    posted: Posted,
    /// The packet that the peer believes to be next, of each connection.
    next: [u32; 2],
    now: Nanos,
}

impl Victim {
    fn new() -> Victim {
        let mut device = device(0);
        let (pd, cq) = (device.alloc_pd(), device.create_cq(64));
        let srq = device.create_srq(pd, 8).expect("the domain is there");
        let qps = [(QpKind::Rc, None), (QpKind::Rc, Some(srq)), (QpKind::Ud, None)]
            .map(|(kind, srq)| device.create_qp(config(kind, pd, cq, srq)).expect("all are there"));
        qps.iter().for_each(|qp| connect(&mut device, *qp, &attributes(1, 0x77)));
        let (mut writable, mut readable) = (Arena::new(), Arena::new());
        let first = writable.register(&mut device, pd, REGION, all_access()).expect("registered");
        let second = readable.register(&mut device, pd, REGION, Access::REMOTE_READ).expect("registered");
        Victim {
            device,
            pd,
            cq,
            srq,
            qps,
            writable,
            readable,
            keys: [first, second, 0x0101],
            posted: Posted::default(),
            next: [0; 2],
            now: 0,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() {
            0..160 => self.packet(input),
            160..176 => {
                let bytes: Vec<u8> = (0..input.below(64)).map(|_| input.byte()).collect();
                self.receive(&bytes);
            }
            176..200 => {
                let request = ReceiveRequest {
                    wr_id: self.posted.next(),
                    pieces: pieces(input, self.writable.begin(), &self.keys),
                };
                let (wr_id, qp) = (request.wr_id, self.qps[input.below(3)]);
                let posted = match input.below(3) {
                    0 => self.device.post_srq_receive(self.srq, request),
                    _ => self.device.post_receive(qp, request),
                };
                if posted.is_ok() {
                    self.posted.requests.insert(wr_id, qp);
                }
            }
            200..224 => {
                let wr_id = self.posted.next();
                let request = send_request(input, self.writable.begin(), &self.keys, wr_id);
                let qp = self.qps[input.below(3)];
                if self.device.post_send(qp, request).is_ok() {
                    self.posted.requests.insert(wr_id, qp);
                }
            }
            224..240 => {
                let budget = input.below(40);
                self.device.run(self.now, budget);
                let count =
                    std::iter::from_fn(|| self.device.next_outgoing()).inspect(check_outgoing).count();
                // A turn of each queue pair may end a little later.
                assert!(count <= budget + 3, "{count} packets of {budget}");
            }
            240..244 => self.now += 1 << input.below(22),
            244..248 => self.posted.take_from(&mut self.device, self.cq),
            248..252 => {
                let qp = self.qps[input.below(3)];
                let state = input.pick(&[QpState::SendQueueDrain, QpState::ReadyToSend, QpState::Error]);
                let new = Attributes { state, tells_drained: true, ..Attributes::default() };
                let mask = if state == QpState::SendQueueDrain { Mask::TELLS_DRAINED } else { Mask::empty() };
                let _ = self.device.modify_qp(qp, &new, mask | Mask::STATE);
            }
            252..254 => {
                let index = input.below(3);
                let qp = self.qps[index];
                let reset = Attributes::default();
                self.device.modify_qp(qp, &reset, Mask::STATE).expect("from any state");
                self.posted.take_from(&mut self.device, self.cq);
                connect(&mut self.device, qp, &attributes(1, 0x77));
                if let Some(next) = self.next.get_mut(index) {
                    *next = 0;
                }
            }
            254 => {
                let _ = self.device.deregister(self.keys[0]);
                let writable = self.writable.register(&mut self.device, self.pd, REGION, all_access());
                self.keys[0] = writable.expect("the domain is there");
            }
            _ => self.device.set_srq_limit(self.srq, input.below(9)).expect("within its capacity"),
        }
    }

    /// A packet that is nearly right.
    fn packet(&mut self, input: &mut Input<'_>) {
        let index = input.below(7) % 3;
        let opcode = input.pick(&[
            0x00, 0x01, 0x02, 0x03, 0x04, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0a, 0x0b, 0x0c, 0x0c,
            0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x11, 0x12, 0x13, 0x14, 0x16, 0x17, 0x64, 0x65,
        ]);
        let Some(next) = self.next.get(index.min(1)).copied() else { return };
        let distance = match input.byte() {
            0..150 => 0,
            150..200 => 1_u32.wrapping_neg(),
            200..230 => 1_u32.wrapping_neg().wrapping_mul(u32::from(input.byte() % 32)),
            230..250 => u32::from(input.byte() % 32),
            _ => u32::from(input.word()) << 8,
        };
        let place = [self.writable.begin(), self.readable.begin()][input.below(2)];
        let address = match input.byte() {
            0..200 => (place + u64::from(input.word()) % REGION as u64) & !7,
            200..220 => place + u64::from(input.word()) % REGION as u64,
            220..240 => place.wrapping_sub(8),
            _ => u64::MAX - u64::from(input.byte()),
        };
        let rkey = input.pick(&[self.keys[0], self.keys[0], self.keys[1], self.keys[2]]);
        let length = match input.byte() {
            0..180 => u32::from(input.word()) % 1100,
            180..250 => 256 * u32::from(input.byte() % 5),
            _ => u32::MAX - u32::from(input.byte()),
        };
        let payload = match input.byte() {
            0..60 => MTU,
            60..100 => length as usize % MTU,
            100..110 => MTU + 1,
            _ => input.below(24),
        };
        let mut template = vec![0; BTH_LENGTH + 32];
        template[0] = opcode;
        let Ok((headers, _)) = Headers::decode(&template) else { return };
        let reth = Reth { address, rkey, length };
        let atomic = AtomicEth { address, rkey, operand: 1, compare: u64::from(GUARD_BYTE) };
        let syndrome = input.pick(&[
            Syndrome::Ack,
            Syndrome::Ack,
            Syndrome::ReceiverNotReady(1),
            Syndrome::Nak(Nak::Sequence),
            Syndrome::Nak(Nak::RemoteAccess),
        ]);
        let headers = Headers {
            destination_qp: self.qps[index],
            psn: psn(next.wrapping_add(distance)),
            is_solicited: distance == 1,
            wants_ack: payload % 3 != 0,
            reth: headers.reth.map(|_| reth),
            atomic: headers.atomic.map(|_| atomic),
            aeth: headers.aeth.map(|_| Aeth { syndrome, msn: 0 }),
            deth: headers.deth.map(|_| Deth { qkey: QKEY, source_qp: 9 }),
            pkey: 0xffff,
            ..headers
        };
        let encoded = headers.encode(payload, |place| {
            place.fill(opcode);
            Ok::<(), Infallible>(())
        });
        let mut bytes = encoded.unwrap_or_else(|never| match never {});
        if input.below(16) == 0 {
            let at = usize::from(input.word()) % bytes.len();
            bytes[at] ^= 1 << input.below(8);
        }
        self.receive(&bytes);
        if distance == 0 && index < 2 && !matches!(headers.kind, Kind::Acknowledge | Kind::ReadResponse) {
            let count =
                if headers.kind == Kind::ReadRequest { length.div_ceil(MTU as u32).max(1) } else { 1 };
            self.next[index] = next.wrapping_add(count);
        }
        if headers.part == Part::Middle && input.below(8) == 0 {
            self.next[index.min(1)] = next;
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let packet = Incoming { source: address(1), destination: address(0), bytes };
        self.device.receive(packet, self.now);
    }

    fn check(mut self) {
        // What is posted ends, at the latest when the queue pairs fail, except what waits in the shared queue.
        for qp in self.qps {
            let error = Attributes { state: QpState::Error, ..Attributes::default() };
            self.device.modify_qp(qp, &error, Mask::STATE).expect("from any state");
        }
        self.posted.take_from(&mut self.device, self.cq);
        let mut packets = 0;
        while self.device.run(self.now, 64) {
            packets += std::iter::from_fn(|| self.device.next_outgoing()).inspect(check_outgoing).count();
            assert!(packets < 1000, "what waits has a limit");
        }
        assert!(self.writable.is_good(REGION), "a write outside of the region");
        assert!(self.readable.is_good(0), "a write into memory that may be read");
    }
}
