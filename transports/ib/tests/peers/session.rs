//! A session: a fresh pair of queue pairs, the operations of a plan, and what they leave.

use std::time::{Duration, Instant};

use fastrand::Rng;
use uct_ib::verbs::{InlineData, InlineWr, Qp, QpState, SendFlags, SendWr, Sge, Wc};

use crate::end::{End, Retries, wait};
use crate::plan::{
    Abilities, Ended, Kind, Left, Mistake, Operation, Part, Plan, Region, SIZE, SLOT, expected, fresh, place,
};

/// How long receive buffers that come late are waited for.
const LATE: Duration = Duration::from_millis(2);

/// Between which devices, and how.
pub struct Way<'a> {
    pub name: &'a str,
    pub sender: &'a End,
    pub peer: &'a End,
    pub timeout: u8,
    pub can: Abilities,
    /// Where the devices are known not to do what the specification says: what they leave instead.
    pub deviate: fn(&Plan, &mut Left),
}

impl Way<'_> {
    /// A session for each seed.
    pub fn sessions(&self, first: u64, count: u64) {
        for seed in first..first + count {
            let mut random = Rng::with_seed(seed);
            let plan = Plan::new(&mut random, self.can);
            let mut memory = [(); 2].map(|()| fresh(&mut random));
            for (end, memory) in [self.sender, self.peer].into_iter().zip(&memory) {
                end.write(Region::Open, memory);
            }
            for region in [Region::Readable, Region::Writable] {
                self.peer.write(region, &vec![region as u8; SIZE]);
            }
            let left = self.run(&plan);
            let mut right = expected(&plan, &mut memory);
            (self.deviate)(&plan, &mut right);
            let context = format!("{}, UCT_TEST_SEED={seed:#x}: {plan:#?}", self.name);
            assert_eq!(left, right, "left is what came, right is what was expected; {context}");
            self.check_memory(&plan, &memory, &context);
        }
    }

    fn run(&self, plan: &Plan) -> Left {
        let (sender, peer) = (self.sender, self.peer);
        let [ours, theirs] = [sender.queue_pair(), peer.queue_pair()];
        // Only what has a request without a buffer gives up.
        let gives_up = plan.operations.iter().any(|it| it.mistake == Some(Mistake::NoReceive));
        let retries = Retries { timeout: self.timeout, rnr: if gives_up { 2 } else { 7 } };
        sender.connect(&ours, peer, theirs.number(), retries);
        peer.connect(&theirs, sender, ours.number(), retries);
        if !plan.is_late {
            self.post_receives(&theirs, plan);
        }
        for (index, operation) in plan.operations.iter().enumerate() {
            self.post(&ours, index, operation);
        }
        if plan.is_late {
            let until = Instant::now() + LATE;
            while Instant::now() < until {
                std::thread::yield_now();
            }
            self.post_receives(&theirs, plan);
        }
        let sent = wait(&sender.sends, plan.operations.len(), "the sender");
        let has_failed = [&ours, &theirs].map(|qp| qp.state().expect("a state") == QpState::Error);
        theirs.fail().expect("to ERROR");
        let received = wait(&peer.receives, plan.received().count(), "the receiver");
        let bytes_of_result = |wc: &Wc| {
            let kind = plan.operations[wc.wr_id() as usize].kind;
            if kind == Kind::Read || kind.is_atomic() { wc.byte_length() } else { 0 }
        };
        Left {
            sent: sent.iter().map(|wc| ended(wc, bytes_of_result)).collect(),
            received: received.iter().map(|wc| ended(wc, Wc::byte_length)).collect(),
            has_failed,
        }
    }

    fn post_receives(&self, qp: &Qp, plan: &Plan) {
        for (index, operation) in plan.received() {
            let (id, offset) = (index as u64, place(Part::Receive, index));
            match operation.mistake {
                Some(Mistake::TooLong) => self.peer.post_receive(qp, id, offset, operation.length - 1),
                Some(Mistake::ReceiveKey) => self.peer.post_receive_with_wrong_key(qp, id, offset, SLOT),
                _ => self.peer.post_receive(qp, id, offset, SLOT),
            }
        }
    }

    fn post(&self, qp: &Qp, index: usize, operation: &Operation) {
        let (sender, peer, length) = (self.sender, self.peer, operation.length);
        let id = index as u64;
        let flags = SendFlags::SIGNALED.with(SendFlags::FENCE, operation.is_fenced);
        let is_result = operation.kind == Kind::Read || operation.kind.is_atomic();
        let own = place(if is_result { Part::Result } else { Part::Source }, index);
        let (mut address, mut key) = (sender.address(Region::Open, own), sender.lkey(Region::Open));
        let target = place(Part::Target, index);
        let (mut remote, mut rkey) = (peer.address(Region::Open, target), peer.rkey(Region::Open));
        match operation.mistake {
            Some(Mistake::RemoteKey) => rkey ^= 0x5a,
            Some(Mistake::RemoteBounds) => {
                let end = if operation.kind.is_atomic() { SIZE } else { SIZE - length + 1 };
                remote = peer.address(Region::Open, end);
            }
            Some(Mistake::Forbidden) => {
                let region = if operation.kind == Kind::Read { Region::Writable } else { Region::Readable };
                (remote, rkey) = (peer.address(region, target), peer.rkey(region));
            }
            Some(Mistake::Odd) => remote += 4,
            Some(Mistake::LocalKey) => key ^= 0x5a,
            Some(Mistake::LocalBounds) => address = sender.address(Region::Open, SIZE - length + 1),
            _ => {}
        }
        let posted = if operation.is_inline {
            let memory = sender.read(Region::Open);
            let pieces: Vec<_> = split(length, operation.pieces)
                .map(|(at, length)| InlineData::new(&memory[own + at..own + at + length]))
                .collect();
            qp.post_inline(match operation.kind {
                Kind::Send { immediate: Some(immediate) } => {
                    InlineWr::send_immediate(id, &pieces, immediate, flags)
                }
                Kind::Write => InlineWr::rdma_write(id, &pieces, remote, rkey, flags),
                _ => InlineWr::send(id, &pieces, flags),
            })
        } else {
            let pieces: Vec<_> = split(length, operation.pieces)
                .map(|(at, length)| Sge::new(address + at as u64, length as u32, key))
                .collect();
            let result = pieces.first_chunk().expect("one piece");
            let request = match operation.kind {
                Kind::Send { immediate: None } => SendWr::send(id, &pieces, flags),
                Kind::Send { immediate: Some(immediate) } => {
                    SendWr::send_immediate(id, &pieces, immediate, flags)
                }
                Kind::Write => SendWr::rdma_write(id, &pieces, remote, rkey, flags),
                Kind::Read => SendWr::rdma_read(id, &pieces, remote, rkey, flags),
                Kind::Add(add) => SendWr::fetch_add(id, result, remote, rkey, add, flags),
                Kind::Swap(compare, swap) => {
                    SendWr::compare_swap(id, result, remote, rkey, (compare, swap), flags)
                }
            };
            // SAFETY: the memory lives as long as the side, and the queue pair ends ahead of it.
            unsafe { qp.post_send(request) }
        };
        posted.expect("there is room");
    }

    fn check_memory(&self, plan: &Plan, expected: &[Vec<u8>; 2], context: &str) {
        for (end, expected) in [self.sender, self.peer].into_iter().zip(expected) {
            let mut memory = end.read(Region::Open);
            // What a message that fails leaves in its buffer is not defined.
            for (index, _) in plan.received().filter(|(_, operation)| operation.mistake.is_some()) {
                let buffer = place(Part::Receive, index)..place(Part::Receive, index + 1);
                memory[buffer.clone()].copy_from_slice(&expected[buffer]);
            }
            // Nor is what a read that fails leaves where it fits, and whether an atomic without a place for its result was executed.
            for (index, operation) in plan.operations.iter().enumerate() {
                if matches!(operation.mistake, Some(Mistake::LocalKey | Mistake::LocalBounds)) {
                    let target = place(Part::Target, index);
                    let end = SIZE - operation.length + 1..SIZE;
                    for undefined in [target..target + 8, end] {
                        memory[undefined.clone()].copy_from_slice(&expected[undefined]);
                    }
                }
            }
            let wrong = memory.iter().zip(expected).position(|(came, expected)| came != expected);
            assert!(wrong.is_none(), "the byte at {wrong:?} is not as expected; {context}");
        }
        for region in [Region::Readable, Region::Writable] {
            assert!(self.peer.read(region).iter().all(|byte| *byte == region as u8), "{region:?}; {context}");
        }
    }
}

/// Pieces of a request: where each begins, and its bytes.
fn split(length: usize, pieces: usize) -> impl Iterator<Item = (usize, usize)> {
    let each = length / pieces;
    (0..pieces)
        .map(move |piece| (piece * each, if piece + 1 == pieces { length - piece * each } else { each }))
}

fn ended(wc: &Wc, bytes: impl Fn(&Wc) -> usize) -> Ended {
    let (bytes, immediate) = if wc.is_ok() { (bytes(wc), wc.immediate()) } else { (0, None) };
    (wc.wr_id(), wc.status().name(), bytes, immediate.filter(|_| wc.is_receive()))
}
