//! Limits: files, descriptors, connections, memory, log, the work of one progress.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::common::alone::is_alone;
use crate::common::{LIMIT, Peer, heard, hex, open, role, say, sibling, skip, unhex, until};
use uct_core::{
    Access, AmId, Context, Error, Iface, IfaceAddress, IfaceOptions, MemoryKind, SendFlags, Worker,
};
use uct_shm::testing::{Heard, Intruder, knock};

const ID: AmId = AmId::new(11).unwrap();
/// Connections taken at one look (two sockets, 16 of each), and a few events of others.
const MOST_EVENTS: u64 = 48;

/// Opens an interface and reports the result.
fn try_to_open(transport: &str) {
    let context = Context::builder().build().expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    match context.find(transport, "memory") {
        Err(error) => say(&format!("no resource: {error}")),
        Ok(resource) => match worker.open_resource(&resource, IfaceOptions::default()) {
            Ok(_) => say("opened"),
            Err(error) => say(&format!("refused: {error}")),
        },
    }
}

/// Makes shared memory in files: by allocating memory, and for a connection. Reports the results.
fn try_to_make_files(directory: &str) {
    let (_worker, iface) = open(
        "posix",
        &["posix.segments=dir", &format!("posix.dir={directory}"), "alloc_prio=md", "shm.seg_size=2m"],
    );
    let allocated = iface.memory_domain().allocate(12 << 20, Access::ALL, MemoryKind::Host);
    let connected = iface.connect(&iface.address().expect("an address"));
    let words = |result: Result<(), String>| result.err().unwrap_or_else(|| "made".to_owned());
    say(&words(allocated.map(drop).map_err(|error| error.to_string())));
    say(&words(connected.map(drop).map_err(|error| error.to_string())));
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_no_signal() {
    if !is_alone() {
        return;
    }
    if let Some(role) = role() {
        return try_to_open(&role);
    }
    const TEST: &str = "a_limit_of_file_sizes_is_an_error_and_no_signal";
    for blocks in [0, 1, 100] {
        let shell = format!("ulimit -f {blocks}; exec \"$@\"");
        let limited = Peer::start(&["sh", "-c", &shell, "sh"], TEST, "posix");
        let words = limited.line();
        assert!(words.contains("ulimit -f"), "with {blocks} blocks: {words}");
    }
    let free = Peer::start(&[], TEST, "posix");
    assert_eq!(free.line(), "opened");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_for_segments_in_a_directory_as_well() {
    if !is_alone() {
        return;
    }
    if let Some(role) = role() {
        return try_to_make_files(&role);
    }
    const TEST: &str = "a_limit_of_file_sizes_is_an_error_for_segments_in_a_directory_as_well";
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory of a tmpfs");
    let directory = directory.path().to_str().expect("a name");
    // What the interface itself needs is smaller, 8 MiB: bash counts in KiB.
    let limited = Peer::start(&["bash", "-c", "ulimit -f 9216; exec \"$@\"", "bash"], TEST, directory);
    for what in ["allocated memory", "the rings of a connection"] {
        let words = limited.line();
        assert!(words.contains("ulimit -f"), "{what}: {words}");
    }
    let free = Peer::start(&[], TEST, directory);
    assert_eq!([free.line(), free.line()], ["made", "made"]);
}

/// A number that the environment may change.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

fn descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count() as u64
}

/// Memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("memory");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// An interface that is under attack: makes progress, and reports its cost.
fn stand(role: &str) {
    let words = role.split(' ');
    let settings: Vec<&str> = words.skip(1).filter(|word| !word.is_empty()).collect();
    let (worker, iface) = open("posix", &settings);
    let count = Rc::new(Cell::new(0u64));
    let received = Rc::clone(&count);
    iface.set_am_handler(ID, move |_| received.set(received.get() + 1));
    say(&address(&iface));
    let lines = heard();
    let (mut most_events, mut is_held) = (0, false);
    loop {
        if is_held {
            std::thread::sleep(Duration::from_millis(1));
        } else {
            most_events = most_events.max(u64::from(worker.progress()));
        }
        let Ok(line) = lines.try_recv() else { continue };
        match line.as_str() {
            "hold" => is_held = true,
            "go" => is_held = false,
            "tell" => (),
            "end" => return,
            other => panic!("{other}"),
        }
        let counters = iface.transport_counters();
        let peers = counters.iter().find(|(name, _)| name == "peers").expect("a counter").1;
        let facts = [resident(), descriptors(), most_events, peers, count.get()];
        say(&facts.map(|fact| fact.to_string()).join(" "));
    }
}

fn address(iface: &Iface) -> String {
    hex(&iface.address().expect("an address").pack().expect("it packs"))
}

/// What the interface under attack reports.
#[derive(Debug, Clone, Copy)]
struct Facts {
    resident: u64,
    descriptors: u64,
    most_events: u64,
    peers: u64,
    received: u64,
}

/// The interface under attack, in another process.
struct Target {
    peer: Peer,
    address: IfaceAddress,
    log: tempfile::NamedTempFile,
}

impl Target {
    fn start(test: &str, settings: &str) -> Target {
        Target::start_after("true", test, settings)
    }

    /// As [`start`](Self::start), after a command of its shell.
    fn start_after(command: &str, test: &str, settings: &str) -> Target {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let shell = format!("{command}; exec 2>{}; exec \"$@\"", log.path().display());
        let peer = Peer::start(&["sh", "-c", &shell, "sh"], test, &format!("stand {settings}"));
        let (address, _) = IfaceAddress::unpack(&unhex(&peer.line())).expect("an address");
        Target { peer, address, log }
    }

    fn ask(&mut self, word: &str) -> Facts {
        self.peer.tell(word);
        let line = self.peer.line();
        let facts: Vec<u64> = line.split(' ').map(|fact| fact.parse().expect("a number")).collect();
        let [resident, descriptors, most_events, peers, received] = facts[..] else { panic!("{line}") };
        Facts { resident, descriptors, most_events, peers, received }
    }

    /// Waits until its report is as expected.
    fn wait_for(&mut self, what: &str, is_it: impl Fn(Facts) -> bool) -> Facts {
        let start = Instant::now();
        loop {
            let facts = self.ask("tell");
            if is_it(facts) {
                return facts;
            }
            assert!(start.elapsed() < LIMIT, "{what}: {facts:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn logged(&self) -> u64 {
        File::open(self.log.path()).and_then(|file| file.metadata()).expect("a log").len()
    }
}

/// A peer that keeps to the rules, in this process.
struct Honest {
    worker: Worker,
    iface: Iface,
}

impl Honest {
    fn open(settings: &[&str]) -> Honest {
        let (worker, iface) = open("posix", settings);
        Honest { worker, iface }
    }

    /// Connects and sends a message; it arrives.
    fn is_served(&self, target: &mut Target) {
        let before = target.ask("tell").received;
        let ep = self.iface.connect(&target.address).expect("a connection");
        until(&self.worker, || ep.am_short(ID, 0, &[1; 8])).expect("a message");
        let start = Instant::now();
        while target.ask("tell").received == before {
            self.worker.progress();
            assert!(start.elapsed() < LIMIT, "an honest peer is not served");
        }
        assert_eq!(until(&self.worker, || ep.am_short(ID, 0, &[])), Ok(()));
    }
}

#[test]
fn many_half_open_connections_cost_little_and_keep_no_peer_out() {
    if let Some(role) = role() {
        return stand(&role);
    }
    if !is_alone() {
        return;
    }
    const TEST: &str = "many_half_open_connections_cost_little_and_keep_no_peer_out";
    // UCT_TEST_CONNECTS=100000 is the full size.
    let connects = number("UCT_TEST_CONNECTS", 12_000);
    let mut target = Target::start(TEST, "shm.dir=");
    let before = target.ask("hold");
    // A queue that is full, of connections that are closed again.
    let mut sent = 0;
    while knock(&target.address.iface, None).is_ok() {
        sent += 1;
        assert!(sent <= 100_000, "the queue has no end");
    }
    // A process that connects now waits.
    let honest = Honest::open(&["shm.dir="]);
    let early = honest.iface.connect(&target.address).expect("there is no room yet, which is no error");
    until(&honest.worker, || early.am_short(ID, 0, &[1; 8])).expect("it goes into the ring meanwhile");
    target.ask("go");
    let start = Instant::now();
    while target.ask("tell").received == 0 {
        honest.worker.progress();
        assert!(start.elapsed() < LIMIT, "a peer that has waited is not served");
    }
    let mut silent = Vec::new();
    while sent < connects {
        // Some stay and send nothing, some send invalid messages.
        if let Ok(socket) = knock(&target.address.iface, None) {
            sent += 1;
            match sent % 4 {
                0 => silent.push(socket),
                1 => drop(rustix::net::send(&socket, &[7; 40], rustix::net::SendFlags::NOSIGNAL)),
                _ => (),
            }
        }
        silent.drain(..silent.len().saturating_sub(200));
        if sent % 1000 == 0 {
            let facts = target.ask("tell");
            assert!(facts.descriptors < before.descriptors + 80, "{facts:?}, {before:?} before");
            honest.is_served(&mut target);
        }
    }
    silent.clear();
    let after = target.wait_for("descriptors stay", |facts| facts.descriptors <= before.descriptors + 3);
    println!("{sent} connections: {before:?} before, {after:?} after, {} bytes of log", target.logged());
    assert!(after.most_events <= MOST_EVENTS, "{after:?}");
    assert!(after.resident < before.resident + 16_384, "{after:?}, {before:?} before");
    assert!(target.logged() < 4096, "{} bytes of log", target.logged());
    honest.is_served(&mut target);
}

#[test]
fn connecting_to_a_queue_that_stays_full_fails_after_its_time() {
    if let Some(role) = role() {
        return stand(&role);
    }
    if !is_alone() {
        return;
    }
    const TEST: &str = "connecting_to_a_queue_that_stays_full_fails_after_its_time";
    const TIME: Duration = Duration::from_millis(300);
    let mut target = Target::start(TEST, "shm.dir=");
    target.ask("hold");
    let mut sent = 0;
    while knock(&target.address.iface, None).is_ok() {
        sent += 1;
        assert!(sent <= 100_000, "the queue has no end");
    }
    let failures = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::clone(&failures);
    let honest = Honest::open(&["shm.dir=", "shm.connect_timeout=300ms"]);
    let start = Instant::now();
    let waiting = honest
        .iface
        .connect_with(&target.address, move |failure| list.borrow_mut().push(failure))
        .expect("there is no room yet, which is no error");
    until(&honest.worker, || waiting.am_short(ID, 0, &[1; 8])).expect("it goes into the ring meanwhile");
    let failed = honest.worker.progress_until(LIMIT, || !failures.borrow().is_empty());
    let after = start.elapsed();
    assert!(failed, "it waits for ever");
    assert!(after >= TIME, "it fails after {after:?} already");
    let reason = failures.borrow()[0].to_string();
    assert!(reason.contains("UCT_SHM_CONNECT_TIMEOUT=0.3s"), "{reason}");
    assert_eq!(failures.borrow()[0].error, Error::UNREACHABLE);
    assert_eq!(waiting.am_short(ID, 0, &[1; 8]), Err(Error::UNREACHABLE));
    drop(waiting);
    // It is nothing that lasts: who connects when there is room is served.
    target.ask("go");
    let start = Instant::now();
    while target.ask("tell").most_events == 0 || knock(&target.address.iface, None).is_err() {
        assert!(start.elapsed() < LIMIT, "the queue stays full");
    }
    assert_eq!(target.ask("tell").received, 0, "what was never sent has come");
    honest.is_served(&mut target);
    assert_eq!(failures.borrow().len(), 1, "a failure is reported once");
}

#[test]
fn a_peer_that_sends_no_hello_is_disconnected() {
    if let Some(role) = role() {
        return stand(&role);
    }
    if !is_alone() {
        return;
    }
    let mut target = Target::start(
        "a_peer_that_sends_no_hello_is_disconnected",
        "shm.hello_timeout=50ms shm.max_half_open=8",
    );
    let before = target.ask("tell");
    let silent: Vec<_> = (0..40).map(|_| knock(&target.address.iface, None).expect("a connection")).collect();
    let crowded = target.wait_for("nobody is there", |facts| facts.descriptors > before.descriptors);
    assert!(crowded.descriptors <= before.descriptors + 8, "{crowded:?}, {before:?} before");
    target.wait_for("they stay", |facts| facts.descriptors <= before.descriptors);
    drop(silent);
}

#[test]
fn one_process_does_not_take_all_connections() {
    if let Some(role) = role() {
        return stand(&role);
    }
    if !is_alone() {
        return;
    }
    const TEST: &str = "one_process_does_not_take_all_connections";
    takes_most_of_its_share(Target::start(TEST, "shm.max_connections_per_process=30"), 30);
}

#[test]
fn one_process_does_not_take_all_descriptors() {
    if let Some(role) = role() {
        return stand(&role);
    }
    if !is_alone() {
        return;
    }
    const TEST: &str = "one_process_does_not_take_all_descriptors";
    // A quarter of those that are not reserved; the limit of connections is larger.
    let settings = "shm.max_connections_per_process=100 shm.reserved_descriptors=64";
    takes_most_of_its_share(Target::start_after("ulimit -n 144", TEST, settings), 20);
}

/// Has a greedy process, this one, connect to the target as often as it can: it gets `most` connections, and others are served.
fn takes_most_of_its_share(mut target: Target, most: u64) {
    // The honest peer is of this process too, and comes first.
    let honest = Honest::open(&[]);
    honest.is_served(&mut target);
    let before = target.ask("tell");
    let to = &target.address.iface.clone();
    let first = Intruder::connect(to, None).expect("a connection");
    let mut greedy = vec![first];
    let mut refusals = HashMap::new();
    for _ in 0..number("UCT_TEST_CONNECTIONS", 200) {
        let one = greedy[0].again(to, None).expect("a connection");
        one.say(&Intruder::hello(to, to, None), &one.descriptors());
        let start = Instant::now();
        loop {
            match one.hear() {
                Heard::Nothing => assert!(start.elapsed() < LIMIT, "no answer"),
                Heard::Refusal(words) => break *refusals.entry(words).or_insert(0) += 1,
                _ => break greedy.push(one),
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let after = target.ask("tell");
    // The first one sends no hello: it counts, and is no peer.
    assert!((most - 1..=most).contains(&after.peers), "{after:?}, {refusals:?}");
    assert!(after.descriptors < before.descriptors + most + 10, "{after:?}, {before:?} before");
    assert!(
        refusals.keys().all(|words| words.contains("UCT_SHM_MAX_CONNECTIONS_PER_PROCESS")),
        "{refusals:?}"
    );
    assert!(!refusals.is_empty());
    // Another process is none of them. It stays until its message has arrived.
    let own = std::env::current_exe().expect("this program");
    let other = std::process::Command::new(own)
        .args(["--exact", &sibling("another_process_is_served"), "--nocapture"])
        .env("SHM_TEST_TARGET", hex(&target.address.pack().expect("it packs")))
        .stdin(Stdio::piped())
        .spawn();
    let mut other = other.expect("it starts");
    target.wait_for("its message is missing", |facts| facts.received > before.received);
    let mut stdin = other.stdin.take().expect("a pipe");
    writeln!(stdin, "it has arrived").expect("it reads");
    assert!(other.wait().expect("it ends").success(), "another process is not served");
    greedy.clear();
    target.wait_for("connections stay", |facts| facts.peers <= before.peers);
}

/// Of use for another test only, which starts it with an address.
#[test]
fn another_process_is_served() {
    let Ok(target) = std::env::var("SHM_TEST_TARGET") else { return };
    let (address, _) = IfaceAddress::unpack(&unhex(&target)).expect("an address");
    let honest = Honest::open(&[]);
    let ep = honest.iface.connect(&address).expect("a connection");
    until(&honest.worker, || ep.am_short(ID, 0, &[1; 8])).expect("a message");
    let lines = heard();
    assert!(honest.worker.progress_until(LIMIT, || lines.try_recv().is_ok()), "its message does not arrive");
    assert!(!matches!(ep.am_short(ID, 0, &[]), Err(error) if error != Error::NO_RESOURCE), "it is refused");
}

/// Without a descriptor left, sleeps, and reports how often it was woken in a second.
fn starve() {
    let (worker, iface) = open("posix", &["shm.reserved_descriptors=0"]);
    let count = Rc::new(Cell::new(0u64));
    let received = Rc::clone(&count);
    iface.set_am_handler(ID, move |_| received.set(received.get() + 1));
    let lines = heard();
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    say(&address(&iface));
    assert_eq!(lines.recv().expect("a line"), "knocked");
    let (start, mut woken) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(1) {
        while worker.progress() > 0 {}
        woken += u32::from(worker.wait(Duration::from_millis(200)).expect("it sleeps"));
    }
    say(&woken.to_string());
    files.clear();
    let start = Instant::now();
    while count.get() == 0 {
        worker.progress();
        assert!(start.elapsed() < LIMIT, "nobody came in when there was room");
    }
    say("served");
}

#[test]
fn a_process_without_free_descriptors_still_sleeps() {
    if role().is_some() {
        return starve();
    }
    if !is_alone() {
        return;
    }
    const TEST: &str = "a_process_without_free_descriptors_still_sleeps";
    let mut starved = Peer::start(&["sh", "-c", "ulimit -n 48; exec \"$@\"", "sh"], TEST, "starve");
    let (address, _) = IfaceAddress::unpack(&unhex(&starved.line())).expect("an address");
    let honest = Honest::open(&[]);
    let ep = honest.iface.connect(&address).expect("a connection");
    until(&honest.worker, || ep.am_short(ID, 0, &[1; 8])).expect("a message");
    starved.tell("knocked");
    let woken: u32 = starved.line().parse().expect("a number");
    assert!(woken <= 40, "woken {woken} times in a second");
    assert_eq!(starved.line(), "served");
}

#[test]
fn a_peer_that_never_reads_costs_a_ring() {
    if let Some(role) = role() {
        return stand(&role);
    }
    if !is_alone() {
        return;
    }
    let mut target = Target::start("a_peer_that_never_reads_costs_a_ring", "");
    target.ask("hold");
    let honest = Honest::open(&[]);
    let ep = honest.iface.connect(&target.address).expect("a connection");
    let before = (resident(), descriptors());
    let mut refused = 0;
    for _ in 0..20_000 {
        refused += u32::from(ep.am_short(ID, 0, &[1; 40]) == Err(Error::NO_RESOURCE));
        let packed = ep.am_bcopy(ID, SendFlags::empty(), |buffer| buffer.len());
        refused += u32::from(packed == Err(Error::NO_RESOURCE));
        honest.worker.progress();
    }
    assert!(refused > 30_000, "{refused} of 40000 were refused");
    // Both rings have 1.2 MB each.
    assert!(resident() < before.0 + 4096, "{} KiB, {} before", resident(), before.0);
    assert_eq!(descriptors(), before.1);
    target.ask("go");
    target.wait_for("messages are missing", |facts| facts.received == u64::from(40_000 - refused));
}

#[test]
fn names_of_others_in_the_directory_are_left_alone_and_cost_little() {
    if !is_alone() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let keep = path("uct-shm-plain.sock");
    File::create(&keep).expect("a file");
    std::os::unix::fs::symlink("/dev/null", path("uct-shm-link.sock")).expect("a link");
    let names: Vec<_> = (0..5000).map(|number| path(&format!("uct-shm-{number:08x}.sock"))).collect();
    let socket = |path: &Path| drop(std::os::unix::net::UnixListener::bind(path).expect("a socket"));
    names.iter().for_each(|path| socket(path));
    let setting = format!("shm.dir={}", directory.path().display());
    drop(Honest::open(&[&setting]));
    let left = names.iter().filter(|path| path.exists()).count();
    assert!((3990..=4010).contains(&left), "{left} of 5000 are left: a thousand names are looked at");
    assert!(keep.exists() && path("uct-shm-link.sock").is_symlink());
    for path in names {
        let _ = std::fs::remove_file(path);
    }
    if !skip::is_root("give a socket to another user") {
        return;
    }
    let foreign = path("uct-shm-foreign.sock");
    socket(&foreign);
    std::os::unix::fs::lchown(&foreign, Some(65534), None).expect("it is another's now");
    drop(Honest::open(&[&setting]));
    assert!(foreign.exists(), "a socket of another user was removed");
}

/// Whatever order the file system has: half of the names are sockets of dead processes, which are removed if they are looked at.
#[test]
fn names_of_plain_files_in_the_directory_are_among_the_thousand_that_are_looked_at() {
    if !is_alone() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = |number: u32| directory.path().join(format!("uct-shm-{number:08x}.sock"));
    for number in 0..2000 {
        drop(std::os::unix::net::UnixListener::bind(path(2 * number)).expect("a socket"));
        File::create(path(2 * number + 1)).expect("a file");
    }
    drop(Honest::open(&[&format!("shm.dir={}", directory.path().display())]));
    let removed = (0..2000).filter(|number| !path(2 * number).exists()).count();
    assert!((300..=700).contains(&removed), "{removed} sockets were found among a thousand names");
}
