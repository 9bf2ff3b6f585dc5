//! A cable that is pulled: for a moment it is nothing, for long it is the end of the endpoints.

use std::time::{Duration, Instant};

use crate::cable::{Cable, cable, run, succeeds};
use crate::support::{Link, PATIENCE, Side, connect, context, pair, until};

#[test]
fn a_short_interruption_harms_nothing() {
    let Some((_turn, names)) = pair() else { return };
    let context = context(&[("peer_timeout", "5s"), ("timeout", "30ms")]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[1]));
    let (near, far) = connect(&left, &right);
    let _cable = Cable;
    near.send(&left.worker).expect("a send");
    until(&left, &right, "a message", || right.received.get() == 1);
    cable(false);
    // No more than a peer may send without hearing anything.
    for _ in 0..5 {
        near.send(&left.worker).expect("a send");
    }
    left.worker.progress_until(Duration::from_millis(700), || right.worker.progress() > 1000);
    assert_eq!(right.received.get(), 1, "nothing crosses without a cable");
    cable(true);
    until(&left, &right, "what was sent meanwhile", || right.received.get() == 6);
    far.send(&right.worker).expect("a send");
    until(&left, &right, "a message back", || left.received.get() == 1);
    assert!(near.failures.borrow().is_empty() && far.failures.borrow().is_empty());
}

#[test]
fn a_long_interruption_fails_each_endpoint_once_and_new_ones_work_afterwards() {
    let Some((_turn, names)) = pair() else { return };
    let context = context(&[("peer_timeout", "1s"), ("timeout", "30ms")]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[1]));
    let links: Vec<_> = (0..4).map(|_| connect(&left, &right)).collect();
    let _cable = Cable;
    for (near, _) in &links {
        near.send(&left.worker).expect("a send");
    }
    until(&left, &right, "the messages", || right.received.get() == 4);
    // The time counts from the last acknowledgement.
    let start = Instant::now();
    cable(false);
    for (near, _) in &links {
        near.send(&left.worker).expect("a send");
    }
    until(&left, &right, "the failures", || links.iter().all(|(near, _)| !near.failures.borrow().is_empty()));
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(900) && elapsed < PATIENCE / 2, "{elapsed:?}");
    cable(true);
    left.worker.progress_until(Duration::from_millis(300), || false);
    for (near, _) in &links {
        assert_eq!(near.failures.borrow().len(), 1, "told once");
        assert!(near.failures.borrow()[0].contains("acknowledged nothing"), "{:?}", near.failures.borrow());
    }
    let (near, _far) = connect(&left, &right);
    let before = right.received.get();
    near.send(&left.worker).expect("a send");
    until(&left, &right, "a message of a new endpoint", || right.received.get() > before);
}

/// The near end loses all that it sends and has no neighbours, until this is dropped.
struct Deaf;

impl Deaf {
    fn new() -> Deaf {
        run("tc qdisc replace dev eth0 root netem loss 100%");
        run("ip neigh flush dev eth0");
        Deaf
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        let done = succeeds("tc qdisc replace dev eth0 root pfifo");
        assert!(done || std::thread::panicking(), "the cable stays broken");
    }
}

#[test]
fn an_address_that_is_not_resolved_is_tried_again_and_named_in_the_error() {
    let Some((_turn, names)) = pair() else { return };
    let context = context(&[]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[1]));
    let unheard = (0..5).find_map(|_| {
        let (near, far) = (Link::new(&left), Link::new(&right));
        let _deaf = Deaf::new();
        let start = Instant::now();
        // The far end may resolve the near one at this moment, and so become known to it.
        near.connect(&right, &far).err().map(|reason| (reason, start.elapsed()))
    });
    let (reason, took) = unheard.expect("nobody answers");
    assert!(reason.contains("10.7.0.2") && reason.contains("3 times"), "{reason}");
    assert!(took < PATIENCE, "{took:?}");

    run("ip neigh flush dev eth0");
    let deaf = Deaf::new();
    let (near, far) = (Link::new(&left), Link::new(&right));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(600));
            drop(deaf);
        });
        near.connect(&right, &far).expect("heard at the second time");
    });
    far.connect(&left, &near).expect("the way back");
    near.send(&left.worker).expect("a send");
    until(&left, &right, "a message", || right.received.get() == 1);
}
