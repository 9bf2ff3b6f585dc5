//! Progress on and off.

use std::time::{Duration, Instant};

use uct_host::{AmId, Capabilities, Flush, IfaceOptions};

use super::case;
use crate::case::{Case, Needs};
use crate::message::Flavour;
use crate::pair::{LIMIT, Pair, poll_until};
use crate::random::pattern;
use crate::setup::Setup;

const ID: AmId = AmId::new(14).unwrap();

fn progress_off(setup: &Setup) {
    let pair = Pair::with(setup, IfaceOptions { progress: false, ..IfaceOptions::default() });
    if pair.is_loop {
        setup.skip("both ends are one interface");
    }
    let inbox = pair.receiver.inbox(ID);
    pair.sender.iface.progress_enable();
    pair.receiver.iface.progress_enable();
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    let mut random = setup.random();
    let flavour = Flavour::of(&pair.sender)[0];
    let completion = pair.sender.completion();
    let bytes = pattern(1, 40);
    let mut sent = 0;
    for _ in 0..60 {
        // Enabling and disabling twice is as once.
        let enabled = random.below(2) == 0;
        for _ in 0..=random.below(2) {
            if enabled {
                pair.receiver.iface.progress_enable();
            } else {
                pair.receiver.iface.progress_disable();
            }
        }
        let before = inbox.len();
        if flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion).is_ok() {
            sent += 1;
        }
        for _ in 0..50 {
            pair.progress();
        }
        if !enabled {
            assert_eq!(inbox.len(), before, "a message arrived while progress was off");
        }
    }
    pair.receiver.iface.progress_enable();
    pair.until("all messages", || inbox.len() == sent);
}

fn waits_end(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let flavour = Flavour::of(&pair.sender)[0];
    let completion = pair.sender.completion();
    let bytes = pattern(1, 40);
    let mut sent = 0;
    // Each call of progress finds a message.
    let keep_sending = || {
        if flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion).is_ok() {
            sent += 1;
        }
        pair.sender.worker.progress();
        false
    };
    let start = Instant::now();
    assert!(!pair.receiver.worker.progress_until(Duration::from_millis(50), keep_sending));
    let took = start.elapsed();
    assert!(took < LIMIT, "a wait of 50 ms took {took:?}");
    pair.until("all messages", || inbox.len() == sent);
}

fn rests(setup: &Setup) {
    let pair = Pair::new(setup);
    assert!(poll_until(LIMIT, || 0, || pair.progress() == 0), "each call of progress reports events");
}

const MESSAGES: Needs =
    Needs::any(Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY).union(Capabilities::AM_ZCOPY));

pub(super) const CASES: &[Case] = &[
    case("progress may be turned on and off in any order and nothing is lost", MESSAGES, progress_off),
    case("a wait ends in time though messages keep coming", MESSAGES, waits_end),
    case("progress of interfaces with nothing to do reports no events", Needs::NOTHING, rests),
];
