//! Flush and fence: what is done, and what is in order, when they say so.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use uct_host::{AmId, AtomicOp, Capabilities, Completion, Error, Flush, Pending, Posted, SendFlags};

use super::case;
use crate::access::Way;
use crate::case::{Case, Needs};
use crate::message::Flavour;
use crate::pair::{Pair, connect};
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

const ID: AmId = AmId::new(11).unwrap();

fn idle(setup: &Setup) {
    let pair = Pair::new(setup);
    for flags in [Flush::empty(), Flush::REMOTE] {
        pair.flush(&pair.to, flags).expect("a flush with nothing to do");
        pair.flush(&pair.to, flags).expect("a flush with nothing to do, again");
    }
    let asked = || pair.retry("a flush", || pair.to.flush(Flush::empty(), None)).expect("a flush");
    pair.until("a flush without a completion", || asked() == Posted::Done);
}

fn after_messages(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let mut count = 0;
    for flavour in Flavour::of(&pair.sender) {
        for flags in [Flush::empty(), Flush::REMOTE] {
            let completion = pair.sender.completion();
            let (least, most) = flavour.limits(pair.sender.attributes());
            for size in [least, most.min(100_000)] {
                let bytes = pattern(setup.seed, size);
                let send = || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
                pair.retry("a send", send).expect("a send");
                count += 1;
            }
            pair.flush(&pair.to, flags)
                .unwrap_or_else(|error| panic!("{flags:?} after {flavour:?}: {error}"));
            assert!(completion.is_done(), "{flavour:?}: flushed, and yet outstanding");
            completion.result().expect("a send");
        }
    }
    pair.until("all messages", || inbox.len() == count);
}

fn after_remote_access(setup: &Setup) {
    let pair = Pair::new(setup);
    let memory = pair.receiver.memory(vec![0; 100_000]);
    let key = pair.sender.key_to(&memory);
    let mut random = setup.random();
    for way in Way::of(&pair.sender) {
        let (least, most) = way.limits(pair.sender.attributes());
        for size in [least, least.max(8).min(most), most.min(100_000)] {
            let data = pattern(random.next(), size);
            let start = || way.start(&pair.sender, &pair.to, &data, memory.address(), &key);
            let started = pair.retry("a start", start).unwrap_or_else(|error| panic!("{way:?}: {error}"));
            pair.flush(&pair.to, Flush::REMOTE).unwrap_or_else(|error| panic!("after {way:?}: {error}"));
            assert!(started.completion.is_done(), "{way:?}: flushed, and yet outstanding");
            started.completion.result().expect("an access");
            if way.is_put() {
                let mut there = vec![0; size];
                memory.read(0, &mut there);
                check_bytes(&format!("memory after {way:?} and a remote flush"), &there, &data);
            }
        }
    }
}

fn of_the_interface(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let links: Vec<_> = (0..8).map(|_| connect(&pair.sender, &pair.receiver)).collect();
    let mut count = 0;
    for flavour in Flavour::of(&pair.sender) {
        let (least, most) = flavour.limits(pair.sender.attributes());
        let bytes = pattern(setup.seed, 200.clamp(least, most));
        for flags in [Flush::empty(), Flush::REMOTE] {
            let completion = pair.sender.completion();
            for (link, _) in &links {
                let send = || flavour.send(&pair.sender, link, ID, &bytes, &completion);
                pair.retry("a send", send).expect("a send");
                count += 1;
            }
            let flushed = Completion::new(&pair.sender.worker);
            let start = || pair.sender.iface.flush(flags, Some(&flushed));
            pair.retry("a flush of the interface", start).expect("a flush");
            pair.until("the flush of the interface", || flushed.is_done());
            flushed.result().expect("a flush");
            assert!(completion.is_done(), "{flavour:?}: flushed, and yet outstanding");
        }
    }
    pair.until("all messages", || inbox.len() == count);
    let asked = || pair.retry("a flush", || pair.sender.iface.flush(Flush::empty(), None)).expect("a flush");
    pair.until("a flush without a completion", || asked() == Posted::Done);
}

fn behind_pending(setup: &Setup) {
    for (key, value) in [("sndbuf", "16k"), ("rcvbuf", "16k"), ("tx_queue_size", "16k"), ("fifo_size", "64")]
    {
        setup.configure(key, value);
    }
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    let flavour = Flavour::of(&pair.sender)[0];
    let bytes = pattern(setup.seed, 900.min(flavour.limits(pair.sender.attributes()).1));
    let sends = pair.sender.completion();
    let mut sent = 0;
    while flavour.send(&pair.sender, &pair.to, ID, &bytes, &sends).is_ok() {
        sent += 1;
        if sent > 20_000 {
            setup.skip("it always has room for more");
        }
    }
    let ran = Rc::new(Cell::new(false));
    let (seen, own, side, data) = (Rc::clone(&ran), sends.clone(), pair.sender.clone(), bytes.clone());
    let request = move |ep: &uct_host::Ep| match flavour.send(&side, ep, ID, &data, &own) {
        Ok(_) => {
            seen.set(true);
            Pending::Done
        }
        Err(_) => Pending::Wait,
    };
    assert!(pair.to.pending_add(request).is_ok(), "there was no room, and a request is refused");
    let flushed = pair.sender.completion();
    let (witness, worker) = (Rc::clone(&ran), pair.sender.worker.clone());
    let told = Rc::new(Cell::new(false));
    let late = Rc::clone(&told);
    let observer = Completion::with_callback(&worker, move |_| {
        assert!(witness.get(), "a flush ended ahead of what was pending when it began");
        late.set(true);
    });
    match pair.to.flush(Flush::empty(), Some(&observer)) {
        Ok(Posted::InProgress) => pair.until("the flush", || told.get()),
        Ok(Posted::Done) => panic!("flushed at once, although something is pending"),
        Err(Error::NO_RESOURCE) => {
            let queued = pair.to.pending_add(|_| Pending::Done);
            assert!(queued.is_ok(), "flush answers NO_RESOURCE, and pending_add refuses");
        }
        Err(error) => panic!("a flush: {error}"),
    }
    pair.until("all messages", || inbox.len() == sent + 1 && flushed.is_done());
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
}

fn canceled(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let witness = connect(&pair.sender, &pair.receiver);
    let flavour = *Flavour::of(&pair.sender).last().expect("a flavour");
    let bytes = pattern(setup.seed, flavour.limits(pair.sender.attributes()).1.min(1 << 20));
    for round in 0..5 {
        let (link, back) = connect(&pair.sender, &pair.receiver);
        if round > 0 {
            // The first round cancels while the connection is being made.
            pair.flush(&link, Flush::REMOTE).expect("a flush");
        }
        let completion = pair.sender.completion();
        for _ in 0..50 {
            if flavour.send(&pair.sender, &link, ID, &bytes, &completion).is_err() {
                break;
            }
        }
        let flushed = pair.sender.completion();
        let answer = pair.retry("a flush", || link.flush(Flush::CANCEL, Some(&flushed)));
        answer.unwrap_or_else(|error| panic!("flush with CANCEL: {error}"));
        crate::pair::wait("the cancelled flush", || pair.progress(), || flushed.is_done());
        crate::pair::wait("what was cancelled", || pair.progress(), || completion.is_done());
        assert!(link.failures().len() <= 1, "the error handler was called more than once");
        drop((link, back));
        pair.settle();
    }
    let before = inbox.len();
    let small = &bytes[..flavour.limits(pair.sender.attributes()).0.max(8)];
    let completion = pair.sender.completion();
    pair.retry("a send", || flavour.send(&pair.sender, &witness.0, ID, small, &completion)).expect("a send");
    pair.until("a message of another endpoint", || inbox.len() > before);
    witness.0.check_alive();
}

fn all_canceled(setup: &Setup) {
    let pair = Pair::new(setup);
    let _inbox = pair.receiver.inbox(ID);
    let flavour = *Flavour::of(&pair.sender).last().expect("a flavour");
    let bytes = pattern(setup.seed, flavour.limits(pair.sender.attributes()).1.min(1 << 20));
    for round in 0..3 {
        let links: Vec<_> = (0..4).map(|_| connect(&pair.sender, &pair.receiver)).collect();
        let completion = pair.sender.completion();
        for (link, _) in &links {
            if round > 0 {
                pair.flush(link, Flush::REMOTE).expect("a flush");
            }
            for _ in 0..20 {
                if flavour.send(&pair.sender, link, ID, &bytes, &completion).is_err() {
                    break;
                }
            }
            // Where there is no room, this waits for some; else it goes at once.
            let _ = link.pending_add(|_| Pending::Wait);
        }
        let flushed = pair.sender.completion();
        let start = || pair.sender.iface.flush(Flush::CANCEL, Some(&flushed));
        pair.retry("a flush", start).expect("a flush of the interface with CANCEL");
        crate::pair::wait("the cancelled flush", || pair.progress(), || flushed.is_done());
        crate::pair::wait("what was cancelled", || pair.progress(), || completion.is_done());
        for (link, _) in &links {
            assert!(link.failures().len() <= 1, "the error handler was called more than once");
            link.pending_purge();
        }
        drop(links);
        pair.settle();
    }
    // The interface itself goes on with other endpoints.
    let (link, _back) = connect(&pair.sender, &pair.receiver);
    let inbox = pair.receiver.inbox(ID);
    let small = &bytes[..flavour.limits(pair.sender.attributes()).0.max(8)];
    let completion = pair.sender.completion();
    let send = || flavour.send(&pair.sender, &link, ID, small, &completion);
    pair.retry("a send", send).expect("a send");
    crate::pair::wait("a message of a new endpoint", || pair.progress(), || !inbox.is_empty());
    link.check_alive();
}

fn fence_ahead_of_a_message(setup: &Setup) {
    let pair = Pair::new(setup);
    let ways: Vec<Way> = Way::of(&pair.sender).into_iter().filter(|way| way.is_put()).collect();
    let memory = pair.receiver.memory(vec![0; 50_000]);
    let key = pair.sender.key_to(&memory);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (list, watched) = (Rc::clone(&seen), memory.clone());
    pair.receiver.iface.set_am_handler(ID, move |message| {
        let length = message.header().expect("a length") as usize;
        let mut bytes = vec![0; length];
        watched.read(0, &mut bytes);
        list.borrow_mut().push(bytes);
    });
    let mut puts = Vec::new();
    for round in 0..60 {
        let way = ways[round % ways.len()];
        let (least, most) = way.limits(pair.sender.attributes());
        let size = [least, least.max(100).min(most), most.min(50_000)][round / 3 % 3];
        let data = pattern(setup.seed + round as u64, size);
        let start = || way.start(&pair.sender, &pair.to, &data, memory.address(), &key);
        let started = pair.retry("a put", start).unwrap_or_else(|error| panic!("{way:?}: {error}"));
        pair.retry("a fence", || pair.to.fence()).expect("a fence");
        let header = (size as u64).to_ne_bytes();
        let send = || {
            if pair.sender.iface.capabilities().contains(Capabilities::AM_SHORT) {
                pair.to.am_short(ID, size as u64, &[])
            } else {
                let pack = |buffer: &mut [u8]| {
                    buffer[..8].copy_from_slice(&header);
                    8
                };
                pair.to.am_bcopy(ID, SendFlags::empty(), pack).map(drop)
            }
        };
        pair.retry("a message", send).expect("a message");
        // The next put may only begin once the handler has looked.
        pair.until("the message", || seen.borrow().len() == round + 1);
        check_bytes(
            &format!("{way:?} of {size} bytes, seen by the message behind"),
            &seen.borrow()[round],
            &data,
        );
        puts.push(started);
    }
    pair.until("all puts", || puts.iter().all(|put| put.completion.is_done()));
}

fn fence_ahead_of_an_atomic(setup: &Setup) {
    let pair = Pair::new(setup);
    let ways: Vec<Way> = Way::of(&pair.sender).into_iter().filter(|way| way.is_put()).collect();
    if pair.sender.attributes().atomic64.fetch & AtomicOp::Add.bit() == 0 || ways.is_empty() {
        setup.skip("it has no put, or no 64-bit fetching add");
    }
    let memory = pair.receiver.allocate(64);
    let key = pair.sender.key_to(&memory);
    for round in 0..100 {
        let way = ways[round as usize % ways.len()];
        let value: u64 = round * 1000;
        if way.limits(pair.sender.attributes()).0 > 8 {
            continue;
        }
        let start = || way.start(&pair.sender, &pair.to, &value.to_le_bytes(), memory.address(), &key);
        let put = pair.retry("a put", start).expect("a put");
        pair.retry("a fence", || pair.to.fence()).expect("a fence");
        let completion = pair.sender.completion();
        let add = || pair.to.atomic64_fetch(AtomicOp::Add, 1, memory.address(), &key, &completion);
        let fetched = pair.retry("an add", add).expect("an add");
        pair.until("the add", || completion.is_done() && put.completion.is_done());
        assert_eq!(
            fetched.old_value(&completion),
            value,
            "the add behind a fence saw what was there ahead of the {way:?}"
        );
    }
}

/// For all endpoints or for one: a put would overtake an atomic that takes several round trips.
fn fence_ahead_of_a_put(setup: &Setup) {
    let pair = Pair::new(setup);
    let attributes = pair.sender.attributes();
    let fits = |way: &Way| {
        let (least, most) = way.limits(attributes);
        way.is_put() && (least..=most).contains(&8)
    };
    let ways: Vec<Way> = Way::of(&pair.sender).into_iter().filter(fits).collect();
    let ops: Vec<AtomicOp> =
        AtomicOp::ALL.into_iter().filter(|op| attributes.atomic64.post & op.bit() != 0).collect();
    if ways.is_empty() || ops.is_empty() {
        setup.skip("it has no put of 8 bytes, or no 64-bit atomic without an answer");
    }
    let memory = pair.receiver.allocate(64);
    let key = pair.sender.key_to(&memory);
    for round in 0..64 {
        let (op, way) = (ops[round % ops.len()], ways[round / ops.len() % ways.len()]);
        // After the put, each of them would change it.
        let operand = if op == AtomicOp::And { 0 } else { u64::MAX };
        let value = 0x0123_4567_89ab_cdef ^ round as u64;
        let atomic = || pair.to.atomic64_post(op, operand, memory.address(), &key);
        pair.retry("an atomic", atomic).expect("an atomic");
        let is_for_all = (round / ops.len() / ways.len()).is_multiple_of(2);
        let fence = || if is_for_all { pair.sender.iface.fence() } else { pair.to.fence() };
        pair.retry("a fence", fence).expect("a fence");
        let start = || way.start(&pair.sender, &pair.to, &value.to_ne_bytes(), memory.address(), &key);
        let put = pair.retry("a put", start).expect("a put");
        pair.until("the put", || put.completion.is_done());
        pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
        let mut bytes = [0; 8];
        memory.read(0, &mut bytes);
        assert_eq!(
            u64::from_ne_bytes(bytes),
            value,
            "{way:?} behind a fence behind {op:?}, for all: {is_for_all}"
        );
    }
}

const MESSAGES: Capabilities = Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY);
const PUT: Capabilities =
    Capabilities::PUT_SHORT.union(Capabilities::PUT_BCOPY).union(Capabilities::PUT_ZCOPY);
const GET: Capabilities =
    Capabilities::GET_SHORT.union(Capabilities::GET_BCOPY).union(Capabilities::GET_ZCOPY);

pub(super) const CASES: &[Case] = &[
    case("a flush with nothing outstanding ends", Needs::NOTHING, idle),
    case("a flush behind messages ends once their buffers are free", Needs::any(MESSAGES), after_messages),
    case(
        "a remote flush behind put and get ends once they took effect",
        Needs::any(PUT.union(GET)),
        after_remote_access,
    ),
    case("a flush of the interface waits for all endpoints", Needs::any(MESSAGES), of_the_interface),
    case(
        "a flush waits for what was pending ahead of it",
        Needs { any: MESSAGES, ..Needs::all(Capabilities::PENDING) },
        behind_pending,
    ),
    Case {
        logs: None,
        ..case("a flush with CANCEL gives up and harms no other endpoint", Needs::any(MESSAGES), canceled)
    },
    Case {
        logs: None,
        ..case(
            "a flush of the interface with CANCEL gives up for all its endpoints",
            Needs::any(MESSAGES),
            all_canceled,
        )
    },
    case(
        "a message behind a fence sees the put ahead of it",
        Needs { any: PUT, ..Needs::any(PUT) },
        fence_ahead_of_a_message,
    ),
    case(
        "an atomic behind a fence sees the put ahead of it",
        Needs::any(PUT).and_atomics(),
        fence_ahead_of_an_atomic,
    ),
    case(
        "a put behind a fence overwrites what the atomic ahead of it wrote",
        Needs::any(PUT).and_atomics(),
        fence_ahead_of_a_put,
    ),
];
