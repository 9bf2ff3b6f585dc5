//! What an interface reports about itself follows its settings.

use uct_core::{Access, AtomicOp, Capabilities, Events};

use crate::support::{Side, connect, context, counter, devices};

#[test]
fn the_limits_of_an_interface_are_those_of_its_settings() {
    let Some((_turn, names)) = devices() else { return };
    let settings = [("max_num_eps", "7"), ("max_iov", "5"), ("seg_size", "4k"), ("path_mtu", "256")];
    let side = Side::new(&context(&settings), &names[0]);
    let found = side.iface.attributes();
    let (am, put, get) = (&found.am, &found.put, &found.get);
    assert_eq!(found.max_num_eps, 7);
    assert_eq!([am.max_iov, put.max_iov, get.max_iov], [4, 5, 5]);
    assert_eq!([am.max_bcopy, am.max_zcopy, put.max_bcopy, get.max_bcopy, get.max_short], [4096; 5]);
    assert!(
        put.max_zcopy > 4096 && put.max_zcopy == get.max_zcopy,
        "{} and {}",
        put.max_zcopy,
        get.max_zcopy
    );
    assert_eq!(am.max_short + size_of::<u64>(), put.max_short, "a message has a header of 8 bytes");
    assert_eq!([am, put, get].map(|limits| (limits.opt_zcopy_align, limits.align_mtu)), [(64, 256); 3]);
    assert!(found.latency_growth > 0.0, "each endpoint costs the device memory");

    let side = Side::new(&context(&[("max_num_eps", "inf")]), &names[0]);
    assert_eq!(side.iface.attributes().max_num_eps, 0, "no limit");
}

#[test]
fn an_interface_says_all_that_it_can_do() {
    let Some((_turn, names)) = devices() else { return };
    let side = Side::new(&context(&[]), &names[0]);
    let found = side.iface.attributes();
    let mut expected = Capabilities::AM_SHORT | Capabilities::AM_BCOPY | Capabilities::AM_ZCOPY;
    expected |= Capabilities::PUT_SHORT | Capabilities::PUT_BCOPY | Capabilities::PUT_ZCOPY;
    expected |= Capabilities::GET_SHORT | Capabilities::GET_BCOPY | Capabilities::GET_ZCOPY;
    expected |= Capabilities::ERRHANDLE_SHORT_BUF | Capabilities::ERRHANDLE_BCOPY_BUF;
    expected |= Capabilities::ERRHANDLE_ZCOPY_BUF | Capabilities::ERRHANDLE_REMOTE_MEM;
    expected |= Capabilities::ERRHANDLE_PEER_FAILURE | Capabilities::EP_CHECK | Capabilities::EP_KEEPALIVE;
    expected |= Capabilities::PENDING | Capabilities::CONNECT_TO_EP | Capabilities::CB_SYNC;
    expected |= Capabilities::INTER_NODE;
    let capabilities = side.iface.capabilities();
    assert_eq!(capabilities - Capabilities::ATOMIC_DEVICE, expected);
    assert_eq!(Events::from_bits_retain(found.events), Events::all());
    assert!(side.iface.is_for_any_thread() && side.iface.sends_nothing_after_failed_packing());
    let figures = [found.overhead, found.latency, found.bandwidth_shared].map(|figure| figure.value);
    assert!(figures.iter().all(|figure| *figure > 0.0), "{figures:?}");
    if !capabilities.contains(Capabilities::ATOMIC_DEVICE) {
        return;
    }
    // The device has add, and fetching compare-and-swap, on eight bytes; from them the others are made.
    let bits = |ops: &[AtomicOp]| ops.iter().map(|op| 1 << *op as u32).sum::<u32>();
    let bitwise = [AtomicOp::And, AtomicOp::Or, AtomicOp::Xor];
    let post = bits(&bitwise) | bits(&[AtomicOp::Add]);
    let fetch = post | bits(&[AtomicOp::Swap, AtomicOp::Cswap]);
    let made = bits(&bitwise) | bits(&[AtomicOp::Swap]);
    let of = |ops: &uct_core::AtomicOps| [ops.post, ops.fetch, ops.post_emulated, ops.fetch_emulated];
    assert_eq!(of(&found.atomic64), [post, fetch, bits(&bitwise), made]);
    assert_eq!(of(&found.atomic32), [post, fetch, post, fetch]);
    assert_eq!(found.emulated_round_trips, 2, "a wrong guess, and a right one");
}

#[test]
fn completions_are_asked_for_as_seldom_as_the_settings_say() {
    let Some((_turn, names)) = devices() else { return };
    // One in so many, in a quarter of a send queue, and where few more fit into the queue of all.
    for (keys, moderation) in [
        ([("tx_moderation", "5"), ("tx_queue_len", "64"), ("tx_cq_len", "4096")], 5),
        ([("tx_moderation", "64"), ("tx_queue_len", "64"), ("tx_cq_len", "4096")], 16),
        ([("tx_moderation", "1"), ("tx_queue_len", "64"), ("tx_cq_len", "4096")], 1),
    ] {
        let context = context(&keys);
        let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[0]));
        let (near, _far) = connect(&left, &right);
        let memory = right.iface.memory_domain().register(vec![0; 64], Access::all()).expect("memory");
        let key = left.iface.memory_domain().unpack(&memory.packed_key().expect("a key")).expect("unpacked");
        for count in 1..=40 {
            near.ep.put_short(b"x", memory.address(), &key).expect("there is room");
            assert_eq!(counter(&left, "tx_unsignaled"), count % moderation, "{keys:?}, put {count}");
        }
    }
    let context = context(&[("tx_moderation", "64"), ("tx_queue_len", "512"), ("tx_cq_len", "64")]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[0]));
    let (near, _far) = connect(&left, &right);
    let memory = right.iface.memory_domain().register(vec![0; 64], Access::all()).expect("memory");
    let key = left.iface.memory_domain().unpack(&memory.packed_key().expect("a key")).expect("unpacked");
    for count in 1..=64 {
        near.ep.put_short(b"x", memory.address(), &key).expect("there is room");
        // All of the last quarter.
        let expected = if count <= 48 { count } else { 0 };
        assert_eq!(counter(&left, "tx_unsignaled"), expected, "put {count} of 64");
    }
    assert!(near.ep.put_short(b"x", memory.address(), &key).is_err());
}
