//! Answers of a peer to requests of the device under attack: old ones, of the future, out of order, wrong ones.

use uct_ib_soft::engine::wire::{Aeth, Headers, Kind, Nak, Part, Syndrome};
use uct_ib_soft::engine::{Atomic, Opcode, Psn, QpState, SendData, SendKind, Status};

use crate::net::{MTU, Setup, request};
use crate::peer::{Peer, psn};

/// Side 1 begins one number behind side 0.
fn asked(number: u32) -> Psn {
    psn(1 + number)
}

fn post(peer: &mut Peer, wr_id: u64, kind: fn(uct_ib_soft::engine::Target) -> SendKind, packets: usize) {
    let target = peer.pair.sides[0].target(0);
    let data = SendData::Pieces(peer.pair.sides[1].pieces(0, packets * MTU as usize));
    peer.pair.post(1, request(wr_id, kind(target), data)).expect("posted");
}

fn tell(peer: &mut Peer, psn: Psn, syndrome: Syndrome) {
    let headers = peer.headers(Kind::Acknowledge, Part::Only, psn);
    peer.inject(&Headers { aeth: Some(Aeth { syndrome, msn: 0 }), ..headers }, &[]);
}

fn data(peer: &mut Peer, psn: Psn, part: Part, length: usize) {
    let headers = peer.headers(Kind::ReadResponse, part, psn);
    let aeth = (part != Part::Middle).then_some(Aeth { syndrome: Syndrome::Ack, msn: 0 });
    peer.inject(&Headers { aeth, ..headers }, &vec![psn.get() as u8; length]);
}

#[test]
fn refusals_of_what_was_acknowledged_change_nothing() {
    let mut peer = Peer::new(&Setup::default());
    post(&mut peer, 1, SendKind::Write, 1);
    post(&mut peer, 2, SendKind::Write, 1);
    assert_eq!(peer.heads().len(), 2);
    tell(&mut peer, asked(0), Syndrome::Ack);
    assert_eq!(peer.pair.poll(1).map(|ended| ended.wr_id), Some(1));
    for syndrome in [
        Syndrome::Nak(Nak::Sequence),
        Syndrome::ReceiverNotReady(0),
        Syndrome::Nak(Nak::RemoteAccess),
        Syndrome::Nak(Nak::InvalidRequest),
    ] {
        (0..20).for_each(|_| tell(&mut peer, asked(0), syndrome));
        assert_eq!(peer.heads(), [], "{syndrome:?}");
    }
    post(&mut peer, 3, SendKind::Write, 1);
    assert_eq!(peer.heads().len(), 1, "it does not wait either");
    tell(&mut peer, asked(2), Syndrome::Ack);
    assert_eq!([(); 2].map(|()| peer.pair.poll(1).map(|ended| ended.wr_id)), [Some(2), Some(3)]);
}

#[test]
fn a_peer_without_a_buffer_may_refuse_what_is_behind_as_well_for_as_long_as_it_has_none() {
    let mut peer = Peer::new(&Setup::default());
    post(&mut peer, 1, SendKind::Write, 1);
    post(&mut peer, 2, SendKind::Write, 1);
    assert_eq!(peer.heads().len(), 2);
    let mut now = peer.pair.net.now();
    // More rounds than there are retries: the refusal comes while the device waits, and when it has sent again.
    for round in 0..20 {
        tell(&mut peer, asked(0), Syndrome::ReceiverNotReady(1));
        tell(&mut peer, asked(0), Syndrome::Nak(Nak::Sequence));
        assert_eq!(peer.heads(), [], "it waits, round {round}");
        now += 20_000;
        let device = peer.pair.net.device(1);
        while device.run(now, 1 << 10) {}
        assert_eq!(std::iter::from_fn(|| device.next_outgoing()).count(), 2, "round {round}");
        tell(&mut peer, asked(0), Syndrome::Nak(Nak::Sequence));
    }
    tell(&mut peer, asked(1), Syndrome::Ack);
    let ended = [(); 2].map(|()| peer.pair.poll(1).map(|ended| (ended.wr_id, ended.status)));
    assert_eq!(ended, [Some((1, Status::Success)), Some((2, Status::Success))]);
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_ends_nothing() {
    let mut peer = Peer::new(&Setup::default());
    post(&mut peer, 1, SendKind::Write, 600);
    assert_eq!(peer.heads().len(), 128);
    for number in [128, 599, 600, 1 << 20] {
        tell(&mut peer, asked(number), Syndrome::Ack);
        tell(&mut peer, asked(number), Syndrome::Nak(Nak::RemoteAccess));
        assert_eq!((peer.pair.poll(1), peer.heads().len()), (None, 0), "{number}");
    }
    tell(&mut peer, asked(127), Syndrome::Ack);
    assert_eq!(peer.heads().len(), 128);
}

#[test]
fn a_lost_answer_is_asked_for_once_until_one_arrives() {
    let mut peer = Peer::new(&Setup::default());
    post(&mut peer, 1, SendKind::Read, 4);
    assert_eq!(peer.heads().len(), 1);
    // The first of them is lost.
    data(&mut peer, asked(1), Part::Middle, MTU as usize);
    let again: Vec<_> = peer.heads().iter().map(|headers| (headers.kind, headers.psn)).collect();
    assert_eq!(again, [(Kind::ReadRequest, asked(0))]);
    data(&mut peer, asked(2), Part::Middle, MTU as usize);
    tell(&mut peer, asked(3), Syndrome::Ack);
    assert_eq!(peer.heads(), []);
    // Progress, and another loss.
    data(&mut peer, asked(0), Part::First, MTU as usize);
    data(&mut peer, asked(3), Part::Last, MTU as usize);
    let again: Vec<_> = peer.heads().iter().map(|headers| (headers.psn, headers.reth)).collect();
    assert_eq!(again.len(), 1);
    assert_eq!((again[0].0, again[0].1.map(|reth| reth.length)), (asked(1), Some(3 * MTU)));
    for (number, part) in [(1, Part::First), (2, Part::Middle), (3, Part::Last)] {
        data(&mut peer, asked(number), part, MTU as usize);
    }
    let ended = peer.pair.poll(1).expect("it is complete");
    assert_eq!((ended.status, ended.opcode), (Status::Success, Opcode::Read));
    let memory = &peer.pair.sides[1].memory;
    for number in 0..4 {
        let begin = number as usize * MTU as usize;
        let expected = asked(number).get() as u8;
        assert!(memory[begin..begin + MTU as usize].iter().all(|byte| *byte == expected), "{number}");
    }
}

#[test]
fn the_second_part_of_a_long_read_waits_for_all_of_the_first() {
    let mut peer = Peer::new(&Setup::default());
    post(&mut peer, 1, SendKind::Read, 200);
    assert_eq!(peer.heads().len(), 1);
    for number in 0..128 {
        assert_eq!(peer.heads(), [], "{number}");
        let part = match number {
            0 => Part::First,
            127 => Part::Last,
            _ => Part::Middle,
        };
        data(&mut peer, asked(number), part, MTU as usize);
    }
    let next: Vec<_> = peer.heads().iter().map(|headers| (headers.psn, headers.reth)).collect();
    assert_eq!(next.len(), 1);
    assert_eq!((next[0].0, next[0].1.map(|reth| reth.length)), (asked(128), Some(72 * MTU)));
}

#[test]
fn an_answer_to_what_was_not_asked_for_changes_nothing() {
    let mut peer = Peer::new(&Setup::default());
    // Its second part is asked for behind the first, which is as long as the window.
    post(&mut peer, 1, SendKind::Read, 200);
    assert_eq!(peer.heads().len(), 1);
    for number in [128, 199, 200] {
        data(&mut peer, asked(number), Part::Middle, MTU as usize);
        assert_eq!((peer.pair.poll(1), peer.heads()), (None, vec![]), "{number}");
    }
    assert!(peer.pair.sides[1].memory.iter().all(|byte| *byte == 0));
}

#[test]
fn data_for_a_request_that_reads_nothing_change_nothing() {
    let mut peer = Peer::new(&Setup::default());
    post(&mut peer, 1, SendKind::Write, 2);
    assert_eq!(peer.heads().len(), 2);
    for (number, part) in [(0, Part::First), (1, Part::Last), (0, Part::Only)] {
        data(&mut peer, asked(number), part, MTU as usize);
        let headers = peer.headers(Kind::AtomicAcknowledge, Part::Only, asked(number));
        let aeth = Some(Aeth { syndrome: Syndrome::Ack, msn: 0 });
        peer.inject(&Headers { aeth, original: Some(7), ..headers }, &[]);
        assert_eq!((peer.pair.poll(1), peer.heads()), (None, vec![]), "{number}");
    }
    tell(&mut peer, asked(1), Syndrome::Ack);
    assert_eq!(peer.pair.poll(1).map(|ended| ended.status), Some(Status::Success));
}

#[test]
fn a_refusal_behind_a_read_without_its_data_asks_for_them_first() {
    for nak in [Nak::RemoteAccess, Nak::RemoteOperation, Nak::InvalidRequest] {
        let mut peer = Peer::new(&Setup::default());
        post(&mut peer, 1, SendKind::Read, 1);
        post(&mut peer, 2, SendKind::Write, 1);
        assert_eq!(peer.heads().len(), 2);
        tell(&mut peer, asked(1), Syndrome::Nak(nak));
        let again: Vec<_> = peer.heads().iter().map(|headers| headers.psn).collect();
        assert_eq!((again, peer.pair.poll(1)), (vec![asked(0), asked(1)], None), "{nak:?}");
        data(&mut peer, asked(0), Part::Only, MTU as usize);
        assert_eq!(peer.pair.poll(1).map(|ended| ended.status), Some(Status::Success));
        tell(&mut peer, asked(1), Syndrome::Nak(nak));
        assert_eq!(peer.pair.state(1), QpState::Error, "now it is its turn");
    }
}

#[test]
fn answers_of_a_wrong_kind_or_length_fail_the_request() {
    for (packets, part, length) in
        [(2, Part::First, 255), (2, Part::Only, 512), (1, Part::Only, 255), (1, Part::First, 256)]
    {
        let mut peer = Peer::new(&Setup::default());
        post(&mut peer, 1, SendKind::Read, packets);
        peer.heads();
        data(&mut peer, asked(0), part, length);
        assert_eq!(peer.pair.poll(1).map(|ended| ended.status), Some(Status::BadResponse), "{length}");
        assert_eq!(peer.pair.state(1), QpState::Error);
        assert!(peer.pair.sides[1].memory.iter().all(|byte| *byte == 0));
    }
    let mut peer = Peer::new(&Setup::default());
    post(&mut peer, 1, SendKind::Read, 1);
    peer.heads();
    let headers = peer.headers(Kind::AtomicAcknowledge, Part::Only, asked(0));
    let aeth = Some(Aeth { syndrome: Syndrome::Ack, msn: 0 });
    peer.inject(&Headers { aeth, original: Some(7), ..headers }, &[]);
    assert_eq!(peer.pair.poll(1).map(|ended| ended.status), Some(Status::BadResponse));
}

#[test]
fn each_refusal_has_its_status() {
    for (nak, status) in [
        (Nak::InvalidRequest, Status::RemoteInvalidRequest),
        (Nak::RemoteAccess, Status::RemoteAccess),
        (Nak::RemoteOperation, Status::RemoteOperation),
    ] {
        let mut peer = Peer::new(&Setup::default());
        post(&mut peer, 1, SendKind::Write, 1);
        post(&mut peer, 2, SendKind::Write, 1);
        peer.heads();
        // It acknowledges what is ahead of it.
        tell(&mut peer, asked(1), Syndrome::Nak(nak));
        let ended = [(); 2].map(|()| peer.pair.poll(1).map(|ended| (ended.wr_id, ended.status)));
        assert_eq!(ended, [Some((1, Status::Success)), Some((2, status))]);
    }
}

#[test]
fn data_that_say_that_there_are_none_fail_the_request() {
    for syndrome in [Syndrome::Nak(Nak::RemoteAccess), Syndrome::ReceiverNotReady(1)] {
        let aeth = Some(Aeth { syndrome, msn: 0 });
        let mut peer = Peer::new(&Setup::default());
        post(&mut peer, 1, SendKind::Read, 1);
        peer.heads();
        let headers = peer.headers(Kind::ReadResponse, Part::Only, asked(0));
        peer.inject(&Headers { aeth, ..headers }, &[9; MTU as usize]);
        assert_eq!(peer.pair.poll(1).map(|ended| ended.status), Some(Status::BadResponse), "{syndrome:?}");
        let mut peer = Peer::new(&Setup::default());
        let kind = SendKind::Atomic(peer.pair.sides[0].target(0), Atomic::Add(1));
        let data = SendData::Pieces(peer.pair.sides[1].pieces(0, 8));
        peer.pair.post(1, request(1, kind, data)).expect("posted");
        peer.heads();
        let headers = peer.headers(Kind::AtomicAcknowledge, Part::Only, asked(0));
        peer.inject(&Headers { aeth, original: Some(7), ..headers }, &[]);
        assert_eq!(peer.pair.poll(1).map(|ended| ended.status), Some(Status::BadResponse), "{syndrome:?}");
        assert!(peer.pair.sides[1].memory.iter().all(|byte| *byte == 0));
    }
}
