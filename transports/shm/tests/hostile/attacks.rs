//! Hostile peers and users: they send, pass and write anything, and an honest peer is served throughout.
//!
//! `UCT_TEST_SEED` repeats a run, `UCT_TEST_SECONDS` makes it longer.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::common::{LIMIT, Peer, heard, hex, open, role, say, seed, skip, unhex, until};
use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use uct_core::{Access, AmId, Error, Iface, IfaceAddress, MemoryKind, SendFlags, Worker};
use uct_shm::testing::{Heard, Intruder, Lair, knock, message, with_key, with_own_process};

const ID: AmId = AmId::new(13).unwrap();
/// Of the transport's own messages in the ring, and one beyond.
const TAGS: [u8; 5] = [13, 32, 33, 34, 255];

/// Numbers that look random (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Small more often than large: it is likelier to be taken for something.
    fn value(&mut self) -> u64 {
        match self.below(4) {
            0 => self.next(),
            1 => self.next() >> 32,
            _ => self.next() % 512,
        }
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.value() as u8).collect()
    }
}

fn length() -> Duration {
    let seconds = std::env::var("UCT_TEST_SECONDS").ok().map(|text| text.parse().expect("a number"));
    Duration::from_secs_f64(seconds.unwrap_or(2.5))
}

fn address(iface: &Iface) -> String {
    hex(&iface.address().expect("an address").pack().expect("it packs"))
}

fn parse(line: &str) -> IfaceAddress {
    IfaceAddress::unpack(&unhex(line)).expect("an address").0
}

/// An interface under attack: receives, keeps some, connects on command, and reports what it has cost.
fn stand(transport: &str, settings: &[&str]) {
    let (worker, iface) = open(transport, settings);
    let count = Rc::new(Cell::new(0u64));
    let kept = Rc::new(RefCell::new(Vec::new()));
    let (received, keep) = (Rc::clone(&count), Rc::clone(&kept));
    iface.set_am_handler(ID, move |message| {
        // Of the honest peer, whose messages have eights in them.
        let bytes: Vec<u8> = message.to_vec();
        if bytes == [8; 24] {
            received.set(received.get() + 1);
        }
        if keep.borrow().len() < 16 {
            keep.borrow_mut().push(message.keep());
        } else {
            keep.borrow_mut().clear();
        }
    });
    let memory = iface.memory_domain().allocate(8192, Access::ALL, MemoryKind::Host).expect("memory");
    say(&address(&iface));
    let lines = heard();
    let mut bad = Vec::new();
    let failed = Rc::new(Cell::new(0u64));
    let mut longest = Duration::ZERO;
    loop {
        let start = Instant::now();
        worker.progress();
        longest = longest.max(start.elapsed());
        for ep in &bad {
            let ep: &uct_core::Ep = ep;
            let _ = ep.am_short(ID, 0, &[1; 40]);
            let _ = ep.am_bcopy(ID, SendFlags::empty(), |buffer| buffer.len().min(3000));
            let _ = ep.am_bcopy(ID, SendFlags::empty(), |buffer| buffer.len());
        }
        let Ok(line) = lines.try_recv() else { continue };
        if let Some(to) = line.strip_prefix("connect ") {
            let told = Rc::clone(&failed);
            bad.extend(iface.connect_with(&parse(to), move |_| told.set(told.get() + 1)));
            bad.drain(..bad.len().saturating_sub(8));
        } else if line == "release" {
            // Both hold connections, as long as the program wants them.
            bad.clear();
            kept.borrow_mut().clear();
        }
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let resident = status.lines().find(|line| line.starts_with("VmRSS:")).expect("memory");
        let resident = resident.split_whitespace().nth(1).expect("a number");
        let files = std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
        assert_eq!(memory.len(), 8192);
        say(&format!("{} {resident} {files} {} {}", count.get(), longest.as_millis(), failed.get()));
    }
}

/// Something to hand over: what a peer expects, or anything else.
fn descriptor(random: &mut Random) -> Option<OwnedFd> {
    let sized = |flags: MemfdFlags, size: u64, seals: SealFlags| {
        let fd = memfd_create("uct", flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).ok()?;
        ftruncate(&fd, size).ok()?;
        fcntl_add_seals(&fd, seals).ok()?;
        Some(fd)
    };
    let none = MemfdFlags::empty();
    let file = |path: &str, flags: OFlags| rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok();
    match random.below(12) {
        0 => rustix::pipe::pipe().ok().map(|(read, _)| read),
        1 => File::open("/").ok().map(OwnedFd::from),
        2 => file("/dev/zero", OFlags::RDWR),
        3 => file("/etc/passwd", OFlags::RDONLY),
        4 => file("/etc/passwd", OFlags::PATH),
        5 => sized(none, 1 << 24, SealFlags::empty()),
        6 => sized(none, 1 << 24, SealFlags::SHRINK | SealFlags::WRITE),
        7 => sized(none, 1 << 40, SealFlags::SHRINK),
        8 => sized(none, random.next() % 8192, SealFlags::SHRINK),
        9 => sized(MemfdFlags::HUGETLB, 1 << 24, SealFlags::SHRINK),
        10 => rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).ok(),
        _ => tempfile::tempfile().ok().map(OwnedFd::from),
    }
}

/// A System V segment: of nobody, of any process that has one, or of this process with and without what it needs.
fn segment(random: &mut Random) -> i32 {
    let make = |size: usize| {
        // SAFETY: shmget takes numbers and touches no memory of ours.
        unsafe { libc::shmget(libc::IPC_PRIVATE, size, libc::IPC_CREAT | 0o600) }
    };
    let remove = |id: i32| {
        // SAFETY: IPC_RMID uses no buffer.
        unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) }
    };
    match random.below(3) {
        0 => random.value() as i32,
        1 => {
            let listed = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
            let ids: Vec<i32> = listed
                .lines()
                .filter_map(|line| line.split_whitespace().nth(1).and_then(|id| id.parse().ok()))
                .collect();
            if ids.is_empty() { 0 } else { ids[random.below(ids.len())] }
        }
        _ => {
            let id = make(if random.below(2) == 0 { 1 << 22 } else { 4096 });
            // SAFETY: the kernel chooses the address; the memory is not touched.
            let base = unsafe { libc::shmat(id, std::ptr::null(), 0) };
            remove(id);
            if random.below(64) != 0 && base as isize != -1 {
                // SAFETY: attached just now, and nothing points there.
                unsafe { libc::shmdt(base) };
            }
            id
        }
    }
}

/// One message: invalid, or as every peer sends it.
fn misbehave(random: &mut Random, one: &Intruder, hello: &[u8]) {
    let others: Vec<OwnedFd> = (0..random.below(5)).filter_map(|_| descriptor(random)).collect();
    let mut descriptors = one.descriptors();
    match random.below(4) {
        0 => descriptors = others.iter().take(4).map(AsFd::as_fd).collect(),
        1 => {
            let at = random.below(descriptors.len());
            if let Some(other) = others.first() {
                descriptors[at] = other.as_fd();
            }
        }
        2 => descriptors.truncate(random.below(4)),
        _ => (),
    }
    match random.below(10) {
        0 => drop(one.say(hello, &descriptors)),
        1 => {
            let mut hello = hello.to_vec();
            for _ in 0..random.below(6) {
                // Words, so that numbers become others.
                let at = random.below(hello.len() / 4) * 4;
                hello[at..at + 4].copy_from_slice(&(random.value() as u32).to_ne_bytes());
            }
            one.say(&hello, &descriptors);
        }
        2 => {
            let length = random.below(600);
            one.say(&random.bytes(length), &descriptors);
        }
        3 | 4 => {
            let length = [0, 8, 16, 24, 32, 48, 112][random.below(7)];
            let kind = 1 + random.below(8) as u32;
            one.say(&message(kind, &random.bytes(length)), &descriptors);
        }
        5 | 6 => {
            let length = [8, 24, 56, 57, 300, 3000][random.below(6)];
            one.send(TAGS[random.below(TAGS.len())], &random.bytes(length));
            one.say(&message(4, &[]), &[]);
        }
        _ => {
            for _ in 0..random.below(2000) {
                let value = random.value();
                one.scribble(&mut |limit| random.below(limit), value);
            }
        }
    }
    while !matches!(one.hear(), Heard::Nothing | Heard::Closed) {}
}

/// Attacks the interface of the first line, in the name of that of the second one now and then, as long as it is let.
fn attack(transport: &str, seed: u64) {
    let is_sysv = transport == "sysv";
    let lines = heard();
    let next = || lines.recv_timeout(LIMIT).expect("a line");
    let (victim, honest) = (parse(&next()).iface, parse(&next()).iface);
    let mut random = Random(seed);
    // Tests that run beside each other have one seed: the process makes the name its own.
    let name = u64::from(std::process::id()) << 32 | random.below(1 << 32) as u64;
    let lair = Lair::open(name, is_sysv).expect("a listener");
    let (device, iface) = lair.address();
    let own = IfaceAddress { transport: transport.to_owned(), device, iface: iface.clone() };
    say(&hex(&own.pack().expect("it packs")));
    let (mut guests, mut caught): (Vec<Intruder>, Vec<Intruder>) = (Vec::new(), Vec::new());
    loop {
        if guests.len() < 12 && random.below(3) == 0 {
            guests.extend(Intruder::connect(&victim, None));
        }
        if let Some(guest) = lair.next() {
            caught.push(guest);
            caught.drain(..caught.len().saturating_sub(8));
        }
        for _ in 0..4 {
            let forged = with_key(&honest, random.next());
            let from = [&iface, &honest, &forged, &victim][random.below(4)];
            let segment = is_sysv.then(|| segment(&mut random));
            let mut stride = || 64 * (1 + random.below(2048) as u32);
            let strides = (stride(), stride());
            let hello = match random.below(4) {
                0 => Intruder::narrow_hello(from, &victim, segment, strides),
                _ => Intruder::hello(from, &victim, segment),
            };
            if !guests.is_empty() {
                let at = random.below(guests.len());
                if random.below(2) == 0 {
                    guests[at].say(&hello, &guests[at].descriptors());
                }
                misbehave(&mut random, &guests[at], &hello);
                if random.below(8) == 0 {
                    guests.swap_remove(at);
                }
            }
            if let Some(one) = caught.get(random.below(8)) {
                let welcome = lair.welcome((random.below(3) == 0).into());
                misbehave(&mut random, one, &welcome);
            }
        }
    }
}

/// Connects in the name of the second line's interface to that of the first, and has its own process in an address of that name.
fn pretend() {
    let lines = heard();
    let next = || lines.recv_timeout(LIMIT).expect("a line");
    let (to, mut name) = (parse(&next()).iface, parse(&next()));
    let one = Intruder::connect(&to, None).expect("a connection");
    assert!(one.say(&Intruder::hello(&name.iface, &to, None), &one.descriptors()));
    let start = Instant::now();
    while !matches!(one.hear(), Heard::Welcome(_)) {
        assert!(start.elapsed() < LIMIT, "no welcome");
    }
    name.iface = with_own_process(&name.iface);
    say(&hex(&name.pack().expect("it packs")));
    let _ = lines.recv_timeout(LIMIT);
}

/// As another user: takes what is open to it.
fn crowd() {
    let lines = heard();
    let next = || lines.recv_timeout(LIMIT).expect("a line");
    let (victim, directory) = (parse(&next()).iface, next());
    say("ready");
    let (mut connected, mut by_name, mut removed) = (0u64, 0u64, 0u64);
    let path = std::path::Path::new(&directory);
    let end = Instant::now() + length();
    while Instant::now() < end {
        // The queue is full most of the time.
        for _ in 0..200 {
            connected += u64::from(knock(&victim, None).is_ok());
        }
        if let Ok(one) = Intruder::connect(&victim, None) {
            one.say(&Intruder::hello(&victim, &victim, None), &one.descriptors());
        }
        by_name += u64::from(knock(&victim, Some(path)).is_ok());
        for entry in std::fs::read_dir(path).expect("a directory").flatten() {
            removed += u64::from(std::fs::remove_file(entry.path()).is_ok());
            let _ =
                std::fs::set_permissions(entry.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777));
        }
    }
    say(&format!("{by_name} {removed} {connected}"));
    let _ = lines.recv_timeout(LIMIT);
}

fn play(role: &str) {
    let words: Vec<&str> = role.split(' ').filter(|word| !word.is_empty()).collect();
    match words[0] {
        "stand" => stand(words[1], &words[2..]),
        "attack" => attack(words[1], words[2].parse().expect("a seed")),
        "crowd" => crowd(),
        "pretend" => pretend(),
        other => panic!("{other}"),
    }
}

/// What the interface under attack reports.
#[derive(Debug, Clone, Copy)]
struct Facts {
    received: u64,
    resident: u64,
    files: u64,
    longest: u64,
    failed: u64,
}

struct Scene {
    victim: Peer,
    address: String,
    log: tempfile::NamedTempFile,
    worker: Worker,
    iface: Iface,
}

impl Scene {
    fn new(test: &str, transport: &str, settings: &[&str]) -> Scene {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let shell = format!("exec 2>{}; exec \"$@\"", log.path().display());
        let role = format!("stand {transport} {}", settings.join(" "));
        let victim = Peer::start(&["sh", "-c", &shell, "sh"], test, &role);
        let address = victim.line();
        let (worker, iface) = open(transport, settings);
        Scene { victim, address, log, worker, iface }
    }

    fn ask(&mut self, words: &str) -> Facts {
        self.victim.tell(words);
        let line = match self.victim_line() {
            Some(line) => line,
            None => panic!("it is gone: {}", std::fs::read_to_string(self.log.path()).expect("a log")),
        };
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
        let [received, resident, files, longest, failed] = numbers[..] else { panic!("{line}") };
        Facts { received, resident, files, longest, failed }
    }

    fn victim_line(&self) -> Option<String> {
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            self.worker.progress();
            match self.victim.try_line() {
                Ok(line) => return Some(line),
                Err(std::sync::mpsc::TryRecvError::Empty) => std::thread::yield_now(),
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return None,
            }
        }
        None
    }

    /// Sends honest messages for as long as `goes_on`, and sees that all of them arrive.
    fn is_served_while(&mut self, mut goes_on: impl FnMut(&mut Scene, u64) -> bool) -> Facts {
        let ep = self.iface.connect(&parse(&self.address)).expect("a connection");
        let before = self.ask("tell").received;
        let mut sent = 0;
        loop {
            for _ in 0..20 {
                let posted = until(&self.worker, || ep.am_short(ID, u64::from_ne_bytes([8; 8]), &[8; 16]));
                posted
                    .unwrap_or_else(|error: Error| panic!("an honest peer has lost its connection: {error}"));
                sent += 1;
            }
            let start = Instant::now();
            let facts = loop {
                let facts = self.ask("tell");
                if facts.received >= before + sent {
                    break facts;
                }
                assert!(start.elapsed() < LIMIT, "an honest peer is not served: {facts:?}, {sent} sent");
            };
            if !goes_on(self, sent) {
                return facts;
            }
        }
    }
}

#[test]
fn a_peer_that_does_anything_harms_itself_alone() {
    harms_itself_alone("a_peer_that_does_anything_harms_itself_alone", "posix");
}

#[test]
fn a_peer_that_names_any_system_v_segment_harms_itself_alone() {
    harms_itself_alone("a_peer_that_names_any_system_v_segment_harms_itself_alone", "sysv");
}

fn harms_itself_alone(test: &str, transport: &str) {
    if let Some(role) = role() {
        return play(&role);
    }
    let seed = seed::printed();
    let mut scene = Scene::new(test, transport, &[]);
    let before = scene.is_served_while(|_, _| false);
    let mut hostile = Peer::start(&[], test, &format!("attack {transport} {seed}"));
    hostile.tell(&scene.address);
    hostile.tell(&address(&scene.iface));
    let lair = hostile.line();
    let end = Instant::now() + length();
    let after = scene.is_served_while(|scene, sent| {
        if sent == 20 || sent % 400 == 0 {
            // It is connected to as well.
            scene.ask(&format!("connect {lair}"));
        }
        Instant::now() < end
    });
    println!("{before:?} before, {after:?} after");
    assert!(hostile.is_running(), "the hostile peer has ended by itself");
    hostile.kill();
    let start = Instant::now();
    while scene.ask("tell").failed == 0 {
        assert!(start.elapsed() < LIMIT, "no connection to it has failed");
    }
    scene.ask("release");
    let start = Instant::now();
    let files = loop {
        let files = scene.ask("tell").files;
        if files <= before.files + 2 || start.elapsed() > LIMIT / 2 {
            break files;
        }
    };
    assert!(files <= before.files + 2, "{files} descriptors, {before:?} before");
    assert!(after.resident < before.resident + (64 << 10), "{after:?}, {before:?} before");
    assert!(after.longest < 5000, "{after:?}");
    let logged = scene.log.as_file().metadata().expect("a log").len();
    assert!(logged < 64 << 10, "{logged} bytes of log");
    scene.is_served_while(|_, _| false);
}

#[test]
fn a_ring_that_does_not_hold_what_is_sent_over_it_is_refused() {
    let (worker, iface) = open("posix", &["shm.seg_size=64k"]);
    let to = iface.address().expect("an address").iface;
    for bulk in [128, 8192 + 64, 65_536 - 64] {
        let one = Intruder::connect(&to, None).expect("a connection");
        assert!(one.say(&Intruder::narrow_hello(&to, &to, None, (4096, bulk)), &one.descriptors()));
        let start = Instant::now();
        let words = loop {
            worker.progress();
            match one.hear() {
                Heard::Nothing => assert!(start.elapsed() < LIMIT, "no answer"),
                Heard::Refusal(words) => break words,
                other => panic!("{other:?}, with blocks of {bulk} bytes"),
            }
        };
        assert!(words.contains("UCT_SHM_SEG_SIZE"), "{words}");
    }
}

#[test]
fn what_is_sent_to_an_interface_does_not_go_to_a_process_that_uses_its_name() {
    const TEST: &str = "what_is_sent_to_an_interface_does_not_go_to_a_process_that_uses_its_name";
    if let Some(role) = role() {
        return play(&role);
    }
    let mut scene = Scene::new(TEST, "posix", &[]);
    let mut other = Peer::start(&[], TEST, "pretend");
    other.tell(&address(&scene.iface));
    other.tell(&scene.address);
    let named = other.line_with(&scene.worker);
    let wrong = scene.iface.connect(&parse(&named)).expect("a connection");
    let right = scene.iface.connect(&parse(&scene.address)).expect("a connection");
    until(&scene.worker, || right.am_short(ID, u64::from_ne_bytes([8; 8]), &[8; 16])).expect("it is sent");
    let start = Instant::now();
    while scene.ask("tell").received == 0 {
        assert!(start.elapsed() < LIMIT / 4, "the message went to the process that uses the name");
    }
    drop(wrong);
}

#[test]
fn another_user_is_kept_out_and_costs_little() {
    const TEST: &str = "another_user_is_kept_out_and_costs_little";
    if let Some(role) = role() {
        return play(&role);
    }
    if !skip::is_root("run a process as another user") {
        return;
    }
    // As /dev/shm: all users may write there, and remove their own files.
    let directory = tempfile::tempdir().expect("a directory");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(directory.path(), mode).expect("it is ours");
    let setting = format!("shm.dir={}", directory.path().display());
    let mut scene = Scene::new(TEST, "posix", &[&setting]);
    let before = scene.is_served_while(|_, _| false);
    let mut other = Peer::start(&["setpriv", "--reuid=65534", "--clear-groups"], TEST, "crowd");
    other.tell(&scene.address);
    other.tell(&directory.path().display().to_string());
    assert_eq!(other.line(), "ready");
    let end = Instant::now() + length();
    let after = scene.is_served_while(|_, _| Instant::now() < end);
    // A peer that connects while the queue of the abstract name is full is served, too.
    scene.is_served_while(|_, _| false);
    let line = other.line();
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
    let [by_name, removed, connected] = numbers[..] else { panic!("{line}") };
    println!("{connected} connections of another user: {before:?} before, {after:?} after");
    assert_eq!(
        (by_name, removed),
        (0, 0),
        "connections by the name in the directory, and names removed there"
    );
    assert!(connected > 0);
    assert!(after.resident < before.resident + (16 << 10), "{after:?}, {before:?} before");
    assert!(after.longest < 5000, "{after:?}");
    let logged = scene.log.as_file().metadata().expect("a log").len();
    assert!(logged < 4096, "{logged} bytes of log");
}

#[test]
fn another_user_that_is_let_in_harms_itself_alone() {
    const TEST: &str = "another_user_that_is_let_in_harms_itself_alone";
    if let Some(role) = role() {
        return play(&role);
    }
    if !skip::is_root("run a process as another user") {
        return;
    }
    let seed = seed::printed();
    let mut scene = Scene::new(TEST, "posix", &["shm.peers=any"]);
    let mut hostile =
        Peer::start(&["setpriv", "--reuid=65534", "--clear-groups"], TEST, &format!("attack posix {seed}"));
    hostile.tell(&scene.address);
    hostile.tell(&address(&scene.iface));
    let lair = hostile.line();
    let end = Instant::now() + length();
    scene.is_served_while(|scene, sent| {
        if sent == 20 || sent % 400 == 0 {
            scene.ask(&format!("connect {lair}"));
        }
        Instant::now() < end
    });
    assert!(hostile.is_running(), "the hostile peer has ended by itself");
}
