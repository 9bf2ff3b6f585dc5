//! Datagrams of anybody.

use std::convert::Infallible;

use uct_ib_soft::engine::wire::{Deth, Headers, Kind, Part};
use uct_ib_soft::engine::{Incoming, Psn, QpKind, QpState, Status};

use crate::net::{Pair, Setup, address};

const QKEY: u32 = 0x1111;

fn inject(pair: &mut Pair, qkey: u32, length: usize) {
    let qp = pair.sides[1].qp;
    let mut headers = Headers::new(Kind::Datagram, Part::Only, qp, Psn::new(0));
    headers.deth = Some(Deth { qkey, source_qp: 77 });
    let bytes = headers.encode(length, |place| {
        place.fill(9);
        Ok::<(), Infallible>(())
    });
    let bytes = bytes.unwrap_or_else(|never| match never {});
    let now = pair.net.now();
    let packet = Incoming { source: address(7), destination: address(1), bytes: &bytes };
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
