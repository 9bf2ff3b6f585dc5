//! Receivers that sleep on their descriptor, and what many peers cost.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::common::alone::is_alone;
use crate::common::{LIMIT, Peer, heard, hex, open, role, say, unhex, until};
use uct_core::{AmId, Error, Iface, IfaceAddress, Worker};

const ID: AmId = AmId::new(9).unwrap();

/// Replies to each message with one, sleeping in between, and reports the processor time.
fn answer(transport: &str) {
    let (worker, iface) = open(transport, &[]);
    let asked = Rc::new(Cell::new(0u64));
    let count = Rc::clone(&asked);
    iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
    say(&hex(&iface.address().expect("an address").pack().expect("it packs")));
    let lines = heard();
    let (address, _) = IfaceAddress::unpack(&unhex(&lines.recv().expect("an address"))).expect("an address");
    let ep = iface.connect(&address).expect("a connection");
    let mut answered = 0;
    let mut sleeps = 0u64;
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        while worker.progress() > 0 {}
        while answered < asked.get() {
            until(&worker, || ep.am_short(ID, answered, &[])).expect("the peer lives");
            answered += 1;
        }
        match worker.wait(Duration::from_secs(10)) {
            Ok(true) => sleeps += 1,
            Ok(false) => say("overslept"),
            Err(error) => panic!("{error}"),
        }
        if let Ok(line) = lines.try_recv() {
            assert_eq!(line, "sleeps");
            say(&sleeps.to_string());
        }
    }
}

#[test]
fn a_sleeping_receiver_misses_no_message() {
    if let Some(role) = role() {
        return answer(&role);
    }
    for transport in ["posix", "sysv"] {
        let (worker, iface) = open(transport, &[]);
        let answers = Rc::new(Cell::new(0u64));
        let count = Rc::clone(&answers);
        iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
        let mut peer = Peer::start(&[], "a_sleeping_receiver_misses_no_message", transport);
        let (address, _) = IfaceAddress::unpack(&unhex(&peer.line())).expect("an address");
        peer.tell(&hex(&iface.address().expect("an address").pack().expect("it packs")));
        let ep = iface.connect(&address).expect("a connection");
        for number in 0..600u64 {
            until(&worker, || ep.am_short(ID, number, &[])).expect("the peer lives");
            // Pauses of many lengths, so that messages come at every moment of falling asleep.
            let pause = Duration::from_nanos((number * 7919) % 60_000);
            let start = Instant::now();
            while start.elapsed() < pause {
                worker.progress();
            }
            if number % 3 == 0 {
                // This side sleeps too.
                let start = Instant::now();
                while answers.get() <= number {
                    assert!(
                        worker.wait(Duration::from_secs(5)).expect("it can sleep"),
                        "overslept at {number}"
                    );
                    while worker.progress() > 0 {}
                    assert!(start.elapsed() < LIMIT);
                }
            }
        }
        assert!(worker.progress_until(LIMIT, || answers.get() == 600), "{} answers", answers.get());
        // The ring of the doorbell for the last reply may still arrive; no other one follows.
        let sleeps_on = || {
            while worker.progress() > 0 {}
            worker.wait(Duration::from_millis(50)) == Ok(false)
        };
        assert!((0..3).any(|_| sleeps_on()), "woken by nothing, again and again");
    }
}

#[test]
fn a_thousand_endpoints_share_one_connection() {
    if !is_alone() {
        return;
    }
    let (worker, iface) = open("posix", &[]);
    let (other_worker, other) = open("posix", &[]);
    let received = Rc::new(Cell::new(0u64));
    let count = Rc::clone(&received);
    other.set_am_handler(ID, move |_| count.set(count.get() + 1));
    let address = other.address().expect("an address");
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let eps: Vec<_> = (0..1000).map(|_| iface.connect(&address).expect("a connection")).collect();
    other_worker.progress_until(Duration::from_millis(20), || false);
    // Other tests of this process open some at the same time.
    assert!(descriptors() <= before + 100, "{} descriptors for 1000 endpoints", descriptors() - before);
    for ep in &eps {
        let start = Instant::now();
        while ep.am_short(ID, 0, &[]) == Err(Error::NO_RESOURCE) {
            other_worker.progress();
            worker.progress();
            assert!(start.elapsed() < LIMIT);
        }
    }
    assert!(other_worker.progress_until(LIMIT, || received.get() == 1000), "{} arrived", received.get());
}

#[test]
fn many_interfaces_send_to_one_and_quiet_ones_are_not_polled() {
    let (hub_worker, hub) = open("posix", &[]);
    let sum = Rc::new(Cell::new(0u64));
    let count = Rc::clone(&sum);
    hub.set_am_handler(ID, move |message| {
        let mut header = [0; 8];
        header.copy_from_slice(&message[..8]);
        count.set(count.get() + u64::from_ne_bytes(header));
    });
    let address = hub.address().expect("an address");
    let peers: Vec<_> = (0..40)
        .map(|_| {
            let (worker, iface) = open("posix", &[]);
            let ep = iface.connect(&address).expect("a connection");
            (worker, iface, ep)
        })
        .collect();
    let mut expected = 0;
    let mut send = |number: usize, value: u64| {
        let (worker, _, ep) = &peers[number];
        let start = Instant::now();
        while ep.am_short(ID, value, &[]) == Err(Error::NO_RESOURCE) {
            hub_worker.progress();
            worker.progress();
            assert!(start.elapsed() < LIMIT);
        }
        expected += value;
        expected
    };
    for round in 0..200u64 {
        for number in 0..peers.len() {
            send(number, round + number as u64);
        }
    }
    let expected_now = send(0, 1);
    assert!(
        hub_worker.progress_until(LIMIT, || sum.get() == expected_now),
        "{} of {expected_now}",
        sum.get()
    );
    // After a while of quiet only the ring that was active last is polled.
    let polled = || {
        let counters = hub.transport_counters();
        counters.iter().find(|(name, _)| name == "rings_polled").expect("a counter").1
    };
    assert!(hub_worker.progress_until(LIMIT, || polled() == 1), "{} rings are polled", polled());
    // Messages on the others arrive all the same.
    for round in 0..20 {
        for number in (0..peers.len()).rev().step_by(7) {
            let expected = send(number, 1000 + round);
            assert!(
                hub_worker.progress_until(LIMIT, || sum.get() == expected),
                "a ring of the doorbell was missed"
            );
        }
    }
}

#[test]
fn a_doorbell_leads_to_a_message_on_an_idle_ring_at_once() {
    /// So many that checking one after the other takes long.
    const PEERS: usize = 96;
    /// Of an idle interface.
    const CALLS: usize = 8192;
    /// The doorbell is polled once in 64 calls at least.
    const MOST_CALLS: usize = 200;
    let (worker, iface) = open("posix", &[]);
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
    let address = iface.address().expect("an address");
    let peers: Vec<_> = (0..PEERS).map(|_| open("posix", &[])).collect();
    let connect = |(_, peer): &(Worker, Iface)| peer.connect(&address).expect("an endpoint");
    let endpoints: Vec<_> = peers.iter().map(connect).collect();
    let calls_to = |wanted: usize| {
        let mut calls = 0;
        let start = Instant::now();
        while received.get() < wanted {
            worker.progress();
            calls += 1;
            assert!(start.elapsed() < LIMIT, "{} of {wanted} came", received.get());
        }
        calls
    };
    for (ep, (sender, _)) in endpoints.iter().zip(&peers) {
        let send = || {
            worker.progress();
            ep.am_short(ID, 0, b"")
        };
        until(sender, send).expect("it is sent");
    }
    calls_to(PEERS);
    for (number, ep) in endpoints.iter().enumerate().step_by(7) {
        for _ in 0..CALLS {
            worker.progress();
        }
        let before = received.get();
        ep.am_short(ID, 0, b"").expect("it is sent");
        let calls = calls_to(before + 1);
        assert!(calls <= MOST_CALLS, "{calls} calls to the message of peer {number}");
    }
}
