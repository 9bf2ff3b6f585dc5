//! Memory whose registration ends while others access it: what the owner gets back is its own alone.
//!
//! One thread registers memory, publishes its address and drops it, over and over, while the interface of its memory domain serves peers in a
//! second thread, and two more put to it, get from it and change it by atomics with keys that they have unpacked. All of it is safe
//! Rust. A write that comes late shows in bytes that were given back, in a vector that the allocator made of the same memory, or as a signal.
//! So each transport has a process of its own. `UCT_TEST_SECONDS` says for how long; 3 unless set.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use uct_conformance::{Config, Linkage, Target, random::Random, watchdog::Watchdog};
use uct_core::{
    Access, AtomicOp, Capabilities, Completion, Context, DeviceKind, Ep, Iface, IfaceAddress, Memory,
    MemoryDomain, Posted, RemoteKey, Result, Worker,
};

/// Names the task to a process that was started for one.
const VARIABLE: &str = "UCT_TEST_ENDS_OF_MEMORY";
/// Threads that access the memory.
const INITIATORS: usize = 2;
/// What initiators write. Bytes of the owner's and of its neighbours are others.
const WRITTEN: u8 = 0x5A;
/// What vectors of the owner's hold that were never registered.
const NEIGHBOUR: u8 = 0xA5;
/// Vectors that the allocator may make of memory that was just freed.
const NEIGHBOURS: usize = 4;
/// Accesses of a thread at a time.
const OUTSTANDING: usize = 16;
/// Sizes on both sides of what the allocator unmaps as soon as it is freed.
const SIZES: [usize; 4] = [64, 4096, 64 << 10, 1 << 20];
/// How long the owner waits for an access to memory that it has announced.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(20);

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(VARIABLE) {
        return match run(&task) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                eprintln!("{task}: {problem}");
                ExitCode::FAILURE
            }
        };
    }
    let trials = match targets() {
        Ok(targets) => targets,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    let trials = trials.into_iter().map(|(transport, device)| {
        let name = format!(
            "{transport}/{device}::memory that is dropped while others access it is the owner's alone"
        );
        Trial::test(name, move || child(&transport, &device))
    });
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// The transports with remote memory access that this machine has, and one device of each.
fn targets() -> Result<Vec<(String, String)>, Failure> {
    let config = Config::from_environment()?;
    let context = Target::context(Linkage::Plugin, &config, &[])?;
    let mut targets: Vec<(String, String)> = Vec::new();
    for resource in context.resources() {
        let is_wanted = config.transports.contains(&resource.transport)
            && (resource.kind != DeviceKind::Network || config.devices.contains(&resource.device));
        if is_wanted && !targets.iter().any(|(transport, _)| *transport == resource.transport) {
            targets.push((resource.transport.clone(), resource.device.clone()));
        }
    }
    let required = config.require.iter().flat_map(|name| match name.as_str() {
        "shm" => vec!["posix", "sysv"],
        name => vec![name],
    });
    for name in required.filter(|name| config.transports.contains(name)) {
        if !targets.iter().any(|(transport, _)| transport == name) {
            return Err(format!("UCT_TEST_REQUIRE names {name}, which is not there").into());
        }
    }
    Ok(targets)
}

/// Runs a task in a process of its own, which a signal may end.
fn child(transport: &str, device: &str) -> Result<(), Failed> {
    let config = Config::from_environment()?;
    let task = format!("{transport} {device} {}", config.seed);
    let output = Command::new(std::env::current_exe()?).env(VARIABLE, &task).output()?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let tail: Vec<&str> = errors.lines().rev().take(60).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        return Err(format!("{task}: {}\n{}", output.status, tail.join("\n")).into());
    }
    Ok(())
}

/// Where memory is that may be accessed just now.
#[derive(Clone, Default)]
struct Offer {
    round: u64,
    address: u64,
    length: usize,
    key: Vec<u8>,
}

/// An initiator that wants its endpoint to be connected to one of the target's.
struct Call {
    address: IfaceAddress,
    ep_address: Vec<u8>,
    answer: mpsc::Sender<Vec<u8>>,
}

/// What the threads share.
#[derive(Default)]
struct Scene {
    offer: Mutex<Offer>,
    is_over: AtomicBool,
    /// Accesses that went well, and those that were refused.
    done: AtomicU64,
    refused: AtomicU64,
}

fn run(task: &str) -> Result<(), Failure> {
    let parts: Vec<&str> = task.split(' ').collect();
    let [transport, device, seed] = parts[..] else {
        return Err(format!("{VARIABLE}: this program sets it for itself").into());
    };
    let seed: u64 = seed.parse()?;
    let seconds = std::env::var("UCT_TEST_SECONDS").map_or(Ok(3), |words| words.parse())?;
    let _watchdog = Watchdog::new(task.to_owned(), Duration::from_secs(120 + seconds));
    let scene = Scene::default();
    let (calls, called) = mpsc::channel();
    let (opened, domain) = mpsc::channel();
    let rounds = thread::scope(|threads| {
        let target = threads
            .spawn(move || target(transport, device, &opened, &called).map_err(|error| error.to_string()));
        let Ok((domain, address)) = domain.recv() else {
            return Err(target
                .join()
                .expect("the target does not panic")
                .expect_err("it announced no interface")
                .into());
        };
        let initiators: Vec<_> = (1..=INITIATORS as u64)
            .map(|number| {
                let (calls, address, scene) = (calls.clone(), address.clone(), &scene);
                let random = Random::new(seed ^ number);
                threads.spawn(move || {
                    let result = initiator(transport, device, scene, &calls, &address, random);
                    result.map_err(|error| error.to_string())
                })
            })
            .collect();
        drop(calls);
        let rounds = owner(&domain, &scene, Random::new(seed), Duration::from_secs(seconds));
        scene.is_over.store(true, Ordering::Relaxed);
        for thread in initiators.into_iter().chain([target]) {
            thread.join().expect("a thread panicked")?;
        }
        rounds
    })?;
    let is_lacking = scene.is_lacking(rounds);
    let (done, refused) = (scene.done.into_inner(), scene.refused.into_inner());
    println!("{transport}: {rounds} registrations, {done} accesses, {refused} refused; seed {seed}");
    if is_lacking { Err("too little has happened to see anything".into()) } else { Ok(()) }
}

impl Scene {
    /// Whether less has happened than what a run has to see.
    fn is_lacking(&self, rounds: u64) -> bool {
        let [done, refused] = [&self.done, &self.refused].map(|counter| counter.load(Ordering::Relaxed));
        rounds < 20 || done < 20 || refused == 0
    }
}

/// Registers memory and drops it until the time is over; returns how often.
fn owner(domain: &MemoryDomain, scene: &Scene, mut random: Random, time: Duration) -> Result<u64, Failure> {
    let started = Instant::now();
    let mut round = 0;
    // On a busy machine somewhat longer, until enough has happened.
    while started.elapsed() < time || scene.is_lacking(round) && started.elapsed() < LIMIT + time {
        round += 1;
        let length = if random.below(2) == 0 { SIZES[3] } else { *random.pick(&SIZES) };
        let memory = domain.register(vec![0; length], Access::ALL)?;
        let key = memory.packed_key()?;
        *lock(&scene.offer) = Offer { round, address: memory.address(), length, key };
        // Mostly until accesses to it are in flight, and then at any time of one.
        let done = || scene.done.load(Ordering::Relaxed);
        let (before, pause) = (done(), Duration::from_micros(random.next() % 500));
        let begun = Instant::now();
        while begun.elapsed() < pause || done() == before && begun.elapsed() < PATIENCE {
            thread::yield_now();
        }
        end(memory, &mut random).map_err(|error| format!("round {round}, {length} bytes: {error}"))?;
    }
    Ok(round)
}

/// Ends a registration, and watches what becomes of the memory for a moment.
fn end(memory: Memory, random: &mut Random) -> Result<(), Failure> {
    let length = memory.len();
    if random.next().is_multiple_of(2) {
        let mut bytes = memory.into_bytes().map_err(|_| "somebody else holds the memory")?;
        bytes.fill(NEIGHBOUR);
        thread::sleep(Duration::from_micros(100));
        let foreign = foreign(&bytes);
        return if foreign == 0 {
            Ok(())
        } else {
            Err(format!("{foreign} bytes changed that were given back").into())
        };
    }
    drop(memory);
    let neighbours: Vec<Vec<u8>> = (0..NEIGHBOURS).map(|_| vec![NEIGHBOUR; length]).collect();
    thread::sleep(Duration::from_micros(100));
    let foreign: usize = neighbours.iter().map(|bytes| foreign(bytes)).sum();
    if foreign == 0 { Ok(()) } else { Err(format!("{foreign} foreign bytes in vectors next to it").into()) }
}

/// Bytes of another writer.
fn foreign(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte != NEIGHBOUR).count()
}

/// Opens the interface whose memory domain the owner uses, and serves peers.
fn target(
    transport: &str,
    device: &str,
    opened: &mpsc::Sender<(MemoryDomain, IfaceAddress)>,
    called: &mpsc::Receiver<Call>,
) -> Result<(), Failure> {
    let worker = Worker::new(&context()?)?;
    let iface = worker.open(transport, device)?;
    opened.send((iface.memory_domain().clone(), iface.address()?))?;
    let mut eps = Vec::new();
    // Until the last initiator is gone.
    loop {
        if worker.progress() == 0 {
            thread::yield_now();
        }
        let call = match called.try_recv() {
            Ok(call) => call,
            Err(TryRecvError::Empty) => continue,
            Err(TryRecvError::Disconnected) => break,
        };
        let ep = iface.create_ep(drop)?;
        let own = ep.address()?;
        ep.connect_to_ep(&call.address, &call.ep_address)?;
        eps.retain(|ep: &Ep| ep.failure().is_none());
        eps.push(ep);
        let _ = call.answer.send(own);
    }
    Ok(())
}

fn initiator(
    transport: &str,
    device: &str,
    scene: &Scene,
    calls: &mpsc::Sender<Call>,
    address: &IfaceAddress,
    mut random: Random,
) -> Result<(), Failure> {
    let worker = Worker::new(&context()?)?;
    let iface = worker.open(transport, device)?;
    // An interface that reaches nothing but itself reaches all memory of the process.
    let own = iface.address()?;
    let address = if iface.is_reachable(address).is_ok() { address } else { &own };
    let local = iface.memory_domain().register(vec![WRITTEN; SIZES[3]], Access::ALL)?;
    let into = iface.memory_domain().register(vec![0; SIZES[3]], Access::ALL)?;
    let side = Side { worker, iface, local, into };
    let mut ep = side.connect(calls, address)?;
    // Several at a time, so that the target is always about to access something.
    let mut outstanding: VecDeque<Completion> = VecDeque::new();
    let count = |result: Result<()>| {
        let counter = if result.is_ok() { &scene.done } else { &scene.refused };
        counter.fetch_add(1, Ordering::Relaxed);
    };
    while !scene.is_over.load(Ordering::Relaxed) {
        let offer = lock(&scene.offer).clone();
        let Ok(key) = side.iface.memory_domain().unpack(&offer.key) else { continue };
        for _ in 0..1000 {
            match side.access(&ep, &offer, &key, &mut random) {
                Ok(Some(completion)) => outstanding.push_back(completion),
                result => count(result.map(drop)),
            }
            if ep.failure().is_some() {
                outstanding.drain(..).for_each(|completion| count(completion.wait(LIMIT)));
                drop(ep);
                ep = side.connect(calls, address)?;
            } else if outstanding.len() > OUTSTANDING {
                outstanding.drain(..OUTSTANDING / 2).for_each(|completion| count(completion.wait(LIMIT)));
            }
            if scene.is_over.load(Ordering::Relaxed)
                || random.below(4) == 0 && lock(&scene.offer).round != offer.round
            {
                break;
            }
        }
    }
    outstanding.drain(..).for_each(|completion| count(completion.wait(LIMIT)));
    Ok(())
}

struct Side {
    worker: Worker,
    iface: Iface,
    /// What is put.
    local: Memory,
    /// Where gets go.
    into: Memory,
}

impl Side {
    fn connect(&self, calls: &mpsc::Sender<Call>, address: &IfaceAddress) -> Result<Ep, Failure> {
        if self.iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
            return Ok(self.iface.connect_with(address, drop)?);
        }
        let ep = self.iface.create_ep(drop)?;
        let (answer, answered) = mpsc::channel();
        calls.send(Call { address: self.iface.address()?, ep_address: ep.address()?, answer })?;
        ep.connect_to_ep(address, &answered.recv_timeout(LIMIT)?)?;
        Ok(ep)
    }

    /// Starts an access of some kind, somewhere in the memory; returns what tells of its end.
    fn access(
        &self,
        ep: &Ep,
        offer: &Offer,
        key: &RemoteKey,
        random: &mut Random,
    ) -> Result<Option<Completion>> {
        let attributes = self.iface.attributes();
        let most = |limit: usize| limit.min(offer.length).min(SIZES[3]);
        let completion = Completion::new(&self.worker);
        let word = offer.address + 8 * random.below(offer.length / 8) as u64;
        // The large ones take long, so that memory is dropped while they go on.
        let kind = if random.below(2) == 0 { 3 } else { random.below(10) };
        let length = match kind {
            1 => most(attributes.put.max_short.min(256)),
            2 => most(attributes.put.max_bcopy.min(8192)),
            3 => most(attributes.put.max_zcopy),
            5 => most(attributes.get.max_bcopy.min(8192)),
            6 => most(attributes.get.max_zcopy),
            _ => 8,
        };
        let place = offer.address + random.below(offer.length - length + 1) as u64;
        let written = u64::from_ne_bytes([WRITTEN; 8]);
        let operation = || match kind {
            0 => ep.put_short(&[WRITTEN; 8], word, key).map(|()| Posted::Done),
            1 => ep.put_short(&vec![WRITTEN; length], place, key).map(|()| Posted::Done),
            2 => ep
                .put_bcopy(place, key, |buffer| {
                    buffer[..length].fill(WRITTEN);
                    length
                })
                .map(|_| Posted::Done),
            3 => ep.put_zcopy(&[self.local.slice(..length)], place, key, &completion),
            4 => ep.get_short(&mut [0; 8], word, key).map(|()| Posted::Done),
            5 => ep.get_bcopy(length, place, key, &completion, |_| ()),
            6 => ep.get_zcopy(&[self.into.slice(..length)], place, key, &completion),
            7 => ep.atomic64_post(AtomicOp::Add, written, word, key).map(|()| Posted::Done),
            8 => ep.atomic64_fetch(AtomicOp::Or, written, word, key, &completion).map(|_| Posted::InProgress),
            _ => ep.atomic32_cswap(0, written as u32, word, key, &completion).map(|_| Posted::InProgress),
        };
        let posted = self.worker.retry(LIMIT, || match ep.failure() {
            Some(failure) => Err(failure.error),
            None => operation(),
        });
        let posted = posted?;
        self.worker.progress();
        if completion.is_done() {
            return completion.result().map(|()| None);
        }
        debug_assert_eq!(posted, Posted::InProgress);
        Ok(Some(completion))
    }
}

fn context() -> Result<Context, Failure> {
    Ok(Target::context(Linkage::Plugin, &Config::from_environment()?, &[])?)
}

fn lock(offer: &Mutex<Offer>) -> MutexGuard<'_, Offer> {
    offer.lock().unwrap_or_else(PoisonError::into_inner)
}
