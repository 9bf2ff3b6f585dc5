//! Datagrams of anybody.

use std::convert::Infallible;
use std::net::IpAddr;

use uct_ib_soft::engine::wire::{Deth, Headers, Kind, Part};
use uct_ib_soft::engine::{Incoming, Psn, QpKind, QpState, Status};

use crate::net::{Pair, Setup, address};

const QKEY: u32 = 0x1111;

fn inject(pair: &mut Pair, qkey: u32, length: usize) {
    inject_from(pair, qkey, length, [address(7), address(1)]);
}

fn inject_from(pair: &mut Pair, qkey: u32, length: usize, [source, destination]: [IpAddr; 2]) {
    let qp = pair.sides[1].qp;
    let mut headers = Headers::new(Kind::Datagram, Part::Only, qp, Psn::new(0));
    headers.deth = Some(Deth { qkey, source_qp: 77 });
    let bytes = headers.encode(length, |place| {
        place.fill(9);
        Ok::<(), Infallible>(())
    });
    let bytes = bytes.unwrap_or_else(|never| match never {});
    let now = pair.net.now();
    let packet = Incoming { source, destination, bytes: &bytes };
    pair.net.device(1).receive(packet, now);
}

/// Faults of this kind concern the datagram alone (9.9.3, classes D and E): otherwise anybody could end a queue pair.
#[test]
fn a_datagram_longer_than_its_buffer_is_dropped_and_the_buffer_stays() {
    let mut pair = Setup { kind: QpKind::Ud, ..Setup::default() }.pair();
    pair.receive(1, 3, 0, 47);
    inject(&mut pair, QKEY, 8);
    assert_eq!(pair.poll(1), None);
    assert_eq!(pair.state(1), QpState::ReadyToSend);
    inject(&mut pair, QKEY, 7);
    let received = pair.poll(1).expect("it fits");
    assert_eq!((received.wr_id, received.status, received.length), (3, Status::Success, 47));
}

#[test]
fn a_datagram_longer_than_a_shared_buffer_uses_it_up_and_nothing_fails() {
    let mut pair = Setup { kind: QpKind::Ud, has_srq: true, ..Setup::default() }.pair();
    pair.receive(1, 3, 0, 47);
    pair.receive(1, 4, 0, 47);
    inject(&mut pair, QKEY, 8);
    let failed = pair.poll(1).expect("the request is not the queue pair's own");
    assert_eq!((failed.wr_id, failed.status), (3, Status::LocalLength));
    assert_eq!(pair.state(1), QpState::ReadyToSend);
    inject(&mut pair, QKEY, 7);
    assert_eq!(pair.poll(1).map(|received| (received.wr_id, received.status)), Some((4, Status::Success)));
}

#[test]
fn a_datagram_with_another_key_takes_no_buffer() {
    let mut pair = Setup { kind: QpKind::Ud, ..Setup::default() }.pair();
    pair.receive(1, 3, 0, 100);
    for qkey in [0, QKEY ^ 1, QKEY | 1 << 31] {
        inject(&mut pair, qkey, 8);
        assert_eq!(pair.poll(1), None);
    }
    inject(&mut pair, QKEY, 8);
    assert_eq!(pair.poll(1).map(|received| received.source_qp), Some(77));
}

/// Headers of UDP, the packet of 12 + 8 bytes of headers and a padded payload, and its CRC.
const PACKET: u16 = 8 + 20 + 12 + 4;

#[test]
fn the_route_ahead_of_a_datagram_is_the_ip_header_of_its_packet() {
    let mut pair = Setup { kind: QpKind::Ud, ..Setup::default() }.pair();
    pair.receive(1, 1, 0, 100);
    inject(&mut pair, QKEY, 9);
    let ip = &pair.sides[1].memory[20..40];
    assert_eq!(pair.sides[1].memory[..20], [0; 20]);
    assert_eq!((ip[0], ip[9]), (0x45, 17));
    assert_eq!(ip[2..4], (20 + PACKET).to_be_bytes());
    assert_eq!((&ip[12..16], &ip[16..20]), (&[127, 64, 0, 8][..], &[127, 64, 0, 2][..]));
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum of the header");
}

#[test]
fn the_route_ahead_of_a_datagram_over_ipv6_is_its_header() {
    let mut pair = Setup { kind: QpKind::Ud, ..Setup::default() }.pair();
    pair.receive(1, 1, 0, 100);
    let ends = ["fd00::7", "fd00::1:2"].map(|text| text.parse().expect("an address"));
    inject_from(&mut pair, QKEY, 9, ends);
    let ip = &pair.sides[1].memory[..40];
    assert_eq!((ip[0], ip[6]), (0x60, 17));
    assert_eq!(ip[4..6], PACKET.to_be_bytes());
    let octets = ends.map(|end| match end {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(_) => panic!("{end}"),
    });
    assert_eq!((&ip[8..24], &ip[24..40]), (&octets[0][..], &octets[1][..]));
}
