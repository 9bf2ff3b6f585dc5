//! What a peer sends: addresses, keys and frames.
//!
//! For the list of parsers. Built on the crates whose parsers they are.

use uct_core::IfaceAddress;
use uct_core::select::{PeerAddresses, PeerIface};
use uct_ib::DeviceAddress;
use uct_plugin::memory::{PACKED_KEY, RemoteKey};
use uct_plugin::rma::{MAX_REQUEST, REQUEST_HEADER, RESPONSE_HEADER, Request, Response};

use crate::composed::Head;
use crate::transport;

pub(crate) fn iface_address(bytes: &[u8]) {
    if let Ok((address, rest)) = IfaceAddress::unpack(bytes) {
        let again = address.pack().expect("what was read can be written");
        assert_eq!([&again[..], rest].concat(), bytes, "what is read is what was written");
    }
}

fn address(transport: &str, device: usize, iface: usize) -> IfaceAddress {
    IfaceAddress { transport: transport.to_owned(), device: vec![7; device], iface: vec![9; iface] }
}

pub(crate) fn iface_address_seeds() -> Vec<Vec<u8>> {
    let addresses = [address("tcp", 17, 60), address("ud_verbs", 0, 255), address("a", 255, 0)];
    addresses.map(|address| address.pack().expect("it packs")).to_vec()
}

pub(crate) fn peer_addresses(bytes: &[u8]) {
    if let Ok(addresses) = PeerAddresses::unpack(bytes) {
        assert_eq!(addresses.pack().expect("what was read can be written"), bytes);
    }
}

pub(crate) fn peer_addresses_seeds() -> Vec<Vec<u8>> {
    let iface = |device: &str, address| PeerIface { device: device.to_owned(), address };
    let ifaces = [
        iface("lo", address("tcp", 17, 60)),
        iface("mlx5_0:1", address("rc_verbs", 30, 8)),
        iface("memory", address("posix", 64, 24)),
    ];
    let list = |count: usize| PeerAddresses { ifaces: ifaces[..count].to_vec() };
    (0..=ifaces.len()).map(|count| list(count).pack().expect("it packs")).collect()
}

pub(crate) fn remote_key(bytes: &[u8]) {
    match RemoteKey::unpack(bytes) {
        Ok(key) => {
            assert_eq!(bytes.len(), PACKED_KEY);
            let access = uct_plugin::MemoryAccess::empty();
            assert!(key.check(key.base, key.length as usize, access).is_ok());
            assert!(key.check(key.base.wrapping_sub(1), 1, access).is_err());
            assert!(key.check(key.base + key.length, 1, access).is_err());
        }
        Err(failure) => assert!(!failure.reason.is_empty()),
    }
}

pub(crate) fn remote_key_seeds() -> Vec<Vec<u8>> {
    let mut key = b"rke2\x07\0\0\0".to_vec();
    // The process, the key, what proves that the key was given, base and length.
    for word in [0x1122_3344_5566_7788, 1, 0x99aa_bbcc_ddee_ff00, 0x7f00_0000_1000, 4096_u64] {
        key.extend(word.to_le_bytes());
    }
    RemoteKey::unpack(&key).expect("a good key");
    vec![key]
}

pub(crate) fn rma_frames(bytes: &[u8]) {
    if let Ok((request, data)) = Request::read(bytes) {
        let mut again = [0; MAX_REQUEST];
        let written = request.write(&mut again);
        assert_eq!(written + data.len(), bytes.len(), "header and data make the frame");
        assert_eq!(Request::read(&again[..written]).map(|(request, _)| request), Ok(request));
    }
    if let Ok((response, data)) = Response::read(bytes) {
        assert_eq!(RESPONSE_HEADER + data.len(), bytes.len(), "header and data make the frame");
        assert_eq!(response.header()[4..], bytes[4..RESPONSE_HEADER]);
    }
}

/// A request of each kind, and a put with data.
pub(crate) fn rma_frames_seeds() -> Vec<Vec<u8>> {
    let request = |opcode: u8, length: u32, rest: usize| {
        let mut frame = vec![0; REQUEST_HEADER + rest];
        frame[0] = opcode;
        frame[24..28].copy_from_slice(&length.to_le_bytes());
        Request::read(&frame).unwrap_or_else(|error| panic!("request {opcode}: {error}"));
        frame
    };
    // Opcode, bytes of memory, bytes of operands or data.
    let kinds =
        [(1, 100, 100), (2, 4096, 0), (3, 4, 8), (4, 8, 8), (5, 4, 8), (6, 8, 8), (7, 4, 16), (8, 8, 16)];
    kinds.map(|(opcode, length, rest)| request(opcode, length, rest)).to_vec()
}

pub(crate) fn ib_address(bytes: &[u8]) {
    if let Ok(address) = DeviceAddress::parse(bytes) {
        assert_eq!(DeviceAddress::parse(&address.pack()).as_ref(), Ok(&address));
    }
}

/// InfiniBand with a LID, and RoCE v2 with an address.
pub(crate) fn ib_address_seeds() -> Vec<Vec<u8>> {
    let address = |kind: u8, lid: u8| {
        let mut bytes = vec![1, kind, 5, 0, lid, 0, 0xff, 0xff];
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 7, 0, 1]);
        DeviceAddress::parse(&bytes).unwrap_or_else(|error| panic!("{error}"));
        bytes
    };
    vec![address(1, 5), address(3, 0)]
}

/// The interface address, and that of an endpoint: 16 messages to queue pair 0x12345.
pub(crate) fn rc_address_seeds() -> Vec<Vec<u8>> {
    let endpoint = [1, 4, 16, 0, 0x45, 0x23, 1, 0, 0xef, 0xcd, 0xab, 0, 0, 32, 0, 0];
    vec![b"rc\x01\0".to_vec(), endpoint.to_vec()]
}

/// All rights to a page.
pub(crate) fn rc_key_seeds() -> Vec<Vec<u8>> {
    let mut key = b"rcmr\x07\0\0\0".to_vec();
    for word in [0x7f00_0000_1000, 4096_u64] {
        key.extend(word.to_le_bytes());
    }
    key.extend(uct_plugin::MemoryAccess::all().bits().to_le_bytes());
    vec![key]
}

pub(crate) fn rdmacm_private_seeds() -> Vec<Vec<u8>> {
    let message = |kind: u8| [&[0xc4 | kind, 5][..], b"hello", &[0; 49]].concat();
    (1..=3).map(message).collect()
}

/// A frame of version 6: magic, version, kind, and the length of its body.
fn net_frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_le_bytes();
    [&b"UCTN"[..], &[6, kind, 0, 0], &length, body].concat()
}

pub(crate) fn net_frame_seeds() -> Vec<Vec<u8>> {
    // Each with its tag, whose highest bit is set, and its length.
    let field =
        |tag: u8, value: &[u8]| [&[tag, 128][..], &(value.len() as u32).to_le_bytes(), value].concat();
    let addresses = peer_addresses_seeds().pop().expect("there are some");
    let one = address("tcp", 17, 60).pack().expect("it packs");
    let end = [field(7, &[7; 11]), field(8, &(1_u32 << 20).to_le_bytes()), field(9, &[])].concat();
    let hello = [field(1, b"private"), field(2, &addresses)].concat();
    let lane = [field(5, &one), field(6, &one), end.clone()].concat();
    let welcome = net_frame(2, &[&hello[..], &field(3, b"CHOSEN tcp/lo"), &end].concat());
    let ready = net_frame(5, &end);
    let unable = net_frame(6, &field(4, b"not this one"));
    let connected = net_frame(7, b"");
    let of_client = [net_frame(1, &hello), net_frame(12, &lane), net_frame(4, &lane), connected.clone()];
    vec![
        of_client.concat(),
        [net_frame(8, &field(10, &[1; 32])), net_frame(10, &field(11, &[2; 32]))].concat(),
        [welcome.clone(), unable.clone(), ready.clone()].concat(),
        [welcome, unable, ready, net_frame(3, &field(4, b"no"))].concat(),
        net_frame(9, &[field(10, &[1; 32]), field(11, &[2; 32])].concat()),
    ]
}

pub(crate) fn net_lane_address_seeds() -> Vec<Vec<u8>> {
    vec![[&b"U\x06"[..], &[5; 8], &[1; 24], &[2; 4], &[3; 16]].concat()]
}

pub(crate) fn shm_peer(bytes: &[u8]) {
    uct_shm::testing::fuzz_address(bytes);
    uct_shm::testing::fuzz_control(bytes);
}

pub(crate) fn shm_peer_seeds() -> Vec<Vec<u8>> {
    let mut seeds = transport::parts("posix");
    // A message over the socket: magic, version, kind, bytes of the body.
    seeds.push([&b"uSHM"[..], &[7, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]].concat());
    seeds
}

/// Sends of both kinds, each of them received and given back.
pub(crate) fn shm_ring_seeds() -> Vec<Vec<u8>> {
    let round = [3, 17, 5, 0, 4, 8, 5, 0, 7, 0, 4, 9, 6, 0, 7, 0];
    vec![round.repeat(4), round.repeat(40)]
}

pub(crate) fn tcp_address_seeds() -> Vec<Vec<u8>> {
    transport::parts("tcp")
}

/// A request of three bytes, a notification, and the header of the longest accept.
pub(crate) fn tcp_cm_seeds() -> Vec<Vec<u8>> {
    let header = |kind: u8, length: u16| {
        let [low, high] = length.to_le_bytes();
        [b"UCTc", &[1, 0, kind, 0, low, high, 0, 0, 0, 0, 0, 0][..]].concat()
    };
    vec![[&header(1, 3)[..], b"abc", &header(4, 0)].concat(), header(2, 2064)]
}

/// As they are, and with the check sum made good, so that the fields behind it are reached.
pub(crate) fn tcp_hello(bytes: &[u8]) {
    uct_tcp::testing::fuzz_hello(bytes);
    if let Some(hello) = bytes.first_chunk::<112>() {
        uct_tcp::testing::fuzz_hello(&with_sum(*hello));
    }
}

pub(crate) fn composed_frame(bytes: &[u8]) {
    if let Some((head, body)) = Head::read(bytes) {
        assert_eq!([&head.write(), body].concat(), bytes, "what is read is what was written");
    }
}

pub(crate) fn composed_frame_seeds() -> Vec<Vec<u8>> {
    (0..4).map(|kind| [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &[0xaa; 40]].concat()).collect()
}

pub(crate) fn tcp_hello_seeds() -> Vec<Vec<u8>> {
    let hello = |kind: u8| {
        let mut hello = [0; 112];
        hello[..4].copy_from_slice(b"UCTt");
        hello[4] = 4;
        hello[6] = kind;
        for (at, value) in [
            (8, 1),
            (16, 77),
            (24, 78),
            (32, 3),
            (42, 16),
            (56, 5),
            (64, 4),
            (66, 9),
            (68, 127),
            (71, 1),
            (84, 4),
            (86, 9),
            (88, 127),
            (91, 1),
        ] {
            hello[at] = value;
        }
        with_sum(hello).to_vec()
    };
    vec![hello(1), hello(2), hello(3)]
}

/// FNV-1a of what is ahead, in the last eight bytes.
fn with_sum(mut hello: [u8; 112]) -> [u8; 112] {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = hello[..104].iter().fold(0xcbf2_9ce4_8422_2325, step);
    hello[104..].copy_from_slice(&sum.to_le_bytes());
    hello
}

/// Of an interface, of an endpoint with an invitation, and what a connection request carries: a device's address, a queue pair.
pub(crate) fn ud_address_seeds() -> Vec<Vec<u8>> {
    let head = |kind: u8| [b'u', kind, 1, 0, 0x56, 0x34, 0x12, 0];
    let identity = 0x0123_4567_89ab_cdef_u64.to_le_bytes();
    let invitation = [1, 2, 3, 4, 5, 6, 64, 0, 9, 9, 9, 9];
    let requests = ib_address_seeds().into_iter().map(|device| [&device[..], &[17, 0, 0, 0]].concat());
    [[&head(b'd')[..], &identity].concat(), [&head(b'e')[..], &invitation].concat()]
        .into_iter()
        .chain(requests)
        .collect()
}

/// Two interfaces that connect, exchange and acknowledge; the steps are those of `fuzz_packets`.
pub(crate) fn ud_packets_seeds() -> Vec<Vec<u8>> {
    let round = |round: u8| [0, 0, 0, 0, 1 | (round & 1) << 7, round, 1, round, 0, 0, 2 | 15 << 3, 200];
    vec![(0..40).flat_map(round).collect()]
}

/// Packets, requests, turns of the device and polls; the steps are those of `fuzz_packets` of the software device.
pub(crate) fn roce_packet_seeds() -> Vec<Vec<u8>> {
    let round = |round: u8| {
        let packet = |opcode: u8| [1, round, opcode, 0, 0, 9, 0, round, 0, 0, 96, 50, 0, 1];
        [&[180, 1, 0, 8, 0, 7, 0, 0, 0][..], &packet(round), &packet(16), &[230, 30], &packet(24), &[246]]
            .concat()
    };
    vec![
        (0..30).flat_map(round).collect(),
        (0..60_u8).flat_map(|step| round(step.wrapping_mul(37))).collect(),
    ]
}

/// Requests of two devices, their turns, deliveries of their packets and polls; the steps are those of `fuzz_calls`.
pub(crate) fn verbs_calls_seeds() -> Vec<Vec<u8>> {
    let round = |round: u8| {
        let post = [90 + (round & 1), 0, 0, round, 0, round % 8, round.wrapping_mul(5) | 1, 1, 0, 16, 3, 0];
        [&[131, 0, 1, 0, 0, 0, 6, 0, 0, 1][..], &post, &[0, 19, 1, 19], &[40, 1, 1, 1].repeat(4), &[161, 160]]
            .concat()
    };
    vec![
        (0..40).flat_map(round).collect(),
        (0..80_u8).flat_map(|step| round(step.wrapping_mul(29))).collect(),
    ]
}
