//! Forks of a program with an open endpoint.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};

use uct_fi::abi::*;

use crate::alone::is_alone;
use crate::session::{Options, Session, call, close, context};

/// Seconds until a child that hangs is ended by the system.
const CHILD_LIMIT: u32 = 60;

/// Runs `work` in a child of a fork, and waits for it; panics unless it ends well.
fn in_child(work: impl FnOnce()) {
    // SAFETY: the child is one thread, has a copy of all memory, and ends in `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::alarm(CHILD_LIMIT) };
        let outcome = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: always permitted.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the place of the status is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "how the child ended: status, or the signal ({}: it hung)", libc::SIGALRM);
}

fn receive(session: &Session, bytes: &mut [u8]) -> isize {
    let (base, length) = (bytes.as_mut_ptr().cast(), bytes.len());
    call!(session.ep, msg.recv(base, length, null_mut(), FI_ADDR_UNSPEC, context(1)))
}

fn send(session: &Session) -> isize {
    call!(session.ep, msg.send(b"x".as_ptr().cast(), 1, null_mut(), session.own, context(2)))
}

/// Whether a descriptor is readable, after so many milliseconds.
fn is_readable(descriptor: i32, milliseconds: i32) -> bool {
    let mut watched = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure.
    unsafe { libc::poll(&raw mut watched, 1, milliseconds) == 1 }
}

#[test]
fn a_child_of_a_fork_is_refused_and_its_parent_goes_on() {
    if !is_alone() {
        return;
    }
    let mut counter = null_mut();
    let mut session = Session::with(Options { wait: FI_WAIT_FD, ..Options::default() }, |domain, ep| {
        assert_eq!(call!(domain, ops.cntr_open(null_mut(), &raw mut counter, null_mut())), 0);
        assert_eq!(call!(ep.cast::<fid>(), ops.bind(counter.cast(), FI_RECV)), 0);
    });
    session.others = vec![counter.cast()];
    let mut descriptor = -1_i32;
    let queue = session.queue.cast::<fid>();
    assert_eq!(call!(queue, ops.control(FI_GETWAIT, (&raw mut descriptor).cast())), 0);
    let may_wait = |object: *mut fid| call!(session.fabric, ops.trywait([object].as_mut_ptr(), 1));
    assert_eq!(may_wait(queue), 0);
    let mut bytes = [0_u8; 4];
    assert_eq!((receive(&session, &mut bytes), send(&session)), (0, 0));
    assert!(is_readable(descriptor, 60_000), "the parent is woken");

    let refused = -(libc::EPERM as isize);
    in_child(|| {
        let mut bytes = [0_u8; 4];
        assert_eq!((receive(&session, &mut bytes), send(&session)), (refused, refused));
        assert_eq!([may_wait(queue), may_wait(counter.cast())], [-libc::EPERM; 2]);
        // What had come before the fork may be read.
        let mut entries = [0_u64; 6 * 4];
        let target = entries.as_mut_ptr().cast();
        while call!(session.queue, ops.read(target, 4)) > 0 {}
        assert_eq!(call!(session.queue, ops.read(target, 4)), refused);
        assert_eq!(call!(session.queue, ops.sread(target, 4, null(), -1)), refused);
        assert_eq!(call!(counter, ops.wait(9, -1)), -libc::EPERM);
        let objects = [session.ep.cast::<fid>(), counter.cast(), queue, session.vector.cast()];
        for object in objects.into_iter().chain([session.domain.cast(), session.fabric.cast()]) {
            assert_eq!(close(object), 0);
        }
        // What the child opens itself works.
        let own = Session::new(Options::default());
        assert_eq!((receive(&own, &mut bytes), send(&own)), (0, 0));
        own.entries(2);
    });

    assert!(is_readable(descriptor, 0), "the child has taken what wakes the parent");
    session.entries(2);
    assert_eq!((receive(&session, &mut bytes), send(&session)), (0, 0));
    session.entries(2);
}
