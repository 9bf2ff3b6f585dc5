//! What is wrong about an active message is an error at the sender, or one line at the receiver, and harms nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use uct_host::{AmId, Capabilities, Error, SendFlags};

use super::case;
use crate::case::{Case, Needs};
use crate::message::HEADER;
use crate::pair::{Inbox, Pair};
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

const ID: AmId = AmId::new(9).unwrap();

/// After an error, the next message still arrives, and only that.
fn still_works(pair: &Pair, inbox: &Inbox) {
    pair.settle();
    assert!(inbox.is_empty(), "something of what was refused arrived");
    if pair.sender.iface.capabilities().contains(Capabilities::AM_SHORT) {
        pair.retry("a send", || pair.to.am_short(ID, 17, b"x")).expect("a send");
    } else {
        let pack = |buffer: &mut [u8]| {
            buffer[..9].copy_from_slice(b"\x11\0\0\0\0\0\0\0x");
            9
        };
        pair.retry("a send", || pair.to.am_bcopy(ID, SendFlags::empty(), pack)).expect("a send");
    }
    pair.until("the message after", || !inbox.is_empty());
    assert_eq!(inbox.take().expect("it is there")[HEADER..], *b"x");
}

fn short_too_long(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let most = pair.sender.attributes().am.max_short;
    if most >= 1 << 30 {
        setup.skip("am_short has no limit");
    }
    for beyond in [1, 2, 7, 1000] {
        let payload = vec![3; most + beyond];
        let answer = pair.retry("a send", || pair.to.am_short(ID, 1, &payload));
        assert_eq!(answer, Err(Error::INVALID_PARAM), "{beyond} bytes beyond max_short");
        let parts: [&[u8]; 2] = [&[0; HEADER], &payload];
        let answer = pair.retry("a send", || pair.to.am_short_iov(ID, &parts));
        assert_eq!(answer, Err(Error::INVALID_PARAM), "{beyond} bytes beyond max_short, gathered");
    }
    still_works(&pair, &inbox);
}

fn bcopy_too_long(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let most = pair.sender.attributes().am.max_bcopy;
    for length in [most + 1, most + 1000, usize::MAX] {
        let answer = pair.retry("a send", || pair.to.am_bcopy(ID, SendFlags::empty(), |_| length));
        assert_eq!(answer, Err(Error::INVALID_PARAM), "{length} bytes, max_bcopy is {most}");
        nothing_but_an_empty_message(&pair, &inbox);
    }
    let parts: [&[u8]; 2] = [&vec![0; most], &[0]];
    let answer = pair.retry("a send", || pair.to.am_bcopy_iov(ID, SendFlags::empty(), &parts));
    assert_eq!(answer, Err(Error::INVALID_PARAM), "gathered");
    still_works(&pair, &inbox);
}

/// What arrives in place of a message that was not packed: nothing, or an empty message from a transport that cannot take
/// its buffer back.
fn nothing_but_an_empty_message(pair: &Pair, inbox: &Inbox) {
    if pair.sender.iface.sends_nothing_after_failed_packing() {
        pair.settle();
        assert!(inbox.is_empty(), "a message that was not packed arrived");
    } else {
        pair.until("the empty message in its place", || !inbox.is_empty());
        assert_eq!(inbox.take(), Some(Vec::new()));
    }
}

fn pack_panics(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _ = pair.retry("a send", || {
            pair.to.am_bcopy(ID, SendFlags::empty(), |_| -> usize { panic!("no bytes today") })
        });
    }));
    let panic = caught.expect_err("the panic of a pack closure is resumed");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"no bytes today"));
    nothing_but_an_empty_message(&pair, &inbox);
    still_works(&pair, &inbox);
}

fn nobody_handles_it(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let nobodys = AmId::new(10).unwrap();
    let bytes = pattern(setup.seed, 40);
    let completion = pair.sender.completion();
    let flavour = crate::message::Flavour::of(&pair.sender)[0];
    let send = |id| {
        pair.retry("a send", || flavour.send(&pair.sender, &pair.to, id, &bytes, &completion))
            .expect("a send");
    };
    send(nobodys);
    send(ID);
    pair.until("the message behind it", || !inbox.is_empty());
    check_bytes("the message behind it", &inbox.take().expect("it is there"), &bytes);
    assert!(
        crate::log::take().iter().any(|line| line.text.contains("without a handler")),
        "no word about it"
    );
    // One line, and no more.
}

fn nobody_handles_a_flood(setup: &Setup) {
    const MESSAGES: usize = 400;
    // A line with its fields and its count of what was left out.
    const MAX_LINE: u64 = 300;
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let nobodys = AmId::new(10).unwrap();
    let bytes = pattern(setup.seed, 16);
    let completion = pair.sender.completion();
    let flavour = crate::message::Flavour::of(&pair.sender)[0];
    let send = |id| {
        pair.retry("a send", || flavour.send(&pair.sender, &pair.to, id, &bytes, &completion))
            .expect("a send");
    };
    let start = Instant::now();
    (0..MESSAGES).for_each(|_| send(nobodys));
    send(ID);
    pair.until("the message behind them", || !inbox.is_empty());
    let seconds = start.elapsed().as_secs() + 1;
    let lines = crate::log::take();
    let log: u64 = lines.iter().map(|line| line.text.len() as u64 + 1).sum();
    let limit = (seconds + 1) * u64::from(setup.context().core_config().log_rate) * MAX_LINE;
    assert!(
        (1..=limit).contains(&log),
        "{MESSAGES} messages in up to {seconds} s made {} lines, {log} bytes of log; {limit} are permitted",
        lines.len()
    );
    assert!(lines.iter().any(|line| line.text.contains("only counted")), "no word about the rest: {lines:?}");
}

fn handler_is_replaced(setup: &Setup) {
    let pair = Pair::new(setup);
    let first = pair.receiver.inbox(ID);
    let flavour = crate::message::Flavour::of(&pair.sender)[0];
    let completion = pair.sender.completion();
    let bytes = pattern(setup.seed, 32);
    let send = || {
        pair.retry("a send", || flavour.send(&pair.sender, &pair.to, ID, &bytes, &completion))
            .expect("a send");
    };
    send();
    pair.until("the first message", || first.len() == 1);
    let second = pair.receiver.inbox(ID);
    send();
    pair.until("the second message", || second.len() == 1);
    assert_eq!(first.len(), 1, "the handler so far was called");
}

const ANY: Needs =
    Needs::any(Capabilities::AM_SHORT.union(Capabilities::AM_BCOPY).union(Capabilities::AM_ZCOPY));

pub(super) const CASES: &[Case] = &[
    case(
        "am_short beyond max_short is refused and nothing arrives",
        Needs::all(Capabilities::AM_SHORT),
        short_too_long,
    ),
    case("am_bcopy never sends more than max_bcopy", Needs::all(Capabilities::AM_BCOPY), bcopy_too_long),
    case(
        "a panic of a pack closure is resumed at the sender",
        Needs::all(Capabilities::AM_BCOPY),
        pack_panics,
    ),
    case("a message without a handler is dropped with one warning", ANY, nobody_handles_it),
    case("a flood of messages without a handler makes a few lines of log", ANY, nobody_handles_a_flood),
    case("a new handler takes the place of the one so far", ANY, handler_is_replaced),
];
