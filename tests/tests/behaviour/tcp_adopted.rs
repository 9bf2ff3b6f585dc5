//! Interfaces of `tcp` that take over sockets which are connected already.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::support::{Failures, HELLO, ID, LIMIT, Side, drive, send};
use uct_core::{Ep, Error, IfaceAddress, SocketSide};

/// Two ends of one connection.
fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn over(side: &Side, peer: &IfaceAddress, socket: impl Into<OwnedFd>, end: SocketSide) -> (Ep, Failures) {
    let failures = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&failures);
    let ep = side.iface.connect_over(peer, socket.into(), end, move |failure| {
        seen.borrow_mut().push((failure.error, failure.reason));
    });
    (ep.unwrap(), failures)
}

/// The address as it would be of a peer that nobody reaches: nothing listens on port 1.
fn unreachable(side: &Side) -> IfaceAddress {
    let mut address = side.address();
    address.iface[22..24].copy_from_slice(&1_u16.to_be_bytes());
    address.iface[3] = 1;
    address.iface[40..60].fill(0);
    address
}

#[test]
fn two_endpoints_use_one_adopted_socket_and_no_other() {
    let (one, other) = (Side::new(&[]), Side::new(&[]));
    let sides = [&one, &other];
    let (near, far) = sockets();
    let (to_other, _failed) = over(&one, &unreachable(&other), near, SocketSide::Called);
    let (to_one, _failed_too) = over(&other, &unreachable(&one), far, SocketSide::Accepted);
    for round in 1..=100 {
        send(&sides, &to_other, round);
        send(&sides, &to_one, round);
    }
    drive(&sides, || one.count.get() == 100 && other.count.get() == 100);
    assert_eq!(one.sum.get(), 5050);
    assert_eq!((one.counter("connections_made"), other.counter("connections_made")), (1, 1));

    // Who knows the peer by its address alone gets a connection of its own.
    let (apart, _) = one.connect(&other.address());
    send(&sides, &apart, 1);
    drive(&sides, || other.count.get() == 101);
    assert_eq!(one.counter("connections"), 2);

    // The end of an endpoint ends its socket.
    drop(to_other);
    drop(to_one);
    drive(&sides, || one.counter("connections") == 1 && other.counter("connections") == 1);
    send(&sides, &apart, 1);
    drive(&sides, || other.count.get() == 102);
}

#[test]
fn several_adopted_sockets_between_two_interfaces_are_several_connections() {
    let (one, other) = (Side::new(&[]), Side::new(&[]));
    let sides = [&one, &other];
    let mut ends = Vec::new();
    for at in 1..=5 {
        let (near, far) = sockets();
        ends.push(over(&one, &other.address(), near, SocketSide::Called));
        ends.push(over(&other, &one.address(), far, SocketSide::Accepted));
        let [.., (called, _), (accepted, _)] = &ends[..] else { unreachable!("two were added") };
        send(&sides, called, at);
        send(&sides, accepted, at);
    }
    drive(&sides, || one.count.get() == 5 && other.count.get() == 5);
    assert_eq!((one.counter("connections"), other.counter("connections")), (5, 5));
    assert!(ends.iter().all(|(_, failures)| failures.borrow().is_empty()));
}

#[test]
fn a_socket_is_taken_as_one_of_the_own_listener_with_the_bytes_that_were_read() {
    let (server, client) = (Side::new(&[]), Side::new(&[]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // The client connects to a port of another program, which passes the socket on after its first four bytes.
    let mut address = server.address();
    address.iface[22..24].copy_from_slice(&listener.local_addr().unwrap().port().to_be_bytes());
    address.iface[3] = 1;
    address.iface[40..60].fill(0);
    let (ep, _failures) = client.connect(&address);
    listener.set_nonblocking(true).unwrap();
    let mut accepted = None;
    drive(&[&client], || {
        accepted = accepted.take().or_else(|| listener.accept().ok());
        accepted.is_some()
    });
    let stream = accepted.unwrap().0;
    let mut first = [0; 4];
    let mut have = 0;
    stream.set_nonblocking(true).unwrap();
    drive(&[&client], || {
        have += std::io::Read::read(&mut &stream, &mut first[have..]).unwrap_or(0);
        have == first.len()
    });
    assert_eq!(&first, b"UCTt");
    server.iface.adopt(stream.into(), &first).unwrap();
    send(&[&server, &client], &ep, 7);
    drive(&[&server, &client], || server.count.get() == 1);
}

#[test]
fn another_interface_at_the_other_end_fails_both() {
    let (one, other, third) = (Side::new(&[]), Side::new(&[]), Side::new(&[]));
    let (near, far) = sockets();
    let (_called, failed) = over(&one, &third.address(), near, SocketSide::Called);
    let (_accepted, failed_too) = over(&other, &one.address(), far, SocketSide::Accepted);
    drive(&[&one, &other], || !failed.borrow().is_empty() && !failed_too.borrow().is_empty());
    assert_eq!(failed.borrow()[0].0, Error::REJECTED, "{failed:?}");
    assert!(failed_too.borrow()[0].1.contains("another interface"), "{failed_too:?}");
    // And one that says it is somebody else.
    let (near, far) = sockets();
    let (_called, failed) = over(&one, &other.address(), near, SocketSide::Called);
    let (_accepted, failed_too) = over(&other, &third.address(), far, SocketSide::Accepted);
    drive(&[&one, &other], || !failed.borrow().is_empty() && !failed_too.borrow().is_empty());
    assert!(failed_too.borrow()[0].1.contains("another interface"), "{failed_too:?}");
}

#[test]
fn silence_garbage_and_an_end_fail_the_endpoint() {
    let side = Side::new(&[("hello_timeout", "50ms"), ("connect_timeout", "50ms")]);
    let peer = Side::new(&[]);
    for end in [SocketSide::Called, SocketSide::Accepted] {
        let (near, _silent) = sockets();
        let (_ep, failed) = over(&side, &peer.address(), near, end);
        drive(&[&side], || !failed.borrow().is_empty());
        assert_eq!(failed.borrow()[0].0, Error::ENDPOINT_TIMEOUT, "{failed:?}");

        let (near, mut far) = sockets();
        far.write_all(&[7; HELLO]).unwrap();
        let mut kept = near.try_clone().unwrap();
        let (_ep, failed) = over(&side, &peer.address(), near, end);
        drive(&[&side], || !failed.borrow().is_empty());
        assert!(failed.borrow()[0].1.contains("does not use this protocol"), "{failed:?}");
        if end == SocketSide::Called {
            let mut unread = [0; HELLO];
            kept.read_exact(&mut unread).expect("they are the program's");
            assert_eq!(unread, [7; HELLO]);
        }

        let (near, far) = sockets();
        drop(far);
        let (_ep, failed) = over(&side, &peer.address(), near, end);
        drive(&[&side], || !failed.borrow().is_empty());
        assert_eq!(failed.borrow().len(), 1);
    }
    assert_eq!((side.counter("connections"), side.counter("half_open")), (0, 0));
    assert!(side.worker.progress_until(LIMIT, || true));
}

#[test]
fn endpoints_are_created_over_a_pair_of_unix_sockets_which_ends_with_them() {
    let (one, other) = (Side::new(&[]), Side::new(&[]));
    let sides = [&one, &other];
    let (near, far) = UnixStream::pair().unwrap();
    let (to_other, failed) = over(&one, &unreachable(&other), near, SocketSide::Called);
    let (to_one, failed_too) = over(&other, &unreachable(&one), far, SocketSide::Accepted);
    // More than the pair takes at once.
    for round in 1..=40_000 {
        send(&sides, &to_other, round);
        send(&sides, &to_one, round);
    }
    drive(&sides, || one.count.get() == 40_000 && other.count.get() == 40_000);
    assert_eq!((one.counter("connections_made"), other.counter("connections_made")), (1, 1));
    drop(to_other);
    drop(to_one);
    drive(&sides, || one.counter("connections") == 0 && other.counter("connections") == 0);
    assert!(failed.borrow().is_empty() && failed_too.borrow().is_empty());

    // What a program puts between two such pairs, and takes away.
    let (near, far) = UnixStream::pair().unwrap();
    let (_ep, failed) = over(&one, &other.address(), near, SocketSide::Accepted);
    drop(far);
    drive(&sides, || !failed.borrow().is_empty());
    let reason = failed.borrow()[0].1.clone();
    assert!(!reason.contains("0.0.0.0"), "a Unix socket has no address: {reason}");
}

#[test]
fn adopted_sockets_of_peers_count_as_connections_of_their_source() {
    let (one, other) = (Side::new(&[]), Side::new(&[("max_connections_per_source", "2")]));
    let sides = [&one, &other];
    let open = || {
        let (near, far) = sockets();
        let called = over(&one, &unreachable(&other), near, SocketSide::Called);
        (called, over(&other, &unreachable(&one), far, SocketSide::Accepted))
    };
    let mut open_ends = Vec::new();
    for count in 1..=2 {
        let ends = open();
        send(&sides, &ends.0.0, count);
        drive(&sides, || other.count.get() == count);
        open_ends.push(ends);
    }
    let refused = open();
    for failures in [&refused.0.1, &refused.1.1] {
        drive(&sides, || !failures.borrow().is_empty());
        let reason = failures.borrow()[0].1.clone();
        assert!(reason.contains("max_connections_per_source"), "{reason}");
    }
    open_ends.pop();
    drive(&sides, || other.counter("connections") == 1);
    let third = open();
    send(&sides, &third.0.0, 3);
    drive(&sides, || other.count.get() == 3);
}

/// Two ends of one connection, of TCP or Unix sockets.
fn any_sockets(is_unix: bool) -> (OwnedFd, OwnedFd) {
    if is_unix {
        let (near, far) = UnixStream::pair().unwrap();
        return (near.into(), far.into());
    }
    let (near, far) = sockets();
    (near.into(), far.into())
}

#[test]
fn an_adopted_socket_ends_with_its_endpoint_though_the_peer_keeps_its_own() {
    let ends = [(SocketSide::Called, SocketSide::Accepted), (SocketSide::Accepted, SocketSide::Called)];
    for ((end, far_end), is_unix) in ends.into_iter().flat_map(|ends| [(ends, false), (ends, true)]) {
        let (one, other) = (Side::new(&[("linger_timeout", "20ms")]), Side::new(&[]));
        let sides = [&one, &other];
        let (near, far) = any_sockets(is_unix);
        let (own, _) = over(&one, &unreachable(&other), near, end);
        let (kept, failed) = over(&other, &unreachable(&one), far, far_end);
        send(&sides, &kept, 1);
        send(&sides, &own, 2);
        drive(&sides, || one.count.get() == 1);
        drop(own);
        drive(&sides, || one.counter("connections") == 0);
        drive(&sides, || !failed.borrow().is_empty());
        assert_eq!((other.sum.get(), failed.borrow()[0].0), (2, Error::CONNECTION_RESET), "{failed:?}");
    }
}

#[test]
fn an_adopted_socket_ends_with_its_endpoint_though_the_peer_reads_nothing() {
    let (one, other) = (Side::new(&[("linger_timeout", "20ms")]), Side::new(&[]));
    for is_unix in [false, true] {
        let (near, far) = any_sockets(is_unix);
        let (own, _) = over(&one, &unreachable(&other), near, SocketSide::Accepted);
        let (_kept, _) = over(&other, &unreachable(&one), far, SocketSide::Called);
        send(&[&one, &other], &own, 1);
        drive(&[&one, &other], || one.counter("half_open") == 0);
        let (mut refused, mut last_sent) = (0, Instant::now());
        drive(&[&one], || {
            if own.am_short(ID, 1, b"data").is_ok() {
                (refused, last_sent) = (0, Instant::now());
            } else {
                refused += 1;
            }
            // It has room for none, whatever was sent meanwhile. On a busy machine a few calls take long.
            refused >= 50 && last_sent.elapsed() > Duration::from_millis(20)
        });
        drop(own);
        drive(&[&one], || one.counter("connections") == 0);
    }
}

#[test]
fn what_is_no_tcp_socket_is_refused_and_stays_the_callers() {
    let side = Side::new(&[]);
    let (near, _far) = UnixStream::pair().unwrap();
    let (socket, refused) = side.iface.adopt(near.into(), b"").unwrap_err();
    assert_eq!(refused.status, Error::INVALID_PARAM, "{refused}");
    assert!(rustix::fs::fstat(&socket).is_ok(), "it is still open");
    let (datagrams, _far) = UnixDatagram::pair().unwrap();
    let refused = side.iface.connect_over(&side.address(), datagrams.into(), SocketSide::Called, |_| {});
    assert_eq!(refused.map(drop).unwrap_err().status, Error::INVALID_PARAM);
    let (socket, _end) = std::io::pipe().unwrap();
    let refused = side.iface.connect_over(&side.address(), socket.into(), SocketSide::Called, |_| {});
    assert!(refused.is_err());
    assert!(side.iface.adopts());

    let worker = uct_core::Worker::new(&uct_core::Context::builder().build().unwrap()).unwrap();
    let apart = worker.open("self", "memory").unwrap();
    assert!(!apart.adopts());
    let (near, _far) = sockets();
    assert_eq!(apart.adopt(near.into(), b"").unwrap_err().1.status, Error::UNSUPPORTED);
}
