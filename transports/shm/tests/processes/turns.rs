//! Peers that send much have their turns: a few messages of one, and then those of the next.

use std::cell::RefCell;
use std::rc::Rc;

use crate::common::{LIMIT, open, until};
use uct_core::{AmId, Ep, SendFlags, Worker};

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
