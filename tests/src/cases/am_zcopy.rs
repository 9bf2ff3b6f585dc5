//! Zero-copy active messages: headers, vectors, strides, and what becomes of the memory.

use uct_host::{AmId, Capabilities, Completion, Error, MemorySlice, Posted, SendFlags};

use super::case;
use crate::case::{Case, Needs};
use crate::pair::Pair;
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

const ID: AmId = AmId::new(3).unwrap();

fn send(pair: &Pair, header: &[u8], memory: &[MemorySlice], completion: &Completion) -> Posted {
    let post = || pair.to.am_zcopy(ID, header, memory, SendFlags::empty(), completion);
    pair.retry("am_zcopy", post).unwrap_or_else(|error| panic!("am_zcopy: {error}"))
}

fn headers(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let completion = pair.sender.completion();
    let am = pair.sender.attributes().am;
    for header in [0, 1, 7, 8, 9, am.max_hdr / 2, am.max_hdr.saturating_sub(1), am.max_hdr] {
        for body in [0, 1, 100, 5000] {
            if header > am.max_hdr || !(am.min_zcopy..=am.max_zcopy).contains(&(header + body)) {
                continue;
            }
            let bytes = pattern(setup.seed, header + body);
            let memory = pair.sender.memory(bytes[header..].to_vec());
            send(&pair, &bytes[..header], &[memory.slice(..)], &completion);
            pair.until("the message", || !inbox.is_empty());
            check_bytes(&format!("{header} + {body} bytes"), &inbox.take().expect("it is there"), &bytes);
        }
    }
    pair.until("the completion", || completion.is_done());
    completion.result().expect("all was sent");
}

fn vectors(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let completion = pair.sender.completion();
    let am = pair.sender.attributes().am;
    let mut random = setup.random();
    for entries in 1..=am.max_iov.min(64) {
        let mut expected = pattern(random.next(), 8.min(am.max_hdr));
        let header = expected.clone();
        let mut slices = Vec::new();
        let room = (am.max_zcopy - header.len()) / entries;
        for entry in 0..entries {
            let length = random.below(room.min(700)) + usize::from(expected.len() < am.min_zcopy);
            let bytes = pattern(random.next(), length + 10);
            let start = entry % 10;
            expected.extend_from_slice(&bytes[start..start + length]);
            slices.push(pair.sender.memory(bytes).slice(start..start + length));
        }
        send(&pair, &header, &slices, &completion);
        pair.until("the message", || !inbox.is_empty());
        let message = inbox.take().expect("it is there");
        check_bytes(&format!("a vector of {entries} entries"), &message, &expected);
    }
    pair.until("the completion", || completion.is_done());
}

fn strides(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let completion = pair.sender.completion();
    let am = pair.sender.attributes().am;
    for (length, stride, count) in
        [(1, 2, 50), (8, 8, 9), (7, 16, 31), (100, 101, 3), (64, 4096, 4), (5, 5, 1)]
    {
        let bytes = pattern(setup.seed, stride * count);
        if !(am.min_zcopy..=am.max_zcopy).contains(&(length * count)) {
            continue;
        }
        let expected: Vec<u8> = bytes.chunks(stride).flat_map(|block| &block[..length]).copied().collect();
        let memory = pair.sender.memory(bytes);
        let slice = memory.slice(..).strided(length, stride, count as u32);
        send(&pair, &[], &[slice], &completion);
        pair.until("the message", || !inbox.is_empty());
        let message = inbox.take().expect("it is there");
        check_bytes(&format!("{count} blocks of {length}, {stride} apart"), &message, &expected);
    }
    pair.until("the completion", || completion.is_done());
}

fn memory_is_the_senders_after_the_completion(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let size = pair.sender.attributes().am.max_zcopy.min(1 << 16);
    let memory = pair.sender.memory(vec![0; size]);
    const COUNT: u64 = 50;
    for index in 0..COUNT {
        let completion = pair.sender.completion();
        memory.write(0, &pattern(setup.seed + index, size));
        if send(&pair, &[], &[memory.slice(..)], &completion) == Posted::InProgress {
            pair.until("the completion", || completion.is_done());
            completion.result().expect("it was sent");
        }
        // From here on the memory is the sender's: a transport that still reads it sends these bytes.
        memory.fill(0, size, 0xee);
    }
    pair.until("all messages", || inbox.len() as u64 == COUNT);
    for index in 0..COUNT {
        let message = inbox.take().expect("it is there");
        check_bytes(&format!("message {index}"), &message, &pattern(setup.seed + index, size));
    }
}

fn memory_is_held_until_the_completion(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let size = pair.sender.attributes().am.max_zcopy.min(1 << 20);
    let bytes = pattern(setup.seed, size);
    for _ in 0..20 {
        let completion = pair.sender.completion();
        let memory = pair.sender.memory(bytes.clone());
        let posted = send(&pair, &[], &[memory.slice(..)], &completion);
        let memory = match (posted, memory.into_bytes()) {
            (Posted::Done, Ok(given_back)) => {
                check_bytes("the memory", &given_back, &bytes);
                None
            }
            (Posted::Done, Err(_)) => panic!("memory of an operation that is done is not given back"),
            (Posted::InProgress, Ok(_)) => panic!("memory of an outstanding operation was given back"),
            (Posted::InProgress, Err(memory)) => Some(memory),
        };
        pair.until("the completion", || completion.is_done());
        if let Some(memory) = memory {
            let given_back = memory.into_bytes().expect("the operation has ended");
            check_bytes("the memory", &given_back, &bytes);
        }
        pair.until("the message", || !inbox.is_empty());
        check_bytes("the message", &inbox.take().expect("it is there"), &bytes);
    }
}

fn memory_that_nobody_else_holds(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let size = pair.sender.attributes().am.max_zcopy.min(1 << 16);
    let completion = pair.sender.completion();
    const COUNT: u64 = 30;
    for index in 0..COUNT {
        let memory = pair.sender.memory(pattern(index, size));
        let slice = memory.slice(..);
        drop(memory);
        send(&pair, &[], &[slice], &completion);
    }
    pair.until("all messages", || inbox.len() as u64 == COUNT && completion.is_done());
    for index in 0..COUNT {
        check_bytes("a message", &inbox.take().expect("it is there"), &pattern(index, size));
    }
}

fn beyond_the_limits(setup: &Setup) {
    // A limit that is a matter of configuration is set low enough to be exceeded.
    setup.configure("max_message", "1m");
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let completion = pair.sender.completion();
    let am = pair.sender.attributes().am;
    let refused = |what: &str, header: &[u8], memory: &[MemorySlice]| {
        let answer =
            pair.retry(what, || pair.to.am_zcopy(ID, header, memory, SendFlags::empty(), &completion));
        assert_eq!(answer, Err(Error::INVALID_PARAM), "{what}");
        assert!(completion.is_done(), "{what}: refused, and yet outstanding");
    };
    if am.max_zcopy < 64 << 20 {
        let memory = pair.sender.memory(vec![1; am.max_zcopy + 1]);
        refused("a byte more than max_zcopy", &[], &[memory.slice(..)]);
    }
    if am.max_hdr < 1 << 20 {
        let memory = pair.sender.memory(vec![1; 8]);
        refused("a header of a byte more than max_hdr", &vec![2; am.max_hdr + 1], &[memory.slice(..)]);
    }
    let memory = pair.sender.memory(vec![1; 200]);
    let entries: Vec<MemorySlice> = (0..am.max_iov + 1).map(|at| memory.slice(at..at + 1)).collect();
    refused("a vector of an entry more than max_iov", &[], &entries);
    pair.settle();
    assert!(inbox.is_empty(), "something of what was refused arrived");
    let body = pair.sender.memory(pattern(1, am.min_zcopy.max(8)));
    send(&pair, &[], &[body.slice(..)], &completion);
    pair.until("the message after", || inbox.len() == 1);
}

fn foreign_memory(setup: &Setup) {
    let pair = Pair::new(setup);
    let other = setup.context();
    // A second context opens a memory domain of its own.
    let foreign = crate::Target::context(setup.target.linkage, &setup.config, &[]).expect("a context");
    let domain =
        foreign.memory_domain(&setup.target.resource(&foreign).expect("it is there")).expect("a domain");
    let memory = domain.register(vec![0; 64], uct_host::Access::ALL).expect("a registration");
    let completion = pair.sender.completion();
    let answer = pair.to.am_zcopy(ID, &[], &[memory.slice(..)], SendFlags::empty(), &completion);
    assert_eq!(answer, Err(Error::INVALID_PARAM));
    assert!(completion.is_done());
    drop(other);
}

const ZCOPY: Needs = Needs::all(Capabilities::AM_ZCOPY);

pub(super) const CASES: &[Case] = &[
    case("am_zcopy sends headers of every size ahead of the memory", ZCOPY, headers),
    case("am_zcopy gathers vectors of up to max_iov entries", ZCOPY, vectors),
    case("am_zcopy gathers strided blocks", ZCOPY, strides),
    case(
        "memory of am_zcopy is the sender's after the completion",
        ZCOPY,
        memory_is_the_senders_after_the_completion,
    ),
    case(
        "memory of am_zcopy is not given back ahead of the completion",
        ZCOPY,
        memory_is_held_until_the_completion,
    ),
    case(
        "memory of am_zcopy lives until the completion though nobody holds it",
        ZCOPY,
        memory_that_nobody_else_holds,
    ),
    case("am_zcopy beyond its limits is refused and nothing arrives", ZCOPY, beyond_the_limits),
    case("am_zcopy refuses memory of another domain", ZCOPY, foreign_memory),
];
