//! `get_short` is done at return: its target is served by a thread of its own, since the case itself is inside of the call.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use uct_host::{AmId, Capabilities, Error, Flush, IfaceOptions};

use super::case;
use crate::case::{Case, Needs};
use crate::elsewhere::Elsewhere;
use crate::message::sizes;
use crate::pair::{LIMIT, Link, Side, flush, retry};
use crate::random::{check_bytes, pattern};
use crate::remote::{Peer, Process};
use crate::setup::Setup;

fn get(
    side: &Side,
    link: &Link,
    length: usize,
    at: u64,
    key: &uct_host::RemoteKey,
) -> Result<Vec<u8>, Error> {
    let mut buffer = vec![0; length];
    retry("get_short", || side.worker.progress(), || link.get_short(&mut buffer, at, key))?;
    Ok(buffer)
}

fn every_size(setup: &Setup) {
    let side = setup.open(IfaceOptions::default());
    let sizes = sizes(0, side.attributes().get.max_short.min(1 << 20));
    let most = *sizes.last().expect("a size");
    let bytes = pattern(setup.seed, most + 100);
    let target = Elsewhere::new(setup, bytes.clone());
    let link = target.connect(&side);
    let key = side.iface.memory_domain().unpack(&target.key).unwrap_or_else(|refused| panic!("{refused}"));
    for (index, size) in sizes.into_iter().enumerate() {
        let start = index % 97;
        let read = get(&side, &link, size, target.address + start as u64, &key);
        let read = read.unwrap_or_else(|error| panic!("get_short of {size} bytes: {error}"));
        check_bytes(&format!("get_short of {size} bytes"), &read, &bytes[start..start + size]);
    }
    link.check_alive();
    drop(link);
    check_bytes("memory that was only read", &target.end(), &bytes);
}

fn wrong_places(setup: &Setup) {
    let side = setup.open(IfaceOptions::default());
    let target = Elsewhere::new(setup, pattern(setup.seed, 4096));
    let witness = target.connect(&side);
    let key = side.iface.memory_domain().unpack(&target.key).unwrap_or_else(|refused| panic!("{refused}"));
    for at in [target.address - 1, target.address + 4096 - 15, target.address + 4096, 0, u64::MAX - 3] {
        let link = target.connect(&side);
        let answer = get(&side, &link, 16, at, &key);
        let error = answer.expect_err("an address outside is refused");
        assert!(crate::access::is_refusal(error), "{error} is no refusal");
    }
    let read = get(&side, &witness, 16, target.address, &key).expect("another endpoint goes on");
    check_bytes("what was read afterwards", &read, &pattern(setup.seed, 16));
    witness.check_alive();
}

fn too_long(setup: &Setup) {
    let side = setup.open(IfaceOptions::default());
    let most = side.attributes().get.max_short;
    if most >= 64 << 20 {
        setup.skip("get_short has no limit");
    }
    let bytes = pattern(setup.seed, most + 1000);
    let target = Elsewhere::new(setup, bytes.clone());
    let link = target.connect(&side);
    let key = side.iface.memory_domain().unpack(&target.key).unwrap_or_else(|refused| panic!("{refused}"));
    for beyond in [1, 2, 7, 1000] {
        let answer = get(&side, &link, most + beyond, target.address, &key);
        assert_eq!(answer, Err(Error::INVALID_PARAM), "{beyond} bytes beyond max_short");
    }
    let read = get(&side, &link, most, target.address, &key).expect("as much as is allowed");
    check_bytes("the longest get_short", &read, &bytes[..most]);
    link.check_alive();
}

const ID: AmId = AmId::new(4).unwrap();

/// While this is true, the interface has messages to itself, each of which sends the next one. Nothing where it cannot.
fn keep_busy(side: &Side) -> Rc<Cell<bool>> {
    let is_busy = Rc::new(Cell::new(true));
    if side.iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE | Capabilities::AM_SHORT) {
        let ep =
            Rc::new(side.iface.connect(&side.iface.address().expect("an address")).expect("an endpoint"));
        let (again, goes_on, end) = (Rc::clone(&ep), Rc::clone(&is_busy), Instant::now() + 2 * LIMIT);
        side.iface.set_am_handler(ID, move |_| {
            if goes_on.get() && Instant::now() < end {
                let _ = again.am_short(ID, 0, &[]);
            }
        });
        for _ in 0..8 {
            retry("a message to itself", || side.worker.progress(), || ep.am_short(ID, 0, &[]))
                .expect("room");
        }
    }
    is_busy
}

/// A stopped peer serves no request; where the target's processor is not needed, the call succeeds. What else the interface has to do
/// changes nothing about the limit.
fn a_silent_peer(setup: &Setup) {
    setup.configure("get_timeout", "500ms");
    let side = setup.open(IfaceOptions::default());
    let mut process = Process::start(setup);
    let link = process.peer.connect(&side);
    let mut hear = |what| process.peer.receive(what, || side.worker.progress());
    let address = u64::from_le_bytes(hear("the address").try_into().expect("an address"));
    let key =
        side.iface.memory_domain().unpack(&hear("the key")).unwrap_or_else(|refused| panic!("{refused}"));
    assert_eq!(get(&side, &link, 16, address, &key).expect("a peer that serves"), pattern(9, 16));
    process.signal(Signal::STOP);
    for is_busy in [false, true] {
        let busy = is_busy.then(|| keep_busy(&side));
        let start = Instant::now();
        match get(&side, &link, 16, address, &key) {
            Ok(read) => check_bytes("what was read", &read, &pattern(9, 16)),
            Err(error) => assert!(crate::access::is_refusal(error), "{error}"),
        }
        assert!(start.elapsed() < LIMIT, "get_timeout = 500ms, and yet it took {:?}", start.elapsed());
        if let Some(busy) = busy {
            busy.set(false);
        }
    }
    side.iface.clear_am_handlers();
}

/// What a get that was not done at once has brought by then is not what a later one reads.
fn behind_a_put(setup: &Setup) {
    // Where the kernel can be kept out, the peer has to answer.
    if setup.configure("cma", "n") && setup.target.resource(&setup.context()).is_none() {
        setup.skip("it is nothing without the kernel's copies");
    }
    let side = setup.open(IfaceOptions::default());
    let mut process = Process::start(setup);
    let link = process.peer.connect(&side);
    let mut hear = |what| process.peer.receive(what, || side.worker.progress());
    let address = u64::from_le_bytes(hear("the address").try_into().expect("an address"));
    let key =
        side.iface.memory_domain().unpack(&hear("the key")).unwrap_or_else(|refused| panic!("{refused}"));
    let progress = || side.worker.progress();
    get(&side, &link, 8, address, &key).expect("a first get");
    for round in 1..=20u64 {
        // Asks, perhaps, and leaves the answer lying.
        let _ = link.get_short(&mut [0; 8], address, &key);
        side.worker.progress_until(Duration::from_millis(1 + round % 3), || false);
        let value = round.to_le_bytes();
        retry("a put", progress, || link.put_short(&value, address, &key)).expect("a put");
        flush(&side.worker, &link, Flush::REMOTE, progress).expect("a flush");
        let read = get(&side, &link, 8, address, &key).expect("a get");
        assert_eq!(read, value, "round {round}: a get behind a put read what was there ahead of it");
    }
    link.check_alive();
    process.peer.say("end");
    process.finish(progress);
}

/// The other process: has memory, and serves it.
fn serving(setup: &Setup, peer: &mut Peer) {
    let side = setup.open(IfaceOptions::default());
    let memory = side.memory(pattern(9, 64));
    let _link = peer.connect(&side);
    peer.send(&memory.address().to_le_bytes());
    peer.send(&memory.packed_key().expect("a key"));
    peer.expect("end", &side);
}

const NEEDS: Needs = Needs::all(Capabilities::GET_SHORT).and_two_ifaces();

const NEEDS_PUT: Needs = Needs::all(Capabilities::GET_SHORT.union(Capabilities::PUT_SHORT)).and_two_ifaces();

pub(super) const CASES: &[Case] = &[
    case("get_short of every size reads what another thread has", NEEDS, every_size),
    case("get_short beyond max_short is refused", NEEDS, too_long),
    Case {
        logs: None,
        ..case("get_short at a wrong address is refused and others go on", NEEDS, wrong_places)
    },
    Case {
        peer: Some(serving),
        ..case("get_short behind a put reads what was put", NEEDS_PUT.and_other_process(), behind_a_put)
    },
    Case {
        logs: None,
        peer: Some(serving),
        ..case("get_short from a peer that is stopped ends in time", NEEDS.and_other_process(), a_silent_peer)
    },
];
