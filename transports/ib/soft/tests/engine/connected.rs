//! Reliable connections without loss: what each operation does.

use uct_ib_soft::engine::wire::Extra;
use uct_ib_soft::engine::{Event, Opcode, QpState, SendData, SendKind, SendRequest, Status};

use crate::net::{MEMORY, MTU, SECOND, Setup, request};

/// Lengths around those of packets.
fn lengths() -> impl Iterator<Item = usize> {
    let mtu = MTU as usize;
    [0, 1, 7, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 3, 200 * mtu].into_iter()
}

fn fill(bytes: &mut [u8], seed: u8) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (index as u8).wrapping_mul(31).wrapping_add(seed);
    }
}

#[test]
fn messages_of_all_lengths_arrive_whole() {
    let mut pair = Setup::default().pair();
    for (wr_id, length) in (0..).zip(lengths()) {
        fill(&mut pair.sides[0].memory[..length], wr_id as u8);
        pair.receive(1, 100 + wr_id, 0, MEMORY);
        let data = SendData::Pieces(pair.sides[0].pieces(0, length));
        let send =
            SendRequest { extra: Extra::Immediate([1, 2, 3, 4]), ..request(wr_id, SendKind::Send, data) };
        pair.post(0, send).expect("posted");
        let received = pair.wait(1);
        assert_eq!(
            (received.wr_id, received.status, received.opcode),
            (100 + wr_id, Status::Success, Opcode::Receive)
        );
        assert_eq!((received.length as usize, received.extra), (length, Extra::Immediate([1, 2, 3, 4])));
        assert_eq!(pair.sides[0].memory[..length], pair.sides[1].memory[..length]);
        let sent = pair.wait(0);
        assert_eq!((sent.wr_id, sent.status, sent.opcode), (wr_id, Status::Success, Opcode::Send));
    }
}

#[test]
fn writes_and_reads_of_all_lengths_move_what_they_name_and_nothing_else() {
    let mut pair = Setup::default().pair();
    for (wr_id, length) in (0..).zip(lengths()) {
        fill(&mut pair.sides[0].memory[..length], wr_id as u8);
        pair.sides[1].memory.fill(0xee);
        let data = SendData::Pieces(pair.sides[0].pieces(0, length));
        let write = SendKind::Write(pair.sides[1].target(11));
        pair.post(0, request(wr_id, write, data)).expect("posted");
        assert_eq!(pair.wait(0).opcode, Opcode::Write);
        assert_eq!(pair.sides[1].memory[11..11 + length], pair.sides[0].memory[..length]);
        assert!(pair.sides[1].memory[..11].iter().all(|byte| *byte == 0xee));
        assert!(pair.sides[1].memory[11 + length..].iter().all(|byte| *byte == 0xee));
        let begin = MEMORY - length;
        let data = SendData::Pieces(pair.sides[0].pieces(begin, length));
        let read = SendKind::Read(pair.sides[1].target(11));
        pair.post(0, request(wr_id, read, data)).expect("posted");
        let done = pair.wait(0);
        assert_eq!((done.opcode, done.status, done.length as usize), (Opcode::Read, Status::Success, length));
        assert_eq!(pair.sides[0].memory[begin..], pair.sides[1].memory[11..11 + length]);
    }
    assert_eq!(pair.poll(1), None, "the peer learns nothing of it");
}

#[test]
fn a_write_with_immediate_data_uses_a_receive_request_and_not_its_memory() {
    let mut pair = Setup::default().pair();
    pair.receive(1, 5, 1000, 8);
    let data = SendData::Inline(vec![7; 60]);
    let write = SendKind::Write(pair.sides[1].target(0));
    pair.post(0, SendRequest { extra: Extra::Immediate([9; 4]), ..request(1, write, data) }).expect("posted");
    let told = pair.wait(1);
    assert_eq!((told.wr_id, told.opcode, told.length), (5, Opcode::ReceiveWrite, 60));
    assert_eq!(told.extra, Extra::Immediate([9; 4]));
    assert_eq!(pair.sides[1].memory[..61], [[7; 60].as_slice(), &[0]].concat());
    assert_eq!(pair.sides[1].memory[1000..1008], [0; 8]);
    // Of several packets: the last brings it.
    let length = 2 * MTU as usize + 1;
    pair.receive(1, 6, 0, 8);
    pair.sides[0].memory[..length].fill(3);
    let data = SendData::Pieces(pair.sides[0].pieces(0, length));
    pair.post(0, SendRequest { extra: Extra::Immediate([8; 4]), ..request(2, write, data) }).expect("posted");
    let told = pair.wait(1);
    assert_eq!((told.wr_id, told.opcode, told.length as usize), (6, Opcode::ReceiveWrite, length));
    assert_eq!(told.extra, Extra::Immediate([8; 4]));
    assert_eq!(pair.sides[1].memory[..length], pair.sides[0].memory[..length]);
}

#[test]
fn atomics_of_both_sides_are_executed_once_each() {
    use uct_ib_soft::engine::Atomic;
    let mut pair = Setup::default().pair();
    let target = pair.sides[1].target(64);
    let found =
        |pair: &crate::net::Pair| u64::from_ne_bytes(pair.sides[0].memory[..8].try_into().expect("eight"));
    for round in 0..10 {
        let data = SendData::Pieces(pair.sides[0].pieces(0, 8));
        pair.post(0, request(round, SendKind::Atomic(target, Atomic::Add(3)), data)).expect("posted");
        assert_eq!(pair.wait(0).opcode, Opcode::FetchAdd);
        assert_eq!(found(&pair), round * 3);
    }
    let swap = Atomic::CompareSwap { compare: 30, swap: 1 };
    for expected in [30, 1] {
        let data = SendData::Pieces(pair.sides[0].pieces(0, 8));
        pair.post(0, request(0, SendKind::Atomic(target, swap), data)).expect("posted");
        assert_eq!(pair.wait(0).opcode, Opcode::CompareSwap);
        assert_eq!(found(&pair), expected);
    }
}

#[test]
fn a_message_waits_for_a_receive_buffer() {
    let mut pair = Setup::default().pair();
    pair.post(0, request(1, SendKind::Send, SendData::Inline(vec![5; 8]))).expect("posted");
    pair.idle(SECOND);
    assert_eq!(pair.poll(0), None);
    pair.receive(1, 2, 0, 8);
    assert_eq!(pair.wait(1).wr_id, 2);
    assert_eq!(pair.wait(0).status, Status::Success);
}

#[test]
fn only_what_is_signaled_completes_and_in_order() {
    let mut pair = Setup::default().pair();
    for wr_id in 0..20 {
        let data = SendData::Inline(vec![wr_id as u8; 4]);
        let write = SendKind::Write(pair.sides[1].target(wr_id as usize * 4));
        pair.post(0, SendRequest { is_signaled: wr_id % 5 == 4, ..request(wr_id, write, data) })
            .expect("posted");
    }
    for expected in [4, 9, 14, 19] {
        assert_eq!(pair.wait(0).wr_id, expected);
    }
    pair.idle(SECOND);
    assert_eq!(pair.poll(0), None);
}

#[test]
fn a_shared_queue_serves_and_tells_its_limit_once() {
    let mut pair = Setup { has_srq: true, ..Setup::default() }.pair();
    let srq = pair.sides[1].srq.expect("it has one");
    (0..4).for_each(|number| pair.receive(1, number, number as usize * 64, 64));
    pair.net.device(1).set_srq_limit(srq, 3).expect("within its capacity");
    assert!(pair.net.device(1).set_srq_limit(srq, 65).is_err());
    pair.net.device(1).set_srq_limit(srq, 64).expect("its capacity");
    pair.net.device(1).set_srq_limit(srq, 3).expect("within its capacity");
    for round in 0..4 {
        pair.post(0, request(round, SendKind::Send, SendData::Inline(vec![1; 8]))).expect("posted");
        assert_eq!(pair.wait(1).wr_id, round);
        let expected = if round == 1 { vec![Event::SrqLimitReached(srq)] } else { vec![] };
        assert_eq!(pair.events(1), expected, "{round}");
        let limit = if round == 0 { 3 } else { 0 };
        assert_eq!(pair.net.device(1).query_srq(srq), Some((64, limit)), "{round}");
    }
}

#[test]
fn a_connection_that_is_used_before_it_is_known_is_an_event() {
    let setup = Setup::default();
    let mut pair = setup.unconnected();
    pair.connect(0, &setup.attributes, QpState::ReadyToSend);
    pair.connect(1, &setup.attributes, QpState::ReadyToReceive);
    pair.receive(1, 1, 0, 64);
    pair.post(0, request(1, SendKind::Send, SendData::Inline(vec![1]))).expect("posted");
    assert_eq!(pair.wait(0).status, Status::Success);
    let qp = pair.sides[1].qp;
    assert_eq!(pair.events(1), [Event::CommunicationEstablished(qp)]);
    pair.receive(1, 2, 0, 64);
    pair.post(0, request(2, SendKind::Send, SendData::Inline(vec![1]))).expect("posted");
    assert_eq!((pair.wait(0).status, pair.events(1)), (Status::Success, vec![]), "it is reported once");
}

#[test]
fn the_reads_in_flight_are_as_many_as_agreed() {
    let mut setup = Setup::default();
    setup.attributes.reads_out = 2;
    setup.attributes.reads_in = 2;
    let mut pair = setup.pair();
    for wr_id in 0..32 {
        let data = SendData::Pieces(pair.sides[0].pieces(wr_id as usize * 600, 600));
        let read = SendKind::Read(pair.sides[1].target(0));
        pair.post(0, request(wr_id, read, data)).expect("posted");
    }
    for wr_id in 0..32 {
        let done = pair.wait(0);
        assert_eq!((done.wr_id, done.status), (wr_id, Status::Success));
    }
}

#[test]
fn a_fenced_request_waits_for_the_data_of_reads_and_others_do_not() {
    for is_fenced in [false, true] {
        let mut pair = Setup::default().pair();
        let data = SendData::Pieces(pair.sides[0].pieces(0, 8));
        let read = SendKind::Read(pair.sides[1].target(0));
        pair.post(0, request(1, read, data)).expect("posted");
        let write = request(2, SendKind::Write(pair.sides[1].target(0)), SendData::Inline(vec![7; 8]));
        pair.post(0, SendRequest { is_fenced, ..write }).expect("posted");
        // Less than what a packet needs.
        pair.idle(1);
        assert_eq!(pair.net.sent, if is_fenced { 1 } else { 2 });
        assert_eq!([pair.wait(0).wr_id, pair.wait(0).wr_id], [1, 2]);
    }
}

#[test]
fn a_queue_that_waits_for_solicited_messages_learns_of_these_alone() {
    let mut pair = Setup::default().pair();
    let cq = pair.sides[1].cq;
    pair.net.device(1).arm_cq(cq, true);
    for (wr_id, is_solicited) in [(1, false), (2, true)] {
        pair.receive(1, wr_id, 0, 2000);
        // Of several packets: the last says it.
        let data = SendData::Pieces(pair.sides[0].pieces(0, 1000));
        pair.post(0, SendRequest { is_solicited, ..request(wr_id, SendKind::Send, data) }).expect("posted");
        assert_eq!(pair.wait(1).wr_id, wr_id);
        assert_eq!(pair.net.device(1).next_announced(), is_solicited.then_some(cq));
    }
}

#[test]
fn receive_buffers_of_a_shared_queue_are_in_its_domain() {
    use uct_ib_soft::engine::QpConfig;
    let setup = Setup::default();
    let mut pair = setup.unconnected();
    let begin = pair.sides[1].address();
    let device = pair.net.device(1);
    let other = device.alloc_pd();
    let srq = device.create_srq(other, 4).expect("a queue");
    // SAFETY: the side keeps the memory as long as the network.
    let key = unsafe { device.register(other, begin, MEMORY as u64, setup.access) }.expect("registered");
    let config = *device.query_qp(pair.sides[1].qp).expect("it is there").1;
    let qp = device.create_qp(QpConfig { srq: Some(srq), ..config }).expect("a queue pair");
    let side = &mut pair.sides[1];
    (side.qp, side.srq, side.key) = (qp, Some(srq), key);
    (0..2).for_each(|side| pair.connect(side, &setup.attributes, QpState::ReadyToSend));
    pair.receive(1, 7, 0, 64);
    pair.post(0, request(1, SendKind::Send, SendData::Inline(vec![3; 8]))).expect("posted");
    assert_eq!((pair.wait(1).status, pair.wait(0).status), (Status::Success, Status::Success));
    assert_eq!(pair.sides[1].memory[..8], [3; 8]);
}

#[test]
fn a_queue_pair_may_have_every_request_complete() {
    use uct_ib_soft::engine::{Path, QpConfig, QpKind};
    for kind in [QpKind::Rc, QpKind::Ud] {
        let setup = Setup { kind, ..Setup::default() };
        let mut pair = setup.unconnected();
        let config = *pair.net.device(0).query_qp(pair.sides[0].qp).expect("it is there").1;
        let all = QpConfig { signals_all: true, ..config };
        pair.sides[0].qp = pair.net.device(0).create_qp(all).expect("a queue pair");
        (0..2).for_each(|side| pair.connect(side, &setup.attributes, QpState::ReadyToSend));
        let path = Path { destination: crate::net::address(1), source_index: 0 };
        let send = match kind {
            QpKind::Rc => SendKind::Write(pair.sides[1].target(0)),
            QpKind::Ud => SendKind::Datagram { path, qp: pair.sides[1].qp, qkey: setup.attributes.qkey },
        };
        let unsignaled = SendRequest { is_signaled: false, ..request(9, send, SendData::Inline(vec![1])) };
        pair.post(0, unsignaled).expect("posted");
        assert_eq!(pair.wait(0).wr_id, 9);
    }
}

#[test]
fn completions_end_with_the_reset_or_the_end_of_their_queue_pair() {
    use uct_ib_soft::engine::{Attributes, Mask};
    for is_reset in [true, false] {
        let mut pair = Setup::default().pair();
        let write = SendKind::Write(pair.sides[1].target(0));
        pair.post(0, request(1, write, SendData::Inline(vec![1]))).expect("posted");
        pair.idle(SECOND);
        let qp = pair.sides[0].qp;
        let device = pair.net.device(0);
        let ended = if is_reset {
            device.modify_qp(qp, &Attributes::default(), Mask::STATE)
        } else {
            device.destroy_qp(qp)
        };
        assert_eq!(ended, Ok(()));
        assert_eq!(pair.poll(0), None, "reset: {is_reset}");
    }
}
