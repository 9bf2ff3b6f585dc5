//! A short get that the peer carries out: its bytes are never older than a message that the caller has received.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Instant;

use crate::common::{LIMIT, Peer, heard, hex, open, role, say, unhex, until};
use uct_core::{Access, AmId, Ep, IfaceAddress, RemoteKey};

const ID: AmId = AmId::new(9).unwrap();
const GREETING: AmId = AmId::new(10).unwrap();
/// More than fits into the ping-pong line.
const PAYLOAD: [u8; 46] = [0; 46];
/// Messages of a run.
const RUN: u64 = 4;

/// Writes the number of each message to its memory, and then replies with a run of messages with that number.
fn serve() {
    let (worker, iface) = open("posix", &["shm.cma=n"]);
    let memory = iface.memory_domain().register(vec![0; 8], Access::ALL).expect("memory");
    let asked = Rc::new(Cell::new(0u64));
    let count = Rc::clone(&asked);
    iface.set_am_handler(ID, move |_| count.set(count.get() + 1));
    say(&hex(&iface.address().expect("an address").pack().expect("it packs")));
    say(&memory.address().to_string());
    say(&hex(&memory.packed_key().expect("a key")));
    let lines = heard();
    let start = Instant::now();
    let line = loop {
        worker.progress();
        match lines.try_recv() {
            Ok(line) => break line,
            Err(_) => assert!(start.elapsed() < LIMIT, "nobody tells an address"),
        }
    };
    let (address, _) = IfaceAddress::unpack(&unhex(&line)).expect("an address");
    let ep = iface.connect(&address).expect("a connection");
    // The other side becomes the owner of the ping-pong line and then polls the ring only: it receives a run of messages in one call.
    until(&worker, || ep.am_short(GREETING, 0, &[])).expect("the peer lives");
    say("greeted");
    let mut answered = 0;
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        worker.progress();
        if answered < asked.get() {
            answered += 1;
            memory.fill(0, 8, answered as u8);
            for _ in 0..RUN {
                until(&worker, || ep.am_short(ID, answered, &PAYLOAD)).expect("the peer lives");
            }
            say("answered");
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_handler_reads_nothing_older_than_its_message() {
    if role().is_some() {
        return serve();
    }
    let mut peer = Peer::start(&[], "a_handler_reads_nothing_older_than_its_message", "serve");
    let (worker, iface) = open("posix", &["shm.cma=n"]);
    let (address, _) = IfaceAddress::unpack(&unhex(&peer.line())).expect("an address");
    let place: u64 = peer.line().parse().expect("an address");
    let key = iface.memory_domain().unpack(&unhex(&peer.line())).expect("a key");
    let way: Rc<OnceCell<(Ep, RemoteKey)>> = Rc::default();
    let (received, stale) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)));
    let (used, count, old) = (Rc::clone(&way), Rc::clone(&received), Rc::clone(&stale));
    iface.set_am_handler(ID, move |message| {
        count.set(count.get() + 1);
        let Some((ep, key)) = used.get() else { return };
        let mut value = [0; 8];
        // The second of a run.
        if count.get() % RUN == 2 && ep.get_short(&mut value, place, key).is_ok() && value[0] < message[0] {
            old.set(old.get() + 1);
        }
    });
    let is_greeted = Rc::new(Cell::new(false));
    let greeted = Rc::clone(&is_greeted);
    iface.set_am_handler(GREETING, move |_| greeted.set(true));
    let ep = iface.connect(&address).expect("a connection");
    let mut value = [0; 8];
    until(&worker, || ep.get_short(&mut value, place, &key)).expect("a get");
    // The peer uses this connection for its endpoint.
    peer.tell(&hex(&iface.address().expect("an address").pack().expect("it packs")));
    assert_eq!(peer.line(), "greeted");
    assert!(worker.progress_until(LIMIT, || is_greeted.get()), "no greeting came");
    assert!(way.set((ep, key)).is_ok());
    let (ep, key) = way.get().expect("set just now");
    for number in 1..=60u64 {
        // The response that has arrived is taken, and the next one is requested.
        while ep.get_short(&mut value, place, key).is_ok() {}
        until(&worker, || ep.am_short(ID, number, &PAYLOAD)).expect("the peer lives");
        // The response and the run have both arrived.
        assert_eq!(peer.line(), "answered");
        assert!(worker.progress_until(LIMIT, || received.get() == number * RUN), "{} came", received.get());
    }
    assert_eq!(stale.get(), 0, "values older than the message whose handler read them");
}
