//! The effects of a hostile peer on others: processor time of the receiver, and their wake-ups.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{LIMIT, open, until};
use uct_core::{AmId, Error, IfaceAddress, Worker};
use uct_shm::testing::{Heard, Intruder, Lair, message};

const ID: AmId = AmId::new(9).unwrap();
/// Of a request for operations on remote memory, in the ring.
const REQUEST: u8 = 32;
/// The first byte of a get.
const GET: u8 = 2;
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
fn a_flood_of_requests_from_a_peer_is_served_a_few_at_a_time() {
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

/// A word of the doorbell of the interface that has accepted: how `scribble` comes to it.
fn doorbell_word(word: usize) -> impl FnMut(usize) -> usize {
    // Of doorbell, table and rings of its own and what was handed over: the first of the latter. Near its start.
    let mut choices = [3, 1, word].into_iter();
    move |_| choices.next().expect("three choices")
}

fn sleeps_until(worker: &Worker, received: &Cell<u64>, number: u64) -> bool {
    let start = Instant::now();
    while received.get() < number {
        if start.elapsed() > Duration::from_secs(4) {
            return false;
        }
        if !worker.wait(Duration::from_secs(4)).expect("it can sleep") {
            return false;
        }
        while worker.progress() > 0 {}
    }
    true
}

#[test]
fn a_peer_that_clears_the_doorbell_keeps_no_other_from_waking_its_owner() {
    let (worker, iface) = open("posix", &[]);
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
    let address = iface.address().expect("an address");
    let (is_over, is_in, sends) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let overslept = std::thread::scope(|scope| {
        let hostile = scope.spawn(|| {
            let intruder = intrude(&address, || std::thread::sleep(Duration::from_millis(1)));
            is_in.store(1, Ordering::SeqCst);
            while is_over.load(Ordering::SeqCst) == 0 {
                for word in [16, 0] {
                    intruder.scribble(&mut doorbell_word(word), 0);
                }
            }
        });
        let honest = scope.spawn(|| {
            let (worker, iface) = open("posix", &[]);
            let ep = iface.connect(&address).expect("a connection");
            let mut sent = 0;
            let start = Instant::now();
            while is_over.load(Ordering::SeqCst) == 0 && start.elapsed() < LIMIT {
                if sent < sends.load(Ordering::SeqCst) {
                    // The receiver sleeps by then.
                    std::thread::sleep(Duration::from_millis(20));
                    until(&worker, || ep.am_short(ID, 0, &[])).expect("the peer lives");
                    sent += 1;
                }
                worker.progress();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        sends.store(1, Ordering::SeqCst);
        assert!(worker.progress_until(LIMIT, || received.get() == 1 && is_in.load(Ordering::SeqCst) == 1));
        let mut overslept = None;
        for number in 2..7 {
            sends.store(number, Ordering::SeqCst);
            if !sleeps_until(&worker, &received, number) {
                overslept = Some(number);
                break;
            }
        }
        is_over.store(1, Ordering::SeqCst);
        hostile.join().expect("it ends");
        honest.join().expect("it ends");
        overslept
    });
    assert_eq!(overslept, None, "a message woke nobody");
}

#[test]
fn a_peer_that_takes_no_answers_does_not_keep_its_receiver_awake() {
    let (worker, iface) = open("posix", &[]);
    let intruder = intrude(&iface.address().expect("an address"), || {
        worker.progress();
    });
    // Gets of what is not registered: each gets a response. The ring for the responses has 64 slots.
    for number in 1..=80u32 {
        let mut request = [0; 32];
        request[0] = GET;
        request[4..8].copy_from_slice(&number.to_le_bytes());
        request[24..28].copy_from_slice(&8u32.to_le_bytes());
        let start = Instant::now();
        while !intruder.send(REQUEST, &request) {
            worker.progress();
            assert!(start.elapsed() < LIMIT, "no room for request {number}");
        }
        worker.progress();
    }
    worker.progress_until(Duration::from_millis(50), || false);
    let start = Instant::now();
    let mut looks = 0;
    while start.elapsed() < Duration::from_secs(1) {
        let _ = worker.wait(Duration::from_secs(1)).expect("it can sleep");
        while worker.progress() > 0 {}
        looks += 1;
    }
    let peers = iface.transport_counters().iter().find(|(name, _)| *name == "peers").expect("a counter").1;
    assert_eq!(peers, 1, "the peer was dropped: it is not what this test is about");
    assert!(looks < 2000, "{looks} looks in a second");
}

/// Not when progress looks at it: the caller would take a ring that is full for one that has room again later.
#[test]
fn a_send_over_a_ring_that_the_peer_has_overwritten_says_so_at_once() {
    let (worker, iface) = open("posix", &[]);
    let lair = Lair::open(u64::from(std::process::id()) << 16 | 1, false).expect("a listener");
    let (device, address) = lair.address();
    let to = IfaceAddress { transport: "posix".to_owned(), device, iface: address };
    let failed = Rc::new(Cell::new(None));
    let told = Rc::clone(&failed);
    let ep = iface.connect_with(&to, move |failure| told.set(Some(failure.error))).expect("an endpoint");
    let start = Instant::now();
    let intruder = loop {
        worker.progress();
        if let Some(intruder) = lair.next() {
            break intruder;
        }
        assert!(start.elapsed() < LIMIT, "nobody connects");
    };
    while !matches!(intruder.hear(), Heard::Other(_)) {
        assert!(start.elapsed() < LIMIT, "no hello");
    }
    let sent = (0..100_000).take_while(|_| ep.am_short(ID, 0, &[]).is_ok()).count();
    assert!(sent < 100_000, "the ring is never full");
    assert_eq!(ep.am_short(ID, 0, &[]), Err(Error::NO_RESOURCE), "it is full");
    // Of doorbell, table and rings of its own, and doorbell and rings that came with the hello: the last. Its first word is that in which
    // the receiver reports how far it is.
    let mut choices = [4, 1, 0].into_iter();
    intruder.scribble(&mut |_| choices.next().expect("three choices"), 1 << 40);
    assert_eq!(ep.am_short(ID, 0, &[]), Err(Error::IO_ERROR));
    assert_eq!(failed.get(), None, "nobody has looked");
    assert!(worker.progress_until(LIMIT, || failed.get().is_some()), "no failure is reported");
    assert_eq!((failed.get(), ep.am_short(ID, 0, &[])), (Some(Error::IO_ERROR), Err(Error::IO_ERROR)));
}

/// As when another peer has cleared the doorbell, or when a ring has become idle at the moment of a send.
#[test]
fn a_message_that_nothing_announces_is_found_on_any_idle_ring() {
    let (worker, iface) = open("posix", &[]);
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
    let address = iface.address().expect("an address");
    // Those rings neither ring a doorbell nor send a wake-up.
    let progress = || {
        worker.progress();
    };
    let intruders: Vec<_> = (0..6).map(|_| intrude(&address, progress)).collect();
    let (sender, other) = open("posix", &[]);
    let ep = other.connect(&address).expect("a connection");
    until(&sender, || ep.am_short(ID, 0, &[])).expect("the peer lives");
    let polled = || {
        let counters = iface.transport_counters();
        counters.iter().find(|(name, _)| name == "rings_polled").expect("a counter").1
    };
    let mut expected = 1;
    for round in 0..3 {
        let is_calm = worker.progress_until(LIMIT, || received.get() == expected && polled() == 1);
        assert!(
            is_calm,
            "round {round}: {} of {expected} came, {} rings are polled",
            received.get(),
            polled()
        );
        for intruder in &intruders {
            assert!(intruder.send(9, &[7; 8]));
            expected += 1;
        }
    }
    assert!(
        worker.progress_until(LIMIT, || received.get() == expected),
        "{} of {expected} came",
        received.get()
    );
}
