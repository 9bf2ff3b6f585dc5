//! Memory that is dropped and allocated again all the time, while threads of this process and another process put, get and add
//! to it: nothing crashes, and no byte of other memory is read or changed.
//!
//! `UCT_TEST_SOAK_SECONDS` is the time for which each kind runs; `UCT_TEST_SEED` repeats the choices of one run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Peer, heard, hex, open, role, say, seed, unhex};
use uct_core::{
    Access, AtomicOp, Completion, Ep, Iface, IfaceAddress, Memory, MemoryKind, RemoteKey, Worker,
};

/// What no operation writes: the contents of what is not registered.
const FOREIGN: u8 = 0x5a;
/// What puts write.
const PUT: u8 = 0xee;
/// What memory holds at first.
const FRESH: u8 = 0x11;
/// Vectors at addresses where memory was.
const NEIGHBOURS: usize = 64;
/// Sizes: from the heap, and from the kernel, where memory that is freed is gone.
const SIZES: [usize; 3] = [4096, 40_000, 400_000];

/// Numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) as usize % limit
    }
}

/// Where memory is, or was a moment ago.
#[derive(Clone)]
struct Target {
    address: u64,
    length: usize,
    key: Vec<u8>,
}

impl Target {
    fn to_line(&self) -> String {
        format!("{} {} {}", self.address, self.length, hex(&self.key))
    }

    fn of_line(line: &str) -> Target {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("address, length and key");
        let (address, length) = (word().parse().expect("a number"), word().parse().expect("a number"));
        Target { address, length, key: unhex(word()) }
    }
}

/// A user of memory that may be gone.
struct User {
    worker: Worker,
    iface: Iface,
    ep: Ep,
    random: Random,
    done: [u64; 2],
}

impl User {
    fn new(transport: &str, settings: &[&str], owner: &[u8], seed: u64) -> User {
        let (worker, iface) = open(transport, settings);
        let (address, _) = IfaceAddress::unpack(owner).expect("an address");
        let ep = iface.connect_with(&address, |_| ()).expect("a connection");
        User { worker, iface, ep, random: Random(seed | 1), done: [0; 2] }
    }

    /// Some operations on one target, of which none may bring foreign bytes.
    fn use_it(&mut self, target: &Target) {
        let Ok(key) = self.iface.memory_domain().unpack(&target.key) else { return };
        for _ in 0..8 {
            let is_done = self.operate(target, &key);
            self.done[usize::from(is_done)] += 1;
            self.worker.progress();
        }
    }

    fn operate(&mut self, target: &Target, key: &RemoteKey) -> bool {
        let counter = target.address + target.length as u64 - 8;
        let room = target.length - 8;
        let length = [8, 100, 3000, 30_000][self.random.below(4)].min(room);
        let at = target.address + (self.random.below(room - length + 1) & !7) as u64;
        match self.random.below(6) {
            0 => self.ep.put_short(&vec![PUT; length], at, key).is_ok(),
            1 => {
                let source =
                    self.iface.memory_domain().register(vec![PUT; length], Access::empty()).expect("memory");
                self.ep.put_zcopy(&[source.slice(..)], at, key, &Completion::new(&self.worker)).is_ok()
            }
            2 => {
                let mut bytes = vec![0; length];
                let result = self.ep.get_short(&mut bytes, at, key);
                assert!(!bytes.contains(&FOREIGN), "a get of {length} bytes brought foreign ones");
                result.is_ok()
            }
            3 => {
                let check = |bytes: &[u8]| assert!(!bytes.contains(&FOREIGN), "a get brought foreign bytes");
                let length = length.min(self.iface.attributes().get.max_bcopy);
                self.ep.get_bcopy(length, at, key, &Completion::new(&self.worker), check).is_ok()
            }
            4 => self.ep.atomic64_post(AtomicOp::Add, 1, counter, key).is_ok(),
            _ => {
                let completion = Completion::new(&self.worker);
                self.ep.atomic64_fetch(AtomicOp::Add, 1, counter, key, &completion).is_ok()
            }
        }
    }
}

/// The other process: uses what the test names.
fn serve(role: &str) {
    let mut words = role.split(' ');
    let transport = words.next().expect("a transport");
    let settings: Vec<&str> = words.collect();
    let lines: Receiver<String> = heard();
    let owner = unhex(&lines.recv().expect("an address"));
    let mut user = User::new(transport, &settings, &owner, 0x1234_5678_9abc);
    let mut target = None;
    loop {
        if let Some(line) = lines.try_iter().last() {
            if line == "end" {
                say(&format!("{} {}", user.done[0], user.done[1]));
                return;
            }
            target = Some(Target::of_line(&line));
        }
        match &target {
            Some(target) => user.use_it(target),
            None => drop(user.worker.progress()),
        }
    }
}

/// New memory in one of three ways.
fn memory(iface: &Iface, random: &mut Random) -> Memory {
    let length = SIZES[random.below(SIZES.len())];
    let domain = iface.memory_domain();
    if random.below(3) == 0 {
        let memory = domain.allocate(length, Access::ALL, MemoryKind::Host).expect("memory");
        memory.fill(0, memory.len(), FRESH);
        return memory;
    }
    domain.register(vec![FRESH; length], Access::ALL).expect("a registration")
}

fn churn(test: &str, transport: &str, settings: &[&str], seed: u64, time: Duration) {
    let mut random = Random(seed | 1);
    let (worker, iface) = open(transport, settings);
    let address = iface.address().expect("an address").pack().expect("it packs");
    let role = [&[transport], settings].concat().join(" ");
    let mut peer = Peer::start(&[], test, &role);
    peer.tell(&hex(&address));
    let board: Arc<Mutex<Option<Target>>> = Arc::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let done: Arc<[AtomicU64; 2]> = Arc::default();
    let threads: Vec<_> = (1..=2)
        .map(|index| {
            let (board, is_over, done) = (Arc::clone(&board), Arc::clone(&is_over), Arc::clone(&done));
            let (transport, address) = (transport.to_owned(), address.clone());
            let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
            std::thread::spawn(move || {
                let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
                let mut user = User::new(&transport, &settings, &address, seed ^ index << 32);
                while !is_over.load(Ordering::Relaxed) {
                    let target = board.lock().expect("no thread panicked").clone();
                    match target {
                        Some(target) => user.use_it(&target),
                        None => drop(user.worker.progress()),
                    }
                }
                for (total, own) in done.iter().zip(user.done) {
                    total.fetch_add(own, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut neighbours = VecDeque::new();
    let check = |bytes: Vec<u8>| {
        assert!(
            bytes.iter().all(|&byte| byte == FOREIGN),
            "{transport} {settings:?}: a neighbour has changed"
        );
    };
    let (start, mut count) = (Instant::now(), 0u32);
    while start.elapsed() < time {
        let memory = memory(&iface, &mut random);
        let (address, length) = (memory.address(), memory.len());
        let target = Target { address, length, key: memory.packed_key().expect("a key") };
        if count.is_multiple_of(4) {
            peer.tell(&target.to_line());
        }
        *board.lock().expect("no thread panicked") = Some(target);
        for _ in 0..random.below(200) {
            worker.progress();
        }
        let given_back = if random.below(2) == 0 { memory.into_bytes().ok() } else { None };
        let mut neighbour = given_back.unwrap_or_default();
        neighbour.clear();
        neighbour.resize(length, FOREIGN);
        neighbours.push_back(neighbour);
        if neighbours.len() > NEIGHBOURS {
            neighbours.pop_front().into_iter().for_each(check);
        }
        count += 1;
    }
    is_over.store(true, Ordering::Relaxed);
    peer.tell("end");
    let other = peer.line_with(&worker);
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panicked"));
    neighbours.into_iter().for_each(check);
    let [refused, done] = [0, 1].map(|index: usize| done[index].load(Ordering::Relaxed));
    println!("{transport} {settings:?}: {count} memories; threads {refused} {done}, process {other}");
    assert!(done > 100, "{transport} {settings:?}: {done} operations, {refused} refused");
}

#[test]
fn memory_that_is_freed_while_in_use_exposes_no_other_bytes() {
    const TEST: &str = "memory_that_is_freed_while_in_use_exposes_no_other_bytes";
    if let Some(role) = role() {
        return serve(&role);
    }
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = seed::printed();
    let time = Duration::from_secs(number("UCT_TEST_SOAK_SECONDS").unwrap_or(1));
    for (transport, settings) in
        [("posix", &["shm.cma=y"][..]), ("posix", &["shm.cma=n"]), ("sysv", &["shm.cma=y"]), ("cma", &[])]
    {
        churn(TEST, transport, settings, seed, time);
    }
}
