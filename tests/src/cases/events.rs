//! Sleeping: nothing wakes until something happens, whatever happens wakes, and nothing is lost.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uct_host::{AmId, Capabilities, Error, Events, Flush, SendFlags};

use super::case;
use crate::case::{Case, Needs};
use crate::message::Flavour;
use crate::pair::{Inbox, LIMIT, Pair, Side};
use crate::random::{check_bytes, pattern};
use crate::remote::{Peer, Process};
use crate::setup::Setup;

const ID: AmId = AmId::new(13).unwrap();

/// Whether a descriptor becomes readable within so many milliseconds.
pub(super) fn readable(fd: BorrowedFd<'_>, limit: u64) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let limit = Timespec { tv_sec: (limit / 1000) as i64, tv_nsec: (limit % 1000 * 1_000_000) as i64 };
    poll(&mut fds, Some(&limit)).expect("a poll") > 0
}

/// Arms, with progress as long as there are unprocessed events.
fn arm(side: &Side, events: Events) {
    crate::pair::wait(
        "arm",
        || side.worker.progress(),
        || match side.iface.arm(events) {
            Ok(()) => true,
            Err(Error::BUSY) => false,
            Err(error) => panic!("arm: {error}"),
        },
    );
}

fn each_message(setup: &Setup) {
    const ROUNDS: usize = 300;
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let flavours = Flavour::of(&pair.sender);
    let completion = pair.sender.completion();
    // What connecting and flushing causes is over.
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    pair.flush(&pair.back, Flush::REMOTE).expect("a flush");
    pair.settle();
    let mut spurious = 0;
    for round in 0..ROUNDS {
        let flavour = flavours[round % flavours.len()];
        arm(&pair.receiver, Events::RECV);
        let fd = pair.receiver.iface.event_fd().expect("a descriptor");
        if readable(fd, 0) {
            spurious += 1;
            pair.settle();
            arm(&pair.receiver, Events::RECV);
        }
        let (least, most) = flavour.limits(pair.sender.attributes());
        let bytes = pattern(round as u64, least.max(16).min(most));
        // Only the sender makes progress: the receiver sleeps.
        let send = || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
        crate::pair::retry("a send", || pair.sender.worker.progress(), send).expect("a send");
        let start = Instant::now();
        while !readable(fd, 1) {
            pair.sender.worker.progress();
            assert!(start.elapsed() < LIMIT, "message {round} ({flavour:?}) wakes nobody");
        }
        pair.until("the message", || !inbox.is_empty());
        assert!(inbox.take().is_some() && inbox.is_empty());
    }
    assert!(spurious * 100 < ROUNDS, "{spurious} of {ROUNDS} times the descriptor was readable for nothing");
}

fn nothing_until_a_message(setup: &Setup) {
    let pair = Pair::new(setup);
    let _inbox = pair.receiver.inbox(ID);
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    pair.flush(&pair.back, Flush::REMOTE).expect("a flush");
    pair.settle();
    let all = Events::from_bits_retain(pair.receiver.attributes().events);
    // What a peer acknowledges late may still come; a quiet interface stays quiet after that.
    let mut quiet = 0;
    for _ in 0..20 {
        arm(&pair.receiver, all);
        if readable(pair.receiver.iface.event_fd().expect("a descriptor"), 30) {
            pair.settle();
        } else {
            quiet += 1;
        }
        if quiet == 5 {
            return;
        }
    }
    panic!("an interface that gets nothing woke {} of 20 times", 20 - quiet);
}

fn busy_until_processed(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    pair.settle();
    let flavour = Flavour::of(&pair.sender)[0];
    let completion = pair.sender.completion();
    for round in 0..20 {
        let bytes = pattern(round, 32);
        arm(&pair.receiver, Events::RECV);
        let send = || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion);
        crate::pair::retry("a send", || pair.sender.worker.progress(), send).expect("a send");
        let fd = pair.receiver.iface.event_fd().expect("a descriptor");
        let start = Instant::now();
        while !readable(fd, 1) {
            pair.sender.worker.progress();
            assert!(start.elapsed() < LIMIT, "the message wakes nobody");
        }
        if inbox.is_empty() {
            assert_eq!(
                pair.receiver.iface.arm(Events::RECV),
                Err(Error::BUSY),
                "armed over a message that is there"
            );
        }
        pair.until("the message", || inbox.len() == round as usize + 1);
    }
}

fn signalled(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let events = Events::from_bits_retain(pair.receiver.attributes().events);
    if !events.contains(Events::RECV_SIG)
        || !pair.sender.iface.capabilities().contains(Capabilities::AM_BCOPY)
    {
        setup.skip("it has no events of signalled messages");
    }
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    pair.settle();
    for round in 0..20 {
        arm(&pair.receiver, Events::RECV_SIG);
        let send = || pair.to.am_bcopy(ID, SendFlags::SIGNALED, |_| 8);
        crate::pair::retry("a send", || pair.sender.worker.progress(), send).expect("a send");
        let start = Instant::now();
        while !readable(pair.receiver.iface.event_fd().expect("a descriptor"), 1) {
            pair.sender.worker.progress();
            assert!(start.elapsed() < LIMIT, "signalled message {round} wakes nobody");
        }
        pair.until("the message", || inbox.len() == round + 1);
    }
}

/// Both sides wait, and call nothing else: what was sent leaves, and arrives.
fn only_waits(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let flavour = Flavour::of(&pair.sender)[0];
    for round in 0..3 {
        let completion = pair.sender.completion();
        let bytes = pattern(round, 32);
        pair.retry("a send", || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion))
            .expect("a send");
        let start = Instant::now();
        while inbox.is_empty() || !completion.is_done() {
            for side in [&pair.sender, &pair.receiver] {
                side.worker.wait(Duration::from_millis(1)).expect("a wait");
            }
            assert!(start.elapsed() < LIMIT, "a program that only waits makes no progress");
        }
        check_bytes("a message", &inbox.take().expect("a message"), &bytes);
    }
}

fn worker_waits(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    pair.settle();
    let worker = &pair.receiver.worker;
    // Nothing to do: it sleeps for as long as it may.
    let slept = (0..20).any(|_| {
        pair.settle();
        let start = Instant::now();
        !worker.wait(Duration::from_millis(50)).expect("a wait")
            && start.elapsed() >= Duration::from_millis(45)
    });
    assert!(slept, "a worker with nothing to do does not sleep");
    // Another thread wakes it.
    for _ in 0..5 {
        pair.settle();
        let handle = worker.handle();
        let waker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            handle.wake();
        });
        let start = Instant::now();
        assert!(worker.wait(LIMIT).expect("a wait"), "nobody woke it");
        assert!(start.elapsed() < LIMIT / 2, "woken by the end of the wait");
        waker.join().expect("the thread");
    }
    // And so does a message.
    let flavour = Flavour::of(&pair.sender)[0];
    let completion = pair.sender.completion();
    let bytes = pattern(1, 32);
    pair.retry("a send", || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion)).expect("a send");
    let start = Instant::now();
    while inbox.is_empty() {
        assert!(worker.wait(LIMIT).expect("a wait") || !inbox.is_empty(), "a message woke nobody");
        worker.progress();
        if !pair.is_loop {
            pair.sender.worker.progress();
        }
        assert!(start.elapsed() < LIMIT);
    }
}

/// An event loop of the application's own: nothing but the descriptor, `arm` and `progress`.
fn own_event_loop(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    pair.flush(&pair.back, Flush::REMOTE).expect("a flush");
    let worker = &pair.receiver.worker;
    let quiet = |after: &str| {
        let is_quiet = (0..20).any(|_| {
            pair.settle();
            crate::pair::wait("arming", || worker.progress(), || worker.arm().is_ok());
            !readable(worker.event_fd(), 30)
        });
        assert!(is_quiet, "{after} keeps the descriptor readable");
    };
    quiet("connecting");

    worker.handle().wake();
    assert!(readable(worker.event_fd(), 5000), "nobody woke it");
    assert_eq!(worker.arm(), Err(Error::BUSY), "armed over a wake-up");
    quiet("a wake-up");

    let (sender, done) = std::sync::mpsc::channel();
    worker.handle().submit(move |_| sender.send(()).expect("the case listens")).expect("the worker is there");
    assert!(readable(worker.event_fd(), 5000), "what was submitted woke nobody");
    worker.progress();
    done.try_recv().expect("what was submitted runs with the next progress");
    quiet("what was submitted");

    let flavour = Flavour::of(&pair.sender)[0];
    let completion = pair.sender.completion();
    let bytes = pattern(1, 32);
    pair.retry("a send", || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion)).expect("a send");
    pair.until("the message", || !inbox.is_empty());
    quiet("a message");
}

fn submitted(setup: &Setup) {
    let pair = Pair::new(setup);
    let (sender, receiver) = std::sync::mpsc::channel();
    let handle = pair.receiver.worker.handle();
    let thread = std::thread::spawn(move || {
        for index in 0..100 {
            let sender = sender.clone();
            handle
                .submit(move |_| sender.send(index).expect("the case listens"))
                .expect("the worker is there");
        }
    });
    let mut done = Vec::new();
    crate::pair::wait(
        "what was submitted",
        || {
            let woken = pair.receiver.worker.wait(Duration::from_secs(5)).unwrap_or(true);
            pair.receiver.worker.progress() + u32::from(woken)
        },
        || {
            done.extend(receiver.try_iter());
            done.len() == 100
        },
    );
    thread.join().expect("the thread");
    assert_eq!(done, (0..100).collect::<Vec<_>>());
}

/// Rounds of the sleeping processes.
const ROUNDS: u64 = 400;

/// Sleeps until the count of messages is reached.
fn sleep_until(side: &Side, what: &str, count: impl Fn() -> u64, wanted: u64) {
    let start = Instant::now();
    while count() < wanted {
        side.worker.wait(LIMIT).expect("a wait");
        side.worker.progress();
        // One sleep may end with nothing; one that lasts as long as it may has lost a wake-up.
        assert!(start.elapsed() < LIMIT / 2, "{what} {wanted}: a wake-up was lost");
    }
}

fn exchange(side: &Side, inbox: &Inbox, link: &crate::pair::Link, first: bool) {
    let flavour = Flavour::of(side)[0];
    let completion = side.completion();
    let bytes = pattern(5, 24);
    let send = || {
        let send = || flavour.send(side, link, ID, &bytes, &completion);
        crate::pair::retry("a send", || side.worker.progress(), send).expect("a send");
    };
    if first {
        send();
    }
    for round in 1..=ROUNDS {
        sleep_until(side, "message", || inbox.len() as u64, round);
        if first && round == ROUNDS {
            return;
        }
        send();
    }
    crate::pair::flush(&side.worker, link, Flush::empty(), || side.worker.progress()).expect("a flush");
}

fn two_sleepers(setup: &Setup) {
    let side = setup.open(Default::default());
    let inbox = side.inbox(ID);
    let mut process = Process::start(setup);
    let link = process.peer.connect(&side);
    process.peer.say("ready");
    process.peer.expect("ready", &side);
    exchange(&side, &inbox, &link, true);
    link.check_alive();
    process.peer.say("end");
    process.finish(|| side.worker.progress());
}

fn other_sleeper(setup: &Setup, peer: &mut Peer) {
    let side = setup.open(Default::default());
    // Ahead of the word: the first message may arrive while this process still waits for the other's.
    let inbox = side.inbox(ID);
    let link = peer.connect(&side);
    peer.say("ready");
    peer.expect("ready", &side);
    exchange(&side, &inbox, &link, false);
    link.check_alive();
    peer.expect("end", &side);
}

const NEEDS: Needs =
    Needs::any(Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY).union(Capabilities::AM_ZCOPY))
        .and_events();

pub(super) const CASES: &[Case] = &[
    case("an armed interface is quiet until a message comes", NEEDS, nothing_until_a_message),
    case(
        "each message makes an armed descriptor readable and hardly anything else does",
        NEEDS,
        each_message,
    ),
    case("arm answers BUSY while a message is unprocessed", NEEDS, busy_until_processed),
    case("a signalled message wakes who waits for those only", NEEDS, signalled),
    case("a worker sleeps until a message or another thread wakes it", NEEDS, worker_waits),
    case("a program that only waits makes progress", NEEDS, only_waits),
    case("an event loop of the application's own is woken, and sleeps again", NEEDS, own_event_loop),
    case("what other threads submit runs in order and wakes the worker", NEEDS, submitted),
    Case {
        peer: Some(other_sleeper),
        ..case("two sleeping processes lose no wake-up", NEEDS.and_other_process(), two_sleepers)
    },
];
