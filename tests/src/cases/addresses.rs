//! Addresses are untrusted bytes: what is none is unreachable, with a reason.

use uct_host::{Capabilities, Error, Flush, IfaceAddress};

use super::case;
use crate::case::{Case, Needs};
use crate::pair::{Pair, connect};
use crate::setup::Setup;

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
                let is_refusal = matches!(refused.status, Error::UNREACHABLE | Error::REJECTED);
                assert!(is_refusal, "{what}: {refused}");
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

fn checked(setup: &Setup) {
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

pub(super) const CASES: &[Case] = &[
    case("corrupted and random addresses are unreachable with a reason", Needs::NOTHING, addresses),
    case(
        "endpoint addresses of the wrong length are refused with a reason",
        Needs::all(Capabilities::CONNECT_TO_EP),
        endpoint_addresses,
    ),
    case("a check of a living peer ends well", Needs::NOTHING, checked),
];
