//! Failures of peers: they die, stop, or overwrite shared memory, or are other programs.

use std::cell::{Cell, RefCell};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::common::alone::is_alone;
use crate::common::{LIMIT, Peer, heard, hex, open, role, say, unhex, until};
use uct_core::{Access, AmId, EpFailure, Error, Iface, IfaceAddress, Memory, MemoryKind, SendFlags, Worker};

const ID: AmId = AmId::new(5).unwrap();

/// A closed socket is reported at once. Most of this time is for busy machines.
const AT_ONCE: Duration = Duration::from_secs(15);

/// Receives until a command ends it; with `echo`, sends to the test as fast as it can.
fn serve(role: &str) {
    let (kind, transport) = role.split_once(' ').expect("kind and transport");
    let (worker, iface) = open(transport, &[]);
    let count = Rc::new(Cell::new(0u64));
    let received = Rc::clone(&count);
    iface.set_am_handler(ID, move |_| received.set(received.get() + 1));
    let memory = iface.memory_domain().allocate(8192, Access::ALL, MemoryKind::Host).expect("memory");
    say(&hex(&iface.address().expect("an address").pack().expect("it packs")));
    say(&hex(&memory.packed_key().expect("a key")));
    let lines = heard();
    let (address, _) = IfaceAddress::unpack(&unhex(&lines.recv().expect("an address"))).expect("an address");
    let back = (kind != "idle").then(|| iface.connect(&address).expect("a connection"));
    say("ready");
    let start = Instant::now();
    let mut turn = 0u32;
    while start.elapsed() < LIMIT {
        worker.progress();
        turn = turn.wrapping_add(1);
        if let Some(ep) = &back {
            // A full ring does not matter, nor do the effects of overwriting.
            let _ = ep.am_short(ID, 0, &[1; 32]);
            if turn.is_multiple_of(50) {
                let _ = ep.am_bcopy(ID, SendFlags::empty(), |buffer| buffer.len().min(5000));
            }
        }
        if let Ok(line) = lines.try_recv() {
            match line.as_str() {
                "count" => say(&count.get().to_string()),
                "scribble" => scribble(),
                other => panic!("{other}"),
            }
        }
        if turn.is_multiple_of(64) {
            std::thread::yield_now();
        }
    }
}

/// Writes nonsense to everything that this process shares with others, for a second.
fn scribble() -> ! {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let shared: Vec<(usize, usize)> = maps
        .lines()
        .filter(|line| line.contains("rw-s") && (line.contains("memfd:uct") || line.contains("SYSV")))
        .map(|line| {
            let range = line.split(' ').next().expect("a range");
            let (start, end) = range.split_once('-').expect("a range");
            let number = |text| usize::from_str_radix(text, 16).expect("hex");
            (number(start), number(end))
        })
        .collect();
    assert!(shared.len() >= 2, "nothing is shared:\n{maps}");
    say("scribbling");
    let start = Instant::now();
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    while start.elapsed() < Duration::from_secs(1) {
        for &(start, end) in &shared {
            // Headers and slots count most: the first pages, and some words of the rest.
            for word in 0..4096 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let first = (end - start).min(32 << 10) / 8;
                let all = (end - start) / 8;
                let at = if word % 4 == 0 { random as usize % all } else { random as usize % first };
                // Mostly small numbers, which are likelier to be taken for something.
                let value = if random & 1 << 40 == 0 { random % 512 } else { random };
                // SAFETY: inside a mapping of this process; whatever comes of it is what the test is about.
                unsafe { ((start + at * 8) as *mut u64).write_volatile(value) };
            }
        }
    }
    say("done");
    std::process::exit(0);
}

/// An interface with a counter of what it received.
struct Here {
    worker: Worker,
    iface: Iface,
    received: Rc<Cell<u64>>,
    kept: Rc<RefCell<Vec<uct_core::KeptMessage>>>,
}

impl Here {
    fn new(transport: &str, settings: &[&str]) -> Here {
        let (worker, iface) = open(transport, settings);
        let (received, kept) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
        let (count, keep) = (Rc::clone(&received), Rc::clone(&kept));
        iface.set_am_handler(ID, move |message| {
            count.set(count.get() + 1);
            // Read it all: what is in shared memory may change, not vanish.
            std::hint::black_box(message.iter().map(|byte| u64::from(*byte)).sum::<u64>());
            if count.get() % 1000 == 1 && keep.borrow().len() < 64 {
                let kept = message.keep();
                keep.borrow_mut().push(kept);
            }
        });
        Here { worker, iface, received, kept }
    }

    /// Starts a peer and connects to it. Returns the reported failures.
    fn peer(
        &self,
        test: &str,
        kind: &str,
        transport: &str,
    ) -> (Peer, uct_core::Ep, Rc<RefCell<Vec<EpFailure>>>, Vec<u8>) {
        let mut peer = Peer::start(&[], test, &format!("{kind} {transport}"));
        let (address, _) = IfaceAddress::unpack(&unhex(&peer.line())).expect("an address");
        let key = unhex(&peer.line());
        peer.tell(&hex(&self.iface.address().expect("an address").pack().expect("it packs")));
        let failures = Rc::new(RefCell::new(Vec::new()));
        let told = Rc::clone(&failures);
        let ep = self
            .iface
            .connect_with(&address, move |failure| told.borrow_mut().push(failure))
            .expect("a connection");
        while peer.line_with(&self.worker) != "ready" {}
        (peer, ep, failures, key)
    }

    fn progress_for(&self, time: Duration) {
        self.worker.progress_until(time, || false);
    }
}

#[test]
fn a_killed_peer_is_reported_once_and_others_go_on() {
    if let Some(role) = role() {
        return serve(&role);
    }
    const TEST: &str = "a_killed_peer_is_reported_once_and_others_go_on";
    for transport in ["posix", "sysv", "cma"] {
        for kind in ["idle", "echo"] {
            let here = Here::new(transport, &[]);
            let (mut doomed, ep, failures, key) = here.peer(TEST, kind, transport);
            let (_living, other, no_failures, _) = here.peer(TEST, "idle", transport);
            let _second = here.iface.connect(&IfaceAddress::clone(&here.iface.address().unwrap()));
            let key = here.iface.memory_domain().unpack(&key).expect("a key");
            for _ in 0..100 {
                until(&here.worker, || ep.am_short(ID, 1, &[1; 40])).expect("it lives");
            }
            let start = Instant::now();
            doomed.kill();
            assert!(
                here.worker.progress_until(LIMIT, || !failures.borrow().is_empty()),
                "{transport}, {kind}: no failure is reported"
            );
            assert!(start.elapsed() < AT_ONCE, "{transport}: told after {:?}", start.elapsed());
            here.progress_for(Duration::from_millis(50));
            assert_eq!(failures.borrow().len(), 1, "{transport}, {kind}");
            let failure = &failures.borrow()[0];
            assert_eq!(failure.error, Error::CONNECTION_RESET);
            assert!(failure.reason.contains(&doomed.id().to_string()), "{failure}");
            assert_eq!(ep.am_short(ID, 0, &[]), Err(Error::CONNECTION_RESET));
            assert_eq!(ep.put_short(&[1], 0, &key), Err(Error::CONNECTION_RESET));
            assert_eq!(ep.flush(uct_core::Flush::empty(), None).err(), Some(Error::CONNECTION_RESET));
            for _ in 0..1000 {
                until(&here.worker, || other.am_short(ID, 0, &[2; 8])).expect("the other endpoint goes on");
            }
            assert!(no_failures.borrow().is_empty());
        }
    }
}

/// Calls of progress, each behind a pause of 200 µs, that take 20 ms at that rate.
const RARE_CALLS: u32 = 100;

/// Counted in calls, since a busy machine makes the pauses longer: they are bounded in time where the calls are.
#[test]
fn a_program_that_polls_rarely_hears_of_a_killed_peer_within_a_few_calls() {
    if let Some(role) = role() {
        return serve(&role);
    }
    const TEST: &str = "a_program_that_polls_rarely_hears_of_a_killed_peer_within_a_few_calls";
    let here = Here::new("posix", &[]);
    for (kind, fast_calls) in [("idle", 0), ("echo", 0), ("idle", 10_000), ("echo", 10_000)] {
        let (mut doomed, ep, failures, _) = here.peer(TEST, kind, "posix");
        until(&here.worker, || ep.am_short(ID, 1, &[1; 40])).expect("it lives");
        let progress_rarely = || {
            std::thread::sleep(Duration::from_micros(200));
            here.worker.progress();
        };
        (0..RARE_CALLS).for_each(|_| progress_rarely());
        (0..fast_calls).for_each(|_| _ = here.worker.progress());
        doomed.kill();
        let calls = (1..10 * RARE_CALLS).find(|_| {
            progress_rarely();
            !failures.borrow().is_empty()
        });
        assert!(
            calls.is_some_and(|calls| calls <= RARE_CALLS),
            "{kind}, behind {fast_calls} fast calls: reported after {calls:?} calls"
        );
    }
}

#[test]
fn a_stopped_peer_blocks_its_sender_and_no_other() {
    if let Some(role) = role() {
        return serve(&role);
    }
    const TEST: &str = "a_stopped_peer_blocks_its_sender_and_no_other";
    let here = Here::new("posix", &[]);
    let (mut stopped, ep, failures, _) = here.peer(TEST, "idle", "posix");
    let (_living, other, _, _) = here.peer(TEST, "idle", "posix");
    let pid = rustix::process::Pid::from_raw(stopped.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let mut sent = 0u64;
    let start = Instant::now();
    while ep.am_short(ID, 0, &[3; 8]) != Err(Error::NO_RESOURCE) {
        sent += 1;
        assert!(sent < 100_000 && start.elapsed() < LIMIT, "the ring has no end");
    }
    for _ in 0..1000 {
        until(&here.worker, || other.am_short(ID, 0, &[2; 8])).expect("the other endpoint goes on");
    }
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    until(&here.worker, || ep.am_short(ID, 0, &[3; 8])).expect("it goes on");
    let start = Instant::now();
    while {
        stopped.tell("count");
        stopped.line_with(&here.worker) != (sent + 1).to_string()
    } {
        assert!(start.elapsed() < LIMIT, "messages are missing");
    }
    assert!(failures.borrow().is_empty());
}

#[test]
fn a_peer_that_scribbles_breaks_its_own_endpoint_at_most() {
    if let Some(role) = role() {
        return serve(&role);
    }
    const TEST: &str = "a_peer_that_scribbles_breaks_its_own_endpoint_at_most";
    for transport in ["posix", "sysv"] {
        let here = Here::new(transport, &[]);
        let (mut scribbler, ep, failures, key) = here.peer(TEST, "scribble", transport);
        let (mut honest, other, no_failures, _) = here.peer(TEST, "idle", transport);
        let key = here.iface.memory_domain().unpack(&key).expect("a key");
        scribbler.tell("scribble");
        assert_eq!(scribbler.line_with(&here.worker), "scribbling");
        let mut sent = 0u64;
        let end = Instant::now() + Duration::from_millis(1500);
        let mut buffer = [0; 8];
        while Instant::now() < end {
            // Anything may come of these, but it ends.
            let _ = ep.am_short(ID, 0, &[1; 40]);
            let _ = ep.am_bcopy(ID, SendFlags::empty(), |buffer| buffer.len().min(3000));
            let _ = ep.get_short(&mut buffer, 0, &key);
            until(&here.worker, || other.am_short(ID, 0, &[2; 8])).expect("the other endpoint goes on");
            sent += 1;
            here.worker.progress();
        }
        assert!(no_failures.borrow().is_empty());
        assert!(
            here.worker.progress_until(LIMIT, || failures.borrow().len() == 1),
            "the scribbler is dead, or was found out"
        );
        let start = Instant::now();
        while {
            honest.tell("count");
            honest.line_with(&here.worker) != sent.to_string()
        } {
            assert!(start.elapsed() < LIMIT, "{transport}: messages to the honest peer are missing");
        }
        println!(
            "{transport}: {} messages from the scribbler, then: {}",
            here.received.get(),
            failures.borrow()[0]
        );
        here.kept.borrow_mut().clear();
    }
}

#[test]
fn unauthenticated_peers_on_the_socket_harm_nothing() {
    if !is_alone() {
        return;
    }
    if let Some(role) = role() {
        return serve(&role);
    }
    const TEST: &str = "unauthenticated_peers_on_the_socket_harm_nothing";
    let directory = tempfile::tempdir().unwrap();
    let setting = format!("shm.dir={}", directory.path().display());
    let here = Here::new("posix", &[&setting]);
    let (_peer, ep, failures, _) = here.peer(TEST, "idle", "posix");
    let name = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().file_name();
    let name = name.to_str().unwrap().trim_end_matches(".sock").to_owned();
    // A stream socket is no match for a listener that keeps messages apart, so use what it uses.
    let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
    assert!(UnixStream::connect_addr(&address).is_err());
    let connect = || {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        socket
    };
    let before = descriptors();
    let mut open = Vec::new();
    for attempt in 0..2000usize {
        let socket = connect();
        let length = (attempt * 37) % 600;
        let bytes: Vec<u8> = (0..length).map(|at| (at * attempt) as u8).collect();
        let _ = rustix::net::send(&socket, &bytes, rustix::net::SendFlags::NOSIGNAL);
        match attempt % 3 {
            0 => drop(socket),
            // Some say half a hello and wait.
            1 => open.push(socket),
            _ => {
                let mut head = Vec::from(*b"uSHM\x01\0\0\0\x01\0\0\0");
                head.extend_from_slice(&(length as u32).to_ne_bytes());
                head.extend_from_slice(&bytes);
                let _ = rustix::net::send(&socket, &head, rustix::net::SendFlags::NOSIGNAL);
            }
        }
        if attempt % 16 == 0 {
            here.progress_for(Duration::from_millis(1));
            open.drain(..open.len().saturating_sub(100));
        }
        until(&here.worker, || ep.am_short(ID, 0, &[1; 8])).expect("the peer is served throughout");
    }
    open.clear();
    // Other tests of this process have descriptors as well, for some seconds.
    let are_closed = here.worker.progress_until(LIMIT, || descriptors() <= before + 2);
    assert!(are_closed, "{} descriptors, {before} before", descriptors());
    assert!(failures.borrow().is_empty());
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn nothing_stays_behind_a_killed_process() {
    if let Some(role) = role() {
        return serve(&role);
    }
    const TEST: &str = "nothing_stays_behind_a_killed_process";
    let segments = || std::fs::read_to_string("/proc/sysvipc/shm").unwrap().lines().count();
    let before = segments();
    {
        let here = Here::new("sysv", &[]);
        let (mut doomed, ep, failures, _) = here.peer(TEST, "echo", "sysv");
        until(&here.worker, || ep.am_short(ID, 0, &[])).unwrap();
        doomed.kill();
        assert!(here.worker.progress_until(LIMIT, || !failures.borrow().is_empty()));
    }
    let start = Instant::now();
    while segments() > before {
        assert!(start.elapsed() < LIMIT, "System V segments stay behind");
        std::thread::sleep(Duration::from_millis(20));
    }
    let directory = tempfile::tempdir().unwrap();
    let entries = || std::fs::read_dir(directory.path()).unwrap().count();
    let setting = format!("shm.dir={}", directory.path().display());
    let segment = format!("posix.dir={}", directory.path().display());
    {
        let here = Here::new("posix", &[&setting, "posix.segments=dir", &segment]);
        let memory: Memory =
            here.iface.memory_domain().allocate(4096, Access::ALL, MemoryKind::Host).unwrap();
        assert_eq!(memory.len(), 4096);
        assert_eq!(entries(), 1, "a socket, and no name of a segment");
    }
    assert_eq!(entries(), 0);
}
