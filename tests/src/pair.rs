//! The transport open twice in one process, and connected: the basis of most cases.
//!
//! For the cases. Built on `setup`. What connects an interface with itself only is open once, and is both ends.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Deref;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_host::{
    Access, AmId, Capabilities, Completion, Ep, EpFailure, Error, Flush, Iface, IfaceAttr, IfaceOptions,
    Memory, MemoryKind, Posted, RemoteKey, Result, Worker,
};

use crate::beside::Beside;
use crate::setup::Setup;

#[path = "../../ucs/testing/poll.rs"]
mod poll;
pub use poll::poll_until;

/// How long anything may take that is not about time. A busy machine stops a thread for seconds.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Calls of progress without an event, after which others get the processor.
pub(crate) const TURN: u32 = 32;
/// Calls of progress without an event, after which what is waited for comes with time, such as the end of a dead peer: those who wait sleep in between.
const PATIENT: u32 = 4096;
/// For so long.
pub(crate) const NAP: Duration = Duration::from_micros(100);

/// One end: an interface and the worker that drives it.
#[derive(Clone)]
pub struct Side {
    /// The worker.
    pub worker: Worker,
    /// The interface.
    pub iface: Iface,
    pub(crate) beside: Beside,
}

impl Side {
    /// Makes progress; returns the number of events, without those of what is open beside the interface.
    pub fn progress(&self) -> u32 {
        self.beside.progress(&self.worker).0
    }

    /// The attributes of the interface.
    pub fn attributes(&self) -> &IfaceAttr {
        self.iface.attributes()
    }

    /// Memory with these contents, registered for everything.
    pub fn memory(&self, bytes: Vec<u8>) -> Memory {
        let registered = self.iface.memory_domain().register(bytes, Access::ALL);
        registered.unwrap_or_else(|refused| panic!("{refused}"))
    }

    /// Allocated memory, zeroed; at least `length` bytes.
    pub fn allocate(&self, length: usize) -> Memory {
        let allocated = self.iface.memory_domain().allocate(length, Access::ALL, MemoryKind::Host);
        allocated.unwrap_or_else(|refused| panic!("{refused}"))
    }

    /// The key to memory of the other end.
    pub fn key_to(&self, memory: &Memory) -> RemoteKey {
        let packed = memory.packed_key().unwrap_or_else(|error| panic!("a key does not pack: {error}"));
        self.iface.memory_domain().unpack(&packed).unwrap_or_else(|refused| panic!("{refused}"))
    }

    /// Collects the messages of an id from now on.
    pub fn inbox(&self, id: AmId) -> Inbox {
        let inbox = Inbox::default();
        let messages = Rc::clone(&inbox.messages);
        self.iface.set_am_handler(id, move |message| messages.borrow_mut().push_back(message.to_vec()));
        inbox
    }

    /// A completion.
    pub fn completion(&self) -> Completion {
        Completion::new(&self.worker)
    }
}

/// Messages in the order in which they arrived.
#[derive(Clone, Default)]
pub struct Inbox {
    messages: Rc<RefCell<VecDeque<Vec<u8>>>>,
}

impl Inbox {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.messages.borrow().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next one.
    pub fn take(&self) -> Option<Vec<u8>> {
        self.messages.borrow_mut().pop_front()
    }
}

/// An endpoint, and what its error handler got.
#[derive(Clone)]
pub struct Link {
    /// The endpoint.
    pub ep: Ep,
    failures: Rc<RefCell<Vec<EpFailure>>>,
}

impl Link {
    /// What the error handler got so far.
    pub fn failures(&self) -> Vec<EpFailure> {
        self.failures.borrow().clone()
    }

    /// Panics if it has failed.
    #[track_caller]
    pub fn check_alive(&self) {
        if let Some(failure) = self.failures.borrow().first() {
            panic!("an endpoint failed: {failure}");
        }
    }
}

impl Deref for Link {
    type Target = Ep;

    fn deref(&self) -> &Ep {
        &self.ep
    }
}

/// Connects two sides in both directions, the way that the transport has.
pub fn connect(left: &Side, right: &Side) -> (Link, Link) {
    let words = |refused: uct_host::Refused| -> ! { panic!("{refused}") };
    let address = |side: &Side| side.iface.address().unwrap_or_else(|error| panic!("no address: {error}"));
    if left.iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
        let one = |from: &Side, to: &Side| {
            let (failures, handler) = recorder();
            let ep = from.iface.connect_with(&address(to), handler).unwrap_or_else(|refused| words(refused));
            Link { ep, failures }
        };
        return (one(left, right), one(right, left));
    }
    let one = |side: &Side| {
        let (failures, handler) = recorder();
        let ep = side.iface.create_ep(handler).unwrap_or_else(|refused| words(refused));
        Link { ep, failures }
    };
    let (near, far) = (one(left), one(right));
    let ep_address =
        |link: &Link| link.address().unwrap_or_else(|error| panic!("no endpoint address: {error}"));
    let (near_address, far_address) = (ep_address(&near), ep_address(&far));
    near.connect_to_ep(&address(right), &far_address).unwrap_or_else(|refused| words(refused));
    far.connect_to_ep(&address(left), &near_address).unwrap_or_else(|refused| words(refused));
    (near, far)
}

/// A place for failures and the handler that fills it.
pub(crate) fn recorder() -> (Rc<RefCell<Vec<EpFailure>>>, impl FnOnce(EpFailure) + 'static) {
    let failures = Rc::new(RefCell::new(Vec::new()));
    let place = Rc::clone(&failures);
    (failures, move |failure| place.borrow_mut().push(failure))
}

impl Link {
    pub(crate) fn new(ep: Ep, failures: Rc<RefCell<Vec<EpFailure>>>) -> Link {
        Link { ep, failures }
    }
}

/// Two connected ends in one process.
pub struct Pair {
    /// The end that sends in most cases.
    pub sender: Side,
    /// The end that receives in most cases; the same as `sender` where an interface reaches itself only.
    pub receiver: Side,
    /// From sender to receiver.
    pub to: Link,
    /// From receiver to sender.
    pub back: Link,
    /// Whether both ends are one interface.
    pub is_loop: bool,
}

impl Pair {
    /// Opens and connects.
    pub fn new(setup: &Setup) -> Pair {
        Pair::with(setup, IfaceOptions::default())
    }

    /// Opens with options, and connects.
    pub fn with(setup: &Setup, options: IfaceOptions) -> Pair {
        let sender = setup.open(options.clone());
        let (receiver, is_loop) = other_end(setup, &sender, options);
        let (to, back) = connect(&sender, &receiver);
        Pair { sender, receiver, to, back, is_loop }
    }

    /// Makes progress at both ends; returns the number of events.
    pub fn progress(&self) -> u32 {
        let events = self.sender.progress();
        if self.is_loop { events } else { events + self.receiver.progress() }
    }

    /// Moves both ends on until `done`; panics if that takes too long, or an endpoint fails.
    #[track_caller]
    pub fn until(&self, what: &str, done: impl FnMut() -> bool) {
        if !self.until_failure(what, done) {
            self.to.check_alive();
            self.back.check_alive();
        }
    }

    /// As [`Pair::until`], but returns false if an endpoint fails ahead.
    #[track_caller]
    pub fn until_failure(&self, what: &str, mut done: impl FnMut() -> bool) -> bool {
        wait(
            what,
            || self.progress(),
            || done() || !self.to.failures.borrow().is_empty() || !self.back.failures.borrow().is_empty(),
        );
        done()
    }

    /// Calls an operation until it returns anything but `NO_RESOURCE`, and makes progress at both ends in between.
    #[track_caller]
    pub fn retry<T>(&self, what: &str, operation: impl FnMut() -> Result<T>) -> Result<T> {
        retry(what, || self.progress(), operation)
    }

    /// Flushes an endpoint of this pair.
    #[track_caller]
    pub fn flush(&self, ep: &Ep, flags: Flush) -> Result {
        flush(&ep.iface().worker(), ep, flags, || self.progress())
    }

    /// Makes progress at both ends as long as there are events, and a while more: everything in flight arrives.
    pub fn settle(&self) {
        let (mut quiet, mut idle) = (Instant::now(), 0_u32);
        while quiet.elapsed() < Duration::from_millis(20) {
            if self.progress() > 0 {
                (quiet, idle) = (Instant::now(), 0);
            }
            idle += 1;
            if idle.is_multiple_of(TURN) {
                std::thread::sleep(NAP);
            }
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // A handler that holds an endpoint would keep the interface open for ever.
        self.sender.iface.clear_am_handlers();
        self.receiver.iface.clear_am_handlers();
    }
}

/// The interface at the other end of `first`: another one, or itself if it reaches no other.
pub fn other_end(setup: &Setup, first: &Side, options: IfaceOptions) -> (Side, bool) {
    let second = setup.open_far(options);
    let by_iface = first.iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE);
    let address = second.iface.address().unwrap_or_else(|error| panic!("no address: {error}"));
    if by_iface && first.iface.is_reachable(&address).is_err() {
        (first.clone(), true)
    } else {
        (second, false)
    }
}

/// Calls `progress` until `done`; panics if that takes too long.
#[track_caller]
pub fn wait(what: &str, mut progress: impl FnMut() -> u32, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut idle = 0_u32;
    while !done() {
        idle = if progress() > 0 { 0 } else { idle + 1 };
        if idle > 0 && idle.is_multiple_of(TURN) {
            assert!(start.elapsed() < LIMIT, "{what}: not within {} s", LIMIT.as_secs());
            if idle < PATIENT {
                std::thread::yield_now();
            } else {
                std::thread::sleep(NAP);
            }
        }
    }
}

/// Calls an operation until it returns anything but `NO_RESOURCE`, and `progress` in between.
#[track_caller]
pub fn retry<T>(
    what: &str,
    progress: impl FnMut() -> u32,
    mut operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut answer = operation();
    if matches!(answer, Err(Error::NO_RESOURCE)) {
        wait(what, progress, || {
            answer = operation();
            !matches!(answer, Err(Error::NO_RESOURCE))
        });
    }
    answer
}

/// Flushes an endpoint, with `progress` until it is done.
#[track_caller]
pub fn flush(worker: &Worker, ep: &Ep, flags: Flush, mut progress: impl FnMut() -> u32) -> Result {
    let completion = Completion::new(worker);
    let posted = retry("a flush that starts", &mut progress, || ep.flush(flags, Some(&completion)))?;
    if posted == Posted::InProgress {
        wait("a flush that ends", progress, || completion.is_done());
        completion.result()?;
    }
    Ok(())
}
