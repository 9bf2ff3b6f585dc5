use super::*;
use crate::proto::Time;
use crate::proto::control::Bitmap;
use crate::proto::header::Key;

const ARRIVED: News = News { arrived: true, echoed: false };

/// The response to a PING of that time, with nothing else.
fn echo(pinged_at: u64) -> Ack {
    Ack { delay: 0, duplicates: 0, echo: at(pinged_at).to_wire(), pace: 0, bitmap: Bitmap::default() }
}

fn at(micros: u64) -> Stamp {
    Time::from_nanos(micros * 1024).stamp()
}

fn sender(window: u32) -> Sender<u32> {
    let settings = Settings { window_initial: window, window_max: window.max(4), ..Settings::default() };
    let mut sender = Sender::new(&settings);
    assert!(!sender.may_send(), "a sender begins closed");
    sender.open(invitation(256), &settings);
    sender
}

/// What a peer permits that lets so many packets be outstanding at first, and 256 at most.
fn invitation(first_window: u16) -> Invitation {
    Invitation { first_window, key: Key::from_parts(1, 2), window: 256, first_psn: Psn(u32::MAX - 2) }
}

fn send(sender: &mut Sender<u32>, now: u64, count: u32) {
    for _ in 0..count {
        assert!(sender.may_send());
        let name = sender.next().ahead_of(Psn(u32::MAX - 2));
        sender.sent(at(now), 0, 0, Some(name));
    }
}

fn psn(number: u32) -> Psn {
    Psn(u32::MAX - 2).plus(number)
}

fn gaps(arrived: &[u32]) -> Ack {
    let mut bitmap = Bitmap::default();
    arrived.iter().for_each(|bit| bitmap.set(*bit));
    Ack { delay: 0, duplicates: 0, echo: 0, pace: 0, bitmap }
}

fn resent(sender: &mut Sender<u32>, now: u64) -> Vec<u32> {
    std::iter::from_fn(|| sender.resend(at(now)).map(|resend| resend.psn.ahead_of(psn(0)))).collect()
}

#[test]
fn the_window_holds_the_sender_back_and_an_acknowledgement_lets_it_go_on() {
    let mut sender = sender(8);
    send(&mut sender, 0, 8);
    assert!(!sender.may_send());
    assert_eq!(sender.on_ack(at(10), psn(5), None), Ok(5));
    let released: Vec<_> = std::iter::from_fn(|| sender.pop_acknowledged().flatten()).collect();
    assert_eq!(released, [0, 1, 2, 3, 4]);
    send(&mut sender, 11, 5);
    assert!(!sender.may_send());
    assert_eq!(sender.on_ack(at(20), psn(3), None), Ok(0), "a late acknowledgement is nothing new");
    assert_eq!(sender.on_ack(at(20), psn(14), None), Err(Bogus));
    assert_eq!(sender.on_ack(at(20), psn(13), None), Ok(8));
    assert_eq!(sender.outstanding(), 0);
}

#[test]
fn an_acknowledgement_is_requested_at_first_and_before_the_window_is_full() {
    let mut sender = sender(32);
    assert!(sender.should_request_ack());
    let mut requests = Vec::new();
    for name in 0..32 {
        if sender.should_request_ack() {
            requests.push(name);
        }
        send(&mut sender, 0, 1);
    }
    assert!(!sender.may_send());
    assert_eq!(requests, [0, 9, 18, 27], "a quarter of the window after one another");
    sender.on_ack(at(1), psn(32), None).expect("in range");
    for turn in 0..100u32 {
        assert!(!sender.should_request_ack(), "ping-pong requests nothing");
        send(&mut sender, 2, 1);
        sender.on_ack(at(3), psn(33 + turn), None).expect("in range");
    }
}

#[test]
fn three_later_arrivals_make_a_packet_lost_and_it_alone_is_sent_again() {
    let mut sender = sender(32);
    send(&mut sender, 0, 10);
    sender.on_ack(at(20), psn(2), Some(0)).expect("in range");
    assert_eq!(sender.on_gaps(at(20), psn(2), &gaps(&[0, 1])), Ok(ARRIVED));
    assert!(sender.detect_losses(at(20)).is_some(), "two arrivals may be reordering: look again");
    assert_eq!(sender.on_gaps(at(21), psn(2), &gaps(&[0, 1, 2])), Ok(ARRIVED));
    sender.detect_losses(at(21));
    assert_eq!(resent(&mut sender, 22), [2]);
    assert_eq!(sender.on_ack(at(40), psn(10), None), Ok(8));
    assert!(!sender.is_disturbed());
}

#[test]
fn an_arrival_behind_a_gap_and_a_silence_each_ask_for_a_look_at_what_is_outstanding() {
    let mut sender = sender(32);
    send(&mut sender, 0, 4);
    assert!(!sender.is_disturbed());
    assert_eq!(sender.on_gaps(at(20), psn(0), &gaps(&[0])), Ok(ARRIVED));
    assert!(sender.is_disturbed(), "one arrived, and none is lost yet");
    sender.on_ack(at(30), psn(4), None).expect("in range");
    assert!(!sender.is_disturbed());
    send(&mut sender, 40, 2);
    sender.on_silence();
    assert!(sender.is_disturbed(), "none arrived, and none is lost yet");
}

#[test]
fn a_packet_lost_twice_is_sent_a_third_time_without_a_timeout() {
    let mut sender = sender(32);
    send(&mut sender, 0, 5);
    sender.on_gaps(at(20), psn(0), &gaps(&[0, 1, 2, 3])).expect("in range");
    sender.detect_losses(at(20));
    assert_eq!(resent(&mut sender, 20), [0]);
    send(&mut sender, 25, 4);
    sender.on_gaps(at(45), psn(0), &gaps(&[0, 1, 2, 3, 4, 5, 6, 7])).expect("in range");
    sender.detect_losses(at(45));
    assert_eq!(resent(&mut sender, 46), [0]);
}

#[test]
fn a_network_that_reorders_is_given_time() {
    let mut sender = sender(32);
    send(&mut sender, 0, 4);
    sender.on_ack(at(100), psn(4), Some(0)).expect("in range");
    send(&mut sender, 100, 1);
    send(&mut sender, 110, 3);
    // The packet arrives after those behind it, once: from then on three arrivals are no proof.
    sender.on_gaps(at(210), psn(4), &gaps(&[0, 1])).expect("in range");
    assert!(sender.detect_losses(at(210)).is_some());
    sender.on_ack(at(215), psn(8), Some(0)).expect("in range");
    send(&mut sender, 300, 5);
    sender.on_gaps(at(350), psn(8), &gaps(&[0, 1, 2, 3])).expect("in range");
    let again = sender.detect_losses(at(350)).expect("a time to look again");
    assert!(resent(&mut sender, 350).is_empty());
    assert!(sender.detect_losses(at(350 + again / 1024 + 1)).is_none());
    assert_eq!(resent(&mut sender, 400), [8]);
}

#[test]
fn the_answer_to_a_ping_shows_what_is_lost_and_the_window_limits_what_is_sent_again() {
    let mut sender = sender(32);
    send(&mut sender, 0, 20);
    sender.on_gaps(at(5), psn(0), &gaps(&[4])).expect("in range");
    sender.on_silence();
    assert!(resent(&mut sender, 10_000).is_empty(), "silence is no loss");
    let contents = Ack { echo: at(10_000).to_wire(), ..gaps(&[4]) };
    assert_eq!(sender.on_gaps(at(10_020), psn(0), &contents), Ok(News { arrived: false, echoed: true }));
    assert_eq!(sender.detect_losses(at(10_020)), None);
    assert_eq!(resent(&mut sender, 10_020), [0, 1, 2, 3]);
    sender.on_ack(at(10_040), psn(2), None).expect("in range");
    assert_eq!(resent(&mut sender, 10_040), [4, 6, 7, 8], "2 of 4 arrived, the window grew by 2; 5 is there");
}

#[test]
fn a_slow_network_is_learned_from_a_ping_and_nothing_is_sent_again() {
    let mut sender = sender(32);
    send(&mut sender, 0, 1);
    sender.on_ack(at(20), psn(1), Some(0)).expect("in range");
    send(&mut sender, 100, 20);
    // The PING went out behind the packets, and all were in flight for long.
    sender.on_ack(at(500_000), psn(21), Some(0)).expect("in range");
    sender.on_gaps(at(500_001), psn(21), &echo(10_000)).expect("in range");
    assert_eq!(sender.detect_losses(at(500_001)), None);
    assert!(resent(&mut sender, 500_001).is_empty());
    assert!(sender.round_trip.timeout(0) > Some(100_000_000), "{:?}", sender.round_trip);
}

#[test]
fn the_late_arrival_of_a_first_copy_is_not_taken_for_that_of_the_second() {
    // What was sent before the second copy is still in flight when the first arrives, and lost when the second does.
    for (arrival, lost) in [(3010, &[][..]), (4000, &[5, 6, 7, 8, 9, 10])] {
        let mut sender = sender(32);
        send(&mut sender, 0, 1);
        sender.on_ack(at(1000), psn(1), Some(0)).expect("in range");
        send(&mut sender, 2000, 10);
        sender.on_gaps(at(3000), psn(1), &gaps(&[0, 1, 2])).expect("in range");
        sender.detect_losses(at(3000));
        assert_eq!(resent(&mut sender, 3000), [1]);
        sender.on_ack(at(arrival), psn(2), None).expect("in range");
        sender.detect_losses(at(arrival));
        assert_eq!(resent(&mut sender, arrival), lost);
    }
}

#[test]
fn gaps_that_speak_of_packets_never_sent_are_bogus() {
    let mut sender = sender(32);
    send(&mut sender, 0, 3);
    assert_eq!(sender.on_gaps(at(1), psn(0), &gaps(&[2])), Err(Bogus));
    assert_eq!(sender.on_gaps(at(1), psn(0), &gaps(&[1])), Ok(ARRIVED));
    assert_eq!(sender.on_gaps(at(1), psn(0), &gaps(&[1])), Ok(News::default()), "the same is no news");
}

#[test]
fn what_is_abandoned_comes_back_once() {
    let mut sender = sender(8);
    send(&mut sender, 0, 6);
    sender.on_ack(at(1), psn(2), None).expect("in range");
    assert_eq!(sender.pop_acknowledged(), Some(Some(0)));
    let rest: Vec<_> = std::iter::from_fn(|| sender.abandon().flatten()).collect();
    assert_eq!(rest, [1, 2, 3, 4, 5]);
    assert!(!sender.may_send());
    assert_eq!(sender.outstanding(), 0);
}

#[test]
fn the_acknowledgement_of_a_packet_sent_twice_is_no_sample_of_the_round_trip() {
    let mut sender = sender(32);
    send(&mut sender, 0, 1);
    sender.on_ack(at(50), psn(1), Some(0)).expect("in range");
    send(&mut sender, 100, 1);
    sender.on_gaps(at(200), psn(1), &echo(150)).expect("in range");
    sender.detect_losses(at(200));
    assert_eq!(resent(&mut sender, 200), [1]);
    let before = sender.round_trip.smoothed();
    sender.on_ack(at(20_001), psn(2), Some(0)).expect("in range");
    assert_eq!(sender.round_trip.smoothed(), before);
}

#[test]
fn duplicates_after_sending_again_show_that_the_network_reorders() {
    let mut sender = sender(32);
    send(&mut sender, 0, 4);
    sender.on_gaps(at(10_000), psn(0), &echo(9_000)).expect("in range");
    sender.detect_losses(at(10_000));
    assert_eq!(resent(&mut sender, 10_000).len(), 4);
    let contents = Ack { delay: 0, duplicates: 4, echo: 0, pace: 0, bitmap: Bitmap::default() };
    assert_eq!(sender.on_gaps(at(10_010), psn(0), &contents), Ok(News::default()));
    assert!(sender.reordering.seen, "what was sent again need not have been");
}

/// A sender whose peer requests pauses of so many round trips of 50 µs.
fn paced(pace: u32) -> Sender<u32> {
    let settings = Settings::default();
    let mut sender = Sender::new(&settings);
    sender.open(invitation(1), &settings);
    send(&mut sender, 0, 1);
    assert!(!sender.may_send(), "the peer permits one packet");
    sender.set_pace(pace);
    assert!(!sender.should_pause(), "it is outstanding");
    assert_eq!(sender.on_ack(at(50), psn(1), Some(0)), Ok(1));
    sender
}

#[test]
fn a_sender_pauses_for_as_many_round_trips_as_the_peer_asks_for() {
    assert!(!paced(0).should_pause());
    let mut sender = paced(3);
    assert!(sender.should_pause() && sender.may_send(), "a pause begins with a call");
    assert_eq!(sender.pause(), 3 * 50 * 1024);
    assert!(!sender.may_send());
    assert!(sender.resume() && sender.may_send());
    assert!(!sender.resume(), "once");
}

#[test]
fn at_the_peers_pace_a_packet_without_an_acknowledgement_counts_as_lost() {
    let mut sender = paced(0);
    send(&mut sender, 100, 1);
    assert!(!sender.presume_lost(), "the peer has room");
    let mut sender = paced(3);
    assert!(!sender.presume_lost(), "nothing is outstanding");
    send(&mut sender, 100, 1);
    assert!(sender.presume_lost() && sender.presume_lost());
    assert_eq!(resent(&mut sender, 200), [1]);
    assert_eq!(sender.on_ack(at(250), psn(2), None), Ok(1));
    assert!(!sender.is_disturbed());
}
