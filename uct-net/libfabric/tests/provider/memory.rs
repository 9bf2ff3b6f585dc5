//! Remote memory and atomics, of an endpoint's own process.

use std::ffi::c_void;
use std::ptr::null_mut;

use uct_fi::abi::*;

use crate::session::{Options, Session, call, close, context};

/// Registers memory through the table of the domain.
fn register(session: &Session, bytes: &mut [u8], key: u64, access: u64) -> Result<*mut fid_mr, i32> {
    let mut region = null_mut();
    let (base, length) = (bytes.as_mut_ptr().cast(), bytes.len());
    match call!(session.domain, mr.reg(base, length, access, 0, key, 0, &raw mut region, null_mut())) {
        0 => Ok(region),
        error => Err(error),
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect()
}

#[test]
fn bytes_are_written_and_read_in_the_region_of_a_key() {
    let mut memory = [0_u8; 64];
    let mut session = Session::new(Options::default());
    let region = register(&session, &mut memory, 7, FI_REMOTE_READ | FI_REMOTE_WRITE).expect("a region");
    session.others.push(region.cast());
    // SAFETY: the region is open.
    assert_eq!(unsafe { (*region).key }, 7);
    assert_eq!(register(&session, &mut [0; 8], 7, FI_REMOTE_READ), Err(-ENOKEY));
    // What only this side uses takes no key.
    let local = register(&session, &mut [0; 8], 7, FI_SEND).expect("a region");
    session.others.push(local.cast());

    let own = session.own;
    let base = b"written".as_ptr().cast();
    assert_eq!(call!(session.ep, rma.write(base, 7, null_mut(), own, 8, 7, context(1))), 0);
    let entry = session.entries(1)[0];
    assert_eq!((entry.op_context, entry.flags), (context(1), FI_RMA | FI_WRITE));
    let mut back = [0_u8; 8];
    assert_eq!(
        call!(session.ep, rma.read(back.as_mut_ptr().cast(), 8, null_mut(), own, 7, 7, context(2))),
        0
    );
    assert_eq!(session.entries(1)[0].flags, FI_RMA | FI_READ);
    assert_eq!(&back, b"\0written");
    assert_eq!(call!(session.ep, rma.inject(b"in".as_ptr().cast(), 2, own, 32, 7)), 0);
    assert_eq!(call!(session.ep, rma.writedata(base, 1, null_mut(), 42, own, 0, 7, context(3))), 0);
    let entries = session.entries(2);
    assert_eq!(entries[0].flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    assert_eq!((entries[0].data, entries[1].op_context), (42, context(3)));
    assert_eq!((&memory[8..15], &memory[32..34], memory[0]), (&b"written"[..], &b"in"[..], b'w'));
}

#[test]
fn what_a_key_does_not_permit_is_an_error_entry() {
    let mut memory = [0_u8; 8];
    let mut session = Session::new(Options::default());
    let region = register(&session, &mut memory, 1, FI_REMOTE_READ).expect("a region");
    session.others.push(region.cast());
    let base = b"12345678".as_ptr().cast();
    for (length, offset, key) in [(8, 0, 2), (8, 0, 1), (8, 1, 1), (1, u64::MAX, 1)] {
        let begun =
            call!(session.ep, rma.write(base, length, null_mut(), session.own, offset, key, context(1)));
        assert_eq!(begun, 0);
        assert_eq!(session.next().expect_err("an error entry").op_context, context(1));
    }
    assert_eq!(memory, [0; 8]);
}

#[test]
fn a_message_of_remote_memory_names_one_place_as_long_as_its_buffers() {
    let mut memory = [0_u8; 16];
    let mut session = Session::new(Options::default());
    let region = register(&session, &mut memory, 1, FI_REMOTE_WRITE).expect("a region");
    session.others.push(region.cast());
    let mut word = *b"abcdef";
    let (first, second) = word.split_at_mut(2);
    let list = [first, second].map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
    let mut place = fi_rma_iov { addr: 4, len: 6, key: 1 };
    let write = |place: *const fi_rma_iov, places| {
        let message = fi_msg_rma {
            msg_iov: list.as_ptr(),
            desc: null_mut(),
            iov_count: 2,
            addr: session.own,
            rma_iov: place,
            rma_iov_count: places,
            context: context(1),
            data: 0,
        };
        call!(session.ep, rma.writemsg(&raw const message, FI_COMPLETION | FI_DELIVERY_COMPLETE))
    };
    assert_eq!(write(&raw const place, 1), 0);
    session.entries(1);
    assert_eq!(write(&raw const place, 0), -(EINVAL as isize));
    place.len = 5;
    assert_eq!(write(&raw const place, 1), -(EINVAL as isize));
    assert_eq!(&memory[4..10], b"abcdef");
}

#[test]
fn elements_are_updated_fetched_and_compared() {
    let mut memory = [0_u8; 32];
    let mut session = Session::new(Options::default());
    let region = register(&session, &mut memory, 1, FI_REMOTE_READ | FI_REMOTE_WRITE).expect("a region");
    session.others.push(region.cast());
    let (ep, own) = (session.ep, session.own);
    let (operands, mut results, compare) = ([5_u64, 6], [0_u64; 2], [5_u64, 9]);
    let from: *const c_void = operands.as_ptr().cast();
    let to: *mut c_void = results.as_mut_ptr().cast();
    let plain = call!(ep, atomic.write(from, 2, null_mut(), own, 8, 1, FI_UINT64, FI_SUM, context(1)));
    assert_eq!(plain, 0);
    session.entries(1);
    let fetch = call!(
        ep,
        atomic.readwrite(from, 2, null_mut(), to, null_mut(), own, 8, 1, FI_UINT64, FI_SUM, context(2))
    );
    assert_eq!(fetch, 0);
    session.entries(1);
    assert_eq!(results, [5, 6]);
    let read = call!(
        ep,
        atomic.readwrite(
            std::ptr::null(),
            2,
            null_mut(),
            to,
            null_mut(),
            own,
            8,
            1,
            FI_UINT64,
            FI_ATOMIC_READ,
            context(3)
        )
    );
    assert_eq!(read, 0);
    session.entries(1);
    assert_eq!(results, [10, 12]);
    let place = fi_rma_ioc { addr: 8, count: 2, key: 1 };
    let element = |words: &[u64; 2]| [fi_ioc { addr: words.as_ptr().cast_mut().cast(), count: 2 }];
    let (list, compared, mut fetched) = (element(&operands), element(&compare), element(&results));
    let message = fi_msg_atomic {
        msg_iov: list.as_ptr(),
        desc: null_mut(),
        iov_count: 1,
        addr: own,
        rma_iov: &raw const place,
        rma_iov_count: 1,
        datatype: FI_UINT64,
        op: FI_CSWAP_LE,
        context: context(4),
        data: 0,
    };
    let swap = call!(
        ep,
        atomic.compwritemsg(
            &raw const message,
            compared.as_ptr(),
            null_mut(),
            1,
            fetched.as_mut_ptr(),
            null_mut(),
            1,
            FI_COMPLETION
        )
    );
    assert_eq!(swap, 0);
    let entry = session.entries(1)[0];
    assert_eq!(entry.flags & FI_ATOMIC, FI_ATOMIC);
    assert_eq!(words(&memory)[1..3], [5, 6], "5 <= 10 and 9 <= 12: both were swapped");
    assert_eq!(call!(ep, atomic.inject(from, 1, own, 24, 1, FI_UINT64, FI_MAX)), 0);
    let swap_alone = call!(ep, atomic.write(from, 1, null_mut(), own, 8, 1, FI_UINT64, FI_CSWAP, null_mut()));
    assert_eq!(swap_alone, -(EOPNOTSUPP as isize));
    let mut count = 0;
    assert_eq!(call!(ep, atomic.writevalid(FI_DOUBLE, FI_SUM, &raw mut count)), 0);
    assert!(count >= 1);
    assert_eq!(call!(ep, atomic.writevalid(FI_INT8, FI_SUM, &raw mut count)), -EOPNOTSUPP);
    // Reads behind the injected update on the same connection.
    let read = call!(ep, rma.read(to, 8, null_mut(), own, 24, 1, context(5)));
    assert_eq!(read, 0);
    session.entries(1);
    assert_eq!(results[0], 5);
}

#[test]
fn a_message_completes_once_though_its_memory_is_deregistered_on_the_way() {
    let (sender, receiver) = (Session::new(Options::default()), Session::new(Options::default()));
    let peer = sender.insert(&receiver.name());
    let mut number = 0;
    // In one frame, in several, and announced; the first one waits for the connection.
    for length in [64, 100 << 10, 4 << 20] {
        for flags in [FI_COMPLETION, FI_COMPLETION | FI_DELIVERY_COMPLETE] {
            number += 1;
            let mut bytes: Vec<u8> = (0..length).map(|at| (at / 7 + number) as u8).collect();
            let region = register(&sender, &mut bytes, 7, FI_SEND | FI_REMOTE_READ).expect("a region");
            let part = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
            let message = fi_msg {
                msg_iov: &raw const part,
                desc: null_mut(),
                iov_count: 1,
                addr: peer,
                context: context(number),
                data: 0,
            };
            assert_eq!(call!(sender.ep, msg.sendmsg(&raw const message, flags)), 0);
            assert_eq!(close(region.cast()), 0);

            let mut target = vec![0_u8; length];
            let region = register(&receiver, &mut target, 7, FI_RECV | FI_REMOTE_WRITE).expect("a region");
            let (base, any) = (target.as_mut_ptr().cast(), FI_ADDR_UNSPEC);
            assert_eq!(call!(receiver.ep, msg.recv(base, length, null_mut(), any, context(number))), 0);
            assert_eq!(close(region.cast()), 0);

            assert_eq!(receiver.entries(1)[0].len, length);
            assert!(target == bytes, "message {number} of {length} bytes");
            assert_eq!(sender.entries(1)[0].op_context, context(number));
        }
    }
    assert!(sender.poll().is_none() && receiver.poll().is_none());
}
