//! Handlers that close an interface, their own or another one, that panic amid a run of messages, or that send to their own
//! interface: a transport that is on the stack is never closed from under itself.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::time::Duration;

use uct_host::{AmId, Capabilities, Ep, Error, IfaceOptions};

use super::case;
use crate::case::{Case, Needs};
use crate::log;
use crate::pair::{Link, Pair, Side, connect, other_end, poll_until, retry, wait};
use crate::setup::Setup;

const ID: AmId = AmId::new(6).unwrap();

/// For a transport to notice that its peer has ended.
const LIMIT: Duration = Duration::from_secs(60);
/// Messages of a run: as many as a connection takes at first, whose receiver does nothing.
const RUN: u64 = 8;

/// Sends a number twice over, in the flavour that transports are quickest with.
fn send(ep: &Ep, value: u64) -> Result<(), Error> {
    ep.am_short(ID, value, &value.to_ne_bytes())
}

fn message(value: u64) -> [u8; 16] {
    let mut message = [0; 16];
    message[..8].copy_from_slice(&value.to_ne_bytes());
    message[8..].copy_from_slice(&value.to_ne_bytes());
    message
}

/// Sets a handler that lives until the interface is closed; the returned value shows that.
fn told_of_its_end(side: &Side) -> Weak<()> {
    let token = Rc::new(());
    let is_open = Rc::downgrade(&token);
    side.iface.set_am_handler(AmId::new(7).expect("an id"), move |_| drop(Rc::clone(&token)));
    is_open
}

/// Sends messages that the receiver finds all at once.
fn send_run(
    sender: &Side,
    link: &Link,
    count: u64,
    progress: impl Fn() -> u32,
    is_first_there: impl Fn() -> bool,
) {
    retry("a send", &progress, || send(&link.ep, 0)).expect("a send");
    wait("the first message", &progress, is_first_there);
    for value in 1..count {
        retry("a send", || sender.worker.progress(), || send(&link.ep, value)).expect("a send");
    }
}

fn its_own(setup: &Setup) {
    const LAST: u64 = 4;
    let sender = setup.open(IfaceOptions::default());
    let (receiver, _) = other_end(setup, &sender, IfaceOptions::default());
    let (link, back) = connect(&sender, &receiver);
    // Where it need not be there, the interface is not held by what is dropped with it.
    let by_iface = sender.iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE);
    let back = (!by_iface).then_some(back);
    let worker = receiver.worker.clone();
    let is_open = told_of_its_end(&receiver);
    let (calls, kept) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    let held = Rc::new(RefCell::new(None));
    let (counted, list, end, open) = (Rc::clone(&calls), Rc::clone(&kept), Rc::clone(&held), is_open.clone());
    receiver.iface.set_am_handler(ID, move |message| {
        counted.set(counted.get() + 1);
        if message.header() == Some(LAST) {
            drop(end.take());
            assert!(open.upgrade().is_some(), "the interface is closed while its handler runs");
        }
        if message.header() >= Some(LAST) {
            list.borrow_mut().push(message.keep());
        }
    });
    *held.borrow_mut() = Some((receiver, back));
    let progress = || sender.worker.progress() + worker.progress();
    send_run(&sender, &link, RUN, progress, || calls.get() == 1);
    wait("the handler that closes", progress, || calls.get() > LAST);
    for (kept, value) in kept.borrow().iter().zip(LAST..) {
        assert_eq!(**kept, message(value), "a message that was kept by who closes the interface");
    }
    kept.borrow_mut().clear();
    worker.progress();
    assert!(is_open.upgrade().is_none(), "nothing holds the interface, and it is open");
    let calls_by_then = calls.get();
    for _ in 0..1000 {
        progress();
    }
    assert_eq!(calls.get(), calls_by_then, "a message was delivered by an interface that is closed");
}

fn another_one(setup: &Setup) {
    let pair = Pair::new(setup);
    let other = setup.open_on(&pair.receiver.worker, IfaceOptions::default());
    let is_open = told_of_its_end(&other);
    let (held, calls) = (RefCell::new(Some(other)), Rc::new(Cell::new(0)));
    let (open, counted) = (is_open.clone(), Rc::clone(&calls));
    pair.receiver.iface.set_am_handler(ID, move |_| {
        counted.set(counted.get() + 1);
        if held.take().is_some() {
            assert!(open.upgrade().is_some(), "an interface is closed while a handler of its worker runs");
        }
    });
    pair.retry("a send", || send(&pair.to.ep, 1)).expect("a send");
    pair.until("the message", || calls.get() == 1);
    pair.progress();
    assert!(is_open.upgrade().is_none(), "nothing holds the other interface, and it is open");
    pair.retry("a send", || send(&pair.to.ep, 2)).expect("a send");
    pair.until("a message afterwards", || calls.get() == 2);
}

fn panics_amid(setup: &Setup) {
    let pair = Pair::new(setup);
    let calls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&calls);
    pair.receiver.iface.set_am_handler(ID, move |message| {
        counted.set(counted.get() + 1);
        assert_ne!(message.header(), Some(5), "the handler gives up");
    });
    let panics = Cell::new(0);
    let progress = || {
        let progressed = catch_unwind(AssertUnwindSafe(|| pair.progress()));
        panics.set(panics.get() + u32::from(progressed.is_err()));
        progressed.unwrap_or(1)
    };
    send_run(&pair.sender, &pair.to, RUN, progress, || calls.get() == 1);
    wait("all messages", progress, || calls.get() == RUN);
    progress();
    assert_eq!(panics.get(), 1, "the panic of a handler comes out of progress once");
    let other = setup.open_on(&pair.receiver.worker, IfaceOptions::default());
    let is_open = told_of_its_end(&other);
    drop(other);
    assert!(is_open.upgrade().is_none(), "no handler runs, and an interface is not closed at once");
}

fn sends_to_itself(setup: &Setup) {
    const MOST: u64 = 200;
    const KEPT: u32 = 16;
    let is_limited = setup.configure("max_kept", &KEPT.to_string());
    let pair = Pair::new(setup);
    let [calls, refused] = [(); 2].map(|()| Rc::new(Cell::new(0_u64)));
    let [depth, deepest] = [(); 2].map(|()| Rc::new(Cell::new(0_u32)));
    for (side, link) in [(&pair.sender, &pair.to), (&pair.receiver, &pair.back)] {
        let ep = link.ep.clone();
        let (calls, refused) = (Rc::clone(&calls), Rc::clone(&refused));
        let (depth, deepest) = (Rc::clone(&depth), Rc::clone(&deepest));
        side.iface.set_am_handler(ID, move |received| {
            calls.set(calls.get() + 1);
            depth.set(depth.get() + 1);
            deepest.set(deepest.get().max(depth.get()));
            let value = received.header().expect("a header");
            assert_eq!(*received, message(value));
            if value < MOST {
                match send(&ep, value + 1) {
                    Ok(()) => {}
                    Err(Error::NO_RESOURCE) => refused.set(refused.get() + 1),
                    Err(error) => panic!("a send of a handler: {error}"),
                }
            }
            assert_eq!(*received, message(value), "a message is another one after its handler has sent");
            depth.set(depth.get() - 1);
        });
    }
    pair.retry("a send", || send(&pair.to.ep, 0)).expect("a send");
    pair.until("the last message, or a refusal", || calls.get() + refused.get() > MOST || refused.get() > 0);
    if is_limited && pair.is_loop {
        assert_eq!((deepest.get(), refused.get()), (KEPT + 1, 1), "handlers inside handlers");
    }
    // It is not out of room for ever.
    let before = calls.get();
    pair.retry("a send afterwards", || send(&pair.to.ep, MOST)).expect("a send");
    pair.until("a message afterwards", || calls.get() > before);
}

/// A peer may end at any time, and the next operation says that it is gone.
fn peer_ends(setup: &Setup) {
    for key in ["keepalive_interval", "keepalive_timeout"] {
        setup.configure(key, "1s");
    }
    let sender = setup.open(IfaceOptions::default());
    let (receiver, is_loop) = other_end(setup, &sender, IfaceOptions::default());
    if is_loop {
        setup.skip("its peer is itself");
    }
    let address = receiver.iface.address().expect("an address");
    let ep = sender.iface.connect(&address).unwrap_or_else(|refused| panic!("{refused}"));
    let inbox = receiver.inbox(ID);
    let progress = || sender.worker.progress() + receiver.worker.progress();
    retry("a send", progress, || send(&ep, 7)).expect("a send");
    wait("the message", progress, || inbox.take().is_some());
    drop(receiver);
    let ends = || ep.failure().is_some();
    assert!(poll_until(LIMIT, || sender.worker.progress(), ends), "the peer has ended, and nothing says so");
    let failure = ep.failure().expect("it has failed");
    if failure.error != Error::CONNECTION_RESET {
        setup.skip("it takes the peer for dead");
    }
    assert_eq!(send(&ep, 8), Err(Error::CONNECTION_RESET));
    assert_eq!(log::take(), [], "the peer has ended in order");
}

const SHORT: Needs = Needs::all(Capabilities::AM_SHORT);
const ENDS: Capabilities =
    Capabilities::AM_SHORT.union(Capabilities::ERRHANDLE_PEER_FAILURE).union(Capabilities::CONNECT_TO_IFACE);

pub(super) const CASES: &[Case] = &[
    Case {
        logs: None,
        ..case(
            "an interface that its own handler drops is closed behind the handler",
            Needs { two_ifaces: true, ..SHORT },
            its_own,
        )
    },
    case(
        "an end of the peer in order is no warning and no error",
        Needs::all(ENDS).and_two_ifaces(),
        peer_ends,
    ),
    case("an interface that another one's handler drops is closed behind the handler", SHORT, another_one),
    case("a panic amid a run of messages comes out once and nothing counts as running", SHORT, panics_amid),
    case("a handler may send to its own interface, and finds its message as it was", SHORT, sends_to_itself),
];
