//! What the device says to each kind of bad request, and what it counts.

use uct_ib_soft::engine::wire::{Deth, Extra, Headers, Kind, Nak, Part, Syndrome};
use uct_ib_soft::engine::{Incoming, QpKind, QpState, Status};

use crate::net::{MTU, Setup, address};
use crate::peer::{Answer, Peer, psn};

#[test]
fn messages_are_counted_in_answers() {
    let mut peer = Peer::new(&Setup::default());
    let count = |peer: &mut Peer| {
        peer.heads().last().and_then(|headers| headers.aeth).map(|aeth| aeth.msn).expect("an answer")
    };
    peer.write(psn(0));
    assert_eq!(count(&mut peer), 1);
    peer.add(psn(1));
    assert_eq!(count(&mut peer), 2);
    peer.read(psn(2), 0, 2 * MTU as usize);
    assert_eq!(count(&mut peer), 3);
    // Two packets of one message.
    peer.pair.receive(1, 1, 0, 1024);
    for (number, part) in [(4, Part::First), (5, Part::Last)] {
        let headers = peer.headers(Kind::Send, part, psn(number));
        peer.inject(&headers, &[1; MTU as usize]);
    }
    assert_eq!(count(&mut peer), 4);
    peer.write(psn(0));
    assert_eq!(count(&mut peer), 4, "a duplicate is not counted");
}

#[test]
fn packets_of_another_address_or_partition_are_dropped() {
    let mut peer = Peer::new(&Setup::default());
    let headers = Headers { reth: peer.reth(0, 0), ..peer.headers(Kind::Write, Part::Only, psn(0)) };
    peer.inject(&Headers { pkey: 0x7ffe, ..headers }, &[]);
    let bytes = headers.encode(0, |_| Ok::<(), std::convert::Infallible>(())).expect("no failure");
    let stranger = Incoming { source: address(5), destination: address(1), bytes: &bytes };
    peer.pair.net.device(1).receive(stranger, 0);
    assert_eq!(peer.answers(), []);
    peer.inject(&headers, &[]);
    assert_eq!(peer.answers(), [Answer::Told(psn(0), Syndrome::Ack)]);
}

#[test]
fn keys_that_a_peer_wants_to_end_stay() {
    let mut peer = Peer::new(&Setup::default());
    peer.pair.receive(1, 1, 0, 64);
    let rkey = peer.pair.sides[1].key;
    let mut headers = peer.headers(Kind::Send, Part::Only, psn(0));
    headers.extra = Extra::Invalidate(rkey);
    peer.inject(&headers, &[1]);
    assert_eq!(peer.answers(), [Answer::Told(psn(0), Syndrome::Nak(Nak::InvalidRequest))]);
    assert_eq!(peer.pair.net.device(1).regions(), 1);
}

#[test]
fn a_write_of_another_length_than_it_says_fails_the_queue_pair() {
    for (says, part, has) in
        [(7, Part::Only, 8), (9, Part::Only, 8), (MTU as usize - 1, Part::First, MTU as usize)]
    {
        let mut peer = Peer::new(&Setup::default());
        let headers = Headers { reth: peer.reth(0, says), ..peer.headers(Kind::Write, part, psn(0)) };
        peer.inject(&headers, &vec![1; has]);
        assert_eq!(peer.answers(), [Answer::Told(psn(0), Syndrome::Nak(Nak::InvalidRequest))]);
        assert_eq!(peer.pair.state(1), QpState::Error);
        assert!(peer.pair.sides[1].memory.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_queue_pair_that_failed_says_nothing_more() {
    let mut peer = Peer::new(&Setup::default());
    let headers = peer.headers(Kind::Send, Part::Middle, psn(0));
    peer.inject(&headers, &[1; MTU as usize]);
    assert_eq!(peer.answers().len(), 1);
    peer.write(psn(0));
    peer.write(psn(9));
    peer.read(psn(0), 0, 8);
    assert_eq!(peer.answers(), []);
}

#[test]
fn answers_to_what_was_never_asked_change_nothing() {
    let mut peer = Peer::new(&Setup::default());
    for number in [0, 1, 5, 1 << 22, (1 << 23) + 5, (1 << 24) - 1] {
        let at = psn(1).plus(number);
        for syndrome in [
            Syndrome::Ack,
            Syndrome::ReceiverNotReady(0),
            Syndrome::Nak(Nak::Sequence),
            Syndrome::Nak(Nak::RemoteAccess),
        ] {
            let mut headers = peer.headers(Kind::Acknowledge, Part::Only, at);
            headers.aeth = Some(uct_ib_soft::engine::wire::Aeth { syndrome, msn: 0 });
            peer.inject(&headers, &[]);
            headers.kind = Kind::AtomicAcknowledge;
            headers.original = Some(7);
            peer.inject(&headers, &[]);
            let mut headers = peer.headers(Kind::ReadResponse, Part::Only, at);
            headers.aeth = Some(uct_ib_soft::engine::wire::Aeth { syndrome, msn: 0 });
            peer.inject(&headers, &[1; 16]);
        }
    }
    assert_eq!(peer.pair.state(1), QpState::ReadyToSend);
    assert_eq!(peer.pair.poll(1), None);
    assert_eq!(peer.answers(), []);
}

#[test]
fn a_message_that_was_begun_is_flushed_with_the_others() {
    let mut peer = Peer::new(&Setup::default());
    peer.pair.receive(1, 1, 0, 1024);
    peer.pair.receive(1, 2, 0, 1024);
    let headers = peer.headers(Kind::Send, Part::First, psn(0));
    peer.inject(&headers, &[1; MTU as usize]);
    peer.write(psn(1));
    assert_eq!(peer.pair.state(1), QpState::Error);
    let ended = [(); 3].map(|()| peer.pair.poll(1).map(|ended| (ended.wr_id, ended.status)));
    assert_eq!(ended, [Some((1, Status::Flushed)), Some((2, Status::Flushed)), None]);
}

#[test]
fn packets_of_another_service_are_dropped() {
    let mut peer = Peer::new(&Setup { kind: QpKind::Ud, ..Setup::default() });
    (1..=2).for_each(|wr_id| peer.pair.receive(1, wr_id, 0, 100));
    peer.send(psn(0));
    peer.write(psn(0));
    assert_eq!((peer.answers(), peer.pair.poll(1)), (vec![], None));
    let mut peer = Peer::new(&Setup::default());
    peer.pair.receive(1, 1, 0, 100);
    let deth = Some(Deth { qkey: 0x1111, source_qp: 77 });
    let headers = Headers { deth, ..peer.headers(Kind::Datagram, Part::Only, psn(0)) };
    // The key that it has until it gets another, too.
    for qkey in [0x1111, 0] {
        let deth = Some(Deth { qkey, source_qp: 77 });
        peer.inject(&Headers { deth, ..headers }, &[1; 8]);
        assert_eq!((peer.answers(), peer.pair.poll(1)), (vec![], None));
    }
    peer.send(psn(0));
    assert_eq!(peer.pair.poll(1).map(|received| received.wr_id), Some(1));
}

#[test]
fn a_payload_that_the_device_cannot_carry_is_dropped_and_one_of_its_size_is_not() {
    let mut peer = Peer::new(&Setup { kind: QpKind::Ud, ..Setup::default() });
    peer.pair.receive(1, 1, 0, 8192);
    let deth = Some(Deth { qkey: 0x1111, source_qp: 77 });
    let headers = Headers { deth, ..peer.headers(Kind::Datagram, Part::Only, psn(0)) };
    peer.inject(&headers, &[1; 4097]);
    assert_eq!(peer.pair.poll(1), None);
    peer.inject(&headers, &[1; 4096]);
    assert_eq!(peer.pair.poll(1).map(|received| received.length), Some(40 + 4096));
}

#[test]
fn a_refusal_fails_the_queue_pair_with_the_event_of_its_kind_alone() {
    use uct_ib_soft::engine::Event;
    for (length, event) in [(8, Some(Event::QpAccessError as fn(u32) -> Event)), (0, None)] {
        let mut peer = Peer::new(&Setup::default());
        let mut headers = peer.headers(Kind::Write, Part::Only, psn(0));
        headers.reth = peer.reth(0, length);
        // No bytes need no key.
        headers.reth.as_mut().expect("just set").rkey ^= 1;
        peer.inject(&headers, &vec![1; length]);
        let qp = peer.pair.sides[1].qp;
        let syndrome = event.map_or(Syndrome::Ack, |_| Syndrome::Nak(Nak::RemoteAccess));
        assert_eq!(peer.answers(), [Answer::Told(psn(0), syndrome)]);
        assert_eq!(peer.pair.events(1), event.map(|event| event(qp)).into_iter().collect::<Vec<_>>());
    }
}
