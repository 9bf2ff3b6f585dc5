//! Two devices with one queue pair each, and memory.

use std::net::IpAddr;

use uct_ib_soft::engine::{
    Access, Attributes, Capacity, Completion, Config, CqId, Device, Event, Mask, Path, PdId, Personality,
    Piece, Pieces, Psn, QpConfig, QpKind, QpState, ReceiveRequest, SendData, SendKind, SendRequest, SrqId,
    Target,
};
use uct_ib_soft::engine::{Refusal, wire::Extra};
use uct_ib_soft::network::faults::Rates;
use uct_ib_soft::network::sim::Network;

/// Bytes of memory of each side.
pub const MEMORY: usize = 1 << 18;
/// Payload of a packet.
pub const MTU: u32 = 256;
pub const SECOND: u64 = 1_000_000_000;

/// What a side of a pair has.
pub struct Side {
    pub pd: PdId,
    pub cq: CqId,
    pub srq: Option<SrqId>,
    pub qp: u32,
    pub key: u32,
    pub memory: Box<[u8]>,
}

/// How a pair is made.
#[derive(Clone)]
pub struct Setup {
    pub kind: QpKind,
    pub rates: Rates,
    pub seed: u64,
    pub personality: Personality,
    pub attributes: Attributes,
    pub capacity: Capacity,
    pub cq_capacity: usize,
    pub has_srq: bool,
    pub access: Access,
}

pub fn all_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            kind: QpKind::Rc,
            rates: Rates::default(),
            seed: 1,
            personality: Personality::Specification,
            attributes: Attributes {
                access: all_access(),
                mtu: MTU,
                reads_out: 4,
                reads_in: 4,
                min_rnr_timer: 1,
                timeout: 8,
                retry_count: 7,
                rnr_retry: 7,
                qkey: 0x1111,
                ..Attributes::default()
            },
            capacity: Capacity { sends: 64, receives: 64, send_pieces: 4, receive_pieces: 4, inline: 64 },
            cq_capacity: 256,
            has_srq: false,
            access: all_access(),
        }
    }
}

pub struct Pair {
    pub net: Network,
    pub sides: [Side; 2],
}

pub fn address(index: usize) -> IpAddr {
    IpAddr::from([127, 64, 0, index as u8 + 1])
}

impl Setup {
    pub fn lossy(seed: u64, share: f64) -> Setup {
        let corrupt = share / 4.0;
        let rates = Rates { loss: share, duplicate: share, reorder: share, corrupt, delay: (0, 0) };
        Setup { rates, seed, ..Setup::default() }
    }

    /// A pair that is ready to send.
    pub fn pair(&self) -> Pair {
        let mut pair = self.unconnected();
        for index in 0..2 {
            pair.connect(index, &self.attributes, QpState::ReadyToSend);
        }
        pair
    }

    pub fn unconnected(&self) -> Pair {
        let devices = (0..2).map(|index| {
            Device::new(Config {
                addresses: vec![address(index)],
                mtu: 4096,
                personality: self.personality,
                first_qp: 0x11 + index as u32 * 0x100,
                qp_bits: 24,
            })
        });
        let mut net = Network::new(devices.collect(), self.rates, self.seed);
        let sides = [0, 1].map(|index| {
            let device = net.device(index);
            let pd = device.alloc_pd();
            let cq = device.create_cq(self.cq_capacity);
            let srq = self.has_srq.then(|| device.create_srq(pd, 64).expect("a queue"));
            let capacity = self.capacity;
            let config = QpConfig {
                kind: self.kind,
                pd,
                send_cq: cq,
                receive_cq: cq,
                srq,
                capacity,
                signals_all: false,
            };
            let qp = device.create_qp(config).expect("a queue pair");
            let mut memory = vec![0; MEMORY].into_boxed_slice();
            let begin = memory.as_mut_ptr().expose_provenance() as u64;
            // SAFETY: the side keeps the memory as long as the network.
            let key = unsafe { device.register(pd, begin, MEMORY as u64, self.access) }.expect("registered");
            Side { pd, cq, srq, qp, key, memory }
        });
        Pair { net, sides }
    }
}

impl Side {
    pub fn address(&self) -> u64 {
        self.memory.as_ptr().expose_provenance() as u64
    }

    pub fn pieces(&self, offset: usize, length: usize) -> Pieces {
        [Piece { address: self.address() + offset as u64, length: length as u32, lkey: self.key }]
            .into_iter()
            .collect()
    }

    pub fn target(&self, offset: usize) -> Target {
        Target { address: self.address() + offset as u64, rkey: self.key }
    }
}

/// A signaled request.
pub fn request(wr_id: u64, kind: SendKind, data: SendData) -> SendRequest {
    let (is_signaled, is_solicited, is_fenced) = (true, false, false);
    SendRequest { wr_id, kind, data, extra: Extra::None, is_signaled, is_solicited, is_fenced }
}

impl Pair {
    /// Brings the queue pair of a side up to this state.
    pub fn connect(&mut self, index: usize, attributes: &Attributes, state: QpState) {
        let peer = 1 - index;
        let path = Path { destination: address(peer), source_index: 0 };
        let attributes = Attributes {
            path,
            destination_qp: self.sides[peer].qp,
            receive_psn: Psn::new(0xff_fffe + peer as u32),
            send_psn: Psn::new(0xff_fffe + index as u32),
            ..*attributes
        };
        let qp = self.sides[index].qp;
        let device = self.net.device(index);
        let is_rc = device.query_qp(qp).expect("it is there").1.kind == QpKind::Rc;
        let pick = |rc, ud| if is_rc { rc } else { ud };
        let steps = [
            (QpState::Init, Mask::PORT | Mask::PKEY_INDEX | pick(Mask::ACCESS, Mask::QKEY)),
            (
                QpState::ReadyToReceive,
                pick(
                    Mask::PATH
                        | Mask::MTU
                        | Mask::DESTINATION_QP
                        | Mask::RECEIVE_PSN
                        | Mask::READS_IN
                        | Mask::MIN_RNR_TIMER,
                    Mask::empty(),
                ),
            ),
            (
                QpState::ReadyToSend,
                Mask::SEND_PSN
                    | pick(
                        Mask::TIMEOUT | Mask::RETRY_COUNT | Mask::RNR_RETRY | Mask::READS_OUT,
                        Mask::empty(),
                    ),
            ),
        ];
        for (next, mask) in steps {
            let attributes = Attributes { state: next, ..attributes };
            device.modify_qp(qp, &attributes, mask | Mask::STATE).expect("a transition");
            if next == state {
                break;
            }
        }
    }

    pub fn post(&mut self, side: usize, request: SendRequest) -> Result<(), Refusal> {
        let qp = self.sides[side].qp;
        self.net.device(side).post_send(qp, request)
    }

    /// Posts a receive request whose buffer is this part of the side's memory.
    pub fn receive(&mut self, side: usize, wr_id: u64, offset: usize, length: usize) {
        let Side { qp, srq, .. } = self.sides[side];
        let request = ReceiveRequest { wr_id, pieces: self.sides[side].pieces(offset, length) };
        let device = self.net.device(side);
        match srq {
            Some(srq) => device.post_srq_receive(srq, request),
            None => device.post_receive(qp, request),
        }
        .expect("posted");
    }

    pub fn poll(&mut self, side: usize) -> Option<Completion> {
        let cq = self.sides[side].cq;
        self.net.device(side).poll_cq(cq)
    }

    /// The next completion of a side, which comes within virtual minutes.
    #[track_caller]
    pub fn wait(&mut self, side: usize) -> Completion {
        let mut found = None;
        let cq = self.sides[side].cq;
        self.net.run_until(600 * SECOND, |net| {
            found = net.device(side).poll_cq(cq);
            found.is_some()
        });
        found.expect("a completion")
    }

    /// Lets everything happen that happens by itself within so long.
    pub fn idle(&mut self, limit: u64) {
        self.net.run_until(limit, |_| false);
    }

    pub fn events(&mut self, side: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.net.device(side).next_event()).collect()
    }

    pub fn state(&mut self, side: usize) -> QpState {
        let qp = self.sides[side].qp;
        self.net.device(side).state(qp).expect("it is there")
    }
}
