//! Packets that come twice, at any time.

use uct_ib_soft::engine::wire::{Kind, Part, Syndrome};
use uct_ib_soft::engine::{Access, QpState};

use crate::net::{MTU, Setup};
use crate::peer::{Answer, Peer, psn};

#[test]
fn a_duplicate_does_not_take_an_acknowledgement_back() {
    let mut peer = Peer::new(&Setup::default());
    peer.write(psn(0));
    peer.read(psn(1), 0, 8);
    assert_eq!(peer.answers().len(), 2);
    // The acknowledgement of 2 waits when 0 arrives again, which is acknowledged up to the read.
    peer.write(psn(2));
    peer.write(psn(0));
    assert_eq!(peer.answers(), [Answer::Told(psn(2), Syndrome::Ack)]);
}

#[test]
fn a_duplicate_is_not_acknowledged_beyond_the_read_behind_it() {
    let mut peer = Peer::new(&Setup::default());
    for number in 0..2 {
        peer.write(psn(number));
    }
    peer.read(psn(2), 0, 8);
    peer.write(psn(3));
    assert_eq!(peer.answers().last(), Some(&Answer::Told(psn(3), Syndrome::Ack)));
    // The peer may lack the data of the read, and would take this for its loss.
    peer.write(psn(0));
    assert_eq!(peer.answers(), [Answer::Told(psn(1), Syndrome::Ack)]);
    peer.write(psn(3));
    assert_eq!(peer.answers(), [Answer::Told(psn(3), Syndrome::Ack)]);
}

#[test]
fn a_late_duplicate_of_a_read_whose_memory_has_ended_is_not_answered() {
    let mut peer = Peer::new(&Setup::default());
    peer.read(psn(0), 0, 2 * MTU as usize);
    assert_eq!(peer.answers(), [Answer::Read(psn(0)), Answer::Read(psn(1))]);
    let key = peer.pair.sides[1].key;
    peer.pair.net.device(1).deregister(key).expect("it was registered");
    peer.read(psn(0), 0, 2 * MTU as usize);
    assert_eq!(peer.answers(), []);
    assert_eq!(peer.pair.state(1), QpState::ReadyToSend);
    assert_eq!(peer.pair.events(1), []);
    peer.write(psn(2));
    assert_eq!(peer.answers(), [Answer::Told(psn(2), Syndrome::Ack)]);
}

#[test]
fn a_read_that_is_older_than_half_of_the_numbers_is_forgotten() {
    let mut peer = Peer::new(&Setup::default());
    let length = 1_usize << 30;
    // A page that is only read is nobody's memory.
    let memory = vec![0_u8; length];
    let begin = memory.as_ptr().expose_provenance() as u64;
    let pd = peer.pair.sides[1].pd;
    let device = peer.pair.net.device(1);
    // SAFETY: the memory outlives the device's use of it, which only reads.
    let rkey = unsafe { device.register(pd, begin, length as u64, Access::REMOTE_READ) }.expect("registered");
    peer.add(psn(0));
    assert_eq!(peer.answers(), [Answer::Found(psn(0), 0)]);
    let packets = (length / MTU as usize) as u32;
    for number in 0..3 {
        let first = 1 + number * packets;
        for (psn, skipped) in [(psn(first), 0), (psn(first + packets - 1), length - MTU as usize)] {
            // The second asks for the last packet alone, so that not all of them have to be sent.
            let mut headers = peer.headers(Kind::ReadRequest, Part::Only, psn);
            headers.reth = peer.reth(0, length - skipped);
            let reth = headers.reth.as_mut().expect("just set");
            (reth.address, reth.rkey) = (begin + skipped as u64, rkey);
            peer.inject(&headers, &[]);
        }
        assert_eq!(peer.answers(), [Answer::Read(psn(first + packets - 1))]);
    }
    let next = psn(1 + 3 * packets);
    for _ in 0..2 {
        peer.write(next);
        assert_eq!(peer.answers(), [Answer::Told(next, Syndrome::Ack)]);
    }
}

#[test]
fn a_duplicate_atomic_is_answered_from_the_record_and_counts_once() {
    let mut peer = Peer::new(&Setup::default());
    for number in 0..4 {
        peer.add(psn(number));
        assert_eq!(peer.answers(), [Answer::Found(psn(number), u64::from(number))]);
    }
    for number in [2, 0, 3, 1] {
        peer.add(psn(number));
        assert_eq!(peer.answers(), [Answer::Found(psn(number), u64::from(number))]);
    }
    assert_eq!(peer.pair.sides[1].memory[..8], 4_u64.to_ne_bytes());
}

#[test]
fn a_duplicate_read_asks_for_no_other_memory() {
    let mut peer = Peer::new(&Setup::default());
    peer.read(psn(0), 0, 2 * MTU as usize);
    peer.answers();
    // Elsewhere, more, and beyond its end.
    peer.read(psn(0), 8, 2 * MTU as usize);
    peer.read(psn(0), 0, 2 * MTU as usize + 1);
    peer.read(psn(1), MTU as usize, MTU as usize + 1);
    assert_eq!(peer.answers(), []);
    peer.read(psn(1), MTU as usize, MTU as usize);
    assert_eq!(peer.answers(), [Answer::Read(psn(1))]);
}

#[test]
fn duplicates_of_what_is_around_a_read_are_answered_beside_it() {
    let mut peer = Peer::new(&Setup::default());
    peer.add(psn(0));
    peer.read(psn(1), 0, 2 * MTU as usize);
    peer.add(psn(3));
    assert_eq!(peer.answers().len(), 4);
    // All of them wait at once.
    peer.read(psn(1), 0, 2 * MTU as usize);
    peer.add(psn(0));
    peer.add(psn(3));
    let read = [1, 2].map(|number| Answer::Read(psn(number)));
    assert_eq!(peer.answers(), [read[0], read[1], Answer::Found(psn(0), 0), Answer::Found(psn(3), 1)]);
    // The rest of the read stands for the whole of it.
    peer.read(psn(1), 0, 2 * MTU as usize);
    peer.read(psn(2), MTU as usize, MTU as usize);
    assert_eq!(peer.answers(), [read[1]]);
}

#[test]
fn a_late_duplicate_of_a_read_whose_memory_has_ended_takes_no_other_answer_along() {
    let mut peer = Peer::new(&Setup::default());
    peer.add(psn(0));
    peer.read(psn(1), 8, 2 * MTU as usize);
    assert_eq!(peer.answers().len(), 3);
    let key = peer.pair.sides[1].key;
    peer.pair.net.device(1).deregister(key).expect("it was registered");
    peer.read(psn(1), 8, 2 * MTU as usize);
    peer.add(psn(0));
    peer.write(psn(3));
    assert_eq!(peer.answers(), [Answer::Found(psn(0), 0), Answer::Told(psn(3), Syndrome::Ack)]);
}

#[test]
fn a_write_with_the_number_of_a_read_is_a_duplicate_of_that() {
    let mut peer = Peer::new(&Setup::default());
    peer.read(psn(0), 0, 8);
    peer.read(psn(1), 0, 8);
    assert_eq!(peer.answers().len(), 2);
    // No less is acknowledged than what it is itself, and not the read behind it.
    peer.write(psn(0));
    assert_eq!(peer.answers(), [Answer::Told(psn(0), Syndrome::Ack)]);
    peer.write(psn(1));
    assert_eq!(peer.answers(), [Answer::Told(psn(1), Syndrome::Ack)]);
}
