//! Replies travel in the ping-pong line, or in a block that it announces, whichever side has connected.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use crate::common::{LIMIT, open, until};
use uct_core::{AmId, Ep, Iface, SendFlags, Worker};

const ID: AmId = AmId::new(9).unwrap();
const ROUNDS: u64 = 500;

struct End {
    worker: Worker,
    iface: Iface,
    received: Rc<Cell<u64>>,
}

impl End {
    fn open(transport: &str) -> End {
        let (worker, iface) = open(transport, &[]);
        let received = Rc::new(Cell::new(0));
        let count = Rc::clone(&received);
        iface.set_am_handler(ID, move |message| {
            assert!(message[8..].iter().all(|byte| *byte == 7), "{} bytes", message.len());
            count.set(count.get() + 1);
        });
        End { worker, iface, received }
    }

    fn connect(&self, to: &End) -> Ep {
        self.iface.connect(&to.iface.address().expect("an address")).expect("a connection")
    }

    fn sent_in_line(&self) -> u64 {
        let counters = self.iface.transport_counters();
        counters.iter().find(|(name, _)| name == "sent_in_line").expect("a counter").1
    }
}

/// Lengths of packed messages: in one line, in two, in a small block, in a bulk block.
const LENGTHS: [usize; 4] = [40, 104, 1000, 8000];

/// Sends a message from one end to the other, short or packed, and waits until it has come.
fn say(from: &End, ep: &Ep, to: &End, number: u64) {
    let due = to.received.get() + 1;
    if number.is_multiple_of(2) {
        until(&from.worker, || ep.am_short(ID, number, &[7; 8])).expect("the peer lives");
    } else {
        let length = LENGTHS[(number / 2) as usize % LENGTHS.len()];
        let pack = |place: &mut [u8]| {
            place[..length].fill(7);
            length
        };
        until(&from.worker, || ep.am_bcopy(ID, SendFlags::empty(), pack)).expect("the peer lives");
    }
    let start = Instant::now();
    while to.received.get() < due {
        assert!(start.elapsed() < LIMIT, "message {number} has not come");
        to.worker.progress();
        from.worker.progress();
    }
}

#[test]
fn replies_travel_in_the_ping_pong_line() {
    for transport in ["posix", "sysv"] {
        for at_once in [true, false] {
            let (left, right) = (End::open(transport), End::open(transport));
            let there = left.connect(&right);
            if !at_once {
                say(&left, &there, &right, 0);
            }
            let back = right.connect(&left);
            // What the two have to agree on goes over their sockets, at which they look now and then.
            let start = Instant::now();
            while left.sent_in_line() == 0 || right.sent_in_line() == 0 {
                assert!(start.elapsed() < LIMIT, "{transport}, connected at once: {at_once}: no answer");
                say(&left, &there, &right, 0);
                say(&right, &back, &left, 0);
            }
            let before = [left.sent_in_line(), right.sent_in_line()];
            for number in 0..ROUNDS {
                say(&left, &there, &right, number);
                say(&right, &back, &left, number);
            }
            for (end, before) in [&left, &right].into_iter().zip(before) {
                assert_eq!(end.sent_in_line() - before, ROUNDS, "{transport}, connected at once: {at_once}");
            }
            let before = left.sent_in_line();
            for number in 0..ROUNDS {
                say(&left, &there, &right, number);
            }
            assert_eq!(left.sent_in_line() - before, 1, "what is not answered goes through the ring");
        }
    }
}
