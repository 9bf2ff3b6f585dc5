//! Completions: they count, keep the first error, can be used again, and are called from progress.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use uct_host::{AmId, Capabilities, Completion, Error, Flush, Posted, Result, SendFlags};

use super::case;
use crate::case::{Case, Needs};
use crate::pair::{LIMIT, Pair};
use crate::random::{check_bytes, pattern};
use crate::setup::Setup;

const ID: AmId = AmId::new(12).unwrap();

/// Starts a zero-copy send of `size` bytes.
fn send(pair: &Pair, size: usize, completion: &Completion) -> Posted {
    let memory = pair.sender.memory(pattern(3, size));
    let post = || pair.to.am_zcopy(ID, &[], &[memory.slice(..)], SendFlags::empty(), completion);
    pair.retry("a send", post).expect("a send")
}

fn counts(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let size = pair.sender.attributes().am.max_zcopy.min(1 << 18);
    let (calls, in_progress) = (Rc::new(RefCell::new(Vec::<Result>::new())), Rc::new(Cell::new(false)));
    let (list, flag) = (Rc::clone(&calls), Rc::clone(&in_progress));
    let completion = Completion::with_callback(&pair.sender.worker, move |result| {
        assert!(flag.get(), "a completion was called from outside of progress");
        list.borrow_mut().push(result);
    });
    assert!(completion.is_done());
    let mut sent = 0;
    for _round in 0..10 {
        let mut outstanding = 0;
        for _ in 0..10 {
            let memory = pair.sender.memory(pattern(3, size));
            let post = || pair.to.am_zcopy(ID, &[], &[memory.slice(..)], SendFlags::empty(), &completion);
            match post() {
                Ok(Posted::InProgress) => outstanding += 1,
                Ok(Posted::Done) => {}
                Err(Error::NO_RESOURCE) => break,
                Err(error) => panic!("a send: {error}"),
            }
            sent += 1;
            assert_eq!(completion.outstanding(), outstanding);
        }
        let expected = usize::from(outstanding > 0);
        if outstanding > 0 {
            assert_eq!(completion.reset(), Err(Error::BUSY), "reset with operations outstanding");
        }
        in_progress.set(true);
        pair.until("the completion", || completion.is_done());
        in_progress.set(false);
        assert_eq!(calls.borrow().len(), expected, "a completion is called once, when all have ended");
        assert!(calls.borrow().iter().all(Result::is_ok));
        calls.borrow_mut().clear();
        completion.reset().expect("nothing is outstanding");
    }
    pair.until("all messages", || inbox.len() == sent);
}

fn dropped(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let size = pair.sender.attributes().am.max_zcopy.min(1 << 18);
    for _ in 0..10 {
        // Nobody holds completion or memory any more; both live until the operation has ended.
        let completion = Completion::new(&pair.sender.worker);
        send(&pair, size, &completion);
        drop(completion);
    }
    pair.until("all messages", || inbox.len() == 10);
    while let Some(message) = inbox.take() {
        check_bytes("a message", &message, &pattern(3, size));
    }
    pair.flush(&pair.to, Flush::empty()).expect("a flush");
}

fn ends_inside(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let size = pair.sender.attributes().am.max_zcopy.min(1 << 16);
    let chained = Rc::new(Cell::new(0));
    let (ep, count, memory) = (pair.to.ep.clone(), Rc::clone(&chained), pair.sender.memory(pattern(3, size)));
    let inner = Completion::new(&pair.sender.worker);
    let called = Rc::new(Cell::new(0));
    let calls = Rc::clone(&called);
    let completion = Completion::with_callback(&pair.sender.worker, move |_| {
        calls.set(calls.get() + 1);
        // A completion may start the next operation.
        if ep.am_zcopy(ID, &[], &[memory.slice(..)], SendFlags::empty(), &inner).is_ok() {
            count.set(count.get() + 1);
        }
    });
    let mut posted = 0;
    for _ in 0..20 {
        send(&pair, size, &completion);
        posted += 1;
        pair.until("the completion", || completion.is_done());
    }
    // Without operations in progress the callback is not called.
    assert!(
        called.get() == 0 || chained.get() > 0,
        "no operation of {} callbacks was accepted",
        called.get()
    );
    pair.until("all messages", || inbox.len() == posted + chained.get());
    while let Some(message) = inbox.take() {
        check_bytes("a message", &message, &pattern(3, size));
    }
}

fn keeps_the_error(setup: &Setup) {
    let pair = Pair::new(setup);
    let _inbox = pair.receiver.inbox(ID);
    let completion = pair.sender.completion();
    let most = pair.sender.attributes().am.max_hdr;
    let answer = pair
        .retry("a send", || pair.to.am_zcopy(ID, &vec![0; most + 1], &[], SendFlags::empty(), &completion));
    assert_eq!(answer, Err(Error::INVALID_PARAM));
    assert!(completion.is_done(), "an operation that did not start is not outstanding");
    completion.result().expect("what did not start is the caller's error, not the completion's");
    send(&pair, 100.max(pair.sender.attributes().am.min_zcopy), &completion);
    pair.until("the completion", || completion.is_done());
    completion.result().expect("a send");
}

fn waited_for(setup: &Setup) {
    let pair = Pair::new(setup);
    let inbox = pair.receiver.inbox(ID);
    let completion = pair.sender.completion();
    completion.wait(Duration::ZERO).expect("nothing is outstanding");
    let size = pair.sender.attributes().am.max_zcopy.min(1 << 22);
    for sent in 1..=20 {
        send(&pair, size, &completion);
        // The receiver does nothing, so the sender may have to wait for it, and not for longer than it said.
        let (limit, start) = (Duration::from_millis(20), Instant::now());
        match completion.wait(limit) {
            Ok(()) => assert!(completion.is_done(), "waited for, and yet outstanding"),
            Err(Error::TIMED_OUT) => {
                assert!(completion.outstanding() > 0 && start.elapsed() >= limit);
                assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
            }
            Err(error) => panic!("a send: {error}"),
        }
        pair.until("the messages", || inbox.len() == sent);
    }
    // The receiver may have to say that it has the last one, which takes its progress.
    pair.until("the last end", || completion.is_done());
    completion.wait(LIMIT).expect("all have arrived");
}

const ZCOPY: Needs = Needs::all(Capabilities::AM_ZCOPY);

pub(super) const CASES: &[Case] = &[
    case("a completion counts operations and is called once from progress", ZCOPY, counts),
    case("waiting for a completion ends with the operation or with the limit", ZCOPY, waited_for),
    case("operations end though nobody holds their completion", ZCOPY, dropped),
    case("a completion may start the next operation", ZCOPY, ends_inside),
    case("an operation that did not start leaves its completion as it was", ZCOPY, keeps_the_error),
];
