//! Peers that send much have their turns: a few messages of one, and then those of the next.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use crate::common::{LIMIT, open, until};
use uct_core::{AmId, Ep, Error, Pending, SendFlags, Worker};

const ID: AmId = AmId::new(9).unwrap();
/// Messages of one peer in a row.
const MOST: usize = 4;
/// What has room in a ring of which only the first slots are used.
const MESSAGES: usize = 20;

/// Sends a message that begins with a number: in a slot, or in a block.
fn send(worker: &Worker, ep: &Ep, number: u64, is_short: bool) {
    let pack = |place: &mut [u8]| {
        place[..8].copy_from_slice(&number.to_ne_bytes());
        place[8..100].fill(7);
        100
    };
    let sent = until(worker, || match is_short {
        true => ep.am_short(ID, number, &[7; 8]),
        false => ep.am_bcopy(ID, SendFlags::empty(), pack).map(drop),
    });
    sent.expect("the peer lives");
}

#[test]
fn of_two_peers_that_both_send_much_each_has_as_many_messages_received_in_turn() {
    // Which messages are in slots; the others are in blocks.
    let kinds: [fn(usize) -> bool; 4] =
        [|_| true, |_| false, |number| number.is_multiple_of(2), |number| number % 5 < 3];
    for (kind, is_short) in kinds.into_iter().enumerate() {
        let (worker, hub) = open("posix", &["shm.fifo_max_poll=4"]);
        let order = Rc::new(RefCell::new(Vec::new()));
        let list = Rc::clone(&order);
        hub.set_am_handler(ID, move |message| list.borrow_mut().push(message.header().expect("a number")));
        let address = hub.address().expect("an address");
        let peers = [(); 2].map(|()| {
            let (worker, iface) = open("posix", &["shm.small_seg_count=64"]);
            let ep = iface.connect(&address).expect("a connection");
            (worker, iface, ep)
        });
        // Both are known and polled.
        for (number, (sender, _, ep)) in peers.iter().enumerate() {
            send(sender, ep, number as u64, true);
        }
        assert!(worker.progress_until(LIMIT, || order.borrow().len() == 2), "no messages");
        order.borrow_mut().clear();
        for (number, (sender, _, ep)) in peers.iter().enumerate() {
            (0..MESSAGES).for_each(|message| send(sender, ep, number as u64, is_short(message)));
        }
        assert!(worker.progress_until(LIMIT, || order.borrow().len() == 2 * MESSAGES), "not all came");
        let runs: Vec<usize> =
            order.borrow().chunk_by(|left, right| left == right).map(<[u64]>::len).collect();
        assert_eq!(runs, [MOST; 2 * MESSAGES / MOST], "kind {kind}");
    }
}

/// Requests wait at endpoints of several connections, are tried in vain for a while, and are served when each connection has room again.
#[test]
fn requests_that_wait_are_served_in_order_on_each_connection_whenever_it_has_room() {
    const EACH: u64 = 3;
    let (worker, iface) = open("posix", &[]);
    let peers = [(); 2].map(|()| {
        let (worker, peer) = open("posix", &[]);
        let order = Rc::new(RefCell::new(Vec::new()));
        let list = Rc::clone(&order);
        peer.set_am_handler(ID, move |message| list.borrow_mut().push(message.header().expect("a number")));
        (worker, peer, order)
    });
    // Two endpoints share the connection to a peer.
    let eps: Vec<Vec<Ep>> = peers
        .iter()
        .map(|(_, peer, _)| {
            let address = peer.address().expect("an address");
            (0..2).map(|_| iface.connect(&address).expect("an endpoint")).collect()
        })
        .collect();
    let call = |ep: &Ep, number: u64| match ep.am_short(ID, number, &[7; 40]) {
        Ok(()) => Pending::Done,
        Err(Error::NO_RESOURCE) => Pending::Wait,
        Err(error) => panic!("a send: {error}"),
    };
    for round in 0..3 {
        let mut expected = [0, 0];
        for (eps, expected) in eps.iter().zip(&mut expected) {
            *expected = (0..100_000).take_while(|_| call(&eps[0], u64::MAX) == Pending::Done).count();
            for (which, ep) in (0..).zip(eps) {
                assert_eq!(call(ep, u64::MAX), Pending::Wait);
                for number in 0..EACH {
                    let request = move |ep: &Ep| call(ep, which * EACH + number);
                    assert!(ep.pending_add(request).is_ok(), "there is no room");
                    *expected += 1;
                }
            }
        }
        // In vain.
        for _ in 0..5000 {
            worker.progress();
        }
        // The second peer makes room first.
        for which in [1, 0] {
            let (peer, _, order) = &peers[which];
            let start = Instant::now();
            while order.borrow().len() < expected[which] {
                peer.progress();
                worker.progress();
                let came = order.borrow().len();
                assert!(start.elapsed() < LIMIT, "round {round}: {came} of {} came", expected[which]);
            }
            let waited: Vec<u64> = order.take().into_iter().filter(|number| *number != u64::MAX).collect();
            for which in 0..2 {
                let of_ep = waited.iter().copied().filter(|number| number / EACH == which);
                assert!(of_ep.eq(which * EACH..(which + 1) * EACH), "round {round}: {waited:?}");
            }
        }
    }
}
