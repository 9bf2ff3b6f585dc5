//! Creation and destruction: endpoints and interfaces that are dropped with operations in flight, and many of them.

use std::time::{Duration, Instant};

use uct_host::{AmId, Capabilities, Error, Flush, IfaceOptions};

use super::case;
use crate::case::{Case, Needs};
use crate::message::Flavour;
use crate::pair::{Link, Pair, Side, connect, other_end, retry, wait};
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

const ID: AmId = AmId::new(15).unwrap();

/// How long closing may take: it has an end. Most of this is for machines that have much else to do.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);

fn dropped_after_a_send(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let completion = pair.sender.completion();
    for round in 0..40 {
        for flavour in Flavour::of(&pair.sender) {
            let (least, most) = flavour.limits(pair.sender.attributes());
            let bytes = pattern(round, if round % 2 == 0 { least.max(16) } else { most.min(100_000) });
            let (link, back) = connect(&pair.sender, &pair.receiver);
            let send = || flavour.send(&pair.sender, &link, ID, &bytes, &completion);
            pair.retry("a send", send).expect("a send");
            // The peer's end stays until it got the message: where two endpoints are connected, both are needed.
            drop(link);
            pair.until("the message of an endpoint that is gone", || !inbox.is_empty());
            check_bytes("the message", &inbox.take().expect("it is there"), &bytes);
            drop(back);
        }
    }
    pair.until("the completions", || completion.is_done());
}

fn receiver_closes(setup: &Setup) {
    let sender = setup.open(IfaceOptions::default());
    let (receiver, _) = other_end(setup, &sender, IfaceOptions::default());
    let (witness, is_loop) = other_end(setup, &sender, IfaceOptions::default());
    if is_loop {
        setup.skip("both ends are one interface");
    }
    let (to_witness, _from_witness) = connect(&sender, &witness);
    let witnessed = witness.inbox(ID);
    let (link, back) = connect(&sender, &receiver);
    let inbox = receiver.inbox(ID);
    let flavour = Flavour::of(&sender)[0];
    let bytes = pattern(setup.seed, 200.min(flavour.limits(sender.attributes()).1));
    let completion = sender.completion();
    let send = |link: &Link| flavour.send(&sender, link, ID, &bytes, &completion);
    let progress = || sender.worker.progress() + receiver.worker.progress() + witness.worker.progress();
    for _ in 0..100 {
        retry("a send", progress, || send(&link)).expect("a send");
    }
    wait("some messages", progress, || inbox.len() > 10);
    receiver.iface.clear_am_handlers();
    let start = Instant::now();
    drop((back, receiver));
    assert!(start.elapsed() < CLOSE_LIMIT, "closing took {:?}", start.elapsed());
    // The endpoint fails at most once, and the others continue.
    let progress = || sender.worker.progress() + witness.worker.progress();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) && link.failures().is_empty() {
        if let Err(error) = send(&link)
            && error != Error::NO_RESOURCE
        {
            // An operation may find the failure ahead of the handler, which is called from progress.
            wait("the error handler", progress, || !link.failures().is_empty());
        }
        progress();
    }
    retry("a send to another", progress, || send(&to_witness)).expect("a send to another");
    wait("a message at another", progress, || !witnessed.is_empty());
    assert!(link.failures().len() <= 1, "the error handler was called more than once");
    let start = Instant::now();
    drop(link);
    sender.worker.progress();
    assert!(start.elapsed() < CLOSE_LIMIT, "dropping an endpoint without a peer took {:?}", start.elapsed());
    to_witness.check_alive();
}

fn sender_closes_busy(setup: &Setup) {
    for round in 0..3 {
        let sender = setup.open(IfaceOptions::default());
        let (receiver, is_loop) = other_end(setup, &sender, IfaceOptions::default());
        let _inbox = receiver.inbox(ID);
        let (link, back) = connect(&sender, &receiver);
        let flavour = *Flavour::of(&sender).last().expect("a flavour");
        let bytes = pattern(round, flavour.limits(sender.attributes()).1.min(1 << 18));
        let completion = sender.completion();
        for _ in 0..200 {
            if flavour.send(&sender, &link, ID, &bytes, &completion).is_err() {
                break;
            }
        }
        sender.iface.clear_am_handlers();
        let start = Instant::now();
        drop((link, sender));
        assert!(
            start.elapsed() < CLOSE_LIMIT,
            "closing with operations outstanding took {:?}",
            start.elapsed()
        );
        assert!(is_loop || completion.is_done(), "the interface is gone, and an operation is outstanding");
        receiver.iface.clear_am_handlers();
        drop((back, receiver));
        assert!(start.elapsed() < 2 * CLOSE_LIMIT, "closing took {:?}", start.elapsed());
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the descriptors of this process").count()
}

fn again_and_again(setup: &Setup) {
    let once = |seed: u64| {
        let pair = Pair::new(setup);
        let inbox = pair.receiver.inbox(ID);
        let flavour = Flavour::of(&pair.sender)[0];
        let bytes = pattern(seed, flavour.limits(pair.sender.attributes()).0.max(30));
        let completion = pair.sender.completion();
        pair.retry("a send", || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion))
            .expect("a send");
        pair.until("the message", || !inbox.is_empty());
        check_bytes("the message", &inbox.take().expect("it is there"), &bytes);
    };
    // What is made once for the process is made now.
    (0..5).for_each(once);
    // Other cases run beside this one and open descriptors, which go again; what is leaked stays and grows with each batch.
    const PAIRS: u64 = 40;
    let growth = || {
        let before = open_descriptors();
        (0..PAIRS).for_each(once);
        open_descriptors().saturating_sub(before)
    };
    let is_leak = |left: &usize| *left >= PAIRS as usize / 2;
    let left: Vec<usize> = std::iter::repeat_with(growth).take(5).take_while(is_leak).collect();
    assert!(left.len() < 5, "{PAIRS} pairs came and went five times, and left descriptors behind: {left:?}");
}

fn many_endpoints(setup: &Setup) {
    const MOST: usize = 1000;
    const FEWEST: usize = 200;
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let flavour = Flavour::of(&pair.sender)[0];
    let completion = pair.sender.completion();
    let limit = pair.sender.attributes().max_num_eps;
    let wanted = if limit == 0 { MOST } else { MOST.min(limit as usize) };
    let mut links = Vec::new();
    // An emulated machine that shares its processors makes as many as it can in this time, since connections that wait for long count as dead.
    let enough = Instant::now() + Duration::from_secs(8);
    while links.len() < wanted && (links.len() < FEWEST || Instant::now() < enough) {
        links.push(connect(&pair.sender, &pair.receiver));
        if links.len().is_multiple_of(20) {
            pair.progress();
        }
    }
    let number = |index: usize| {
        let mut bytes = pattern(index as u64, flavour.limits(pair.sender.attributes()).0.max(24));
        bytes[..8].copy_from_slice(&(index as u64).to_ne_bytes());
        bytes
    };
    for round in 0..2 {
        for (index, (link, _)) in links.iter().enumerate() {
            let bytes = number(index);
            pair.retry("a send", || flavour.send(&pair.sender, link, ID, &bytes, &completion))
                .expect("a send");
            // Where the machine is slow, a receiver that does nothing for all of these counts as dead.
            if index.is_multiple_of(20) {
                pair.progress();
            }
        }
        pair.until("a message of each endpoint", || inbox.len() == links.len());
        let mut seen = vec![false; links.len()];
        while let Some(message) = inbox.take() {
            let index = u64::from_ne_bytes(message[..8].try_into().expect("8 bytes")) as usize;
            check_bytes("a message", &message, &number(index));
            assert!(
                !std::mem::replace(&mut seen[index], true),
                "two messages of one endpoint in round {round}"
            );
        }
    }
    for (link, back) in &links {
        link.check_alive();
        back.check_alive();
    }
    // They go in another order than they came.
    setup.random().shuffle(&mut links);
    let start = Instant::now();
    while let Some(link) = links.pop() {
        drop(link);
        if links.len().is_multiple_of(100) {
            pair.progress();
        }
    }
    assert!(start.elapsed() < 2 * CLOSE_LIMIT, "closing took {:?}", start.elapsed());
    let bytes = number(7);
    pair.retry("a send afterwards", || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion))
        .expect("a send");
    pair.until("a message afterwards", || inbox.len() == 1);
}

fn many_to_one(setup: &Setup) {
    const SENDERS: usize = 8;
    const EACH: u64 = 400;
    let receiver = setup.open(IfaceOptions::default());
    let inbox = receiver.inbox(ID);
    let mut senders: Vec<(Side, Link, Link)> = Vec::new();
    for _ in 0..SENDERS {
        let (sender, _) = other_end(setup, &receiver, IfaceOptions::default());
        let (link, back) = connect(&sender, &receiver);
        senders.push((sender, link, back));
    }
    let progress = || {
        let events: u32 = senders.iter().map(|(sender, _, _)| sender.worker.progress()).sum();
        events + receiver.worker.progress()
    };
    let flavours = Flavour::of(&receiver);
    let message = |sender: usize, index: u64| {
        let flavour = flavours[(sender + index as usize) % flavours.len()];
        let (least, most) = flavour.limits(receiver.attributes());
        let size = least.max(16 + (index as usize * 37) % 600).min(most);
        let mut bytes = pattern(index, size.max(16));
        bytes[..8].copy_from_slice(&(sender as u64).to_ne_bytes());
        bytes[8..16].copy_from_slice(&index.to_ne_bytes());
        (flavour, bytes)
    };
    let completions: Vec<_> = senders.iter().map(|(sender, _, _)| sender.completion()).collect();
    let mut expected = [0_u64; SENDERS];
    let mut arrived = 0;
    let mut check = || {
        while let Some(got) = inbox.take() {
            let sender = u64::from_ne_bytes(got[..8].try_into().expect("8 bytes")) as usize;
            assert!(sender < SENDERS, "a message of sender {sender}");
            check_bytes(&format!("message of sender {sender}"), &got, &message(sender, expected[sender]).1);
            expected[sender] += 1;
            arrived += 1;
        }
        arrived
    };
    for index in 0..EACH {
        for (number, (sender, link, _)) in senders.iter().enumerate() {
            let (flavour, bytes) = message(number, index);
            let send = || flavour.send(sender, link, ID, &bytes, &completions[number]);
            retry("a send", progress, send).expect("a send");
        }
        check();
    }
    wait("all messages", progress, || check() == SENDERS as u64 * EACH);
    for (sender, link, _) in &senders {
        crate::pair::flush(&sender.worker, link, Flush::empty(), progress).expect("a flush");
        link.check_alive();
    }
    receiver.iface.clear_am_handlers();
}

const MESSAGES: Needs =
    Needs::any(Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY).union(Capabilities::AM_ZCOPY));

pub(super) const CASES: &[Case] = &[
    case(
        "a message arrives though its endpoint is dropped right after the send",
        MESSAGES,
        dropped_after_a_send,
    ),
    Case { logs: None, ..case("an interface may close while a peer sends to it", MESSAGES, receiver_closes) },
    Case {
        logs: None,
        ..case("an interface with operations outstanding closes in time", MESSAGES, sender_closes_busy)
    },
    case("interfaces come and go and leave no descriptor behind", MESSAGES, again_and_again),
    case("a thousand endpoints of one interface work", MESSAGES, many_endpoints),
    case("messages of many senders arrive in the order of each", MESSAGES, many_to_one),
];
