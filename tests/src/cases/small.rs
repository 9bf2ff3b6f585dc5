//! Progress on and off, counters, and addresses.

use std::cell::Cell;
use std::rc::Rc;

use uct_core::{AmId, AtomicOp, Capabilities, Count, Error, Flush, IfaceAddress, IfaceOptions};

use super::case;
use crate::access::{Way, perform};
use crate::case::{Case, Needs};
use crate::message::Flavour;
use crate::pair::{Pair, connect};
use crate::random::pattern;
use crate::setup::Setup;

const ID: AmId = AmId::new(14).unwrap();

fn progress_off(setup: &Setup) {
    let pair = Pair::with(setup, IfaceOptions { progress: false, ..IfaceOptions::default() });
    if pair.is_loop {
        setup.skip("both ends are one interface");
    }
    let inbox = pair.receiver.inbox(ID);
    pair.sender.iface.progress_enable();
    pair.receiver.iface.progress_enable();
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    let mut random = setup.random();
    let flavour = Flavour::of(&pair.sender)[0];
    let completion = pair.sender.completion();
    let bytes = pattern(1, 40);
    let mut sent = 0;
    for _ in 0..60 {
        // Enabling and disabling twice is as once.
        let enabled = random.below(2) == 0;
        for _ in 0..=random.below(2) {
            if enabled {
                pair.receiver.iface.progress_enable();
            } else {
                pair.receiver.iface.progress_disable();
            }
        }
        let before = inbox.len();
        if flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion).is_ok() {
            sent += 1;
        }
        for _ in 0..50 {
            pair.progress();
        }
        if !enabled {
            assert_eq!(inbox.len(), before, "a message arrived while progress was off");
        }
    }
    pair.receiver.iface.progress_enable();
    pair.until("all messages", || inbox.len() == sent);
}

fn counters(setup: &Setup) {
    let pair = Pair::new(setup);
    let received = Rc::new(Cell::new(Count::default()));
    let seen = Rc::clone(&received);
    pair.receiver.iface.set_am_handler(ID, move |message| {
        let count = seen.get();
        seen.set(Count { operations: count.operations + 1, bytes: count.bytes + message.len() as u64 });
    });
    let mut expected = uct_core::Counters::default();
    let add = |count: &mut Count, bytes: usize| {
        count.operations += 1;
        count.bytes += bytes as u64;
    };
    let completion = pair.sender.completion();
    for flavour in Flavour::of(&pair.sender) {
        for size in flavour.sizes(pair.sender.attributes()).into_iter().take(20) {
            let bytes = pattern(1, size);
            let send = || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
            pair.retry("a send", send).expect("a send");
            let count = match flavour {
                Flavour::Short | Flavour::ShortIov => &mut expected.am_short,
                Flavour::Bcopy => &mut expected.am_bcopy,
                Flavour::Zcopy => &mut expected.am_zcopy,
            };
            add(count, size);
        }
    }
    let messages: u64 =
        expected.am_short.operations + expected.am_bcopy.operations + expected.am_zcopy.operations;
    pair.until("all messages", || received.get().operations == messages);
    let bytes = expected.am_short.bytes + expected.am_bcopy.bytes + expected.am_zcopy.bytes;
    assert_eq!(received.get(), Count { operations: messages, bytes });
    assert_eq!(pair.receiver.iface.received(), received.get());

    let ways = Way::of(&pair.sender);
    if !ways.is_empty() {
        let memory = pair.receiver.memory(vec![0; 5000]);
        let key = pair.sender.key_to(&memory);
        for way in &ways {
            let (least, most) = way.limits(pair.sender.attributes());
            for size in [least, least.max(100).min(most)] {
                let data = pattern(2, size);
                let done =
                    perform(*way, &pair.sender, &pair.to, &data, memory.address(), &key, || pair.progress());
                done.unwrap_or_else(|error| panic!("{way:?}: {error}"));
                add(if way.is_put() { &mut expected.put } else { &mut expected.get }, size);
                expected.flush.operations += 1;
            }
        }
        if pair.sender.attributes().atomic64.fetch & AtomicOp::Add.bit() != 0 {
            let at = memory.address().next_multiple_of(8);
            let fetch = || pair.to.atomic64_fetch(AtomicOp::Add, 1, at, &key, &completion);
            pair.retry("an add", fetch).expect("an add");
            pair.until("the add", || completion.is_done());
            add(&mut expected.atomic, 8);
        }
    }
    let mut got = pair.to.counters();
    // A flush that has to be asked for again is an operation that was not accepted.
    expected.no_resource = got.no_resource;
    got.flush = expected.flush;
    assert_eq!(got, expected);
    assert_eq!(pair.back.counters().am_short.operations, 0, "an endpoint counts what another sent");
}

fn addresses(setup: &Setup) {
    let pair = Pair::new(setup);
    let good = pair.receiver.iface.address().expect("an address");
    let packed = good.pack().expect("it packs");
    let (unpacked, rest) = IfaceAddress::unpack(&packed).expect("it unpacks");
    assert_eq!((unpacked, rest.len()), (good.clone(), 0));
    pair.sender.iface.is_reachable(&good).expect("the peer is reachable");

    let check =
        |what: &str, address: &IfaceAddress, must_refuse: bool| match pair.sender.iface.is_reachable(address)
        {
            Ok(()) => assert!(!must_refuse, "{what} is reachable: {address:02x?}"),
            Err(refused) => {
                assert!(refused.status == Error::UNREACHABLE, "{what}: {refused}");
                assert!(refused.reason.len() > 5, "{what}: unreachable without a reason: {refused:?}");
            }
        };
    let mut random = setup.random();
    for length in 0..good.device.len() + 3 {
        if length != good.device.len() {
            let mut address = good.clone();
            address.device.resize(length, 0);
            check("a device address of another length", &address, true);
        }
    }
    for length in 0..good.iface.len() + 3 {
        // An empty one asks about the device alone.
        if length != good.iface.len() && length != 0 {
            let mut address = good.clone();
            address.iface.resize(length, 0);
            check("an interface address of another length", &address, true);
        }
    }
    for at in 0..good.device.len() * 8 {
        let mut address = good.clone();
        address.device[at / 8] ^= 1 << (at % 8);
        check("a device address with a bit changed", &address, false);
    }
    for at in 0..good.iface.len() * 8 {
        let mut address = good.clone();
        address.iface[at / 8] ^= 1 << (at % 8);
        check("an interface address with a bit changed", &address, false);
    }
    for _ in 0..200 {
        let device = random.bytes(good.device.len());
        let iface = random.bytes(good.iface.len());
        check("random bytes", &IfaceAddress { transport: good.transport.clone(), device, iface }, false);
        let (device_length, iface_length) = (random.below(60), random.below(60));
        let (device, iface) = (random.bytes(device_length), random.bytes(iface_length));
        let address = IfaceAddress { transport: good.transport.clone(), device, iface };
        let wrong =
            device_length != good.device.len() || (iface_length != good.iface.len() && iface_length != 0);
        check("random bytes of random length", &address, wrong);
    }
    let other = IfaceAddress { transport: "another".to_owned(), ..good.clone() };
    check("an address of another transport", &other, true);
    // Connecting to what is unreachable is refused with the same words.
    let cut = IfaceAddress { device: vec![1; good.device.len() + 1], ..good.clone() };
    if pair.sender.iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
        let refused = pair.sender.iface.connect(&cut).expect_err("an unreachable peer");
        assert!(!refused.reason.is_empty(), "{refused:?}");
    }
    pair.flush(&pair.to, Flush::empty()).expect("the pair goes on");
}

fn endpoint_addresses(setup: &Setup) {
    let pair = Pair::new(setup);
    let address = pair.receiver.iface.address().expect("an address");
    let good = pair.to.address().expect("an endpoint address");
    let mut random = setup.random();
    for length in 0..good.len() + 3 {
        if length == good.len() {
            continue;
        }
        let ep = pair.sender.iface.create_ep(|_| ()).expect("an endpoint");
        let refused =
            ep.connect_to_ep(&address, &random.bytes(length)).expect_err("an address of another length");
        assert!(refused.reason.len() > 5, "no reason: {refused:?}");
    }
    pair.to.check_alive();
}

fn operations(setup: &Setup) {
    let pair = Pair::new(setup);
    let ep = connect(&pair.sender, &pair.receiver);
    assert_eq!(ep.0.failure(), None);
    assert_eq!(ep.0.iface().resource().transport, setup.target.transport);
    if pair.sender.iface.capabilities().contains(Capabilities::EP_CHECK) {
        for _ in 0..5 {
            let completion = pair.sender.completion();
            pair.retry("a check", || ep.0.check(Some(&completion))).expect("a check");
            pair.until("the check", || completion.is_done());
            completion.result().expect("the peer lives");
        }
    }
    ep.0.check_alive();
}

const MESSAGES: Needs =
    Needs::any(Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY).union(Capabilities::AM_ZCOPY));

pub(super) const CASES: &[Case] = &[
    case("progress may be turned on and off in any order and nothing is lost", MESSAGES, progress_off),
    case("counters move by exactly what was done", MESSAGES, counters),
    case("corrupted and random addresses are unreachable with a reason", Needs::NOTHING, addresses),
    case(
        "endpoint addresses of the wrong length are refused with a reason",
        Needs::all(Capabilities::CONNECT_TO_EP),
        endpoint_addresses,
    ),
    case("a check of a living peer ends well", Needs::NOTHING, operations),
];
