//! The pending queue: in order, nothing overtakes, fair, called from progress only, and purged once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use uct_host::{AmId, Capabilities, Ep, Error, Flush, Pending, Result, SendFlags};

use super::case;
use crate::case::{Case, Needs};
use crate::pair::{Link, Pair, connect};
use crate::setup::Setup;

const ID: AmId = AmId::new(6).unwrap();

/// Sends a number in a message of some hundred bytes, so that what limits a sender is reached soon.
fn number(ep: &Ep, value: u64) -> Result {
    let attributes = ep.iface().attributes().am;
    if ep.iface().capabilities().contains(Capabilities::AM_BCOPY) {
        let size = attributes.max_bcopy.min(1000);
        let pack = move |buffer: &mut [u8]| {
            buffer[..8].copy_from_slice(&value.to_ne_bytes());
            buffer[8..size].fill(7);
            size
        };
        return ep.am_bcopy(ID, SendFlags::empty(), pack).map(drop);
    }
    ep.am_short(ID, value, &vec![7; attributes.max_short.min(1000)])
}

/// A pair whose limits are low where they can be, and the numbers that its receiver got.
fn numbers(setup: &Setup) -> (Pair, Rc<RefCell<Vec<u64>>>) {
    for (key, value) in [("sndbuf", "16k"), ("rcvbuf", "16k"), ("tx_queue_size", "16k"), ("fifo_size", "64")]
    {
        setup.configure(key, value);
    }
    let pair = Pair::new(setup);
    let got = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::clone(&got);
    pair.receiver.iface.set_am_handler(ID, move |message| {
        list.borrow_mut().push(message.header().expect("a number"));
    });
    // A connection that is not established yet is no lack of resources.
    pair.flush(&pair.to, Flush::REMOTE).expect("a flush");
    (pair, got)
}

/// Sends until there is no room, without the receiver's progress; how many were sent.
fn fill(setup: &Setup, ep: &Ep, first: u64) -> u64 {
    for sent in 0..20_000 {
        match number(ep, first + sent) {
            Ok(()) => {}
            Err(Error::NO_RESOURCE) => return sent,
            Err(error) => panic!("a send: {error}"),
        }
    }
    setup.skip("it always has room for more");
}

fn in_order(setup: &Setup) {
    const COUNT: u64 = 50;
    let (pair, got) = numbers(setup);
    let sent = fill(setup, &pair.to, 0);
    let in_progress = Rc::new(Cell::new(false));
    let mut added = 0;
    while added < COUNT {
        let (value, flag) = (sent + added, Rc::clone(&in_progress));
        let request = move |ep: &Ep| {
            assert!(flag.get(), "a request was called from outside of progress");
            match number(ep, value) {
                Ok(()) => Pending::Done,
                Err(Error::NO_RESOURCE) => Pending::Wait,
                Err(error) => panic!("a send: {error}"),
            }
        };
        match pair.to.pending_add(request) {
            Ok(()) => {}
            Err((error, _)) => panic!("there was no room, and pending_add answers {error}"),
        }
        added += 1;
        // Nobody overtakes what is pending.
        assert_eq!(number(&pair.to, u64::MAX), Err(Error::NO_RESOURCE), "a send overtakes what is pending");
    }
    let total = (sent + COUNT) as usize;
    in_progress.set(true);
    pair.until("all messages", || got.borrow().len() >= total);
    in_progress.set(false);
    assert_eq!(*got.borrow(), (0..sent + COUNT).collect::<Vec<_>>());
    pair.retry("a send afterwards", || number(&pair.to, 0)).expect("there is room again");
}

fn busy(setup: &Setup) {
    let (pair, _got) = numbers(setup);
    let called = Rc::new(Cell::new(0));
    let seen = Rc::clone(&called);
    pair.retry("a send", || number(&pair.to, 0)).expect("there is room once the endpoints are connected");
    match pair.to.pending_add(move |_| {
        seen.set(seen.get() + 1);
        Pending::Done
    }) {
        Ok(()) => panic!("there is room, and a request was taken"),
        Err((error, mut request)) => {
            assert_eq!(error, Error::BUSY);
            assert_eq!(called.get(), 0, "a refused request was called");
            request(&pair.to);
            assert_eq!(called.get(), 1, "the request is given back");
        }
    }
}

/// Counts how often it was dropped.
struct Dropped(Rc<Cell<usize>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn add_counted(ep: &Ep, count: usize) -> Rc<Cell<usize>> {
    let dropped = Rc::new(Cell::new(0));
    for _ in 0..count {
        let mark = Dropped(Rc::clone(&dropped));
        let request = move |_: &Ep| -> Pending {
            let _held = &mark;
            panic!("a purged request was called");
        };
        assert!(ep.pending_add(request).is_ok(), "there was no room, and a request is refused");
    }
    dropped
}

fn purged(setup: &Setup) {
    let (pair, got) = numbers(setup);
    let sent = fill(setup, &pair.to, 0);
    let dropped = add_counted(&pair.to, 10);
    assert_eq!(pair.to.pending_purge(), 10);
    assert_eq!(dropped.get(), 10, "each request is dropped once");
    assert_eq!(pair.to.pending_purge(), 0);
    pair.until("what was sent", || got.borrow().len() as u64 == sent);
    pair.retry("a send afterwards", || number(&pair.to, sent)).expect("there is room again");
    pair.until("the message afterwards", || got.borrow().len() as u64 == sent + 1);
    assert_eq!(dropped.get(), 10);
}

fn endpoint_dropped(setup: &Setup) {
    let (pair, got) = numbers(setup);
    let (link, _back) = connect(&pair.sender, &pair.receiver);
    pair.flush(&link, Flush::REMOTE).expect("a flush");
    let sent = fill(setup, &link, 0);
    let dropped = add_counted(&link, 10);
    drop(link);
    assert_eq!(dropped.get(), 10, "requests of an endpoint that is gone");
    pair.until("what was accepted ahead", || got.borrow().len() as u64 >= sent);
    assert_eq!(*got.borrow(), (0..sent).collect::<Vec<_>>());
}

fn added_from_inside(setup: &Setup) {
    let (pair, got) = numbers(setup);
    let sent = fill(setup, &pair.to, 0);
    let next = Rc::new(Cell::new(sent));
    /// Sends the next number, and queues itself again in a new request as long as there is more to send.
    fn serve(ep: &Ep, next: &Rc<Cell<u64>>, end: u64) -> Pending {
        if number(ep, next.get()).is_err() {
            return Pending::Wait;
        }
        next.set(next.get() + 1);
        if next.get() < end {
            let again = Rc::clone(next);
            if ep.pending_add(move |ep| serve(ep, &again, end)).is_err() {
                return serve(ep, next, end);
            }
        }
        Pending::Done
    }
    let (own, end) = (Rc::clone(&next), sent + 30);
    assert!(pair.to.pending_add(move |ep| serve(ep, &own, end)).is_ok());
    pair.until("all messages", || got.borrow().len() as u64 == end);
    assert_eq!(*got.borrow(), (0..end).collect::<Vec<_>>());
}

fn fair(setup: &Setup) {
    fair_among(setup, 16, 300);
    fair_among(setup, 128, 200);
}

/// Turns that each of the others may have, on average, while an endpoint waits for its next one: what fits into the
/// buffers of a connection goes at once.
const PATIENCE: usize = 150;

/// When endpoints were served.
#[derive(Default)]
struct Turns {
    total: usize,
    counts: Vec<usize>,
    /// In terms of `total`.
    last: Vec<usize>,
    longest_wait: usize,
}

fn fair_among(setup: &Setup, endpoints: usize, rounds: usize) {
    let (pair, got) = numbers(setup);
    let links: Vec<(Link, Link)> = (0..endpoints).map(|_| connect(&pair.sender, &pair.receiver)).collect();
    let mut sent = 0;
    for (link, _) in &links {
        pair.flush(link, Flush::REMOTE).expect("a flush");
    }
    let nobody = vec![0; endpoints];
    let turns = Rc::new(RefCell::new(Turns { counts: nobody.clone(), last: nobody, ..Turns::default() }));
    for (link, _) in &links {
        // With resources of their own each is filled; with common ones all but the first find them used up.
        sent += if number(link, 0) == Err(Error::NO_RESOURCE) { 0 } else { 1 + fill(setup, link, 0) };
    }
    for (index, (link, _)) in links.iter().enumerate() {
        let turns = Rc::clone(&turns);
        let request = move |ep: &Ep| match number(ep, 1) {
            Ok(()) => {
                let turns = &mut *turns.borrow_mut();
                turns.total += 1;
                turns.longest_wait = turns.longest_wait.max(turns.total - turns.last[index]);
                turns.last[index] = turns.total;
                turns.counts[index] += 1;
                if turns.counts[index] < rounds { Pending::Again } else { Pending::Done }
            }
            Err(Error::NO_RESOURCE) => Pending::Wait,
            Err(error) => panic!("a send: {error}"),
        };
        assert!(link.pending_add(request).is_ok(), "there was no room, and a request is refused");
    }
    let total = sent as usize + endpoints * rounds;
    pair.until("all messages", || got.borrow().len() >= total);
    assert_eq!(got.borrow().len(), total);
    let turns = turns.borrow();
    assert!(turns.counts.iter().all(|&count| count == rounds));
    let wait = turns.longest_wait;
    assert!(
        wait <= PATIENCE * endpoints,
        "one of {endpoints} endpoints waited while the others had {wait} turns, of {} in all",
        turns.total
    );
}

const PENDING: Needs =
    Needs { any: Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY), ..Needs::all(Capabilities::PENDING) };

pub(super) const CASES: &[Case] = &[
    case("pending requests run in order from progress and nothing overtakes them", PENDING, in_order),
    case("pending_add answers BUSY while there is room", PENDING, busy),
    case("a purge drops each pending request once and calls none", PENDING, purged),
    case("pending requests go with their endpoint and what was accepted arrives", PENDING, endpoint_dropped),
    case("a pending request may queue another one", PENDING, added_from_inside),
    case("endpoints with pending requests are served fairly", PENDING, fair),
];
