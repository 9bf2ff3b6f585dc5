//! Endpoints that talk to each other: of one domain, and of two domains over each transport that is always there.

#![expect(unsafe_code, reason = "a program's memory is passed as pointers")]

mod begun;
mod ends;
mod matches;
mod messages;
mod placed;
mod processes;
mod remote;

use std::sync::Arc;
use std::time::{Duration, Instant};

use uct_core::Context;
use uct_core::configuration::{FileSource, Sources};
use uct_net::NetOptions;

use super::*;

/// Everything that has to come comes within this; it bounds a wait.
const LIMIT: Duration = Duration::from_secs(60);

/// An endpoint with queues and counters of its own.
struct Side {
    domain: Arc<Domain>,
    endpoint: Endpoint,
    transmit: Arc<Queue>,
    receive: Arc<Queue>,
    addresses: Arc<AddressVector>,
    counters: Counters,
}

/// What came out of a queue.
#[derive(Clone, Debug)]
enum Out {
    Entry(Entry),
    Error(ErrorEntry),
}

impl Out {
    #[track_caller]
    fn entry(self) -> Entry {
        match self {
            Out::Entry(entry) => entry,
            Out::Error(error) => panic!("an error: {error:?}"),
        }
    }

    #[track_caller]
    fn error(self) -> ErrorEntry {
        match self {
            Out::Entry(entry) => panic!("no error: {entry:?}"),
            Out::Error(error) => error,
        }
    }
}

fn domain(transports: &str) -> Arc<Domain> {
    domain_with(transports, &[])
}

fn domain_with(transports: &str, overrides: &[(&str, &str)]) -> Arc<Domain> {
    let overrides = [&[("tls", transports)], overrides].concat();
    let overrides = overrides.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let sources = Sources { file: FileSource::None, env: Default::default(), overrides };
    let context = Context::builder().sources(sources).build().expect("a context");
    let options = NetOptions {
        handshake_timeout: LIMIT / 2,
        lane_timeout: LIMIT / 3,
        connect_timeout: LIMIT,
        ..NetOptions::default()
    };
    Domain::over(&context, options).expect("a domain")
}

impl Side {
    fn new(domain: &Arc<Domain>) -> Side {
        let [transmit, receive] = [0, 1].map(|_| Arc::new(Queue::new(16, true).unwrap()));
        let counter = || Some(Arc::new(Counter::new(true).unwrap()));
        let counters = Counters {
            send: counter(),
            receive: counter(),
            read: counter(),
            write: counter(),
            remote_read: counter(),
            remote_write: counter(),
        };
        let addresses = Arc::new(AddressVector::new());
        let bindings = Bindings {
            transmit: Some(Arc::clone(&transmit)),
            receive: Some(Arc::clone(&receive)),
            addresses: Arc::clone(&addresses),
            counters: counters.clone(),
        };
        let options = EndpointOptions { listen: ([127, 0, 0, 1], 0).into(), bindings };
        let endpoint = Endpoint::open(domain, options).expect("an endpoint");
        Side { domain: Arc::clone(domain), endpoint, transmit, receive, addresses, counters }
    }

    /// The index of another one.
    fn knows(&self, other: &Side) -> u64 {
        self.addresses.insert(other.endpoint.name())
    }

    fn try_next(&self, queue: &Queue) -> Option<Out> {
        let mut out = None;
        match queue.read(1, |entry| out = Some(Out::Entry(*entry))) {
            Err(NotRead::Error) => queue.read_error().map(Out::Error),
            _ => out,
        }
    }

    #[track_caller]
    fn next(&self, queue: &Queue) -> Out {
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(out) = self.try_next(queue) {
                return out;
            }
            assert!(Instant::now() < until, "nothing came");
            if !self.domain.progress() {
                std::thread::yield_now();
            }
        }
    }

    #[track_caller]
    fn sent(&self) -> Out {
        self.next(&self.transmit)
    }

    #[track_caller]
    fn got(&self) -> Out {
        self.next(&self.receive)
    }
}

/// Two endpoints that know each other, in each way that two endpoints can be connected.
fn pairs() -> impl Iterator<Item = (&'static str, Side, Side, u64, u64)> {
    ["local", "posix", "tcp"].into_iter().map(|way| {
        let left = domain(if way == "local" { "tcp" } else { way });
        let right = if way == "local" { Arc::clone(&left) } else { domain(way) };
        let (left, right) = (Side::new(&left), Side::new(&right));
        let (to_right, to_left) = (left.knows(&right), right.knows(&left));
        (way, left, right, to_right, to_left)
    })
}

/// Bytes of a test, which outlive the operation that uses them.
fn buffer(bytes: &mut [u8]) -> Buffer {
    // SAFETY: each test keeps the bytes until the operation has ended.
    unsafe { Buffer::new(bytes.as_mut_ptr(), bytes.len()) }
}

fn reading(bytes: &[u8]) -> Buffer {
    // SAFETY: as above; they are only read.
    unsafe { Buffer::new(bytes.as_ptr().cast_mut(), bytes.len()) }
}

const REPORTED: Mode = Mode { is_reported: true, inject: false, delivery: false };
const INJECT: Mode = Mode { is_reported: false, inject: true, delivery: false };
const DELIVERY: Mode = Mode { is_reported: true, inject: false, delivery: true };

fn send(to: u64, buffers: &[Buffer], tag: Option<u64>, context: usize) -> Send<'_> {
    Send { to, buffers, tag, data: None, context, mode: REPORTED }
}

fn receive(buffers: &[Buffer], tag: Option<u64>, context: usize) -> Receive<'_> {
    let tag = tag.map(|tag| TagFilter { tag, ignore: 0 });
    Receive { from: None, buffers, tag, context, is_reported: true }
}

/// Makes a call until it is taken.
#[track_caller]
fn retry(side: &Side, mut call: impl FnMut() -> Result<(), Errno>) {
    let until = Instant::now() + LIMIT;
    loop {
        match call() {
            Ok(()) => return,
            Err(Errno::AGAIN) => {
                side.domain.progress();
            }
            Err(other) => panic!("{other:?}"),
        }
        assert!(Instant::now() < until, "never taken");
    }
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}
