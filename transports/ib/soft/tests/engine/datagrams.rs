//! Unreliable datagrams.

use uct_ib_soft::engine::wire::Extra;
use uct_ib_soft::engine::{
    Attributes, Mask, Path, QpKind, QpState, Refusal, RouteKind, SendData, SendKind, SendRequest, Status,
};

use crate::net::{Pair, SECOND, Setup, address, request};

const QKEY: u32 = 0x1111;

fn pair() -> Pair {
    Setup { kind: QpKind::Ud, ..Setup::default() }.pair()
}

fn datagram(pair: &Pair, wr_id: u64, qkey: u32, data: SendData) -> SendRequest {
    let path = Path { destination: address(1), source_index: 0 };
    request(wr_id, SendKind::Datagram { path, qp: pair.sides[1].qp, qkey }, data)
}

#[test]
fn a_datagram_arrives_behind_its_route_with_its_sender() {
    let mut pair = pair();
    for length in [0, 1, 64, 4096] {
        pair.sides[0].memory[..length].fill(length as u8 | 1);
        pair.receive(1, 9, 0, 5000);
        let data = SendData::Pieces(pair.sides[0].pieces(0, length));
        let send = datagram(&pair, 1, QKEY, data);
        pair.post(0, SendRequest { extra: Extra::Immediate([1, 2, 3, 4]), ..send }).expect("posted");
        assert_eq!(pair.wait(0).status, Status::Success);
        let received = pair.wait(1);
        assert_eq!(
            (received.status, received.wr_id, received.length as usize),
            (Status::Success, 9, 40 + length)
        );
        assert_eq!((received.source_qp, received.route), (pair.sides[0].qp, Some(RouteKind::V4)));
        assert_eq!(received.extra, Extra::Immediate([1, 2, 3, 4]));
        assert_eq!(pair.sides[1].memory[40..40 + length], pair.sides[0].memory[..length]);
        assert_eq!(pair.sides[1].memory[..20], [0; 20]);
        assert_eq!(pair.sides[1].memory[32..36], [127, 64, 0, 1], "the sender's address");
        assert_eq!(pair.sides[1].memory[36..40], [127, 64, 0, 2]);
    }
    let long = datagram(&pair, 1, QKEY, SendData::Pieces(pair.sides[0].pieces(0, 4097)));
    assert_eq!(pair.post(0, long), Err(Refusal::Invalid));
}

#[test]
fn a_datagram_for_nobody_is_dropped() {
    let mut pair = pair();
    // No buffer, another key.
    for qkey in [QKEY, QKEY + 1] {
        let send = datagram(&pair, 1, qkey, SendData::Inline(vec![1]));
        pair.post(0, send).expect("posted");
        assert_eq!(pair.wait(0).status, Status::Success);
        pair.idle(SECOND);
        assert_eq!(pair.poll(1), None);
        pair.receive(1, 1, 0, 100);
    }
    // The highest bit stands for the sender's own key.
    let send = datagram(&pair, 1, 0x8000_0000, SendData::Inline(vec![1]));
    pair.post(0, send).expect("posted");
    assert_eq!(pair.wait(1).status, Status::Success);
}

#[test]
fn a_failed_send_stops_the_send_queue_alone_and_it_goes_on_when_told() {
    let mut pair = pair();
    let mut pieces = pair.sides[0].pieces(0, 8);
    pieces[0].lkey ^= 1;
    let send = datagram(&pair, 1, QKEY, SendData::Pieces(pieces));
    let good = datagram(&pair, 2, QKEY, SendData::Inline(vec![1]));
    pair.post(0, send).expect("posted");
    pair.post(0, good.clone()).expect("posted");
    assert_eq!(pair.wait(0).status, Status::LocalProtection);
    assert_eq!(pair.wait(0).status, Status::Flushed);
    assert_eq!(pair.state(0), QpState::SendQueueError);
    let qp = pair.sides[0].qp;
    let on = Attributes { state: QpState::ReadyToSend, ..Attributes::default() };
    pair.net.device(0).modify_qp(qp, &on, Mask::STATE).expect("from SQE");
    pair.receive(1, 1, 0, 100);
    pair.post(0, good).expect("posted");
    assert_eq!(pair.wait(0).status, Status::Success);
    assert_eq!(pair.wait(1).status, Status::Success);
}
