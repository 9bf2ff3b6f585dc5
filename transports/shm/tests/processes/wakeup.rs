//! Receivers that sleep on their descriptor, and what many peers cost.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::alone::is_alone;
use crate::common::{LIMIT, Peer, heard, hex, open, role, say, skip, unhex, until};
use uct_core::{AmId, Error, Iface, IfaceAddress, SendFlags, Worker};

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

/// The kernel's barrier on all processors that run a process which has asked for it (`MEMBARRIER_CMD_GLOBAL_EXPEDITED`), and what asks which
/// there are.
const BARRIER: u32 = 2;
const QUERY: u32 = 0;

/// Barriers that this process wanted to make.
static BARRIERS: AtomicU32 = AtomicU32::new(0);

/// From now on this thread's barriers are counted, and not made.
fn count_barriers() {
    extern "C" fn count(_signal: libc::c_int) {
        BARRIERS.fetch_add(1, Ordering::SeqCst);
    }
    let handler = count as extern "C" fn(libc::c_int);
    // SAFETY: the handler does nothing but add to an atomic.
    assert_ne!(unsafe { libc::signal(libc::SIGSYS, handler as libc::sighandler_t) }, libc::SIG_ERR);
    let code = |class: u32, rest: u32| (class | rest) as u16;
    let load = code(libc::BPF_LD, libc::BPF_W | libc::BPF_ABS);
    let is_equal = code(libc::BPF_JMP, libc::BPF_JEQ | libc::BPF_K);
    let answer = code(libc::BPF_RET, libc::BPF_K);
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // What a filter sees begins with the number of the call; the first argument is at 16, its low half first.
    let mut filter = [
        step(load, 0, 0, 0),
        step(is_equal, 0, 2, libc::SYS_membarrier as u32),
        step(load, 0, 0, 16),
        step(is_equal, 1, 0, BARRIER),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(answer, 0, 0, libc::SECCOMP_RET_TRAP),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its filter live through the call.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) }, 0);
}

/// A sender that sees its receiver awake publishes a message and rings no doorbell. The barrier is what lets the receiver see the message
/// before it sleeps; without it a wake-up is lost now and then.
#[test]
fn before_a_sleep_all_senders_make_a_barrier_and_without_a_peer_nobody_does() {
    if !is_alone() {
        return;
    }
    // SAFETY: takes numbers.
    let barriers = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    if barriers & i64::from(BARRIER) == 0 {
        return skip::skip("membarrier", "the kernel makes no barriers for other processes");
    }
    let (worker, iface) = open("posix", &[]);
    let (sender, other) = open("posix", &[]);
    count_barriers();
    let made_before_a_sleep = || {
        let start = Instant::now();
        let before = BARRIERS.load(Ordering::SeqCst);
        while worker.arm() == Err(Error::BUSY) {
            worker.progress();
            assert!(start.elapsed() < LIMIT, "it does not sleep");
        }
        worker.progress();
        BARRIERS.load(Ordering::SeqCst) - before
    };
    assert_eq!(made_before_a_sleep(), 0, "there is no peer");
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
    let ep = other.connect(&iface.address().expect("an address")).expect("a connection");
    until(&sender, || ep.am_short(ID, 0, &[])).expect("the peer lives");
    assert!(worker.progress_until(LIMIT, || received.get() == 1), "no message");
    for _ in 0..3 {
        assert!(made_before_a_sleep() > 0, "a message that is sent now may wake nobody");
    }
}

/// Bytes of rings and other shared memory of this process that are in memory, each mapping by itself.
fn resident() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("maps");
    let mut is_ours = false;
    let mut kilobytes = 0;
    for line in maps.lines() {
        if let Some(rest) = line.strip_prefix("Rss:") {
            let number = rest.trim().trim_end_matches("kB").trim().parse::<usize>().expect("a number");
            kilobytes += if is_ours { number } else { 0 };
        } else if line.split(' ').next().is_some_and(|word| word.contains('-')) {
            is_ours = line.contains("memfd:uct");
        }
    }
    kilobytes << 10
}

/// What traffic needs is much more than what a quiet connection does. It is given back whichever of many connections it is, by an interface
/// that is polled and by one that sleeps.
#[test]
fn what_much_traffic_has_needed_is_given_back_by_each_connection_after_a_while() {
    const PEERS: usize = 7;
    const LENGTH: usize = 60_000;
    if !is_alone() {
        return;
    }
    for sleeps in [false, true] {
        let (worker, iface) = open("posix", &["shm.trim_timeout=5ms"]);
        let received = Rc::new(Cell::new(0));
        let peers: Vec<_> = (0..PEERS).map(|_| open("posix", &[])).collect();
        for (_, peer) in &peers {
            let count = Rc::clone(&received);
            peer.set_am_handler(ID, move |_| count.set(count.get() + 1));
        }
        let connect = |(_, peer): &(Worker, Iface)| {
            iface.connect(&peer.address().expect("an address")).expect("a connection")
        };
        let eps: Vec<_> = peers.iter().map(connect).collect();
        let mut sent = 0;
        let mut send = |length: usize| {
            for ep in &eps {
                let pack = |place: &mut [u8]| {
                    place[..length].fill(1);
                    length
                };
                until(&worker, || ep.am_bcopy(ID, SendFlags::empty(), pack)).expect("the peer lives");
                sent += 1;
            }
            let start = Instant::now();
            while received.get() < sent {
                for (peer, _) in &peers {
                    peer.progress();
                }
                assert!(start.elapsed() < LIMIT, "{} of {sent} came", received.get());
            }
        };
        send(8);
        let quiet = resident();
        for _ in 0..4 {
            send(LENGTH);
        }
        assert!(resident() > quiet + PEERS * LENGTH, "{} bytes, {quiet} before", resident());
        let start = Instant::now();
        while resident() > quiet + LENGTH {
            if sleeps {
                // Nothing but what wakes it makes it look at its connections.
                worker.wait(Duration::from_millis(100)).expect("it can sleep");
            } else {
                worker.progress();
            }
            for (peer, _) in &peers {
                while peer.progress() > 0 {}
                // A receiver reports all that it has received when it falls asleep, if not before.
                let _ = peer.arm();
            }
            assert!(start.elapsed() < LIMIT, "{} bytes stay, {quiet} before", resident());
        }
    }
}
