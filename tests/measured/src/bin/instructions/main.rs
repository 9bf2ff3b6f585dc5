//! Runs a named operation N times, and then 2 N times, for callgrind: `cargo xtask instructions` counts what happens inside [`measured`].
//!
//! Both ends of a transport are in this process, one worker each, so that a count is the same on every run. What is not
//! to be counted (the other end's share, or setting up) happens outside of `measured`. Only `cma`, which is about memory of
//! other processes, has its target in one: this program once more, as `--target`.

mod awaited;

use std::arch::asm;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::hint::black_box;
use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::process::{Child, Command, ExitCode, Stdio};
use std::rc::Rc;
use std::time::Duration;

use uct_core::clock::{self, Calibration};
use uct_core::{
    Access, AmId, AtomicOp, Capabilities, Completion, Context, Ep, Error, Fetched, Flush, Iface,
    IfaceAddress, IfaceOptions, Memory, MemoryKind, Posted, RemoteKey, SendFlags, Worker,
};

const ID: AmId = AmId::new(1).unwrap();
/// Operations in one call of `measured`: as many as are asked for, of those that nobody has to receive.
const ALL: u64 = u64::MAX;
/// A burst of messages.
const BURST: u64 = 16;
/// As many messages as a ring of shared memory takes in any case after much traffic.
const RING: u64 = 64;
/// More messages than it takes at first, and how often they are sent until it has grown.
const STREAM: u64 = 100;
const STREAMS: usize = 8;
/// Idle endpoints of a crowd, and how many peers they lead to.
const CROWD: usize = 1000;
const CROWD_PEERS: usize = 50;
/// Interfaces that carry nothing.
const IDLE: usize = 15;
/// Calls of progress after which they rest.
const UNTIL_REST: u32 = 8192;
/// Bytes of registered memory.
const MEMORY: usize = 4096;
/// Longest wait for the other process.
const PATIENCE: Duration = Duration::from_secs(20);
/// Exit status for an operation that this machine does not permit.
const NOT_HERE: u8 = 77;

/// What callgrind collects. It has to be found by its name, and entered once a batch.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn measured(batch: &mut Batch<'_>) {
    (batch.run)();
}

/// Where callgrind writes down what the first part took. It has to be found by its name.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn second_part() {
    black_box(());
}

/// Runs so many operations, and then twice as many, in calls of `run` with at most `most`.
fn in_two_parts(count: &str, most: u64, mut run: impl FnMut(u64)) -> Result<(), Box<dyn std::error::Error>> {
    let count = count.parse::<u64>()?;
    let mut part = |operations: u64| {
        let batch = operations.min(most);
        (0..operations / batch).for_each(|_| run(batch));
    };
    part(count);
    second_part();
    part(2 * count);
    Ok(())
}

/// The operations of one batch.
struct Batch<'a> {
    run: &'a mut dyn FnMut(),
}

fn count(run: &mut dyn FnMut()) {
    measured(black_box(&mut Batch { run }));
}

/// Counts so many operations in a row, and the loop that they are in. A macro, so that what the operation works on is at
/// hand, as it is in a caller's loop; the named variables, handles among them, are in registers: their
/// addresses are nobody's, not even of what drops them in the end.
macro_rules! count_loop {
    ($batch:expr, [$($variable:ident)*], $operation:expr) => {
        count(&mut || {
            $(let $variable = ManuallyDrop::new(black_box($variable).clone());)*
            for _ in 0..$batch {
                $operation;
            }
            $(let _ = ManuallyDrop::into_inner($variable);)*
        })
    };
}

use count_loop;

/// As `black_box`, for a result that stays in its register.
#[inline(always)]
fn use_up(value: u64) {
    // SAFETY: there is no instruction in it.
    unsafe { asm!("/* {} */", in(reg) value, options(nomem, nostack, preserves_flags)) };
}

/// Both ends of a connection.
struct Pair {
    sender: Worker,
    receiver: Worker,
    ep: Ep,
    /// The other end of the endpoint, where endpoints are connected with each other.
    back: Option<Ep>,
    ifaces: [Iface; 2],
    /// Endpoints of the receiver that do nothing, and the interfaces that they lead to.
    crowd: RefCell<Vec<(Ep, Iface)>>,
    idle: RefCell<Vec<Iface>>,
    received: Rc<Cell<u64>>,
    memory: Memory,
    /// Where `key` leads to: the memory, or the other process's.
    remote: u64,
    key: RemoteKey,
}

/// Runs so many operations.
type Operation = fn(&Pair, u64);

/// The name, whether the count has the loop in it, and what to run.
const OPERATIONS: &[(&str, bool, Operation)] = &[
    ("am_short", true, am_short),
    ("am_bcopy", true, am_bcopy),
    ("put_short", true, put_short),
    ("put_from", true, put_from),
    ("put_zcopy", true, put_zcopy),
    ("get_zcopy", true, get_zcopy),
    ("atomic64_fetch", true, atomic64_fetch),
    ("progress_idle", true, progress_idle),
    ("progress_crowd", true, progress_crowd),
    ("progress_message", false, progress_message),
    ("progress_answer", false, progress_answer),
    ("progress_burst", false, progress_burst),
    ("progress_among", false, progress_among),
];

/// A transport, its device, and the operations that are watched on it, with how many are in one call of `measured`.
type Watched = (&'static str, &'static str, &'static [(&'static str, u64)]);

const WATCHED: &[Watched] = &[
    ("self", "memory", &[("am_short", ALL), ("am_bcopy", ALL), ("put_short", ALL), ("atomic64_fetch", ALL)]),
    (
        "tcp",
        "lo",
        &[("am_short", BURST), ("progress_idle", ALL), ("progress_crowd", ALL), ("progress_message", BURST)],
    ),
    (
        "posix",
        "memory",
        &[
            ("am_short", RING),
            ("am_bcopy", RING),
            ("put_short", ALL),
            ("put_from", ALL),
            ("atomic64_fetch", ALL),
            ("progress_idle", ALL),
            ("progress_crowd", ALL),
            ("progress_message", BURST),
            ("progress_answer", BURST),
            ("progress_burst", BURST),
            ("progress_among", BURST),
        ],
    ),
    ("cma", "memory", &[("put_zcopy", ALL), ("get_zcopy", ALL)]),
    (
        "ud_verbs",
        VERBS_DEVICE,
        &[("am_short", BURST), ("am_bcopy", BURST), ("progress_idle", ALL), ("progress_message", BURST)],
    ),
    (
        "rc_verbs",
        VERBS_DEVICE,
        &[
            ("am_short", BURST),
            ("am_bcopy", BURST),
            ("put_short", BURST),
            ("progress_idle", ALL),
            ("progress_message", BURST),
        ],
    ),
];

/// The port of the device in software, as the variable `SOFTVERBS_NAME` names it.
const VERBS_DEVICE: &str = "mlx5_0:1";

/// The loop without an operation, to be taken off the counts that have it in them.
const LOOP: &str = "loop";

/// The transport whose target is another process.
const ELSEWHERE: &str = "cma";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [option] if option == "--list" => {
            list();
            ExitCode::SUCCESS
        }
        [option] if option == "--target" => finish("--target", target()),
        [name, count] => {
            stop_the_clock();
            finish(name, run(name, count))
        }
        _ => {
            eprintln!("usage: instructions --list | --target | loop COUNT | TRANSPORT.OPERATION COUNT");
            ExitCode::FAILURE
        }
    }
}

/// Callgrind takes more time on a busy machine, and a call that takes long is no fast one. Without time all calls are fast, and each check calls
/// all idle callbacks, which is the most that they cost.
fn stop_the_clock() {
    let stopped = Calibration {
        uses_counter: 1,
        reserved: 0,
        // The time of all ticks that are not behind it.
        base_ticks: u64::MAX,
        base_nanoseconds: 0,
        // A tick takes next to no time, and any time more ticks than there ever are.
        nanoseconds_per_tick: 1,
        ticks_per_nanosecond: u64::MAX,
    };
    assert!(clock::install(stopped), "the clock was used already");
}

/// What is watched, a line each; those with a loop in the count say so.
fn list() {
    for (transport, _, names) in WATCHED {
        for (name, _) in *names {
            let has_loop = OPERATIONS.iter().any(|(known, has_loop, _)| known == name && *has_loop);
            println!("{transport}.{name}{}", if has_loop { " loop" } else { "" });
        }
    }
    for (name, has_loop, ..) in awaited::OPERATIONS {
        println!("{name}{}", if *has_loop { " loop" } else { "" });
    }
}

fn finish(name: &str, result: Result<(), Box<dyn std::error::Error>>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    eprintln!("instructions: {name}: {error}");
    if error.is::<NotHere>() { ExitCode::from(NOT_HERE) } else { ExitCode::FAILURE }
}

/// The machine does not permit the operation.
#[derive(Debug)]
struct NotHere(&'static str);

impl fmt::Display for NotHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not permitted to have the kernel copy here", self.0)
    }
}

impl std::error::Error for NotHere {}

fn run(name: &str, count: &str) -> Result<(), Box<dyn std::error::Error>> {
    if name == LOOP {
        return empty_loop(count);
    }
    if awaited::OPERATIONS.iter().any(|known| known.0 == name) {
        return awaited::run(name, count);
    }
    let (transport, operation) = name.split_once('.').ok_or("expected TRANSPORT.OPERATION")?;
    let (_, device, names) = WATCHED.iter().find(|known| known.0 == transport).ok_or("no such transport")?;
    let (_, batch) =
        names.iter().find(|known| known.0 == operation).ok_or("not watched on this transport")?;
    let (_, _, run) = OPERATIONS.iter().find(|known| known.0 == operation).ok_or("no such operation")?;
    let other = (transport == ELSEWHERE).then(Elsewhere::start).transpose()?;
    let pair = match &other {
        Some(other) => Pair::to(other, transport, device)?,
        None => Pair::new(transport, device)?,
    };
    // The first operations find cold pools and unfinished connections.
    run(&pair, BURST);
    in_two_parts(count, *batch, |batch| run(&pair, batch))
}

fn empty_loop(count: &str) -> Result<(), Box<dyn std::error::Error>> {
    in_two_parts(count, ALL, |count| count_loop!(count, [], black_box(())))
}

impl Pair {
    fn new(transport: &str, device: &str) -> Result<Pair, Box<dyn std::error::Error>> {
        let builder = Context::builder().sources(Default::default());
        let context = match device {
            VERBS_DEVICE => builder.set("ib.library", "soft").build()?,
            _ => builder.build()?,
        };
        let resource = context.find(transport, device)?;
        let open = |worker: &Worker| worker.open_resource(&resource, IfaceOptions::default());
        let (sender, receiver) = (Worker::new(&context)?, Worker::new(&context)?);
        let own = open(&sender)?;
        // `self` reaches its own interface only.
        let other = if transport == "self" { own.clone() } else { open(&receiver)? };
        let received = Rc::new(Cell::new(0));
        let seen = Rc::clone(&received);
        other.set_am_handler(ID, move |_| seen.set(seen.get() + 1));
        let memory = other.memory_domain().allocate(MEMORY, Access::ALL, MemoryKind::Host)?;
        let key = own.memory_domain().unpack(&memory.packed_key()?)?;
        let (ep, back) = connect(&own, &other)?;
        let ifaces = [own, other];
        let (crowd, idle, remote) = (RefCell::default(), RefCell::default(), memory.address());
        let pair = Pair { sender, receiver, ep, back, ifaces, crowd, idle, received, memory, remote, key };
        while pair.ep.am_short(ID, 0, &[]) == Err(Error::NO_RESOURCE) {
            pair.sender.progress();
            pair.receiver.progress();
        }
        pair.drain(1);
        pair.stream();
        Ok(pair)
    }

    /// Sends many messages in a row, several times, as a stream does: a ring of shared memory grows.
    fn stream(&self) {
        for _ in 0..STREAMS {
            let before = self.received.get();
            let sent = (0..STREAM).take_while(|_| self.ep.am_short(ID, 0, &[]).is_ok()).count();
            self.drain(before + sent as u64);
        }
    }

    /// To the memory of another process, which the kernel copies to and from.
    fn to(other: &Elsewhere, transport: &str, device: &str) -> Result<Pair, Box<dyn std::error::Error>> {
        let context = Context::builder().sources(Default::default()).build()?;
        let (sender, receiver) = (Worker::new(&context)?, Worker::new(&context)?);
        let own = sender.open(transport, device)?;
        let memory = own.memory_domain().allocate(MEMORY, Access::ALL, MemoryKind::Host)?;
        let key = own.memory_domain().unpack(&other.key)?;
        let ep = own.connect(&other.address)?;
        let ifaces = [own.clone(), own];
        let (crowd, idle, received) = (RefCell::default(), RefCell::default(), Rc::default());
        let (back, remote) = (None, other.place);
        let pair = Pair { sender, receiver, ep, back, ifaces, crowd, idle, received, memory, remote, key };
        let completion = Completion::new(&pair.sender);
        let slices = [pair.memory.slice(..8)];
        let put = || pair.ep.put_zcopy(&slices, pair.remote, &pair.key, &completion);
        match pair.sender.retry(PATIENCE, put)? {
            Posted::Done => Ok(pair),
            Posted::InProgress => Err(Box::new(NotHere(ELSEWHERE))),
        }
    }

    /// Gives the receiver a thousand endpoints to peers on the sender's worker, unless it has them. Each has sent one
    /// message, and nothing for a long time.
    fn gather_crowd(&self) -> Result<(), Box<dyn std::error::Error>> {
        let mut crowd = self.crowd.borrow_mut();
        if !crowd.is_empty() {
            return Ok(());
        }
        let mut peers = Vec::new();
        for _ in 0..CROWD_PEERS {
            let peer = self.sender.open_resource(self.ifaces[0].resource(), IfaceOptions::default())?;
            let seen = Rc::clone(&self.received);
            peer.set_am_handler(ID, move |_| seen.set(seen.get() + 1));
            peers.push(peer);
        }
        let total = self.received.get() + CROWD as u64;
        for peer in peers.iter().cycle().take(CROWD) {
            let ep = self.ifaces[1].connect(&peer.address()?)?;
            while ep.am_short(ID, 0, &[]) == Err(Error::NO_RESOURCE) {
                self.receiver.progress();
                self.sender.progress();
            }
            crowd.push((ep, peer.clone()));
        }
        // All at once: a connection takes many calls of progress.
        self.drain(total);
        // Until the peers are looked at as rarely as they will ever be.
        for _ in 0..64 * 1024 {
            self.receiver.progress();
            self.sender.progress();
        }
        Ok(())
    }

    /// Opens more interfaces on the receiver, unless it has them, and lets messages pass until these interfaces rest.
    fn open_idle(&self) -> Result<(), Box<dyn std::error::Error>> {
        if !self.idle.borrow().is_empty() {
            return Ok(());
        }
        for _ in 0..IDLE {
            let iface = self.receiver.open_resource(self.ifaces[1].resource(), IfaceOptions::default())?;
            self.idle.borrow_mut().push(iface);
        }
        for _ in 0..UNTIL_REST {
            let total = self.received.get() + 1;
            self.ep.am_short(ID, 7, &[1; 8])?;
            self.drain(total);
        }
        Ok(())
    }

    /// Has the receiver take what was sent, outside of what is counted.
    fn drain(&self, total: u64) {
        while self.received.get() < total {
            self.receiver.progress();
            self.sender.progress();
        }
        self.settle();
    }

    /// Has what was sent be acknowledged, and the sender get room again, outside of what is counted: where endpoints are connected with each other
    /// they have a window of their own.
    fn settle(&self) {
        if self.back.is_none() {
            return;
        }
        loop {
            let events = self.receiver.progress() + self.sender.progress();
            let flushed = self.ep.flush(Flush::REMOTE, None).expect("the connection lives");
            if events == 0 && flushed == Posted::Done {
                return;
            }
        }
    }
}

/// An endpoint from one interface to the other, and the other end if that is an endpoint, too.
fn connect(own: &Iface, other: &Iface) -> Result<(Ep, Option<Ep>), Box<dyn std::error::Error>> {
    if own.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
        return Ok((own.connect(&other.address()?)?, None));
    }
    let (near, far) = (own.create_ep(|_| {})?, other.create_ep(|_| {})?);
    near.connect_to_ep(&other.address()?, &far.address()?)?;
    far.connect_to_ep(&own.address()?, &near.address()?)?;
    Ok((near, Some(far)))
}

fn am_short(pair: &Pair, batch: u64) {
    let total = pair.received.get() + batch;
    let ep = &pair.ep;
    let payload: &[u8] = black_box(&[1; 8]);
    count_loop!(batch, [ep], ep.am_short(ID, 7, payload).expect("a batch fits"));
    pair.drain(total);
}

fn am_bcopy(pair: &Pair, batch: u64) {
    let total = pair.received.get() + batch;
    let ep = &pair.ep;
    let payload: &[u8; 8] = black_box(&[1; 8]);
    count_loop!(batch, [ep], {
        let pack = |buffer: &mut [u8]| {
            let Some(place) = buffer.first_chunk_mut() else { return 0 };
            *place = *payload;
            place.len()
        };
        ep.am_bcopy(ID, SendFlags::empty(), pack).expect("a batch fits");
    });
    pair.drain(total);
}

fn put_short(pair: &Pair, batch: u64) {
    let (Pair { ep, key, .. }, address) = (pair, pair.remote);
    let data: &[u8] = black_box(&[1; 8]);
    count_loop!(batch, [address ep], ep.put_short(data, *address, key).expect("the key is right"));
    pair.settle();
}

/// More than a word, which the host would write itself.
fn put_from(pair: &Pair, batch: u64) {
    let (Pair { ep, key, .. }, address) = (pair, pair.remote);
    let data: &[u8] = black_box(&[1; 64]);
    count_loop!(batch, [address ep], ep.put_from(data, *address, key).expect("the key is right"));
}

fn put_zcopy(pair: &Pair, batch: u64) {
    let (Pair { ep, key, .. }, remote) = (pair, pair.remote);
    let (slices, completion) = (&[pair.memory.slice(..8)], &Completion::new(&pair.sender));
    count_loop!(batch, [], {
        let posted = ep.put_zcopy(slices, remote, key, completion);
        assert_eq!(posted, Ok(Posted::Done));
    });
}

fn get_zcopy(pair: &Pair, batch: u64) {
    let (Pair { ep, key, .. }, remote) = (pair, pair.remote);
    let (slices, completion) = (&[pair.memory.slice(..8)], &Completion::new(&pair.sender));
    count_loop!(batch, [], {
        let posted = ep.get_zcopy(slices, remote, key, completion);
        assert_eq!(posted, Ok(Posted::Done));
    });
}

fn atomic64_fetch(pair: &Pair, batch: u64) {
    let (Pair { ep, key, .. }, address) = (pair, pair.remote);
    let completion = &Completion::new(&pair.sender);
    count_loop!(batch, [address ep], {
        let fetched = ep.atomic64_fetch(AtomicOp::Add, 1, *address, key, completion);
        let Ok(Fetched::Done(old)) = fetched else { panic!("the key is right: {fetched:?}") };
        use_up(old);
    });
}

fn progress_idle(pair: &Pair, batch: u64) {
    let receiver = &pair.receiver;
    count_loop!(batch, [receiver], receiver.progress());
}

/// Nothing comes, over a thousand endpoints.
fn progress_crowd(pair: &Pair, batch: u64) {
    pair.gather_crowd().expect("a crowd");
    progress_idle(pair, batch);
}

/// One message for each call of progress.
fn progress_message(pair: &Pair, batch: u64) {
    for _ in 0..batch {
        let total = pair.received.get() + 1;
        pair.ep.am_short(ID, 7, &[1; 8]).expect("one message fits");
        // What a transport collects leaves with progress; on a socket the message has to have arrived.
        pair.sender.progress();
        std::thread::yield_now();
        count(&mut || {
            black_box(pair.receiver.progress());
        });
        pair.drain(total);
    }
}

/// One message for a call of progress, after an empty one: like a reply that the caller waits for.
fn progress_answer(pair: &Pair, batch: u64) {
    for _ in 0..batch {
        pair.receiver.progress();
        progress_message(pair, 1);
    }
}

/// A burst of messages, taken by as many calls of progress as it needs.
fn progress_burst(pair: &Pair, batch: u64) {
    let total = pair.received.get() + batch;
    for _ in 0..batch {
        pair.ep.am_short(ID, 7, &[1; 8]).expect("a batch fits");
    }
    while pair.received.get() < total {
        count(&mut || {
            black_box(pair.receiver.progress());
        });
    }
}

/// As `progress_message`, with more interfaces open that carry nothing.
fn progress_among(pair: &Pair, batch: u64) {
    pair.open_idle().expect("interfaces");
    progress_message(pair, batch);
}

/// The other process, and what it has reported of itself.
struct Elsewhere {
    process: Child,
    address: IfaceAddress,
    key: Vec<u8>,
    place: u64,
}

impl Elsewhere {
    fn start() -> Result<Elsewhere, Box<dyn std::error::Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.arg("--target").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = process.stdout.take().ok_or("it has no output")?;
        let mut part = || -> std::io::Result<Vec<u8>> {
            let mut length = [0];
            output.read_exact(&mut length)?;
            let mut part = vec![0; length[0].into()];
            output.read_exact(&mut part)?;
            Ok(part)
        };
        let (address, key, place) = (part()?, part()?, part()?);
        let (address, _) = IfaceAddress::unpack(&address)?;
        let place = place.try_into().map(u64::from_ne_bytes).map_err(|_| "a place of another length")?;
        Ok(Elsewhere { process, address, key, place })
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// The other process: registers memory, prints its address, and makes progress until its input ends.
fn target() -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::builder().sources(Default::default()).build()?;
    let worker = Worker::new(&context)?;
    let iface = worker.open(ELSEWHERE, "memory")?;
    // Registered, not allocated: memory that cannot be mapped elsewhere.
    let memory = iface.memory_domain().register(vec![0; MEMORY], Access::ALL)?;
    let mut output = std::io::stdout();
    for part in [iface.address()?.pack()?, memory.packed_key()?, memory.address().to_ne_bytes().to_vec()] {
        output.write_all(&[u8::try_from(part.len())?])?;
        output.write_all(&part)?;
    }
    output.flush()?;
    let end = std::thread::spawn(|| std::io::stdin().read(&mut [0]));
    while !end.is_finished() {
        worker.progress();
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
