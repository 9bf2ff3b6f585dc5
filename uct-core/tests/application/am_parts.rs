//! A message of several slices, and what its handler learns.

use std::cell::RefCell;
use std::rc::Rc;

use uct_core::{AmId, Completion, Context, Error, Posted, SendFlags, Worker};

const ID: AmId = AmId::new(1).unwrap();
const REPLY: AmId = AmId::new(2).unwrap();

#[test]
fn slices_arrive_as_one_message_and_too_many_bytes_are_refused() {
    let worker = Worker::new(&Context::builder().build().expect("a context")).expect("a worker");
    let iface = worker.open("self", "memory").expect("an interface");
    let ep = iface.connect(&iface.address().expect("its address")).expect("an endpoint");
    let inbox: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let seen = Rc::clone(&inbox);
    iface.set_am_handler(ID, move |message| seen.borrow_mut().push(message.to_vec()));

    assert_eq!(ep.am_bcopy_iov(ID, SendFlags::empty(), &[b"one, ", b"", b"two"]), Ok(8));
    assert_eq!(ep.am_bcopy_iov(ID, SendFlags::empty(), &[]), Ok(0));
    let most = vec![7; iface.attributes().am.max_bcopy];
    assert_eq!(ep.am_bcopy_iov(ID, SendFlags::empty(), &[&most]), Ok(most.len()));
    assert_eq!(ep.am_bcopy_iov(ID, SendFlags::empty(), &[&most, b"1"]), Err(Error::INVALID_PARAM));
    worker.progress();
    assert_eq!(*inbox.borrow(), [b"one, two".to_vec(), Vec::new(), most]);
}

#[test]
fn a_handler_replies_without_holding_the_interface() {
    let worker = Worker::new(&Context::builder().build().expect("a context")).expect("a worker");
    let iface = worker.open("self", "memory").expect("an interface");
    let address = iface.address().expect("its address");
    let ep = iface.connect(&address).expect("an endpoint");
    let replies = Rc::new(RefCell::new(0));
    let count = Rc::clone(&replies);
    iface.set_am_handler(REPLY, move |_| *count.borrow_mut() += 1);
    iface.set_am_handler(ID, move |message| {
        let back = message.iface().connect(&address).expect("an endpoint");
        back.am_short(REPLY, 0, b"").expect("room");
    });
    ep.am_short(ID, 0, b"").expect("room");
    worker.progress();
    assert_eq!(*replies.borrow(), 1);
    // Nothing but the handlers knew the counter: they go with the interface.
    drop((iface, ep));
    worker.progress();
    assert_eq!(Rc::strong_count(&replies), 1);
}

#[test]
fn a_handler_of_the_worker_serves_interfaces_that_are_open_and_those_to_come() {
    let worker = Worker::new(&Context::builder().build().expect("a context")).expect("a worker");
    let first = worker.open("self", "memory").expect("an interface");
    let seen: Rc<RefCell<Vec<(u8, u64)>>> = Rc::default();
    let log = Rc::clone(&seen);
    worker.set_am_handler(ID, move |message| {
        log.borrow_mut().push((message.id().get(), message.header().expect("a header")));
    });
    let second = worker.open("self", "memory").expect("an interface");
    let send = |id, header| {
        for iface in [&first, &second] {
            let ep = iface.connect(&iface.address().expect("its address")).expect("an endpoint");
            ep.am_short(id, header, b"").expect("room");
        }
        worker.progress();
        std::mem::take(&mut *seen.borrow_mut())
    };
    assert_eq!(send(ID, 5), [(1, 5), (1, 5)]);

    // One of an interface replaces it there; the worker's next one replaces both.
    let own = Rc::clone(&seen);
    second.set_am_handler(ID, move |_| own.borrow_mut().push((99, 0)));
    assert_eq!(send(ID, 6), [(1, 6), (99, 0)]);
    let log = Rc::clone(&seen);
    worker.set_am_handler(ID, move |message| log.borrow_mut().push((message.id().get(), 0)));
    let log = Rc::clone(&seen);
    worker.set_am_handler(REPLY, move |message| log.borrow_mut().push((message.id().get(), 0)));
    assert_eq!(send(ID, 7), [(1, 0), (1, 0)]);
    assert_eq!(send(REPLY, 7), [(2, 0), (2, 0)]);

    worker.clear_am_handler(ID);
    assert_eq!(send(ID, 8), []);
    worker.clear_am_handlers();
    assert_eq!(send(REPLY, 8), []);
    let third = worker.open("self", "memory").expect("an interface");
    let ep = third.connect(&third.address().expect("its address")).expect("an endpoint");
    ep.am_short(REPLY, 9, b"").expect("room");
    worker.progress();
    assert_eq!(*seen.borrow(), [], "a handler that was cleared is not for later interfaces");
    assert_eq!(Rc::strong_count(&seen), 1, "nothing holds what the handlers held");
}

#[test]
fn a_callback_is_called_for_an_operation_that_was_done_at_once_if_that_is_wanted() {
    let worker = Worker::new(&Context::builder().build().expect("a context")).expect("a worker");
    let iface = worker.open("self", "memory").expect("an interface");
    let ep = iface.connect(&iface.address().expect("its address")).expect("an endpoint");
    iface.set_am_handler(ID, |_| {});
    let calls = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&calls);
    let completion = Completion::with_callback(&worker, move |result| log.borrow_mut().push(result));
    let send = || ep.am_zcopy(ID, b"header", &[], SendFlags::empty(), &completion).expect("room");
    assert_eq!(send(), Posted::Done, "over self, messages are delivered at once");
    assert_eq!(*calls.borrow(), []);
    assert_eq!(send().notify(&completion), Posted::Done);
    assert_eq!(*calls.borrow(), [Ok(())]);
    // In flight: the completion itself calls.
    assert_eq!(Posted::InProgress.notify(&completion), Posted::InProgress);
    assert_eq!(*calls.borrow(), [Ok(())]);
}
