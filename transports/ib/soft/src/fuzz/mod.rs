//! Any packets of a peer, and any calls of an application, as functions of bytes.
//!
//! For fuzz targets and bounded runs of the tests. Each byte chooses what comes next. The device never panics, never
//! writes outside what was registered for it, ends each request at most once, and tells nothing of what has ended.

mod calls;
mod packets;

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::engine::wire::{BTH_LENGTH, Extra, Headers, LARGEST_HEADERS};
use crate::engine::{
    Access, Atomic, Attributes, Capacity, Config, CqId, Device, Mask, Outgoing, Path, PdId, Personality,
    Piece, Pieces, Psn, QpConfig, QpKind, QpState, SendData, SendKind, SendRequest, SrqId, Target,
};

pub use calls::fuzz_calls;
pub use packets::fuzz_packets;

/// Payload of a packet.
const MTU: usize = 256;
/// Bytes of an arena that are registered, and on each side of them bytes that nobody writes.
const REGION: usize = 4096;
const GUARD: usize = 1024;
const GUARD_BYTE: u8 = 0xa5;
const QKEY: u32 = 0x1111;
/// Steps of one input at most.
const STEPS: usize = 4096;

/// The bytes of an input; zeros behind its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// One of these.
    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Memory of which the middle is registered.
struct Arena {
    words: Box<[u64]>,
}

impl Arena {
    fn new() -> Arena {
        let words = vec![u64::from_ne_bytes([GUARD_BYTE; 8]); (REGION + 2 * GUARD) / 8];
        Arena { words: words.into_boxed_slice() }
    }

    fn begin(&mut self) -> u64 {
        self.words.as_mut_ptr().expose_provenance() as u64 + GUARD as u64
    }

    fn register(&mut self, device: &mut Device, pd: PdId, length: usize, access: Access) -> Option<u32> {
        let begin = self.begin();
        // SAFETY: the arena is kept longer than the device, and is not accessed while the device works.
        unsafe { device.register(pd, begin, length.min(REGION) as u64, access) }.ok()
    }

    /// Whether nothing but the first bytes of the middle was written.
    fn is_good(&self, writable: usize) -> bool {
        let (begin, end) = (GUARD / 8, (GUARD + writable) / 8);
        let is_guard = |word: &u64| *word == u64::from_ne_bytes([GUARD_BYTE; 8]);
        self.words[..begin].iter().all(is_guard) && self.words[end..].iter().all(is_guard)
    }
}

fn address(index: usize) -> IpAddr {
    IpAddr::from([127, 64, 0, index as u8 + 1])
}

fn device(index: usize) -> Device {
    Device::new(Config {
        addresses: vec![address(index)],
        mtu: MTU as u32,
        personality: Personality::Specification,
        first_qp: 0x10,
        qp_bits: 24,
    })
}

fn all_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// Where connections begin: just ahead of the end of the numbers.
fn psn(number: u32) -> Psn {
    Psn::new(0x00ff_fff0).plus(number)
}

/// Attributes of a connection to this queue pair of another device.
fn attributes(peer: usize, destination_qp: u32) -> Attributes {
    Attributes {
        access: all_access(),
        mtu: MTU as u32,
        destination_qp,
        receive_psn: psn(0),
        send_psn: psn(0),
        reads_out: 3,
        reads_in: 3,
        min_rnr_timer: 1,
        timeout: 3,
        retry_count: 3,
        rnr_retry: 5,
        qkey: QKEY,
        path: Path { destination: address(peer), source_index: 0 },
        ..Attributes::default()
    }
}

/// Brings a queue pair to this state, as far as it goes.
fn connect(device: &mut Device, qp: u32, attributes: &Attributes) {
    let Some(kind) = device.query_qp(qp).map(|found| found.1.kind) else { return };
    let pick = |rc, ud| if kind == QpKind::Rc { rc } else { ud };
    let path = Mask::PATH | Mask::MTU | Mask::DESTINATION_QP | Mask::RECEIVE_PSN | Mask::READS_IN;
    let timers = Mask::TIMEOUT | Mask::RETRY_COUNT | Mask::RNR_RETRY | Mask::READS_OUT;
    for (state, mask) in [
        (QpState::Init, Mask::PORT | Mask::PKEY_INDEX | pick(Mask::ACCESS, Mask::QKEY)),
        (QpState::ReadyToReceive, pick(path | Mask::MIN_RNR_TIMER, Mask::empty())),
        (QpState::ReadyToSend, Mask::SEND_PSN | pick(timers, Mask::empty())),
    ] {
        let attributes = Attributes { state, ..*attributes };
        let _ = device.modify_qp(qp, &attributes, mask | Mask::STATE);
    }
}

const CAPACITY: Capacity = Capacity { sends: 8, receives: 8, send_pieces: 2, receive_pieces: 2, inline: 64 };

fn config(kind: QpKind, pd: PdId, cq: CqId, srq: Option<SrqId>) -> QpConfig {
    QpConfig { kind, pd, send_cq: cq, receive_cq: cq, srq, capacity: CAPACITY, signals_all: false }
}

fn pieces(input: &mut Input<'_>, begin: u64, keys: &[u32]) -> Pieces {
    let piece = |input: &mut Input<'_>| Piece {
        address: begin
            .wrapping_add(u64::from(input.word() % REGION as u16))
            .wrapping_sub(input.below(2) as u64),
        length: input.pick(&[0, 1, 8, 8, 255, 256, 257, 1000]),
        lkey: if keys.is_empty() { 0 } else { input.pick(keys) },
    };
    (0..input.below(3)).map(|_| piece(input)).collect()
}

fn send_request(input: &mut Input<'_>, begin: u64, keys: &[u32], wr_id: u64) -> SendRequest {
    let target = Target {
        address: begin + u64::from(input.word()) % (REGION as u64 + 8),
        rkey: if keys.is_empty() { 0 } else { input.pick(keys) },
    };
    let path = Path { destination: address(input.below(3)), source_index: 0 };
    let aligned = Target { address: target.address & !7, ..target };
    let kind = match input.below(8) {
        0 | 1 => SendKind::Send,
        2 => SendKind::Write(target),
        3 => SendKind::Read(target),
        4 => SendKind::Atomic(aligned, Atomic::Add(3)),
        5 => SendKind::Atomic(target, Atomic::CompareSwap { compare: 3, swap: 1 }),
        _ => SendKind::Datagram {
            path,
            qp: 0x10 + input.below(4) as u32,
            qkey: input.pick(&[QKEY, 1 << 31, 1]),
        },
    };
    let bits = input.byte();
    let data = if bits & 3 == 0 {
        SendData::Inline(vec![bits; usize::from(bits >> 2)])
    } else if matches!(kind, SendKind::Atomic(..)) && bits & 4 == 0 {
        let piece = Piece { address: begin + u64::from(bits), length: 8, lkey: target.rkey };
        SendData::Pieces([piece].into_iter().collect())
    } else {
        SendData::Pieces(pieces(input, begin, keys))
    };
    SendRequest {
        wr_id,
        kind,
        data,
        extra: if bits & 8 == 0 { Extra::None } else { Extra::Immediate([bits; 4]) },
        is_signaled: bits & 16 == 0,
        is_solicited: bits & 32 != 0,
        is_fenced: bits & 64 != 0,
    }
}

/// Requests that were posted and have not ended.
#[derive(Default)]
struct Posted {
    /// Queue pairs (or a shared queue, as 0) by request.
    requests: BTreeMap<u64, u32>,
    last: u64,
}

impl Posted {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn take_from(&mut self, device: &mut Device, cq: CqId) {
        while let Some(completion) = device.poll_cq(cq) {
            let ended = self.requests.remove(&completion.wr_id);
            assert!(ended.is_some(), "a request that was not posted, or has ended: {completion:?}");
        }
    }
}

/// An answer of the device is a packet that a peer understands.
fn check_outgoing(packet: &Outgoing) {
    assert!(packet.bytes.len() <= LARGEST_HEADERS + MTU, "{} bytes", packet.bytes.len());
    assert!(packet.bytes.len() >= BTH_LENGTH && packet.bytes.len().is_multiple_of(4));
    let decoded = Headers::decode(&packet.bytes);
    assert!(decoded.is_ok(), "{decoded:?}");
}
