//! Initiator and target face to face, over a wire that is a list of frames.

mod endpoints;
mod frames;
mod initiating;

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

use ucs::{Error, Status};
use uct_abi::{UCT_OK, UctCompletion};

use super::*;
use crate::AtomicOp;
use crate::atomic::{Atomic, Change, OldValue, Width};
use crate::completion::{Completion, Outcome};
use crate::memory::{Accessor, MemoryAccess, PACKED_KEY, Region, Regions, RemoteKey};

const LIMITS: Limits = Limits { operations: 64, get_segment: 16, get_bytes: 40 };

struct Pair {
    initiator: Initiator,
    target: Target,
    regions: Regions,
    accessor: Accessor,
    requests: VecDeque<Vec<u8>>,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            initiator: Initiator::new(LIMITS),
            target: Target::default(),
            regions: Regions::default(),
            accessor: Accessor::default(),
            requests: VecDeque::new(),
        }
    }

    fn register(&self, memory: &mut [u64], access: MemoryAccess) -> (Arc<Region>, RemoteKey, u64) {
        let base = NonNull::new(memory.as_mut_ptr().cast::<u8>()).unwrap();
        // SAFETY: every test's memory outlives the pair's last request.
        let region = unsafe { self.regions.insert(base, memory.len() * 8, access) }.unwrap();
        let mut packed = [0; PACKED_KEY];
        self.regions.pack(&region, &mut packed).unwrap();
        (region, RemoteKey::unpack(&packed).unwrap(), base.as_ptr() as u64)
    }

    fn put(&mut self, key: &RemoteKey, address: u64, data: &[u8], notify: Notify) {
        let request = self.initiator.put(key, address, data.len()).unwrap();
        self.send(&request, data);
        self.initiator.posted(7, &request, Operation::Acknowledged(notify));
    }

    fn send(&mut self, request: &Request, data: &[u8]) {
        self.requests.push_back(frame(request, data));
    }

    /// Carries everything to the target and the answers back, until nothing moves.
    fn settle(&mut self) {
        loop {
            let requests = &mut self.requests;
            self.initiator.pump(|request| {
                requests.push_back(frame(request, &[]));
                Ok(())
            });
            if self.requests.is_empty() {
                break;
            }
            let mut answers = Vec::new();
            while let Some(request) = self.requests.pop_front() {
                if let Some(answer) = self.target.serve(&self.regions, &self.accessor, &request).unwrap() {
                    answers.push(answer.to_vec());
                }
            }
            answers.extend(self.target.acknowledge().map(|header| header.to_vec()));
            for answer in answers {
                self.initiator.answer(&answer).unwrap();
            }
        }
    }
}

fn frame(request: &Request, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; MAX_REQUEST];
    let length = request.write(&mut frame);
    frame.truncate(length);
    frame.extend_from_slice(data);
    frame
}

unsafe extern "C" fn finished(_completion: *mut UctCompletion) {}

/// A completion of the host's, for one operation.
struct Host(UctCompletion);

impl Host {
    fn new() -> Box<Host> {
        Box::new(Host(UctCompletion { func: finished, count: 1, status: UCT_OK }))
    }

    fn completion(&mut self) -> Option<Completion> {
        // SAFETY: the box outlives the operation in every test.
        unsafe { Completion::new(&raw mut self.0) }
    }

    fn result(&self) -> Option<Status> {
        (self.0.count == 0).then(|| Status::from_raw(self.0.status))
    }
}

#[test]
fn many_quiet_puts_are_one_entry_and_one_acknowledgement_ends_them() {
    let mut pair = Pair::new();
    let mut memory = [0; 8];
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    for index in 0..8 {
        pair.put(&key, address + index * 8, &(index + 100).to_le_bytes(), Notify::Nobody);
    }
    let mut flushed = Host::new();
    assert_eq!(pair.initiator.flush(7, flushed.completion()), Ok(Outcome::InProgress));
    assert_eq!(flushed.result(), None);
    pair.settle();
    assert_eq!(flushed.result(), Some(Status::OK));
    assert!(pair.initiator.is_idle());
    assert_eq!(memory, [100, 101, 102, 103, 104, 105, 106, 107]);
}

#[test]
fn a_get_larger_than_the_limits_comes_in_segments_and_whole() {
    let mut pair = Pair::new();
    let mut memory: Vec<u64> = (0..32).collect();
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::REMOTE_GET);
    let mut here = [0_u64; 32];
    // SAFETY: it lives to the end of the test, as in the other ones.
    let place = unsafe { Destination::block(NonNull::new(here.as_mut_ptr().cast()).unwrap(), 256) };
    let mut host = Host::new();
    pair.initiator.get(7, place, 256, &key, address, host.completion().into()).unwrap();
    assert_eq!(
        pair.initiator.admit(),
        Err(Error::NO_RESOURCE),
        "nothing overtakes a get that is not wholly requested"
    );
    pair.settle();
    assert_eq!(host.result(), Some(Status::OK));
    assert_eq!(here[..], memory[..]);
}

#[test]
fn a_refused_access_is_an_error_of_its_operation_alone_and_touches_nothing() {
    let mut pair = Pair::new();
    let mut memory = [5; 2];
    let (region, key, address) = pair.register(&mut memory, MemoryAccess::REMOTE_GET);
    // A key that lies about its rights and its length passes the initiator, not the target.
    let lie = |length: u64, access: u32| {
        let mut packed = [0; PACKED_KEY];
        pair.regions.pack(&region, &mut packed).unwrap();
        packed[4..8].copy_from_slice(&access.to_le_bytes());
        packed[40..48].copy_from_slice(&length.to_le_bytes());
        RemoteKey::unpack(&packed).unwrap()
    };
    let (rights, length) = (lie(16, 7), lie(17, 7));
    let mut hosts = [Host::new(), Host::new(), Host::new()];
    let [first, second, third] = &mut hosts;
    pair.put(&rights, address, &[1; 16], first.completion().into());
    let mut here = [0_u8; 17];
    let start = NonNull::new(here.as_mut_ptr()).unwrap();
    // SAFETY: as above.
    let place = || unsafe { Destination::block(start, 17) };
    assert!(!pair.initiator.has_refusals(), "nothing was asked for");
    pair.initiator.get(7, place(), 17, &length, address, second.completion().into()).unwrap();
    pair.settle();
    assert!(pair.initiator.has_refusals());
    pair.initiator.get(7, place(), 16, &key, address, third.completion().into()).unwrap();
    pair.settle();
    assert_eq!(first.result(), Some(Status::INVALID_PARAM));
    assert_eq!(second.result(), Some(Status::OUT_OF_RANGE));
    assert_eq!(third.result(), Some(Status::OK));
    assert_eq!(memory, [5; 2]);
}

#[test]
fn a_stale_key_and_a_key_with_another_secret_are_refused() {
    let mut pair = Pair::new();
    let mut memory = [5];
    let (region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let mut foreign = key;
    foreign.secret ^= 1;
    let (mut first, mut second) = (Host::new(), Host::new());
    pair.put(&foreign, address, &[1; 8], first.completion().into());
    pair.settle();
    pair.regions.remove(&region);
    pair.put(&key, address, &[1; 8], second.completion().into());
    pair.settle();
    assert_eq!(first.result(), Some(Status::INVALID_PARAM));
    assert_eq!(second.result(), Some(Status::INVALID_PARAM));
    assert_eq!(memory, [5]);
}

/// A peer that guesses learns nothing else: neither which slots have a region, nor where the regions are and what they permit.
#[test]
fn a_wrong_secret_has_one_response_whatever_else_is_right() {
    let pair = Pair::new();
    let (mut memory, mut readable) = ([0_u64; 8], [0_u64; 8]);
    let (region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let (_read_only, read_key, read_address) = pair.register(&mut readable, MemoryAccess::REMOTE_GET);
    let requests = |slot, secret, addresses: &[u64]| {
        let atomics =
            [Opcode::Post32, Opcode::Post64, Opcode::Fetch32, Opcode::Cswap64].map(|code| (code, 8));
        let all =
            [(Opcode::Put, 0), (Opcode::Put, 8), (Opcode::Get, 0), (Opcode::Get, 8), (Opcode::Get, u32::MAX)];
        let mut responses = Vec::new();
        for (opcode, length) in all.into_iter().chain(atomics) {
            for &address in addresses {
                let length = match opcode {
                    Opcode::Post32 | Opcode::Fetch32 => 4,
                    _ => length,
                };
                let (atomic, operands) = (AtomicOp::Add, [1, 1]);
                let request =
                    Request { opcode, atomic, sequence: 1, slot, secret, address, length, operands };
                let data = if opcode == Opcode::Put { &[5; 8][..length as usize] } else { &[] };
                let frame = frame(&request, data);
                let answer = pair.target.serve(&pair.regions, &pair.accessor, &frame).expect("well-formed");
                responses.push(answer.map(|answer| answer.to_vec()));
            }
        }
        responses
    };
    let anywhere = [address, address + 8, address + 60, address + 64, address + 1, 0, u64::MAX, read_address];
    let refused =
        Response { kind: ResponseKind::Error, sequence: 1, status: Error::INVALID_PARAM.status(), length: 0 };
    let refused = Some(refused.header().to_vec());
    let ((slot, secret), (read_slot, read_secret)) = (key.place(), read_key.place());
    // The secret of another region is as wrong as any, and a slot that was never used as one with a region.
    for (slot, secret) in [
        (slot, secret ^ 1),
        (slot, 0),
        (slot, read_secret),
        (read_slot, secret),
        (read_slot, !read_secret),
        (77, secret),
        (u32::MAX, 0),
    ] {
        for response in requests(slot, secret, &anywhere) {
            assert_eq!(response, refused, "slot {slot}");
        }
    }
    // The right secret says more: a process that has it was given the key, with base and length.
    let outside = requests(slot, secret, &[address + 64 + 8]);
    let told = |response: &Option<Vec<u8>>| {
        response
            .as_ref()
            .is_some_and(|bytes| bytes[8..12] == Error::OUT_OF_RANGE.status().raw().to_le_bytes())
    };
    assert!(outside.iter().all(told), "{outside:?}");
    // After its end not even this.
    pair.regions.remove(&region);
    assert!(requests(slot, secret, &anywhere).iter().all(|response| *response == refused));
}

#[test]
fn the_error_of_an_operation_without_a_completion_comes_with_the_flush_of_its_owner() {
    let mut pair = Pair::new();
    let mut memory = [5];
    let (region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    pair.regions.remove(&region);
    pair.put(&key, address, &[1; 8], Notify::Nobody);
    let (mut other, mut own) = (Host::new(), Host::new());
    assert!(pair.initiator.flush(8, other.completion()).is_ok());
    assert!(pair.initiator.flush(7, own.completion()).is_ok());
    pair.settle();
    assert_eq!(other.result(), Some(Status::OK));
    assert_eq!(own.result(), Some(Status::INVALID_PARAM));
    assert_eq!(pair.initiator.flush(7, None), Ok(Outcome::Done), "it is reported once");
}

#[test]
fn atomics_return_the_old_value_and_refuse_unaligned_words() {
    let mut pair = Pair::new();
    let mut memory = [10];
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let fetch = |pair: &mut Pair, change| {
        let mut old = 0_u64;
        let mut host = Host::new();
        let place = OldValue::new(Width::Bits64, NonNull::from(&mut old).cast());
        let operation = Operation::Fetch(place, host.completion().into());
        let atomic = Atomic { width: Width::Bits64, change };
        let request = pair.initiator.atomic(atomic, &key, address, &operation).unwrap();
        pair.send(&request, &[]);
        pair.initiator.posted(7, &request, operation);
        pair.settle();
        assert_eq!(host.result(), Some(Status::OK));
        old
    };
    assert_eq!(fetch(&mut pair, Change::Op(AtomicOp::Add, 5)), 10);
    assert_eq!(fetch(&mut pair, Change::CompareSwap { compare: 15, swap: 40 }), 15);
    assert_eq!(fetch(&mut pair, Change::CompareSwap { compare: 15, swap: 50 }), 40);
    assert_eq!(fetch(&mut pair, Change::Op(AtomicOp::Swap, 1)), 40);
    let atomic = Atomic { width: Width::Bits32, change: Change::Op(AtomicOp::Add, 1) };
    let post = Operation::Acknowledged(Notify::Nobody);
    assert_eq!(pair.initiator.atomic(atomic, &key, address + 2, &post), Err(Error::INVALID_PARAM));
    assert_eq!(memory, [1]);
}

#[test]
fn cancelling_completes_every_operation_and_writes_nothing_afterwards() {
    let mut pair = Pair::new();
    let mut memory = [9; 4];
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let mut here = [0_u64; 4];
    // SAFETY: as above.
    let place = unsafe { Destination::block(NonNull::new(here.as_mut_ptr().cast()).unwrap(), 32) };
    let (mut put, mut get, mut flush) = (Host::new(), Host::new(), Host::new());
    pair.put(&key, address, &[1; 8], put.completion().into());
    pair.initiator.get(7, place, 32, &key, address, get.completion().into()).unwrap();
    let requests = &mut pair.requests;
    pair.initiator.pump(|request| {
        requests.push_back(frame(request, &[]));
        Ok(())
    });
    assert!(pair.initiator.flush(7, flush.completion()).is_ok());
    pair.initiator.cancel(7, Error::CANCELED);
    for host in [&put, &get, &flush] {
        assert_eq!(host.result(), Some(Status::CANCELED));
    }
    pair.settle();
    assert_eq!(here, [0; 4]);
    assert!(pair.initiator.is_idle());
    assert_eq!(pair.initiator.admit(), Ok(()));
}

#[test]
fn a_failed_connection_ends_everything_with_its_error() {
    let mut pair = Pair::new();
    let mut memory = [0];
    let (_region, key, address) = pair.register(&mut memory, MemoryAccess::all());
    let (mut put, mut flush) = (Host::new(), Host::new());
    pair.put(&key, address, &[1; 8], put.completion().into());
    assert!(pair.initiator.flush(7, flush.completion()).is_ok());
    pair.initiator.fail(Error::CONNECTION_RESET);
    assert_eq!(put.result(), Some(Status::CONNECTION_RESET));
    assert_eq!(flush.result(), Some(Status::CONNECTION_RESET));
}

#[test]
fn responses_without_a_request_are_refused() {
    let pair = Pair::new();
    let answer = |kind, sequence, length| Response { kind, sequence, status: Status::OK, length }.header();
    assert!(pair.initiator.answer(&answer(ResponseKind::Acknowledgement, 1, 0)).is_err());
    assert!(pair.initiator.answer(&answer(ResponseKind::Acknowledgement, 0, 0)).is_ok());
    assert!(pair.initiator.answer(&answer(ResponseKind::Data, 0, 0)).is_err());
}

#[test]
fn arbitrary_and_mutated_bytes_are_read_without_a_panic_and_serve_nothing_outside() {
    let pair = Pair::new();
    let mut memory = [3; 8];
    let (_region, key, address) = pair.register(&mut memory[2..6], MemoryAccess::all());
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..20_000 {
        let mut bytes = if round % 2 == 0 {
            (0..next() % 64).map(|_| next() as u8).collect()
        } else {
            frame(&pair.initiator.put(&key, address, 32).unwrap(), &[1; 32])
        };
        if !bytes.is_empty() {
            let at = next() as usize % bytes.len();
            bytes[at] ^= 1 << (next() % 8);
        }
        let _ = pair.target.serve(&pair.regions, &pair.accessor, &bytes);
        let _ = pair.initiator.answer(&bytes);
    }
    assert_eq!((&memory[..2], &memory[6..]), (&[3; 2][..], &[3; 2][..]));
}
