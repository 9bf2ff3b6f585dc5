//! One end of a measurement: an interface on a worker of its own, an endpoint to the other end, and memory. Starts operations and waits for
//! what arrives. Built on the API of applications; used by `measure` and `reply`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use uct_core::select::{Operation, Request};
use uct_core::{
    Access, AmId, Capabilities, Completion, Context, DeviceKind, Ep, Error, Flush, Iface, IfaceOptions,
    Memory, MemoryKind, Posted, RemoteKey, Resource, SendFlags, Worker, system,
};
use uct_tools_common::Failure;

use super::line::{Introduction, Line, Message, PATIENCE, unexpected};

/// Bytes of the largest operation that is measured.
pub(super) const LARGEST: usize = 1 << 20;
/// Longest time for all that is measured of an interface in a pass, whatever the other side does.
const LONGEST: Duration = Duration::from_secs(60);
/// Turns without an event until the clock is read and others may run.
pub(super) const SPINS: u32 = 1024;
/// Turns until the clock is read even if there are events all the time.
const BUSY_SPINS: u32 = 64 * SPINS;

const DATA: AmId = AmId::new(0).expect("a valid id");
const HEADER: usize = size_of::<u64>();
/// Sizes are multiples of it.
pub(super) const WORD: usize = size_of::<u64>();
const ALIGNMENT: usize = 64;

/// One end.
pub(super) struct Side {
    pub worker: Worker,
    pub ep: Ep,
    pub received: Rc<Cell<u64>>,
    pub completion: Completion,
    /// Zero-copy operations that may be in flight.
    pub in_flight: Cell<u32>,
    /// What short and buffered operations send.
    buffer: RefCell<Vec<u8>>,
    /// What they get into.
    fetched: Rc<RefCell<Vec<u8>>>,
    /// What zero copy sends, and gets into.
    source: Memory,
    /// What the other end puts to, and gets from.
    target: Memory,
    /// The same of the other end.
    remote: u64,
    key: RemoteKey,
    until: Instant,
}

impl Side {
    /// Opens an interface, and connects it with the other end of the line. This thread stays on the
    /// processors, except for a network: a device in software works in kernel threads of the processor that posts, and a thread that polls there
    /// and may not leave it keeps them out.
    pub(super) fn open(
        context: &Context,
        resource: &Resource,
        cpus: &[usize],
        line: &Line,
    ) -> Result<Side, Failure> {
        if resource.kind != DeviceKind::Network {
            system::cpu::pin(cpus)?;
        }
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
        line.send(Message::Introduction(Introduction {
            iface: iface.address()?,
            ep: unconnected.as_ref().map(Ep::address).transpose()?,
            memory: start(&target),
            key: target.packed_key()?,
        }))?;
        let other = match line.receive()? {
            Message::Introduction(other) => other,
            message => return Err(unexpected(&message)),
        };
        let ep = match (unconnected, &other.ep) {
            (Some(ep), Some(address)) => {
                ep.connect_to_ep(&other.iface, address)?;
                ep
            }
            _ => iface.connect_with(&other.iface, |_| {})?,
        };
        Ok(Side {
            completion: Completion::new(&worker),
            worker,
            ep,
            received,
            in_flight: Cell::new(1),
            buffer: RefCell::new(vec![1; LARGEST]),
            fetched: Rc::new(RefCell::new(vec![1; LARGEST])),
            source,
            target,
            remote: other.memory,
            key: iface.memory_domain().unpack(&other.key)?,
            until: Instant::now() + LONGEST,
        })
    }

    /// Forgets what has arrived.
    pub(super) fn begin(&self) {
        self.received.set(0);
        self.target.fill(0, self.target.len(), 0);
    }

    /// Starts an operation; makes progress while there is no room for it.
    pub(super) fn post(&self, operation: Operation, size: usize, number: u64) -> Result<(), Failure> {
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
        let (ep, completion, key, remote) = (&self.ep, &self.completion, &self.key, self.remote);
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

    pub(super) fn has_arrived(&self, operation: Operation, size: usize, number: u64) -> bool {
        match operation {
            Operation::AmShort | Operation::AmBcopy | Operation::AmZcopy => self.received.get() >= number,
            _ => self.target.load_u64(base(&self.target) + size - WORD).to_ne_bytes() == mark(number),
        }
    }

    /// Waits until everything has ended.
    pub(super) fn settle(&self) -> Result<(), Failure> {
        self.wait(|| self.completion.is_done())?;
        self.completion.result().map_err(|error| format!("an operation failed: {error}"))?;
        let mut flushed = Ok(Posted::InProgress);
        self.wait(|| {
            flushed = self.ep.flush(Flush::empty(), None);
            !matches!(flushed, Ok(Posted::InProgress) | Err(Error::NO_RESOURCE))
        })?;
        flushed.map(drop).map_err(|error| format!("flush: {error}").into())
    }

    /// Makes progress until it is done.
    pub(super) fn wait(&self, mut done: impl FnMut() -> bool) -> Result<(), Failure> {
        let (mut idle, mut turns, mut start) = (0, 0_u32, None);
        while !done() {
            idle = if self.worker.progress() > 0 { 0 } else { idle + 1 };
            turns = turns.wrapping_add(1);
            std::hint::spin_loop();
            if idle == SPINS || turns.is_multiple_of(BUSY_SPINS) {
                self.check()?;
                if start.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    return Err(format!("nothing arrived within {} s", PATIENCE.as_secs()).into());
                }
            }
            if idle == SPINS {
                idle = 0;
                thread::yield_now();
            }
        }
        Ok(())
    }

    /// Whether it may go on.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if let Some(failure) = self.ep.failure() {
            return Err(failure.to_string().into());
        }
        if Instant::now() > self.until {
            return Err(format!("the measurement is not over after {} s", LONGEST.as_secs()).into());
        }
        Ok(())
    }
}

/// The largest size of an operation that is measured on an interface; 0 if there is none.
pub(super) fn limit(iface: &Iface, operation: Operation) -> usize {
    if !iface.capabilities().contains(operation.capability()) {
        return 0;
    }
    let header = header(operation);
    operation.limit(iface.attributes()).saturating_sub(header).min(LARGEST) / WORD * WORD
}

/// Whether an interface takes an operation of this size, which is measured.
pub(super) fn takes(iface: &Iface, operation: Operation, size: usize) -> bool {
    let request = Request::new(operation, size).with_header(header(operation));
    (WORD..=LARGEST).contains(&size) && size.is_multiple_of(WORD) && request.fits(iface.attributes())
}

fn header(operation: Operation) -> usize {
    match operation {
        Operation::AmBcopy | Operation::AmZcopy => HEADER,
        _ => 0,
    }
}

/// Where the first aligned byte of a memory is.
fn base(memory: &Memory) -> usize {
    let address = memory.address();
    (address.next_multiple_of(ALIGNMENT as u64) - address) as usize
}

/// The address of that byte.
fn start(memory: &Memory) -> u64 {
    memory.address() + base(memory) as u64
}

/// The last word of put number so and so: never zero, never that of the put before.
fn mark(number: u64) -> [u8; WORD] {
    [(number % 255) as u8 + 1; WORD]
}
