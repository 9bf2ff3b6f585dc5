//! What a peer that breaks the rules takes from the others: processor time of the receiver, and their wake-ups.

mod common;

use std::time::{Duration, Instant};

use common::{LIMIT, open};
use uct_core::IfaceAddress;
use uct_shm::{Heard, Intruder, message};

/// Of a request for a segment, over the socket.
const SEGMENT_REQUEST: u32 = 5;

/// A connection to the interface at `to` that was accepted. `each` is called while nothing comes.
fn intrude(to: &IfaceAddress, mut each: impl FnMut()) -> Intruder {
    let intruder = Intruder::connect(&to.iface, None).expect("a connection");
    assert!(intruder.say(&Intruder::hello(&to.iface, &to.iface, None), &intruder.descriptors()));
    let start = Instant::now();
    loop {
        each();
        match intruder.hear() {
            Heard::Welcome(_) => return intruder,
            Heard::Nothing => assert!(start.elapsed() < LIMIT, "no answer"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_peer_that_asks_without_end_is_answered_a_few_times_at_a_look() {
    let (worker, iface) = open("posix", &["shm.poll_interval=1"]);
    let intruder = intrude(&iface.address().expect("an address"), || {
        worker.progress();
    });
    let mut asked = 0;
    while asked < 1000 && intruder.say(&message(SEGMENT_REQUEST, &[7; 16]), &[]) {
        asked += 1;
    }
    assert!(asked > 64, "the socket has room for {asked} requests only");
    let (mut answered, mut most) = (0, 0);
    let start = Instant::now();
    while answered < asked {
        worker.progress();
        let before = answered;
        while let Heard::Other(_) = intruder.hear() {
            answered += 1;
        }
        most = most.max(answered - before);
        assert!(start.elapsed() < LIMIT, "{answered} of {asked} requests were answered");
    }
    assert!(most <= 16, "{most} answers at one look");
}

#[test]
fn what_is_left_of_a_flood_wakes_a_sleeper_again() {
    let (worker, iface) = open("posix", &[]);
    let intruder = intrude(&iface.address().expect("an address"), || {
        worker.progress();
    });
    let mut asked = 0;
    while asked < 1000 && intruder.say(&message(SEGMENT_REQUEST, &[7; 16]), &[]) {
        asked += 1;
    }
    let mut answered = 0;
    while answered < asked {
        let before = answered;
        let _ = worker.wait(Duration::from_secs(1)).expect("it can sleep");
        while let Heard::Other(_) = intruder.hear() {
            answered += 1;
        }
        assert!(
            (1..=16).contains(&(answered - before)),
            "{before} and then {answered} of {asked} are answered"
        );
    }
}
