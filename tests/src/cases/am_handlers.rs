//! Handlers may call anything: send, progress, flush, connect, drop endpoints, and even panic.

use std::cell::{Cell, RefCell};
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use uct_host::{AmId, Capabilities, Ep, Error, SendFlags};

use super::case;
use crate::case::{Case, Needs};
use crate::pair::{Pair, connect};
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

const PING: AmId = AmId::new(1).unwrap();
const PONG: AmId = AmId::new(2).unwrap();

/// Sends a number by whatever flavour there is; handlers use it, so it does not wait.
fn number(ep: &Ep, id: AmId, value: u64) -> Result<(), Error> {
    if ep.iface().capabilities().contains(Capabilities::AM_SHORT) {
        return ep.am_short(id, value, &[]);
    }
    let pack = |buffer: &mut [u8]| {
        buffer[..8].copy_from_slice(&value.to_ne_bytes());
        8
    };
    ep.am_bcopy(id, SendFlags::empty(), pack).map(drop)
}

fn ping_pong(setup: &Setup) {
    const ROUNDS: u64 = 300;
    let pair = Pair::new(setup);
    let replies = Rc::new(RefCell::new(Vec::new()));
    let unsent = Rc::new(RefCell::new(Vec::new()));
    let (ep, queue) = (pair.back.ep.clone(), Rc::clone(&unsent));
    pair.receiver.iface.set_am_handler(PING, move |message| {
        let value = message.header().expect("a header");
        if let Err(error) = number(&ep, PONG, value + 1) {
            assert_eq!(error, Error::NO_RESOURCE);
            queue.borrow_mut().push(value + 1);
        }
    });
    let seen = Rc::clone(&replies);
    pair.sender.iface.set_am_handler(PONG, move |message| {
        seen.borrow_mut().push(message.header().expect("a header"));
    });
    for round in 0..ROUNDS {
        pair.retry("a ping", || number(&pair.to, PING, round * 10)).expect("a ping");
        let waiting: Vec<u64> = unsent.take();
        for value in waiting {
            pair.retry("a pong", || number(&pair.back, PONG, value)).expect("a pong");
        }
    }
    pair.until("all replies", || {
        unsent.borrow_mut().retain(|value| number(&pair.back, PONG, *value).is_err());
        replies.borrow().len() as u64 == ROUNDS
    });
    let mut replies = replies.take();
    replies.sort_unstable();
    assert_eq!(replies, (0..ROUNDS).map(|round| round * 10 + 1).collect::<Vec<_>>());
}

fn progress_inside(setup: &Setup) {
    const COUNT: u64 = 100;
    let pair = Pair::new(setup);
    let order = Rc::new(RefCell::new(Vec::new()));
    let (seen, worker, depth) = (Rc::clone(&order), pair.receiver.worker.clone(), Cell::new(0));
    pair.receiver.iface.set_am_handler(PING, move |message| {
        seen.borrow_mut().push(message.header().expect("a header"));
        // A few levels are enough to show it; without an end the stack would overflow.
        if depth.get() < 4 {
            depth.set(depth.get() + 1);
            worker.progress();
            depth.set(depth.get() - 1);
        }
    });
    for index in 0..COUNT {
        pair.retry("a send", || number(&pair.to, PING, index)).expect("a send");
    }
    pair.until("all messages", || order.borrow().len() as u64 == COUNT);
    assert_eq!(*order.borrow(), (0..COUNT).collect::<Vec<_>>());
}

fn progress_inside_has_an_end(setup: &Setup) {
    const COUNT: u64 = 10_000;
    /// Far more than any transport nests, far less than a stack takes.
    const LEVELS: u32 = 100;
    const STACK: usize = 192 << 10;
    /// With what each may have on the way, more messages can arrive at once than may be nested.
    const CONNECTIONS: usize = 16;
    let pair = Pair::new(setup);
    let more: Vec<_> = (1..CONNECTIONS).map(|_| connect(&pair.sender, &pair.receiver)).collect();
    let senders: Vec<&Ep> = iter::once(&*pair.to).chain(more.iter().map(|(to, _)| &**to)).collect();
    let (count, depth) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0_u32)));
    let most = Rc::new(Cell::new((0, 0)));
    let (counted, level, deepest) = (Rc::clone(&count), Rc::clone(&depth), Rc::clone(&most));
    let (worker, ep, base) = (pair.receiver.worker.clone(), pair.back.ep.clone(), Cell::new(0));
    pair.receiver.iface.set_am_handler(PING, move |message| {
        let here = (&raw const message).addr();
        if level.get() == 0 {
            base.set(here);
        }
        counted.set(counted.get() + 1);
        level.set(level.get() + 1);
        let (levels, bytes) = deepest.get();
        deepest.set((levels.max(level.get()), bytes.max(base.get().abs_diff(here))));
        // An echo server; an answer for which there is no room is left out.
        match number(&ep, PONG, counted.get()) {
            Ok(()) | Err(Error::NO_RESOURCE) => {}
            Err(error) => panic!("an answer: {error}"),
        }
        if level.get() < LEVELS {
            worker.progress();
        }
        level.set(level.get() - 1);
    });
    pair.sender.iface.set_am_handler(PONG, |_| {});
    for (index, ep) in (0..COUNT).zip(senders.iter().cycle()) {
        pair.retry("a send", || number(ep, PING, index)).expect("a send");
    }
    pair.until("all messages", || count.get() == COUNT);
    let (levels, bytes) = most.get();
    assert!(levels < LEVELS, "handlers that call progress are nested without end");
    assert!(bytes < STACK, "{levels} handlers, one inside the other, take {bytes} bytes of stack");
}

fn packs_around_other_calls(setup: &Setup) {
    const ROUNDS: usize = 30;
    let pair = Pair::new(setup);
    let (second, _back) = connect(&pair.sender, &pair.receiver);
    let (inbox, count) = (pair.receiver.inbox(PING), Rc::new(Cell::new(0)));
    let counted = Rc::clone(&count);
    pair.receiver.iface.set_am_handler(PONG, move |message| {
        assert_eq!(message.header(), Some(7), "a message that was sent while another one was packed");
        counted.set(counted.get() + 1);
    });
    let size = pair.sender.attributes().am.max_bcopy.min(3000);
    let mut accepted = 0;
    for round in 0..ROUNDS {
        let bytes = pattern(setup.seed + round as u64, size);
        let pack = |buffer: &mut [u8]| {
            buffer[..size / 2].copy_from_slice(&bytes[..size / 2]);
            for ep in [&pair.to, &second] {
                match number(ep, PONG, 7) {
                    Ok(()) => accepted += 1,
                    Err(error) => assert_eq!(error, Error::NO_RESOURCE, "a send while a message is packed"),
                }
                pair.sender.worker.progress();
            }
            buffer[size / 2..size].copy_from_slice(&bytes[size / 2..]);
            size
        };
        let mut pack = Some(pack);
        let send = || {
            // A send inside may have taken the room; the message is then packed again, around nothing.
            match pack.take() {
                Some(pack) => pair.to.am_bcopy(PING, SendFlags::empty(), pack),
                None => pair.to.am_bcopy(PING, SendFlags::empty(), |buffer: &mut [u8]| {
                    buffer[..size].copy_from_slice(&bytes);
                    size
                }),
            }
        };
        assert_eq!(pair.retry("a send", send), Ok(size));
        pair.until("the packed message", || !inbox.is_empty());
        check_bytes("what was packed", &inbox.take().expect("a message"), &bytes);
    }
    pair.until("what was sent inside", || count.get() == accepted);
    assert!(inbox.is_empty());
}

fn drops_its_endpoint(setup: &Setup) {
    let pair = Pair::new(setup);
    let own = Rc::new(RefCell::new(Some(connect(&pair.receiver, &pair.sender))));
    let (held, calls) = (Rc::clone(&own), Rc::new(Cell::new(0)));
    let counted = Rc::clone(&calls);
    let (replies, ep) = (Rc::new(Cell::new(0)), pair.back.ep.clone());
    pair.receiver.iface.set_am_handler(PING, move |_| {
        counted.set(counted.get() + 1);
        if let Some((link, other)) = held.take() {
            let _ = number(&link, PONG, 1);
            drop((link, other));
        }
        let _ = number(&ep, PONG, 2);
    });
    let seen = Rc::clone(&replies);
    pair.sender.iface.set_am_handler(PONG, move |_| seen.set(seen.get() + 1));
    for index in 0..10 {
        pair.retry("a send", || number(&pair.to, PING, index)).expect("a send");
    }
    pair.until("all messages", || calls.get() == 10 && replies.get() > 0);
    assert!(own.borrow().is_none());
}

fn connects_inside(setup: &Setup) {
    let pair = Pair::new(setup);
    let made = Rc::new(RefCell::new(Vec::new()));
    let (links, from, to) = (Rc::clone(&made), pair.receiver.clone(), pair.sender.clone());
    pair.receiver.iface.set_am_handler(PING, move |_| {
        links.borrow_mut().push(crate::pair::connect(&from, &to));
    });
    let inbox = pair.sender.inbox(PONG);
    for index in 0..5 {
        pair.retry("a send", || number(&pair.to, PING, index)).expect("a send");
    }
    pair.until("all messages", || made.borrow().len() == 5);
    for (link, _) in made.borrow().iter() {
        pair.retry("a send", || number(link, PONG, 4)).expect("a send");
    }
    pair.until("messages of the new endpoints", || inbox.len() == 5);
}

fn panics(setup: &Setup) {
    let pair = Pair::new(setup);
    let calls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&calls);
    pair.receiver.iface.set_am_handler(PING, move |message| {
        counted.set(counted.get() + 1);
        assert_ne!(message.header(), Some(1), "the handler gives up");
    });
    for value in 0..3 {
        // Where a send delivers at once, the panic comes out of the next progress all the same.
        pair.retry("a send", || {
            let sent = catch_unwind(AssertUnwindSafe(|| number(&pair.to, PING, value)));
            sent.unwrap_or(Ok(()))
        })
        .expect("a send");
    }
    let mut panics = 0;
    crate::pair::wait(
        "the messages",
        || {
            let progressed = catch_unwind(AssertUnwindSafe(|| pair.progress()));
            if progressed.is_err() {
                panics += 1;
            }
            progressed.unwrap_or(1)
        },
        || calls.get() == 3,
    );
    if catch_unwind(AssertUnwindSafe(|| pair.progress())).is_err() {
        panics += 1;
    }
    assert_eq!(panics, 1, "the panic of a handler comes out of progress once");
    pair.retry("a send", || number(&pair.to, PING, 9)).expect("a send");
    pair.until("a message after the panic", || calls.get() == 4);
}

const ANY: Needs = Needs::any(Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY));

pub(super) const CASES: &[Case] = &[
    case("a handler may answer with a message", ANY, ping_pong),
    case("a handler may progress the worker and order is kept", ANY, progress_inside),
    case("handlers that progress the worker are nested to a limit", ANY, progress_inside_has_an_end),
    case(
        "a pack function may send and progress",
        Needs::all(Capabilities::AM_BCOPY),
        packs_around_other_calls,
    ),
    case("a handler may drop the endpoint it just sent on", ANY, drops_its_endpoint),
    case("a handler may connect endpoints", ANY, connects_inside),
    case("a panic of a handler comes out of progress once and harms nothing", ANY, panics),
];
