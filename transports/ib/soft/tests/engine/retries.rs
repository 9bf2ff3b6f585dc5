//! What a requester counts and what it waits for: packets in flight, retries, timers, requests ahead.

use uct_ib_soft::engine::{Completion, Personality, SendData, SendKind, Status};

use crate::net::{MEMORY, MTU, Pair, SECOND, Setup, request};

/// An answer is missed after so long.
const TIMEOUT: u64 = 4096 << 8;

fn write(pair: &mut Pair, wr_id: u64, length: usize) {
    let data = SendData::Pieces(pair.sides[0].pieces(0, length));
    let kind = SendKind::Write(pair.sides[1].target(0));
    pair.post(0, request(wr_id, kind, data)).expect("posted");
}

fn send(pair: &mut Pair, wr_id: u64) {
    pair.post(0, request(wr_id, SendKind::Send, SendData::Inline(vec![1; 8]))).expect("posted");
}

fn ended(completion: Completion) -> (u64, Status) {
    (completion.wr_id, completion.status)
}

#[test]
fn packets_in_flight_have_a_limit() {
    let mut pair = Setup::default().pair();
    pair.net.is_cut = true;
    write(&mut pair, 1, 600 * MTU as usize);
    write(&mut pair, 2, 1);
    pair.idle(1);
    assert_eq!(pair.net.sent, 128);
    // The same again after a timeout, and nothing else.
    pair.idle(TIMEOUT);
    assert_eq!(pair.net.sent, 256);
}

#[test]
fn answers_of_a_read_in_flight_have_a_limit() {
    let mut pair = Setup::default().pair();
    let data = SendData::Pieces(pair.sides[0].pieces(0, 600 * MTU as usize));
    let kind = SendKind::Read(pair.sides[1].target(0));
    pair.post(0, request(1, kind, data)).expect("posted");
    // One way: one request has left, and the part that it asks for.
    pair.idle(1_500);
    assert_eq!(pair.net.sent, 1 + 128);
    assert_eq!(ended(pair.wait(0)), (1, Status::Success));
    assert_eq!(pair.net.sent, 5 + 600, "a request for each 128 packets");
}

#[test]
fn progress_gives_all_retries_back() {
    let mut pair = Setup::default().pair();
    for round in 0..4 {
        pair.net.is_cut = true;
        write(&mut pair, round, 8);
        pair.idle(5 * TIMEOUT + 1);
        pair.net.is_cut = false;
        assert_eq!(ended(pair.wait(0)), (round, Status::Success));
    }
}

#[test]
fn a_peer_without_a_processor_is_waited_for_longer_each_time() {
    let mut pair = Setup::default().pair();
    pair.net.is_cut = true;
    write(&mut pair, 1, 8);
    // Once after the timeout, after twice as long, and from then on after four times as long, as the specification permits at most.
    let due = [1, 3, 7, 11, 15, 19, 23].map(|timeouts| timeouts * TIMEOUT);
    let mut now = 0;
    for (index, time) in due.into_iter().enumerate() {
        pair.idle(time - 1 - now);
        assert_eq!(pair.net.sent, 1 + index as u64, "before {time}");
        pair.idle(2);
        assert_eq!(pair.net.sent, 2 + index as u64, "after {time}");
        now = time + 1;
    }
    pair.idle(27 * TIMEOUT - 2 - now);
    assert_eq!(pair.poll(0), None);
    pair.net.is_cut = false;
    pair.idle(4);
    assert_eq!(ended(pair.wait(0)), (1, Status::RetryExceeded));
}

#[test]
fn progress_gives_all_retries_without_a_buffer_back() {
    let mut setup = Setup::default();
    setup.attributes.rnr_retry = 2;
    // 1.28 ms.
    setup.attributes.min_rnr_timer = 14;
    let mut pair = setup.pair();
    for round in 0..4 {
        send(&mut pair, round);
        pair.idle(2_000_000);
        pair.receive(1, round, 0, 8);
        assert_eq!(ended(pair.wait(0)), (round, Status::Success));
    }
}

#[test]
fn the_timer_begins_anew_with_each_progress() {
    let mut setup = Setup::default();
    // 8 us, while the whole takes longer; each 128 packets are acknowledged after two.
    setup.attributes.timeout = 1;
    let mut pair = setup.pair();
    let begin = pair.net.now();
    write(&mut pair, 1, MEMORY);
    assert_eq!(ended(pair.wait(0)), (1, Status::Success));
    assert!(pair.net.now() - begin > 8_192);
    let packets = (MEMORY / MTU as usize) as u64;
    assert_eq!(pair.net.sent, packets + packets / 128, "nothing is sent again");
    pair.idle(SECOND);
    assert_eq!(pair.net.sent, packets + packets / 128, "no timer is left");
}

#[test]
fn no_more_is_under_way_without_an_answer_than_a_window() {
    for (mtu, window) in [(1024, 128), (2048, 64), (4096, 32)] {
        let mut setup = Setup::default();
        setup.attributes.mtu = mtu;
        let mut pair = setup.pair();
        pair.net.is_cut = true;
        let data = SendData::Pieces(pair.sides[0].pieces(0, MEMORY));
        let write = SendKind::Write(pair.sides[1].target(0));
        pair.post(0, request(1, write, data)).expect("posted");
        // Less than the first timeout.
        pair.idle(100_000);
        assert_eq!(pair.net.sent, window, "packets of {mtu} bytes");
    }
}

#[test]
fn the_largest_count_of_retries_is_for_ever_where_the_kernels_device_has_it_so() {
    for (personality, retry_count, is_endless) in
        [(Personality::Rxe, 7, true), (Personality::Rxe, 6, false), (Personality::Specification, 7, false)]
    {
        let mut setup = Setup { personality, ..Setup::default() };
        setup.attributes.retry_count = retry_count;
        let mut pair = setup.pair();
        pair.net.is_cut = true;
        write(&mut pair, 1, 8);
        pair.idle(100 * TIMEOUT);
        let expected = (!is_endless).then_some((1, Status::RetryExceeded));
        assert_eq!(pair.poll(0).map(ended), expected, "{personality:?} {retry_count}");
    }
}
