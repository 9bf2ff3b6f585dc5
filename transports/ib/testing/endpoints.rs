//! Connected endpoints on whatever devices there are. For the tests of the verbs transports on devices, which include this
//! file and say by `TRANSPORT` whose they are; it is part of no library.

#[path = "../../../ucs/testing/poll.rs"]
mod poll;
#[path = "../../../ucs/testing/seed.rs"]
mod seed;

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uct_core::{AmId, Context, ContextBuilder, Ep, Error, Iface, Worker};

use super::TRANSPORT;

/// Longest wait for anything; a watchdog, not a tuning knob.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const ID: AmId = AmId::new(5).unwrap();

/// The turn to use the machine, and the names of the devices; `None` says that the test is skipped.
pub fn devices() -> Option<(MutexGuard<'static, ()>, Vec<String>)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let context = context(&[]);
    let resources = context.resources();
    let own = resources.iter().filter(|resource| resource.transport == TRANSPORT);
    let names: Vec<String> = own.map(|resource| resource.device.clone()).collect();
    if names.is_empty() {
        let required = std::env::var("UCT_TEST_REQUIRE").unwrap_or_default();
        let reason = format!("{TRANSPORT} has no device here, or its plugin was not found");
        assert!(!required.split(',').any(|name| name == "verbs"), "{reason}");
        // Past the capture of a test that passes.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
        return None;
    }
    Some((turn, names))
}

/// What contexts with the device are built from.
pub fn builder() -> ContextBuilder {
    Context::builder().set("ib.library", crate::library::library())
}

/// A context with keys of the transport set.
pub fn context(keys: &[(&str, &str)]) -> Context {
    let mut builder = builder();
    for (key, value) in keys {
        builder = builder.set(format!("{TRANSPORT}.{key}"), *value);
    }
    builder.build().unwrap_or_else(|error| panic!("{error}"))
}

/// One side: a worker with an interface that counts messages.
pub struct Side {
    pub worker: Worker,
    pub iface: Iface,
    pub received: Rc<Cell<u64>>,
}

impl Side {
    pub fn new(context: &Context, device: &str) -> Side {
        let worker = Worker::new(context).unwrap_or_else(|error| panic!("{error}"));
        let iface = worker.open(TRANSPORT, device).unwrap_or_else(|error| panic!("{error}"));
        let received = Rc::new(Cell::new(0));
        let count = Rc::clone(&received);
        iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
        Side { worker, iface, received }
    }
}

/// Moves all sides on until `done`; panics if that takes too long.
#[track_caller]
pub fn until(sides: &[&Side], what: &str, done: impl FnMut() -> bool) {
    let progress = || sides.iter().map(|side| side.worker.progress()).sum();
    assert!(poll::poll_until(PATIENCE, progress, done), "{what}: not within {PATIENCE:?}");
}

/// An endpoint with the failures that it reported.
pub struct Link {
    pub ep: Ep,
    pub failures: Rc<RefCell<Vec<String>>>,
}

impl Link {
    pub fn new(side: &Side) -> Link {
        let failures = Rc::new(RefCell::new(Vec::new()));
        let told = Rc::clone(&failures);
        let ep = side.iface.create_ep(move |failure| told.borrow_mut().push(failure.to_string()));
        Link { ep: ep.unwrap_or_else(|error| panic!("{error}")), failures }
    }

    /// Connects it to the peer's endpoint.
    pub fn connect(&self, peer: &Side, other: &Link) -> Result<(), String> {
        let iface = peer.iface.address().expect("an address");
        let address = other.ep.address().expect("an address");
        self.ep.connect_to_ep(&iface, &address).map_err(|error| error.to_string())
    }
}

/// Two connected endpoints.
pub fn connect(left: &Side, right: &Side) -> (Link, Link) {
    let (near, far) = (Link::new(left), Link::new(right));
    near.connect(right, &far).unwrap_or_else(|error| panic!("{error}"));
    far.connect(left, &near).unwrap_or_else(|error| panic!("{error}"));
    (near, far)
}

/// Sends, with progress while there is no room.
pub fn patiently(progress: impl Fn(), mut send: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match send() {
            Err(Error::NO_RESOURCE) => progress(),
            other => return other,
        }
        assert!(Instant::now() < deadline, "no room within {PATIENCE:?}");
    }
}

/// A small generator of numbers (SplitMix64): the same seed, the same run.
pub struct Random(u64);

#[allow(dead_code, reason = "not every transport's tests use it")]
impl Random {
    /// With the seed in `UCT_TEST_SEED`, as the suite prints it or as a decimal number, or with a fresh one, which it prints.
    pub fn from_environment() -> Random {
        Random(seed::printed())
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Resident memory of this process, in KiB.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}
