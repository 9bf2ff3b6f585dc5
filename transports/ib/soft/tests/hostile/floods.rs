//! Many packets for one device that has no time to answer: what waits in it has a limit.

use uct_ib_soft::engine::wire::{Kind, Nak, Part, Syndrome};
use uct_ib_soft::engine::{Attributes, Mask, QpState};

use crate::net::{MTU, Setup};
use crate::peer::{Answer, Peer, psn};

const FLOOD: usize = 10_000;

#[test]
fn a_flood_of_messages_without_a_buffer_is_refused_once() {
    let mut peer = Peer::new(&Setup::default());
    (0..FLOOD).for_each(|_| peer.send(psn(0)));
    assert_eq!(peer.answers(), [Answer::Told(psn(0), Syndrome::ReceiverNotReady(1))]);
    peer.send(psn(0));
    assert_eq!(peer.answers().len(), 1, "it is told again when it asks again");
}

#[test]
fn refusals_and_acknowledgements_in_turn_do_not_pile_up() {
    let mut peer = Peer::new(&Setup::default());
    for round in 0..FLOOD as u32 {
        // No buffer; then another request takes the number; then that one again.
        peer.send(psn(round));
        peer.write(psn(round));
        peer.write(psn(round));
    }
    let answers = peer.answers();
    assert!(answers.len() < 8, "{}", answers.len());
    assert_eq!(answers.last(), Some(&Answer::Told(psn(FLOOD as u32 - 1), Syndrome::Ack)));
}

#[test]
fn more_reads_than_agreed_fail_the_queue_pair() {
    let setup = Setup::default();
    let mut peer = Peer::new(&setup);
    let agreed = u32::from(setup.attributes.reads_in);
    (0..agreed).for_each(|number| peer.read(psn(number), 0, 8));
    assert_eq!(peer.pair.state(1), QpState::ReadyToSend);
    peer.read(psn(agreed), 0, 8);
    assert_eq!(peer.pair.state(1), QpState::Error);
    let mut expected: Vec<Answer> = (0..agreed).map(|number| Answer::Read(psn(number))).collect();
    expected.push(Answer::Told(psn(agreed), Syndrome::Nak(Nak::InvalidRequest)));
    assert_eq!(peer.answers(), expected);
}

#[test]
fn atomics_count_as_reads_do() {
    let mut peer = Peer::new(&Setup::default());
    (0..FLOOD as u32).for_each(|number| peer.add(psn(number)));
    assert_eq!(peer.pair.state(1), QpState::Error);
    assert_eq!(peer.answers().len(), 5);
    assert_eq!(peer.pair.sides[1].memory[..8], 4_u64.to_ne_bytes());
}

#[test]
fn a_flood_of_duplicate_atomics_is_answered_once() {
    let mut peer = Peer::new(&Setup::default());
    peer.add(psn(0));
    peer.add(psn(1));
    (0..FLOOD).for_each(|round| peer.add(psn(round as u32 % 2)));
    assert_eq!(peer.answers(), [Answer::Found(psn(0), 0), Answer::Found(psn(1), 1)]);
}

#[test]
fn duplicates_of_a_read_that_begin_further_back_each_time_have_a_limit() {
    let mut peer = Peer::new(&Setup::default());
    let packets = 1000;
    let length = packets as usize * MTU as usize;
    peer.read(psn(0), 0, length);
    assert_eq!(peer.answers().len(), packets as usize);
    for first in (0..packets).rev() {
        let skipped = first as usize * MTU as usize;
        peer.read(psn(first), skipped, length - skipped);
    }
    // All of them would be half a million packets.
    let count = peer.answers().len();
    assert!(count <= 4 * packets as usize, "{count}");
}

#[test]
fn a_read_that_is_asked_for_again_and_again_is_answered_once() {
    let mut peer = Peer::new(&Setup::default());
    (0..FLOOD).for_each(|_| peer.read(psn(0), 0, 3 * MTU as usize));
    assert_eq!(peer.answers(), [0, 1, 2].map(|number| Answer::Read(psn(number))));
}

#[test]
fn a_flood_ahead_of_the_expected_packet_is_told_once() {
    let mut peer = Peer::new(&Setup::default());
    (0..FLOOD as u32).for_each(|number| peer.write(psn(1 + number)));
    assert_eq!(peer.answers(), [Answer::Told(psn(0), Syndrome::Nak(Nak::Sequence))]);
    peer.write(psn(0));
    assert_eq!(peer.answers(), [Answer::Told(psn(0), Syndrome::Ack)]);
    peer.write(psn(2));
    assert_eq!(peer.answers(), [Answer::Told(psn(1), Syndrome::Nak(Nak::Sequence))]);
}

#[test]
fn fewer_reads_than_before_are_remembered() {
    let mut peer = Peer::new(&Setup::default());
    for number in 0..4 {
        peer.add(psn(number));
        peer.answers();
    }
    let qp = peer.pair.sides[1].qp;
    let device = peer.pair.net.device(1);
    let drain = Attributes { state: QpState::SendQueueDrain, ..Attributes::default() };
    device.modify_qp(qp, &drain, Mask::STATE).expect("from RTS");
    let fewer = Attributes { reads_in: 1, ..drain };
    device.modify_qp(qp, &fewer, Mask::STATE | Mask::READS_IN).expect("while drained");
    for number in 4..40 {
        peer.add(psn(number));
        peer.answers();
    }
    for number in 0..39 {
        peer.add(psn(number));
        assert_eq!(peer.answers(), [], "{number} is forgotten");
    }
    peer.add(psn(39));
    assert_eq!(peer.answers(), [Answer::Found(psn(39), 39)]);
}

#[test]
fn a_device_whose_peer_has_no_buffers_for_long_keeps_no_old_deadlines() {
    let mut setup = Setup::default();
    // Four seconds, while each refusal costs ten microseconds.
    setup.attributes.timeout = 20;
    let mut pair = setup.pair();
    let send = crate::net::request(
        1,
        uct_ib_soft::engine::SendKind::Send,
        uct_ib_soft::engine::SendData::Inline(vec![1]),
    );
    pair.post(0, send).expect("posted");
    pair.idle(20_000_000);
    pair.receive(1, 1, 0, 8);
    pair.wait(0);
    let mut steps = 0;
    let end = pair.net.now() + 60_000_000_000;
    while pair.net.step(end) {
        steps += 1;
    }
    assert!(steps < 10, "{steps}");
}

#[test]
fn what_is_no_part_of_a_message_that_was_begun_fails_the_queue_pair() {
    for (kind, part) in [(Kind::Send, Part::Middle), (Kind::Write, Part::Last), (Kind::Send, Part::Last)] {
        let mut peer = Peer::new(&Setup::default());
        peer.pair.receive(1, 1, 0, 1024);
        let headers = peer.headers(kind, part, psn(0));
        peer.inject(&headers, &[1; MTU as usize]);
        assert_eq!(peer.answers(), [Answer::Told(psn(0), Syndrome::Nak(Nak::InvalidRequest))]);
        assert_eq!(peer.pair.state(1), QpState::Error);
    }
}

#[test]
fn what_goes_on_with_a_message_of_another_kind_fails_the_queue_pair() {
    for (begun, then) in [(Kind::Send, Kind::Write), (Kind::Write, Kind::Send)] {
        for part in [Part::Middle, Part::Last] {
            let mut peer = Peer::new(&Setup::default());
            (1..=2).for_each(|wr_id| peer.pair.receive(1, wr_id, 0, 1024));
            let mut headers = peer.headers(begun, Part::First, psn(0));
            headers.reth = (begun == Kind::Write).then(|| peer.reth(0, 1024)).flatten();
            peer.inject(&headers, &[1; MTU as usize]);
            let headers = peer.headers(then, part, psn(1));
            peer.inject(&headers, &[2; MTU as usize]);
            assert_eq!(
                peer.answers().last(),
                Some(&Answer::Told(psn(1), Syndrome::Nak(Nak::InvalidRequest)))
            );
            assert_eq!(peer.pair.state(1), QpState::Error);
            assert_eq!(peer.pair.sides[1].memory[..512], [[1; 256], [0; 256]].concat());
        }
    }
}
