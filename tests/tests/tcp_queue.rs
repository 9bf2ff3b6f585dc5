//! What a connection collects, where its buffers end.
//!
//! Frames are padded to 8 bytes. Buffers of other sizes leave ends in which a message has room and its padding has not.

#[path = "support/tcp.rs"]
mod support;

use std::cell::Cell;
use std::rc::Rc;

use support::{Side, drive, send};
use uct_conformance::random::{Random, check_bytes, pattern};
use uct_core::{AmId, Error};

const HEADER: usize = size_of::<u64>();

#[test]
fn messages_that_end_where_a_buffer_ends_arrive_whole() {
    let id = AmId::new(4).unwrap();
    let seed = Random::fresh_seed();
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    for buffer in 4096..4104 {
        let settings = [("tx_seg_size", "64"), ("tx_buf_size", &*buffer.to_string())];
        let (a, b) = (Side::new(&settings), Side::new(&[("tx_seg_size", "64")]));
        let (ep, failures) = a.connect(&b.address());
        let received = Rc::new(Cell::new(0_u64));
        let counted = Rc::clone(&received);
        b.iface.set_am_handler(id, move |message| {
            let number = counted.get();
            assert_eq!(message.header(), Some(number));
            let bytes = message.to_vec();
            check_bytes("a message", &bytes[HEADER..], &pattern(seed ^ number, bytes.len() - HEADER));
            counted.set(number + 1);
        });
        send(&[&a, &b], &ep, 1);
        drive(&[&a, &b], || b.count.get() == 1);
        let mut sent = 0;
        while sent < 20_000 {
            // All of a burst but its first message is collected.
            for _ in 0..500 {
                let payload = pattern(seed ^ sent, random.below(10));
                match ep.am_short(id, sent, &payload) {
                    Ok(()) => sent += 1,
                    Err(Error::NO_RESOURCE) => break,
                    Err(error) => panic!("buffers of {buffer} bytes, message {sent}: {error}"),
                }
            }
            drive(&[&a, &b], || received.get() == sent);
        }
        assert!(failures.borrow().is_empty(), "{:?}", failures.borrow());
        assert_eq!(received.get(), sent);
    }
}
