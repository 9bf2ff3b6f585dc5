//! Measures an interface with itself: two threads, each with the interface open on a worker of its own, send to each other.
//!
//! One thread measures. The other one replies to messages and puts of the measured kind, and makes progress for the rest.
//! For `--calibrate`; built on the API of applications.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use uct_core::select::{Operation, Request, Times};
use uct_core::{
    Access, AmId, Capabilities, Completion, Context, Ep, Error, Flush, Iface, IfaceOptions, Memory,
    MemoryKind, Posted, RemoteKey, Resource, SendFlags, Worker, clock, system,
};
use uct_tools_common::Failure;

/// Bytes of the operations that are measured. The largest that an interface takes is measured as well.
pub(super) const SIZES: [usize; 9] =
    [8, 256, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, LARGEST];
const LARGEST: usize = 1 << 20;
/// Time for one operation of one size.
const SPAN: Duration = Duration::from_millis(3);
/// Part of it that is not measured.
const WARM_UP: Duration = Duration::from_micros(500);
/// Shortest time that is taken with the clock.
const SAMPLE_NANOSECONDS: f64 = 5000.0;
/// Samples that are taken even if they take longer, and how many of them behind the longest time: a connection may stop for 200 ms.
const SAMPLES: u32 = 32;
const LEAST_SAMPLES: u32 = 8;
const LONGEST_SPAN: Duration = Duration::from_millis(100);
/// Runs of a stream, of which the fastest counts.
const STREAMS: u32 = 3;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(10);
/// Zero-copy operations that a stream has in flight.
const STREAM_IN_FLIGHT: u32 = 16;
/// Turns without an event until the clock is read, commands are received and others may run.
const SPINS: u32 = 1024;

const GONE: &str = "the other side has ended, or does not respond";
const DATA: AmId = AmId::new(0).expect("a valid id");
const HEADER: usize = size_of::<u64>();
const WORD: usize = size_of::<u64>();
const ALIGNMENT: usize = 64;

/// The figures of an interface.
pub(super) struct Measured {
    /// Nanoseconds of one operation: half of a round trip for messages and puts, up to the data's arrival for gets.
    pub times: Times,
    pub streams: Vec<Stream>,
}

/// One operation again and again, without waiting for each.
pub(super) struct Stream {
    pub operation: Operation,
    pub size: usize,
    /// Nanoseconds from one operation to the next.
    pub nanoseconds: f64,
}

/// What the other thread is to do.
enum Command {
    /// Reply to each message or put of this kind and size.
    Reply(Operation, usize),
    /// Only make progress.
    Serve,
    /// Report when so many messages have arrived.
    Await(u64),
}

/// What each thread lets the other one know before they begin.
struct Introduction {
    iface: uct_core::IfaceAddress,
    ep: Option<Vec<u8>>,
    memory: u64,
    key: Vec<u8>,
}

/// Measures an interface. Ends within some seconds whatever happens.
pub(super) fn measure(context: &Context, resource: &Resource) -> Result<Measured, Failure> {
    let cpus = system::cpu::affinity()?;
    let (first, second) =
        if let [first, second, ..] = cpus[..] { (vec![first], vec![second]) } else { (cpus.clone(), cpus) };
    let (to_replier, from_measurer) = mpsc::channel();
    let (to_measurer, from_replier) = mpsc::channel();
    let (commands, received) = mpsc::channel();
    let (reports, reported) = mpsc::channel();
    let measured = thread::scope(|scope| {
        let replier = scope.spawn(move || {
            let side = Side::open(context, resource, &second, &to_measurer, &from_measurer);
            let replied = side.and_then(|side| side.reply(&received, &reports));
            replied.map_err(|failure| failure.to_string())
        });
        let measurer = scope.spawn(move || {
            let link = Link { commands, reported };
            let side = Side::open(context, resource, &first, &to_replier, &from_replier);
            let measured = side.and_then(|side| {
                let measured = side.measure_all(&link);
                // The other thread ends before it sees that this side is gone.
                drop(link);
                measured
            });
            measured.map_err(|failure| failure.to_string())
        });
        let measured = measurer.join().unwrap_or_else(|_| Err("the measuring thread panicked".to_owned()));
        let replied = replier.join().unwrap_or_else(|_| Err("the replying thread panicked".to_owned()));
        match (measured, replied) {
            // One has failed, and the other one misses it.
            (Err(failure), Err(reason)) if failure == GONE => Err(reason),
            (Ok(_), Err(failure)) => Err(failure),
            (measured, _) => measured,
        }
    });
    Ok(measured?)
}

/// The measuring thread's way to the other one.
struct Link {
    commands: Sender<Command>,
    reported: Receiver<()>,
}

impl Link {
    /// Has the other thread do something; returns once it has begun, or has reported.
    fn command(&self, command: Command) -> Result<(), Failure> {
        self.commands.send(command).map_err(|_| GONE)?;
        self.reported.recv_timeout(PATIENCE).map_err(|_| GONE.into())
    }
}

/// One end.
struct Side {
    worker: Worker,
    ep: Ep,
    received: Rc<Cell<u64>>,
    /// What short and buffered operations send.
    buffer: RefCell<Vec<u8>>,
    /// What they get into.
    fetched: Rc<RefCell<Vec<u8>>>,
    /// What zero copy sends, and gets into.
    source: Memory,
    /// What the other end puts to, and gets from.
    target: Memory,
    remote: u64,
    key: RemoteKey,
    completion: Completion,
    /// Zero-copy operations that may be in flight.
    in_flight: Cell<u32>,
}

impl Side {
    fn open(
        context: &Context,
        resource: &Resource,
        cpus: &[usize],
        to_other: &Sender<Introduction>,
        from_other: &Receiver<Introduction>,
    ) -> Result<Side, Failure> {
        system::cpu::pin(cpus)?;
        let worker = Worker::new(context)?;
        let iface = worker.open_resource(resource, IfaceOptions::default())?;
        let received = Rc::new(Cell::new(0));
        let counter = Rc::clone(&received);
        iface.set_am_handler(DATA, move |_| counter.set(counter.get() + 1));
        let memory = || iface.memory_domain().allocate(LARGEST + ALIGNMENT, Access::ALL, MemoryKind::Host);
        let (source, target) = (memory()?, memory()?);
        // What is read must not be what the system has not backed with memory yet.
        source.fill(0, source.len(), 1);
        target.fill(0, target.len(), 1);

        let to_iface = iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE);
        let unconnected = if to_iface { None } else { Some(iface.create_ep(|_| {})?) };
        let introduction = Introduction {
            iface: iface.address()?,
            ep: unconnected.as_ref().map(Ep::address).transpose()?,
            memory: target.address() + base(&target) as u64,
            key: target.packed_key()?,
        };
        to_other.send(introduction).map_err(|_| GONE)?;
        let other = from_other.recv_timeout(PATIENCE).map_err(|_| GONE)?;
        let ep = match (unconnected, &other.ep) {
            (Some(ep), Some(address)) => {
                ep.connect_to_ep(&other.iface, address)?;
                worker.retry(PATIENCE, || ep.flush(Flush::empty(), None))?;
                ep
            }
            _ => iface.connect_with(&other.iface, |_| {})?,
        };
        let key = iface.memory_domain().unpack(&other.key)?;
        Ok(Side {
            completion: Completion::new(&worker),
            worker,
            ep,
            received,
            buffer: RefCell::new(vec![1; LARGEST]),
            fetched: Rc::new(RefCell::new(vec![1; LARGEST])),
            source,
            target,
            remote: other.memory,
            key,
            in_flight: Cell::new(1),
        })
    }

    fn measure_all(&self, link: &Link) -> Result<Measured, Failure> {
        let iface = self.ep.iface();
        let (mut times, mut streams) = (Times::new(), Vec::new());
        for operation in Operation::ALL {
            let sizes = sizes(&iface, operation);
            for &size in &sizes {
                let time = if operation.is_get() {
                    self.get(link, operation, size)
                } else {
                    self.ping(link, operation, size)
                };
                times.entry(operation).or_default().push((size as u64, time?));
            }
            if operation.is_get() {
                continue;
            }
            // The first shows the overhead, the last the bandwidth.
            let ends = [sizes.first(), sizes.last().filter(|_| sizes.len() > 1)];
            for &size in ends.into_iter().flatten() {
                let nanoseconds = self.fastest_stream(link, operation, size)?;
                streams.push(Stream { operation, size, nanoseconds });
            }
        }
        Ok(Measured { times, streams })
    }

    /// Half of a round trip.
    fn ping(&self, link: &Link, operation: Operation, size: usize) -> Result<f64, Failure> {
        self.begin();
        link.command(Command::Reply(operation, size))?;
        let mut number = 0;
        let round_trip = self.undisturbed(|| {
            number += 1;
            self.post(operation, size, number)?;
            self.wait(|| self.has_arrived(operation, size, number))
        })?;
        self.settle()?;
        Ok(round_trip / 2.0)
    }

    /// From the call to the data.
    fn get(&self, link: &Link, operation: Operation, size: usize) -> Result<f64, Failure> {
        self.begin();
        link.command(Command::Serve)?;
        self.undisturbed(|| {
            self.post(operation, size, 0)?;
            self.wait(|| self.completion.is_done())
        })
    }

    /// From one operation to the next, up to the arrival of the last: in the fastest of some runs.
    fn fastest_stream(&self, link: &Link, operation: Operation, size: usize) -> Result<f64, Failure> {
        (0..STREAMS)
            .try_fold(f64::INFINITY, |fastest, _| Ok(self.stream(link, operation, size)?.min(fastest)))
    }

    fn stream(&self, link: &Link, operation: Operation, size: usize) -> Result<f64, Failure> {
        self.begin();
        link.command(Command::Serve)?;
        self.in_flight.set(STREAM_IN_FLIGHT);
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < SPAN / STREAMS {
            for _ in 0..16 {
                count += 1;
                self.post(operation, size, count)?;
            }
        }
        self.settle()?;
        self.in_flight.set(1);
        if matches!(operation, Operation::AmShort | Operation::AmBcopy | Operation::AmZcopy) {
            link.command(Command::Await(count))?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / count as f64)
    }

    /// The other thread's part. Ends when the measuring thread does.
    fn reply(&self, commands: &Receiver<Command>, reports: &Sender<()>) -> Result<(), Failure> {
        let mut command = commands.recv_timeout(PATIENCE).ok();
        while let Some(current) = command {
            // What is waited for may have arrived.
            if !matches!(current, Command::Await(_)) {
                self.begin();
                if reports.send(()).is_err() {
                    return Ok(());
                }
            }
            let (mut number, mut idle) = (1, 0);
            command = loop {
                match current {
                    Command::Reply(operation, size) if self.has_arrived(operation, size, number) => {
                        self.post(operation, size, number)?;
                        number += 1;
                        idle = 0;
                        continue;
                    }
                    Command::Await(count) if self.received.get() >= count => {
                        if reports.send(()).is_err() {
                            return Ok(());
                        }
                        break commands.recv_timeout(PATIENCE).ok();
                    }
                    _ => {}
                }
                idle = if self.worker.progress() > 0 { 0 } else { idle + 1 };
                std::hint::spin_loop();
                // A channel is slower to look at than the memory of a message.
                if idle % 64 == 63 {
                    match commands.try_recv() {
                        Ok(next) => break Some(next),
                        Err(TryRecvError::Disconnected) => break None,
                        Err(TryRecvError::Empty) => {}
                    }
                }
                if idle == SPINS {
                    idle = 0;
                    self.check()?;
                    thread::yield_now();
                }
            };
            if command.is_some() {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Forgets what has arrived.
    fn begin(&self) {
        self.received.set(0);
        self.target.fill(0, self.target.len(), 0);
    }

    /// Starts an operation; makes progress while there is no room for it.
    fn post(&self, operation: Operation, size: usize, number: u64) -> Result<(), Failure> {
        let is_zcopy = matches!(operation, Operation::AmZcopy | Operation::PutZcopy | Operation::GetZcopy);
        if is_zcopy {
            self.wait(|| self.completion.outstanding() < self.in_flight.get())?;
        }
        let mut posted = self.attempt(operation, size, number);
        if posted == Err(Error::NO_RESOURCE) {
            self.wait(|| {
                posted = self.attempt(operation, size, number);
                posted != Err(Error::NO_RESOURCE)
            })?;
        }
        posted.map_err(|error| format!("{} of {size} bytes: {error}", operation.name()).into())
    }

    fn attempt(&self, operation: Operation, size: usize, number: u64) -> uct_core::Result {
        let (ep, remote, key, completion) = (&self.ep, self.remote, &self.key, &self.completion);
        let mut buffer = self.buffer.borrow_mut();
        let buffer = &mut buffer[..size];
        let start = base(&self.source);
        let slice = || [self.source.slice(start..start + size)];
        let end = size - WORD;
        match operation {
            Operation::AmShort => ep.am_short(DATA, number, buffer),
            Operation::AmBcopy => {
                ep.am_bcopy_iov(DATA, SendFlags::empty(), &[&number.to_ne_bytes(), buffer]).map(drop)
            }
            Operation::AmZcopy => {
                ep.am_zcopy(DATA, &number.to_ne_bytes(), &slice(), SendFlags::empty(), completion).map(drop)
            }
            Operation::PutShort => {
                buffer[end..].copy_from_slice(&mark(number));
                ep.put_short(buffer, remote, key)
            }
            Operation::PutBcopy => {
                buffer[end..].copy_from_slice(&mark(number));
                let pack = |place: &mut [u8]| {
                    place[..size].copy_from_slice(buffer);
                    size
                };
                ep.put_bcopy(remote, key, pack).map(drop)
            }
            Operation::PutZcopy => {
                self.source.write(start + end, &mark(number));
                ep.put_zcopy(&slice(), remote, key, completion).map(drop)
            }
            Operation::GetShort => ep.get_short(&mut self.fetched.borrow_mut()[..size], remote, key),
            Operation::GetBcopy => {
                let fetched = Rc::clone(&self.fetched);
                let unpack = move |data: &[u8]| fetched.borrow_mut()[..data.len()].copy_from_slice(data);
                ep.get_bcopy(size, remote, key, completion, unpack).map(drop)
            }
            Operation::GetZcopy => ep.get_zcopy(&slice(), remote, key, completion).map(drop),
        }
    }

    fn has_arrived(&self, operation: Operation, size: usize, number: u64) -> bool {
        match operation {
            Operation::AmShort | Operation::AmBcopy | Operation::AmZcopy => self.received.get() >= number,
            _ => self.target.load_u64(base(&self.target) + size - WORD).to_ne_bytes() == mark(number),
        }
    }

    /// Waits until everything has ended.
    fn settle(&self) -> Result<(), Failure> {
        self.wait(|| self.completion.is_done())?;
        self.completion.result().map_err(|error| format!("an operation failed: {error}"))?;
        let mut flushed = Ok(Posted::InProgress);
        self.wait(|| {
            flushed = self.ep.flush(Flush::empty(), None);
            !matches!(flushed, Ok(Posted::InProgress) | Err(Error::NO_RESOURCE))
        })?;
        flushed.map(drop).map_err(|error| format!("flush: {error}").into())
    }

    fn wait(&self, mut done: impl FnMut() -> bool) -> Result<(), Failure> {
        let (mut idle, mut start) = (0, None);
        while !done() {
            if self.worker.progress() > 0 {
                idle = 0;
                continue;
            }
            std::hint::spin_loop();
            idle += 1;
            if idle == SPINS {
                idle = 0;
                self.check()?;
                if start.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    return Err(format!("nothing arrived within {} s", PATIENCE.as_secs()).into());
                }
                thread::yield_now();
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Failure> {
        self.ep.failure().map_or(Ok(()), |failure| Err(failure.to_string().into()))
    }

    /// Nanoseconds of a turn while nothing disturbs it: the fastest of samples of at least [`SAMPLE_NANOSECONDS`]. With other programs on
    /// the processors the median would be their time slices.
    fn undisturbed(&self, mut turn: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
        let mut sample = |turns: u32| -> Result<f64, Failure> {
            let before = clock::ticks();
            for _ in 0..turns {
                turn()?;
            }
            Ok(clock::ticks_to_nanoseconds(clock::ticks() - before) as f64 / f64::from(turns))
        };
        let (start, mut fastest, mut warm) = (Instant::now(), f64::INFINITY, 0);
        while warm < LEAST_SAMPLES || start.elapsed() < WARM_UP {
            fastest = fastest.min(sample(1)?);
            warm += 1;
        }
        let turns = (SAMPLE_NANOSECONDS / fastest).ceil().clamp(1.0, 10_000.0) as u32;
        let (mut fastest, mut taken, mut wanted) = (f64::INFINITY, 0, SAMPLES);
        while start.elapsed() < SPAN || taken < wanted {
            fastest = fastest.min(sample(turns)?);
            taken += 1;
            if start.elapsed() > LONGEST_SPAN {
                wanted = LEAST_SAMPLES;
            }
        }
        Ok(fastest)
    }
}

/// The sizes at which an operation of an interface is measured: multiples of 8 bytes within its limits.
fn sizes(iface: &Iface, operation: Operation) -> Vec<usize> {
    let attr = iface.attributes();
    let header = match operation {
        Operation::AmBcopy | Operation::AmZcopy => HEADER,
        _ => 0,
    };
    let most = operation.limit(attr).saturating_sub(header).min(LARGEST) / WORD * WORD;
    let mut sizes: Vec<usize> = SIZES.into_iter().filter(|&size| size < most).chain([most]).collect();
    let is_possible = |size: &usize| {
        let request = Request::new(operation, *size).with_header(header);
        *size >= WORD && request.fits(attr)
    };
    // Within one process it does without the peer.
    if operation == Operation::GetShort && iface.emulated().contains(operation.capability()) {
        return Vec::new();
    }
    sizes.retain(is_possible);
    sizes
}

/// Where the first aligned byte of a memory is.
fn base(memory: &Memory) -> usize {
    let address = memory.address();
    (address.next_multiple_of(ALIGNMENT as u64) - address) as usize
}

/// The last word of put number so and so: never zero, never that of the put before.
fn mark(number: u64) -> [u8; WORD] {
    [(number % 255) as u8 + 1; WORD]
}
