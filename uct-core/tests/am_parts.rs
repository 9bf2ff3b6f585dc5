//! A message of several slices, and what its handler learns.

use std::cell::RefCell;
use std::rc::Rc;

use uct_core::{AmId, Context, Error, SendFlags, Worker};

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
