//! Endpoints whose peer's hardware address is not known yet, and may never be: they hold up nothing.
//!
//! Needs a network where an address can be without an owner: the pair of the test VM.

use std::cell::Cell;
use std::os::fd::AsFd;
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uct_core::{Error, Events, Flush, Pending};

use crate::support::{ID, Link, PATIENCE, Side, connect, context, pair, until};

/// Begins to connect to an address that nobody has, 10.7.0.`last`.
fn call_nobody(side: &Side, peer: &Side, last: u8) -> Link {
    let (link, other) = (Link::new(side), Link::new(peer));
    let mut address = peer.iface.address().expect("an address");
    *address.device.last_mut().expect("it ends with the GID") = last;
    let ep = other.ep.address().expect("an address");
    link.ep.connect_to_ep(&address, &ep).unwrap_or_else(|error| panic!("{error}"));
    link
}

/// Threads of this process that connect.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc");
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm"))
            .ok()
            .filter(|name| name.trim() == "uct-connect")
    };
    tasks.filter_map(name).count()
}

#[test]
fn peers_that_nobody_is_hold_up_nothing_and_fail_with_the_reason() {
    let Some((_turn, names)) = pair() else { return };
    let context = context(&[]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[1]));
    assert_eq!(threads(), 0, "none before the first endpoint is connected");
    let dead: Vec<_> = (0..12).map(|n| call_nobody(&left, &right, 100 + n % 6)).collect();
    assert_eq!(dead[0].ep.am_short(ID, 0, b""), Err(Error::NO_RESOURCE));
    assert_eq!(dead[0].ep.flush(Flush::empty(), None).err(), Some(Error::NO_RESOURCE));
    let again = dead[0].ep.connect_to_ep(&right.iface.address().expect("an address"), &[0; 16]);
    assert!(again.expect_err("it is connecting").to_string().contains("already"));
    let served = Rc::new(Cell::new(0));
    for link in &dead {
        let count = Rc::clone(&served);
        let request = move |ep: &uct_core::Ep| {
            let sent = ep.am_short(ID, 0, b"");
            if sent == Err(Error::NO_RESOURCE) {
                return Pending::Wait;
            }
            assert_eq!(sent, Err(Error::TIMED_OUT));
            count.set(count.get() + 1);
            Pending::Done
        };
        assert!(link.ep.pending_add(request).is_ok());
    }
    // Interfaces are flushed although they connect.
    assert!(left.iface.flush(Flush::empty(), None).is_ok());
    let (near, _far) = connect(&left, &right);
    near.send(&left.worker).expect("a send");
    until(&left, &right, "a message", || right.received.get() == 1);

    until(&left, &right, "the failures", || dead.iter().all(|link| !link.failures.borrow().is_empty()));
    until(&left, &right, "the pending requests", || served.get() == dead.len());
    for (n, link) in dead.iter().enumerate() {
        let [reason] = &link.failures.borrow()[..] else { panic!("{:?}", link.failures) };
        assert!(
            reason.contains(&format!("10.7.0.{}", 100 + n % 6)) && reason.contains("3 times"),
            "{reason}"
        );
        assert_eq!(link.ep.am_short(ID, 0, b""), Err(Error::TIMED_OUT));
    }
    near.send(&left.worker).expect("a send");
    until(&left, &right, "another message", || right.received.get() == 2);
}

#[test]
fn a_sleeper_at_the_interfaces_descriptor_is_woken_by_the_outcome() {
    let Some((_turn, names)) = pair() else { return };
    let context = context(&[]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[1]));
    let dead = call_nobody(&left, &right, 110);
    let fd = left.iface.event_fd().expect("it has one");
    while dead.failures.borrow().is_empty() {
        if left.iface.arm(Events::all()).is_ok() {
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&fd.as_fd(), PollFlags::IN)], Some(&patience));
            assert_eq!(ready, Ok(1), "nothing wakes the sleeper");
        }
        left.worker.progress();
    }
}

#[test]
fn endpoints_and_interfaces_that_connect_can_go() {
    let Some((_turn, names)) = pair() else { return };
    let context = context(&[]);
    let (left, right) = (Side::new(&context, &names[0]), Side::new(&context, &names[1]));
    // Their places in the table are used again at once.
    for n in 0..8 {
        drop(call_nobody(&left, &right, 120 + n % 3));
        let canceled = call_nobody(&left, &right, 120 + n % 3);
        assert!(canceled.ep.flush(Flush::CANCEL, None).is_ok());
        assert_eq!(canceled.ep.am_short(ID, 0, b""), Err(Error::CANCELED));
        let (near, _far) = connect(&left, &right);
        near.send(&left.worker).expect("a send");
        until(&left, &right, "a message", || right.received.get() == u64::from(n) + 1);
    }
    let dead: Vec<_> = (0..8).map(|n| call_nobody(&left, &right, 130 + n)).collect();
    drop(dead);
    drop((left, right));
    assert_eq!(threads(), 0, "a thread outlives its interface");
}
