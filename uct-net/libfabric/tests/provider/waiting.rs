//! Sleeping until a queue or a counter has something.

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use uct_fi::abi::*;

use crate::session::{Options, Session, call, close, context};

fn send(session: &Session, number: usize) {
    let (base, length) = (b"x".as_ptr().cast(), 1);
    assert_eq!(call!(session.ep, msg.send(base, length, null_mut(), session.own, context(number))), 0);
}

fn receive(session: &Session, bytes: &mut [u8]) {
    let (base, length) = (bytes.as_mut_ptr().cast(), bytes.len());
    assert_eq!(call!(session.ep, msg.recv(base, length, null_mut(), FI_ADDR_UNSPEC, context(1))), 0);
}

#[test]
fn a_descriptor_is_readable_when_a_queue_has_an_entry() {
    let session = Session::new(Options { wait: FI_WAIT_FD, ..Options::default() });
    let (mut descriptor, mut kind) = (-1_i32, 0_u32);
    let object = session.queue.cast::<fid>();
    assert_eq!(call!(object, ops.control(FI_GETWAIT, (&raw mut descriptor).cast())), 0);
    assert_eq!(call!(object, ops.control(FI_GETWAITOBJ, (&raw mut kind).cast())), 0);
    assert_eq!(kind, FI_WAIT_FD);
    let mut objects = [object];
    let may_wait = |objects: &mut [*mut fid]| {
        call!(session.fabric, ops.trywait(objects.as_mut_ptr(), objects.len() as c_int))
    };
    assert_eq!(may_wait(&mut objects), 0);
    let mut bytes = [0_u8; 4];
    receive(&session, &mut bytes);
    send(&session, 2);
    let mut watched = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure.
    assert_eq!(unsafe { libc::poll(&raw mut watched, 1, 60_000) }, 1);
    assert_eq!(may_wait(&mut objects), -EAGAIN);
    session.entries(2);
    assert_eq!(may_wait(&mut objects), 0);
    assert_eq!(may_wait(&mut [session.vector.cast()]), -EINVAL);
    assert_eq!(may_wait(&mut [null_mut()]), -EINVAL);
}

#[test]
fn a_call_waits_for_an_entry_its_time_or_a_signal() {
    let session = Session::new(Options { wait: FI_WAIT_UNSPEC, ..Options::default() });
    let mut entries = [0_u64; 6 * 4];
    let mut wait = |timeout| call!(session.queue, ops.sread(entries.as_mut_ptr().cast(), 4, null(), timeout));
    assert_eq!(wait(1), -(EAGAIN as isize));
    call!(session.queue, ops.signal());
    assert_eq!(wait(-1), -(EAGAIN as isize));
    let mut bytes = [0_u8; 4];
    receive(&session, &mut bytes);
    send(&session, 2);
    let first = wait(-1);
    assert!(first == 1 || first == 2);
    if first == 1 {
        assert_eq!(wait(-1), 1);
    }
}

#[test]
fn counters_count_and_wait() {
    let (mut sent, mut received) = (null_mut(), null_mut());
    let mut session = Session::with(Options::default(), |domain, ep| {
        for (counter, flags) in [(&mut sent, FI_SEND), (&mut received, FI_RECV)] {
            assert_eq!(call!(domain, ops.cntr_open(null_mut(), &raw mut *counter, null_mut())), 0);
            let object = ep.cast::<fid>();
            assert_eq!(call!(object, ops.bind((*counter).cast(), flags)), 0);
        }
    });
    session.others = vec![sent.cast(), received.cast()];
    assert_eq!(call!(received, ops.wait(1, 1)), -ETIMEDOUT);
    let mut bytes = [[0_u8; 4]; 3];
    for bytes in &mut bytes {
        receive(&session, bytes);
        send(&session, 2);
    }
    assert_eq!(call!(received, ops.wait(3, -1)), 0);
    assert_eq!(call!(sent, ops.wait(3, -1)), 0);
    assert_eq!((call!(sent, ops.read()), call!(sent, ops.readerr())), (3, 0));
    assert_eq!((call!(sent, ops.set(10)), call!(sent, ops.add(2)), call!(sent, ops.adderr(1))), (0, 0, 0));
    assert_eq!((call!(sent, ops.read()), call!(sent, ops.readerr())), (12, 1));
    session.entries(6);
    assert_eq!(close(sent.cast()), -EBUSY, "the endpoint refers to it");
}
