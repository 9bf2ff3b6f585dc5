//! Events: once, in order, with and without a descriptor.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use uct_net_c::abi::*;
use uct_net_c::exports::*;

use crate::program::*;

fn take(net: Raw, room: usize, timeout: i64) -> Vec<uct_event> {
    let mut events = vec![uct_event::default(); room];
    // SAFETY: as much room as there is.
    let count = unsafe { uct_net_wait(net, events.as_mut_ptr(), room, timeout) };
    assert!(count >= 0, "{}", reason(net, 0));
    events.truncate(count as usize);
    events
}

fn is_readable(fd: i32, milliseconds: i32) -> bool {
    let mut watched = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure.
    unsafe { libc::poll(&raw mut watched, 1, milliseconds) == 1 }
}

#[test]
fn each_event_is_returned_once_the_oldest_first() {
    let pair = Pair::new();
    let ([net, _], [conn, _]) = (pair.nets, pair.conns);
    let ops = [1, 2, 3, 4].map(|user| send(conn, b"x", user));
    let waited_for = done(net, ops[1]);
    assert_eq!((waited_for.user, waited_for.kind), (2, UCT_EV_SEND));
    let mut users = Vec::new();
    while users.len() < 3 {
        let events = take(net, 2, LIMIT);
        assert!(matches!(events.len(), 1 | 2));
        users.extend(events.iter().map(|event| event.user));
    }
    assert_eq!(users, [1, 3, 4]);
    assert_eq!(take(net, 9, 0), []);
    let mut event = uct_event::default();
    // SAFETY: room for one event.
    assert_eq!(unsafe { uct_wait(net, ops[0], LIMIT, &raw mut event) }, INVALID_PARAM);
    refused("taken already");
    // SAFETY: as above. The refusal was that of this thread's last call.
    assert_eq!(unsafe { uct_wait(net, 0, LIMIT, &raw mut event) }, INVALID_PARAM);
}

#[test]
fn a_wait_ends_at_its_limit_and_the_operation_goes_on() {
    for wait in ["20us", "sleep", "spin"] {
        let pair = Pair::with(&[("wait", wait)]);
        let ([net, peer_net], [conn, peer]) = (pair.nets, pair.conns);
        let op = uct_recv(conn, 5);
        let start = Instant::now();
        // SAFETY: the event is not wanted.
        assert_eq!(unsafe { uct_wait(net, op, 20_000_000, null_mut()) }, IN_PROGRESS);
        assert_eq!(take(net, 1, 20_000_000), []);
        assert!(start.elapsed() >= Duration::from_millis(40));
        done(peer_net, send(peer, b"now", 0));
        let events = take(net, 3, LIMIT);
        assert_eq!((events[0].op, events[0].user), (op, 5));
        assert_eq!(bytes(&events[0]), b"now");
    }
}

#[test]
fn what_an_event_would_return_is_closed_if_nobody_wants_it() {
    let pair = Pair::new();
    let ([net, peer_net], [conn, peer]) = (pair.nets, pair.conns);
    done(peer_net, send(peer, b"unwanted", 0));
    // SAFETY: the event is not wanted.
    assert_eq!(unsafe { uct_wait(net, uct_recv(conn, 0), LIMIT, null_mut()) }, OK);
    let accept = uct_accept(pair.listener, 0);
    let connected = handle(&done(peer_net, connect(peer_net, &address(pair.listener))));
    // SAFETY: as above.
    assert_eq!(unsafe { uct_wait(net, accept, LIMIT, null_mut()) }, OK);
    let end = ended(peer_net, uct_recv(connected, 0));
    assert_eq!(end.status, NOT_CONNECTED, "{}", reason(peer_net, end.op));
}

#[test]
fn the_descriptor_is_readable_while_there_are_events() {
    let pair = Pair::new();
    let ([net, peer_net], [conn, peer]) = (pair.nets, pair.conns);
    let fd = uct_net_fd(net);
    assert!(fd >= 0 && uct_net_fd(net) == fd);
    assert!(!is_readable(fd, 0));
    let ops = [uct_recv(conn, 0), uct_recv(conn, 0)];
    assert_eq!(take(net, 1, 0), []);
    // Nobody waits in the library: its thread makes progress.
    for op in ops {
        done(peer_net, send(peer, b"wake up", 0));
        assert!(is_readable(fd, 60_000), "the message ends a receive");
        let events = take(net, 2, 0);
        assert_eq!(events.iter().map(|event| event.op).collect::<Vec<_>>(), [op]);
        assert!(!is_readable(fd, 0));
    }
    // One that ends inside of its call.
    let op = send(conn, b"x", 0);
    assert!(is_readable(fd, 60_000));
    done(net, op);
    assert!(!is_readable(fd, 0));
}

#[test]
fn an_operation_ends_though_nobody_waits() {
    let pair = Pair::new();
    let ([net, peer_net], [conn, peer]) = (pair.nets, pair.conns);
    let op = uct_recv(conn, 0);
    // It needs the progress of both sides, and this thread waits in neither.
    let sent = send(peer, &vec![1; 8 << 20], 0);
    let (fd, peer_fd) = (uct_net_fd(net), uct_net_fd(peer_net));
    assert!(is_readable(fd, 60_000) && is_readable(peer_fd, 60_000));
    done(peer_net, sent);
    let message = done(net, op);
    assert_eq!(bytes(&message).len(), 8 << 20);
}

#[test]
fn versions_and_statuses_are_texts() {
    // SAFETY: texts that live for ever.
    let text = |text| unsafe { CStr::from_ptr(text) }.to_str().unwrap();
    assert_eq!(text(uct_version()), env!("CARGO_PKG_VERSION"));
    assert_eq!(text(uct_status_string(0)), "success");
    assert_eq!(text(uct_status_string(-20)), "operation timed out");
    assert_eq!(text(uct_status_string(-1000)), "unknown status");
}
