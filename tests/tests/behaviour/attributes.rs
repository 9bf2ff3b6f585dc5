//! What an interface reports about itself: what the page of its transport in `docs` says, and its settings.

use uct_core::{
    AtomicOp, AtomicOps, Capabilities, Context, Events, Iface, IfaceAttr, OpLimits, Origin, Worker,
};

fn open(transport: &str, device: &str, settings: &[(&str, &str)]) -> (Worker, Iface) {
    let mut builder = Context::builder().set("calibration", "off");
    for (key, value) in settings {
        builder = builder.set(*key, *value);
    }
    let worker = Worker::new(&builder.build().unwrap()).unwrap();
    let iface = worker.open(transport, device).unwrap();
    (worker, iface)
}

/// What all these transports can do.
const ALL: Capabilities = Capabilities::AM_SHORT
    .union(Capabilities::AM_BCOPY)
    .union(Capabilities::AM_ZCOPY)
    .union(PUT)
    .union(GET)
    .union(Capabilities::PENDING)
    .union(Capabilities::ATOMIC_CPU)
    .union(Capabilities::ERRHANDLE_SHORT_BUF)
    .union(Capabilities::ERRHANDLE_ZCOPY_BUF)
    .union(Capabilities::ERRHANDLE_REMOTE_MEM)
    .union(Capabilities::EP_CHECK)
    .union(Capabilities::CONNECT_TO_IFACE)
    .union(Capabilities::CB_SYNC);
const PUT: Capabilities =
    Capabilities::PUT_SHORT.union(Capabilities::PUT_BCOPY).union(Capabilities::PUT_ZCOPY);
const GET: Capabilities =
    Capabilities::GET_SHORT.union(Capabilities::GET_BCOPY).union(Capabilities::GET_ZCOPY);
/// What those can do that have peers in other processes.
const APART: Capabilities =
    Capabilities::ERRHANDLE_PEER_FAILURE.union(Capabilities::EP_KEEPALIVE).union(Capabilities::CONNECT_TO_EP);

fn events(of: &Iface) -> Events {
    Events::from_bits_retain(of.attributes().events)
}

/// Largest short, bcopy and zcopy operation, iov entries and header.
fn limits(of: &OpLimits) -> [usize; 5] {
    [of.max_short, of.max_bcopy, of.max_zcopy, of.max_iov, of.max_hdr]
}

/// Overhead and latency in nanoseconds, bandwidth of one process and of all in MB/s.
fn costs(of: &IfaceAttr) -> [u64; 4] {
    [
        of.overhead.value * 1e9,
        of.latency.value * 1e9,
        of.bandwidth_dedicated.value / 1e6,
        of.bandwidth_shared.value / 1e6,
    ]
    .map(|figure| figure.round() as u64)
}

/// Checks that all atomics are there, and that all or none are carried out by the peer.
fn check_atomics(of: &IfaceAttr, are_emulated: bool) {
    let fetch = AtomicOp::ALL.iter().map(|op| op.bit()).sum();
    let post = fetch - AtomicOp::Swap.bit() - AtomicOp::Cswap.bit();
    let [post_emulated, fetch_emulated] = if are_emulated { [post, fetch] } else { [0; 2] };
    let ops = |of: &AtomicOps| [of.post, of.fetch, of.post_emulated, of.fetch_emulated];
    assert_eq!([&of.atomic32, &of.atomic64].map(ops), [[post, fetch, post_emulated, fetch_emulated]; 2]);
}

const NO_LIMIT: usize = usize::MAX >> 1;

#[test]
fn self_has_all_operations_by_this_process_and_the_segments_that_are_set() {
    let (_worker, iface) = open("self", "memory", &[("self.seg_size", "4k")]);
    let found = iface.attributes();
    assert_eq!(iface.capabilities(), ALL | Capabilities::ERRHANDLE_BCOPY_BUF);
    assert_eq!((iface.emulated(), events(&iface)), (Capabilities::empty(), Events::all()));
    assert_eq!(limits(&found.am), [4088, 4096, 4096, 16, 256]);
    assert_eq!([&found.put, &found.get].map(limits), [[NO_LIMIT, 4096, NO_LIMIT, 16, 0]; 2]);
    check_atomics(found, false);
    assert_eq!(costs(found), [10, 0, 19_360, 0]);
    assert_eq!(Origin::of(&found.bandwidth_dedicated), Origin::Model);
    // No header is longer than the buffer that it goes to.
    let (_worker, iface) = open("self", "memory", &[("self.seg_size", "64")]);
    assert_eq!(limits(&iface.attributes().am), [56, 64, 64, 16, 64]);
}

#[test]
fn shared_memory_has_all_operations_and_the_segments_that_are_set() {
    let settings = [("shm.seg_size", "8k"), ("shm.small_seg_size", "300"), ("shm.cma", "n")];
    for transport in ["posix", "sysv"] {
        let (_worker, iface) = open(transport, "memory", &settings);
        let found = iface.attributes();
        let can = ALL | APART | Capabilities::ERRHANDLE_BCOPY_BUF;
        assert_eq!((iface.capabilities(), events(&iface)), (can, Events::all()), "{transport}");
        // Memory of no segment, where the kernel does not copy.
        assert_eq!(iface.emulated(), Capabilities::PUT_ZCOPY | Capabilities::GET_ZCOPY);
        // Segments end where a line of the cache does.
        assert_eq!(limits(&found.am), [320 - 8, 8192, 8192, 64, 256]);
        let put = limits(&found.put);
        assert_eq!(put, [NO_LIMIT, put[1], NO_LIMIT, 64, 0]);
        assert!((8192 - 64..8192).contains(&put[1]), "what a request leaves of a segment: {}", put[1]);
        assert_eq!(limits(&found.get), put);
        for operation in [&found.put, &found.get] {
            assert_eq!([operation.opt_zcopy_align, operation.align_mtu], [64; 2]);
        }
        check_atomics(found, false);
        assert_eq!(costs(found), [10, 80, 35_000, 0]);
    }
}

#[test]
fn tcp_has_all_operations_by_the_peer_and_the_limits_and_costs_that_are_set() {
    let settings = [
        ("tcp.tx_seg_size", "4k"),
        ("tcp.max_message", "1m"),
        ("tcp.max_iov", "5"),
        ("tcp.bandwidth", "24Gbps"),
        ("tcp.latency", "7us"),
    ];
    let (_worker, iface) = open("tcp", "lo", &settings);
    let found = iface.attributes();
    let can = ALL | APART | Capabilities::INTER_NODE;
    assert_eq!((iface.capabilities(), events(&iface)), (can, Events::all()));
    assert_eq!(iface.emulated(), PUT | GET);
    assert_eq!(limits(&found.am), [4088, 4096, 1 << 20, 5, 256]);
    assert_eq!([&found.put, &found.get].map(limits), [[4096, 4096, 1 << 20, 5, 0]; 2]);
    check_atomics(found, true);
    assert_eq!(costs(found)[1..], [7000, 0, 3000]);
    let set = [&found.latency, &found.bandwidth_shared].map(Origin::of);
    assert_eq!((set, Origin::of(&found.overhead)), ([Origin::Configured; 2], Origin::Model));
    assert_eq!((found.emulated_round_trips, found.priority), (1, 0));

    let (_worker, iface) = open("tcp", "lo", &[("tcp.put_enable", "n")]);
    let found = iface.attributes();
    assert_eq!((iface.capabilities(), iface.emulated()), (can - PUT, GET));
    assert_eq!((limits(&found.put), limits(&found.get)), ([0; 5], [8192, 8192, 64 << 20, 16, 0]));
    assert_eq!(
        costs(found),
        [1500, 2500, 0, 8000],
        "the model's, and 64 Gb/s for a device that reports no speed"
    );
    let origins = [&found.latency, &found.overhead, &found.bandwidth_shared].map(Origin::of);
    assert_eq!(origins, [Origin::Model, Origin::Model, Origin::NamedDefault]);
}
