//! Any calls of two applications, and their packets to each other.

use super::*;
use crate::engine::{Event, Incoming, ReceiveRequest};

/// Two devices, any calls of their applications, and a network between them.
pub fn fuzz_calls(data: &[u8]) {
    let mut input = Input(data);
    let mut sides = [Side::new(0), Side::new(1)];
    for side in &mut sides {
        side.start();
    }
    let mut flights: Vec<Outgoing> = Vec::new();
    let mut now = 0;
    for _ in 0..STEPS {
        if input.0.is_empty() {
            break;
        }
        let call = input.byte();
        let side = &mut sides[usize::from(call & 1)];
        match call >> 1 {
            0..16 => {
                side.device.run(now, input.below(20));
                while let Some(packet) = side.device.next_outgoing() {
                    check_outgoing(&packet);
                    flights.push(packet);
                }
            }
            16..40 => {
                if !flights.is_empty() {
                    // In their order, mostly.
                    let at = if input.below(8) == 0 { input.below(flights.len()) } else { 0 };
                    let packet = if input.below(16) == 0 { flights[at].clone() } else { flights.remove(at) };
                    let to =
                        sides.iter_mut().find(|side| side.device.config().addresses[0] == packet.destination);
                    if let Some(to) = to.filter(|_| input.below(32) != 0) {
                        let Outgoing { source, destination, ref bytes } = packet;
                        to.device.receive(Incoming { source, destination, bytes }, now);
                    }
                }
            }
            40..44 => now += 1 << input.below(24),
            call => side.call(call, &mut input),
        }
        flights.truncate(256);
    }
    for side in &mut sides {
        side.check();
    }
}

/// A device, and what its application has made.
struct Side {
    device: Device,
    index: usize,
    pds: Vec<PdId>,
    cqs: Vec<CqId>,
    srqs: Vec<SrqId>,
    qps: Vec<u32>,
    keys: Vec<u32>,
    arena: Arena,
    posted: Posted,
    /// Bytes of the arena that are or were registered.
    registered: usize,
}

impl Side {
    fn new(index: usize) -> Side {
        Side {
            device: device(index),
            index,
            pds: Vec::new(),
            cqs: Vec::new(),
            srqs: Vec::new(),
            qps: Vec::new(),
            keys: Vec::new(),
            arena: Arena::new(),
            posted: Posted::default(),
            registered: 0,
        }
    }

    /// What every input begins with: a connection and a queue pair of datagrams.
    fn start(&mut self) {
        let (pd, cq) = (self.device.alloc_pd(), self.device.create_cq(32));
        let srq = self.device.create_srq(pd, 8).expect("the domain is there");
        for kind in [QpKind::Rc, QpKind::Ud] {
            let qp = self.device.create_qp(config(kind, pd, cq, None)).expect("all are there");
            // Both sides number alike.
            connect(&mut self.device, qp, &attributes(1 - self.index, qp));
            self.qps.push(qp);
        }
        self.registered = 2048;
        self.keys.extend(self.arena.register(&mut self.device, pd, 2048, all_access()));
        (self.pds, self.cqs, self.srqs) = (vec![pd], vec![cq], vec![srq]);
    }

    fn call(&mut self, call: u8, input: &mut Input<'_>) {
        let begin = self.arena.begin();
        let one = |list: &[u32], input: &mut Input<'_>| if list.is_empty() { 0x10 } else { input.pick(list) };
        match call {
            44..64 => {
                let (qp, wr_id) = (one(&self.qps, input), self.posted.next());
                let request = send_request(input, begin, &self.keys, wr_id);
                if self.device.post_send(qp, request).is_ok() {
                    self.posted.requests.insert(wr_id, qp);
                }
            }
            64..80 => {
                let wr_id = self.posted.next();
                let request = ReceiveRequest { wr_id, pieces: pieces(input, begin, &self.keys) };
                let qp = one(&self.qps, input);
                let srq = (!self.srqs.is_empty() && input.below(3) == 0).then(|| input.pick(&self.srqs));
                let posted = match srq {
                    Some(srq) => self.device.post_srq_receive(srq, request),
                    None => self.device.post_receive(qp, request),
                };
                if posted.is_ok() {
                    self.posted.requests.insert(wr_id, qp);
                }
            }
            80..86 => self.drain(),
            86..92 => {
                let qp = one(&self.qps, input);
                let mask = Mask::from_bits_truncate(u32::from(input.word()) << input.below(6)) | Mask::STATE;
                let mut new = attributes(1 - self.index, qp);
                new.state = input.pick(&[
                    QpState::Init,
                    QpState::ReadyToReceive,
                    QpState::ReadyToSend,
                    QpState::SendQueueDrain,
                    QpState::SendQueueError,
                    QpState::Error,
                    QpState::Reset,
                ]);
                (new.reads_in, new.reads_out) = (input.byte(), input.byte());
                (new.timeout, new.min_rnr_timer) = (input.byte() & 63, input.byte() & 63);
                new.tells_drained = true;
                let _ = self.device.modify_qp(qp, &new, mask);
            }
            92..96 => {
                let qp = one(&self.qps, input);
                connect(&mut self.device, qp, &attributes(1 - self.index, qp));
            }
            96..99 => {
                let kind = input.pick(&[QpKind::Rc, QpKind::Ud]);
                let pd = self.pds.first().copied().unwrap_or(PdId(input.below(4)));
                let cq = self.cqs.last().copied().unwrap_or(CqId(input.below(4)));
                let srq = if input.below(2) == 0 { None } else { Some(SrqId(input.below(4))) };
                let mut config = config(kind, pd, cq, srq);
                config.receive_cq = CqId(input.below(4));
                if self.qps.len() < 8 {
                    self.qps.extend(self.device.create_qp(config));
                }
            }
            99..101 => {
                let qp = one(&self.qps, input);
                if self.device.destroy_qp(qp).is_ok() {
                    self.qps.retain(|other| *other != qp);
                    assert!(self.device.state(qp).is_none());
                }
            }
            101 => self.pds.push(self.device.alloc_pd()),
            102 => {
                let pd = PdId(input.below(4));
                if self.device.dealloc_pd(pd).is_ok() {
                    self.pds.retain(|other| *other != pd);
                }
            }
            103 => self.cqs.push(self.device.create_cq(input.below(12))),
            104 => {
                let cq = CqId(input.below(4));
                self.drain();
                if self.device.destroy_cq(cq).is_ok() {
                    self.cqs.retain(|other| *other != cq);
                }
            }
            105 => self.srqs.extend(self.device.create_srq(PdId(input.below(4)), input.below(12))),
            106 => {
                let srq = SrqId(input.below(4));
                if self.device.destroy_srq(srq).is_ok() {
                    self.srqs.retain(|other| *other != srq);
                }
            }
            107 => drop(self.device.set_srq_limit(SrqId(input.below(4)), input.below(12))),
            108..110 => {
                let access = Access::from_bits_truncate(u32::from(input.byte()));
                let length = usize::from(input.word()) % (REGION + 1);
                let pd = PdId(input.below(4));
                if let Some(key) = self.arena.register(&mut self.device, pd, length, access) {
                    self.registered = self.registered.max(length.next_multiple_of(8));
                    self.keys.push(key);
                }
            }
            110 => {
                let key = one(&self.keys, input);
                assert_eq!(self.device.deregister(key).is_ok(), self.keys.contains(&key));
                self.keys.retain(|other| *other != key);
            }
            111..113 => self.device.arm_cq(CqId(input.below(4)), input.below(2) == 0),
            113..116 => {
                // What a peer of this device could send to itself.
                let bytes: Vec<u8> = (0..input.below(48)).map(|_| input.byte()).collect();
                let packet = Incoming {
                    source: address(1 - self.index),
                    destination: address(self.index),
                    bytes: &bytes,
                };
                self.device.receive(packet, 0);
            }
            _ => {}
        }
    }

    /// Takes what the device has to tell, all of it about what is there.
    fn drain(&mut self) {
        for cq in self.cqs.clone() {
            self.posted.take_from(&mut self.device, cq);
        }
        while let Some(cq) = self.device.next_announced() {
            assert!(self.cqs.contains(&cq), "{cq:?} has ended");
        }
        while let Some(event) = self.device.next_event() {
            let is_there = match event {
                Event::CqError(cq) => self.cqs.contains(&cq),
                Event::SrqError(srq) | Event::SrqLimitReached(srq) => self.srqs.contains(&srq),
                Event::QpFatal(qp)
                | Event::QpRequestError(qp)
                | Event::QpAccessError(qp)
                | Event::CommunicationEstablished(qp)
                | Event::SendQueueDrained(qp)
                | Event::LastReceiveReached(qp) => self.qps.contains(&qp),
                _ => false,
            };
            assert!(is_there, "{event:?} of what has ended");
        }
    }

    fn check(&mut self) {
        self.drain();
        assert!(self.arena.is_good(self.registered.min(REGION)), "a write outside of what was registered");
        // All of it ends in the order of its dependence.
        self.qps.drain(..).for_each(|qp| self.device.destroy_qp(qp).expect("nothing depends on it"));
        self.srqs.drain(..).for_each(|srq| self.device.destroy_srq(srq).expect("nothing uses it"));
        self.cqs.drain(..).for_each(|cq| self.device.destroy_cq(cq).expect("nothing uses it"));
        self.keys.drain(..).for_each(|key| self.device.deregister(key).expect("it is registered"));
        self.pds.drain(..).for_each(|pd| self.device.dealloc_pd(pd).expect("nothing uses it"));
        assert!(self.device.next_event().is_none() && self.device.next_announced().is_none());
        assert_eq!(self.device.next_deadline(), None);
    }
}
