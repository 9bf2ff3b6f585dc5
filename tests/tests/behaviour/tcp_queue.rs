//! What a connection collects: where its buffers end, and what is called while a message is packed into them.
//!
//! Frames are padded to 8 bytes. Buffers of other sizes leave ends in which a message has room and its padding has not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::support::{ID, Side, drive, send};
use uct_conformance::random::{Random, check_bytes, pattern};
use uct_core::{Access, AmId, Completion, Ep, Error, SendFlags};

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

/// Packs a message to `b` of which half is written ahead of `inside` and half behind, as the first one that `a` sends or behind
/// others; and checks that all arrive.
fn pack_around(behind_others: bool, inside: impl Fn(&Side, &Ep, &Ep)) {
    const SIZE: usize = 4096;
    let (a, b, c) = (Side::new(&[]), Side::new(&[]), Side::new(&[]));
    let sides = [&a, &b, &c];
    let (to_b, to_c) = (a.connect(&b.address()).0, a.connect(&c.address()).0);
    let packed = Rc::new(RefCell::new(Vec::new()));
    let received = Rc::clone(&packed);
    let id = AmId::new(4).unwrap();
    b.iface.set_am_handler(id, move |message| received.borrow_mut().push(message.to_vec()));
    for ep in [&to_b, &to_c] {
        send(&sides, ep, 1);
    }
    drive(&sides, || b.count.get() == 1 && c.count.get() == 1);
    for _ in 0..32 {
        a.worker.progress();
    }

    let ahead = if behind_others { 3 } else { 0 };
    for _ in 0..ahead {
        to_b.am_short(ID, 1, b"ahead").unwrap();
    }
    let pack = |buffer: &mut [u8]| {
        buffer[..SIZE / 2].fill(5);
        inside(&a, &to_b, &to_c);
        buffer[SIZE / 2..SIZE].fill(5);
        SIZE
    };
    assert_eq!(to_b.am_bcopy(id, SendFlags::empty(), pack), Ok(SIZE));
    drive(&sides, || b.count.get() == 1 + ahead && packed.borrow().len() == 1);
    check_bytes("what was packed", &packed.borrow()[0], &[5; SIZE]);
    // The connections are as good as before.
    let (at_b, at_c) = (b.count.get(), c.count.get());
    for ep in [&to_b, &to_c] {
        send(&sides, ep, 1);
    }
    drive(&sides, || b.count.get() == at_b + 1 && c.count.get() > at_c);
}

#[test]
fn nothing_is_forgotten_when_progress_is_called_while_a_message_is_packed() {
    for behind_others in [true, false] {
        pack_around(behind_others, |a, _, _| {
            for _ in 0..40 {
                assert_eq!(a.worker.progress(), 0, "progress while a message is packed");
            }
        });
    }
}

#[test]
fn what_is_sent_while_a_message_is_packed_is_not_written_over_it() {
    for behind_others in [true, false] {
        pack_around(behind_others, |_, to_b, to_c| {
            to_c.am_short(ID, 1, &[9; 1000]).unwrap();
            let inner = to_c.am_bcopy(ID, SendFlags::empty(), |buffer| {
                buffer.fill(9);
                64
            });
            assert_eq!(inner, Err(Error::NO_RESOURCE), "a message inside another one");
            assert_eq!(to_b.am_short(ID, 1, b"behind"), Err(Error::NO_RESOURCE), "on the same connection");
        });
    }
}

#[test]
fn what_the_connection_owes_its_peer_waits_until_a_message_is_packed() {
    for behind_others in [true, false] {
        pack_around(behind_others, |a, to_b, _| {
            // Asks the peer for a sign of life.
            to_b.check(None).unwrap();
            a.worker.progress();
        });
    }
}

#[test]
fn a_get_that_is_posted_while_a_message_is_packed_returns_its_bytes_in_order() {
    const LARGE: usize = 256 << 10;
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (ep, failures) = a.connect(&b.address());
    send(&[&a, &b], &ep, 1);
    drive(&[&a, &b], || b.count.get() == 1);
    let expected = pattern(5, LARGE);
    let remote = b.iface.memory_domain().register(expected.clone(), Access::ALL).unwrap();
    let key = a.iface.memory_domain().unpack(&remote.packed_key().unwrap()).unwrap();
    let local = a.iface.memory_domain().register(vec![0; LARGE], Access::ALL).unwrap();
    let completion = Completion::new(&a.worker);
    let pack = |_: &mut [u8]| {
        ep.get_zcopy(&[local.slice(..)], remote.address(), &key, &completion).unwrap();
        64
    };
    assert_eq!(ep.am_bcopy(ID, SendFlags::empty(), pack), Ok(64));
    drive(&[&a, &b], || completion.is_done());
    assert_eq!(completion.result(), Ok(()));
    check_bytes("what was read", &local.to_vec(), &expected);
    assert!(failures.borrow().is_empty(), "{:?}", failures.borrow());
}

#[test]
fn two_sides_that_put_much_at_once_go_on_reading() {
    const LARGE: usize = 16 << 20;
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let sides = [&a, &b];
    let (to_b, to_a) = (a.connect(&b.address()).0, b.connect(&a.address()).0);
    for ep in [&to_b, &to_a] {
        send(&sides, ep, 1);
    }
    drive(&sides, || a.count.get() == 1 && b.count.get() == 1);
    let one = |from: &Side, to: &Side, ep: &Ep, seed| {
        let remote = to.iface.memory_domain().register(vec![0; LARGE], Access::ALL).unwrap();
        let key = from.iface.memory_domain().unpack(&remote.packed_key().unwrap()).unwrap();
        let local = from.iface.memory_domain().register(pattern(seed, LARGE), Access::ALL).unwrap();
        let completion = Completion::new(&from.worker);
        ep.put_zcopy(&[local.slice(..)], remote.address(), &key, &completion).unwrap();
        (remote, local, completion)
    };
    let puts = [one(&a, &b, &to_b, 1), one(&b, &a, &to_a, 2)];
    drive(&sides, || puts.iter().all(|(_, _, completion)| completion.is_done()));
    for (remote, local, completion) in &puts {
        assert_eq!(completion.result(), Ok(()));
        check_bytes("what was put", &remote.to_vec(), &local.to_vec());
    }
}
