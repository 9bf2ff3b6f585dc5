//! Cases of connections over sockets: unauthenticated peers, silent peers, simultaneous connects.
//!
//! All traffic stays on loopback. A peer that was stopped (SIGSTOP) is played by a socket whose owner reads nothing: its system
//! acknowledges, its program is silent, which is all that one sees of it.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::alone::is_alone;
use crate::support::{self, HELLO, ID, LIMIT, Side, drive, forged, play_peer, resident, send};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uct_core::{Context, Error, Flush, Posted, Worker};

#[test]
fn both_sides_connect_at_once_and_share_one_socket() {
    if !is_alone() {
        return;
    }
    for _ in 0..10 {
        let (a, b) = (Side::new(&[]), Side::new(&[]));
        let (to_b, failed_a) = a.connect(&b.address());
        let (to_a, failed_b) = b.connect(&a.address());
        for number in 0..50 {
            send(&[&a, &b], &to_b, number);
            send(&[&a, &b], &to_a, number);
        }
        drive(&[&a, &b], || a.count.get() == 50 && b.count.get() == 50);
        drive(&[&a, &b], || a.counter("connections") == 1 && b.counter("connections") == 1);
        assert_eq!((a.sum.get(), b.sum.get()), (1225, 1225));
        assert!(failed_a.borrow().is_empty() && failed_b.borrow().is_empty());
    }
}

#[test]
fn a_hundred_endpoints_to_one_peer_share_one_socket() {
    if !is_alone() {
        return;
    }
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let eps: Vec<_> = (0..100).map(|_| a.connect(&b.address()).0).collect();
    for ep in &eps {
        send(&[&a, &b], ep, 1);
    }
    drive(&[&a, &b], || b.count.get() == 100);
    assert_eq!((a.counter("connections"), b.counter("connections")), (1, 1));
    drop(eps);
    drive(&[&a, &b], || a.counter("connections") == 0 && b.counter("connections") == 0);
}

#[test]
fn endpoints_are_connected_to_endpoints_by_their_addresses() {
    if !is_alone() {
        return;
    }
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (here, there) = (a.iface.create_ep(|_| {}).unwrap(), b.iface.create_ep(|_| {}).unwrap());
    assert_eq!(here.am_short(ID, 1, b""), Err(Error::NOT_CONNECTED));
    here.connect_to_ep(&b.address(), &there.address().unwrap()).unwrap();
    there.connect_to_ep(&a.address(), &here.address().unwrap()).unwrap();
    send(&[&a, &b], &here, 1);
    send(&[&a, &b], &there, 2);
    drive(&[&a, &b], || a.sum.get() == 2 && b.sum.get() == 1);
    assert_eq!((a.counter("connections"), b.counter("connections")), (1, 1));
    assert!(here.connect_to_ep(&b.address(), &[1, 2, 3]).unwrap_err().to_string().contains("3 bytes"));
}

#[test]
fn an_endpoint_dropped_right_after_a_send_still_delivers() {
    if !is_alone() {
        return;
    }
    let b = Side::new(&[]);
    for round in 1..=5 {
        let a = Side::new(&[]);
        let (ep, _) = a.connect(&b.address());
        for _ in 0..100 {
            send(&[&a], &ep, 1);
        }
        drop(ep);
        let (until, sides) = (round * 100, [&a, &b]);
        drive(&sides, || b.count.get() == until);
        drive(&sides, || a.counter("connections") == 0);
    }
    drive(&[&b], || b.counter("connections") == 0);
}

#[test]
fn an_interface_closed_right_after_a_send_still_delivers() {
    if !is_alone() {
        return;
    }
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (ep, _) = a.connect(&b.address());
    send(&[&a, &b], &ep, 1);
    drive(&[&a, &b], || b.count.get() == 1);
    for _ in 0..1000 {
        send(&[&a], &ep, 1);
    }
    drop(ep);
    drop(a);
    drive(&[&b], || b.count.get() == 1001);
}

#[test]
fn ten_thousand_unauthenticated_connections_harm_nothing_and_leave_nothing() {
    if !is_alone() {
        return;
    }
    let (a, b) = (Side::new(&[("hello_timeout", "300ms")]), Side::new(&[]));
    let (ep, failures) = b.connect(&a.address());
    send(&[&a, &b], &ep, 1);
    drive(&[&a, &b], || a.count.get() == 1);
    let socket = a.socket();
    let mut hello = [0; HELLO];
    hello[..6].copy_from_slice(b"UCTt\x02\x00");
    let junk: Vec<u8> =
        (0..4096_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut memory = 0;
    let mut kept = Vec::new();
    for round in 0..10_000_usize {
        let mut stream = TcpStream::connect(socket).unwrap();
        let _ = match round % 4 {
            0 => stream.write_all(&junk[round % 2000..][..1 + round % 200]),
            1 => stream.write_all(&hello[..1 + round % (HELLO - 1)]),
            2 => stream.write_all(&hello),
            _ => Ok(()),
        };
        if round % 100 == 1 {
            kept.push(stream);
        }
        a.worker.progress();
        if round % 500 == 0 {
            send(&[&a, &b], &ep, 1);
        }
        if round == 2000 {
            memory = resident();
        }
    }
    drive(&[&a, &b], || a.count.get() == 21);
    drive(&[&a, &b], || a.counter("half_open") == 0);
    assert_eq!(a.counter("connections"), 1);
    assert!(failures.borrow().is_empty());
    let grown = resident().saturating_sub(memory);
    assert!(grown < 2 << 20, "{grown} bytes more than after 2000 strangers");
}

#[test]
fn without_a_descriptor_for_a_peer_the_listener_rests_and_the_peer_is_served_later() {
    if !is_alone() {
        return;
    }
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (to_b, failures) = a.connect(&b.address());
    let limits = getrlimit(Resource::Nofile);
    let most = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 + 64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limits }).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(550) {
        a.worker.progress();
        b.worker.progress();
    }
    let attempts = b.counter("connections_refused");
    setrlimit(Resource::Nofile, limits).unwrap();
    drop(taken);
    let most = start.elapsed().as_millis() as u64 / 100 + 1;
    assert!((1..=most).contains(&attempts), "{attempts} attempts to accept, one each 100 ms would be {most}");
    send(&[&a, &b], &to_b, 7);
    drive(&[&a, &b], || b.sum.get() == 7);
    assert!(failures.borrow().is_empty(), "{:?}", failures.borrow());
}

#[test]
fn a_frame_of_absurd_length_ends_its_connection_alone() {
    if !is_alone() {
        return;
    }
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (good, good_failures) = a.connect(&b.address());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_bad, bad_failures) = a.connect(&forged(&a, &listener));
    let mut stream = play_peer(&a, &listener);
    stream.write_all(&[ID.get(), 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]).unwrap();
    drive(&[&a, &b], || !bad_failures.borrow().is_empty());
    assert_eq!(bad_failures.borrow()[0].0, Error::IO_ERROR);
    assert!(bad_failures.borrow()[0].1.contains("longer than"), "{bad_failures:?}");
    send(&[&a, &b], &good, 1);
    drive(&[&a, &b], || b.count.get() == 1);
    assert!(good_failures.borrow().is_empty());
}

#[test]
fn a_peer_of_another_version_is_named_on_both_sides() {
    if !is_alone() {
        return;
    }
    let a = Side::new(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (ep, failures) = a.connect(&forged(&a, &listener));
    listener.set_nonblocking(true).unwrap();
    let mut stream = None;
    drive(&[&a], || {
        stream = listener.accept().ok();
        stream.is_some()
    });
    stream.unwrap().0.write_all(b"UCTt\x63\x00\x02\x00").unwrap();
    drive(&[&a], || !failures.borrow().is_empty());
    let reason = failures.borrow()[0].1.clone();
    assert!(reason.contains("version 99") && reason.contains("version 4"), "{reason}");
    assert_eq!(ep.am_short(ID, 1, b""), Err(Error::UNREACHABLE));

    let mut stranger = TcpStream::connect(a.socket()).unwrap();
    stranger.write_all(b"UCTt\x63\x00\x01\x00").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let (mut answer, mut have) = ([0; HELLO], 0);
    drive(&[&a], || {
        have += stranger.read(&mut answer[have..]).unwrap_or(0);
        have == HELLO
    });
    assert_eq!(answer[..8], *b"UCTt\x04\x00\x03\x00", "a refusal that names this side's version");
}

#[test]
fn a_peer_that_falls_silent_fails_its_endpoint_once_within_the_time_limit() {
    if !is_alone() {
        return;
    }
    let limits = [("keepalive_interval", "100ms"), ("keepalive_timeout", "300ms")];
    let (a, b) = (Side::new(&limits), Side::new(&limits));
    let (good, good_failures) = a.connect(&b.address());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (ep, failures) = a.connect(&forged(&a, &listener));
    // It was heard last when it answered the hello.
    let start = Instant::now();
    let _stream = play_peer(&a, &listener);
    send(&[&a, &b], &ep, 1);
    drive(&[&a, &b], || !failures.borrow().is_empty());
    let elapsed = start.elapsed();
    assert_eq!(failures.borrow()[0].0, Error::ENDPOINT_TIMEOUT);
    assert!(elapsed >= Duration::from_millis(290), "{elapsed:?}");
    assert_eq!(ep.am_short(ID, 1, b""), Err(Error::ENDPOINT_TIMEOUT));
    send(&[&a, &b], &good, 1);
    drive(&[&a, &b], || b.count.get() == 1);
    let end = Instant::now() + Duration::from_secs(1);
    drive(&[&a, &b], || Instant::now() > end);
    assert_eq!((failures.borrow().len(), good_failures.borrow().len()), (1, 0));
}

#[test]
fn a_peer_that_never_answers_the_hello_fails_the_endpoint_within_the_time_limit() {
    if !is_alone() {
        return;
    }
    let a = Side::new(&[("connect_timeout", "400ms")]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (ep, failures) = a.connect(&forged(&a, &listener));
    assert_eq!(ep.flush(Flush::empty(), None), Ok(Posted::Done), "nothing was sent yet");
    let _ = ep.am_short(ID, 1, b"queued");
    drive(&[&a], || !failures.borrow().is_empty());
    assert_eq!(failures.borrow()[0].0, Error::ENDPOINT_TIMEOUT);
    assert!(failures.borrow()[0].1.contains("connect_timeout"), "{failures:?}");
}

#[test]
fn a_peer_that_does_not_listen_is_an_error_that_names_its_address() {
    if !is_alone() {
        return;
    }
    let a = Side::new(&[("max_conn_retries", "2")]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = forged(&a, &listener);
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let (_ep, failures) = a.connect(&address);
    drive(&[&a], || !failures.borrow().is_empty());
    let (error, reason) = failures.borrow()[0].clone();
    assert_eq!(error, Error::UNREACHABLE);
    assert!(reason.contains(&format!("127.0.0.1:{port}")) && reason.contains("tried 3 times"), "{reason}");

    let blocking = Side::new(&[("max_conn_retries", "0"), ("conn_nb", "n")]);
    let refused = blocking.iface.connect(&address).unwrap_err().to_string();
    assert!(refused.contains("refused"), "{refused}");
}

#[test]
fn a_killed_peer_fails_its_endpoint_once_and_no_other() {
    if !is_alone() {
        return;
    }
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (good, good_failures) = a.connect(&b.address());
    // Only the killed process holds the peer's end of the connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (ep, failures) = a.connect(&forged(&a, &listener));
    let stream = play_peer(&a, &listener);
    let mut command = Command::new("sleep");
    command.arg("60").stdin(Stdio::from(OwnedFd::from(stream)));
    let mut holder = command.spawn().unwrap();
    drop(command);
    send(&[&a, &b], &ep, 1);
    assert!(failures.borrow().is_empty());
    holder.kill().unwrap();
    holder.wait().unwrap();
    drive(&[&a, &b], || !failures.borrow().is_empty());
    assert_eq!(failures.borrow()[0].0, Error::CONNECTION_RESET);
    send(&[&a, &b], &good, 1);
    drive(&[&a, &b], || b.count.get() == 1);
    assert_eq!((failures.borrow().len(), good_failures.borrow().len()), (1, 0));
}

#[test]
fn a_sleeper_wakes_for_each_message() {
    if !is_alone() {
        return;
    }
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let (ep, _) = a.connect(&b.address());
    send(&[&a, &b], &ep, 1);
    drive(&[&a, &b], || b.count.get() == 1);
    for number in 2..200 {
        while b.worker.arm() == Err(Error::BUSY) {
            b.worker.progress();
        }
        assert_eq!(b.count.get(), number - 1);
        send(&[&a], &ep, 1);
        // A second message of the same round waits for progress.
        a.worker.progress();
        assert!(b.worker.wait(LIMIT).unwrap(), "message {number} wakes nobody");
        drive(&[&b], || b.count.get() == number);
    }
}

#[test]
fn a_busy_connection_keeps_no_other_one_waiting_whatever_is_called_between_rounds() {
    if !is_alone() {
        return;
    }
    let (hub, busy, other) = (Side::new(&[]), Side::new(&[]), Side::new(&[]));
    let (from_busy, from_other) = (busy.connect(&hub.address()).0, other.connect(&hub.address()).0);
    let sides = [&hub, &busy, &other];
    send(&sides, &from_other, 1);
    drive(&sides, || hub.count.get() == 1);
    send(&sides, &from_busy, 1);
    drive(&sides, || hub.count.get() == 2);
    for (flushes, phase) in (0..4).flat_map(|flushes| (0..4).map(move |phase| (flushes, phase))) {
        // Which round of four is the first one.
        for _ in 0..phase {
            hub.worker.progress();
        }
        send(&[&other], &from_other, 1000);
        other.worker.progress();
        let (sum, mut rounds) = (hub.sum.get(), 0);
        while hub.sum.get() < sum + 1000 {
            for _ in 0..flushes {
                hub.iface.flush(Flush::empty(), None).unwrap();
            }
            send(&[&busy], &from_busy, 1);
            busy.worker.progress();
            hub.worker.progress();
            rounds += 1;
            assert!(rounds < 100, "one connection alone is served, with {flushes} flushes between rounds");
        }
    }
}

#[test]
fn a_handler_may_wait_for_the_message_behind_its_own() {
    const PEERS: u64 = 4;
    const WAIT: Duration = Duration::from_secs(3);
    if !is_alone() {
        return;
    }
    let hub = Side::new(&[]);
    let peers: Vec<Side> = (0..PEERS).map(|_| Side::new(&[])).collect();
    let eps: Vec<_> = peers.iter().map(|peer| peer.connect(&hub.address()).0).collect();
    let (begun, ended) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    let (begins, ends, worker) = (Rc::clone(&begun), Rc::clone(&ended), hub.worker.clone());
    hub.iface.set_am_handler(ID, move |message| {
        let header = message.header().unwrap();
        let (peer, is_end) = (header / 2, header % 2 == 1);
        if is_end {
            ends.borrow_mut().push(peer);
        } else if worker.progress_until(WAIT, || ends.borrow().contains(&peer)) {
            begins.set(begins.get() + 1);
        }
    });
    // Both messages of a peer are sent together as soon as its connection is established, and arrive together.
    for (peer, ep) in (0..).zip(&eps) {
        ep.am_short(ID, 2 * peer, b"begin").unwrap();
        ep.am_short(ID, 2 * peer + 1, b"end").unwrap();
    }
    let sides: Vec<&Side> = std::iter::once(&hub).chain(&peers).collect();
    drive(&sides, || ended.borrow().len() as u64 == PEERS);
    assert_eq!(begun.get(), PEERS, "a handler waited for what its connection had received already");
}

#[test]
fn a_handler_may_wait_for_a_message_that_is_sent_after_its_own_has_come() {
    const WAIT: Duration = Duration::from_secs(3);
    if !is_alone() {
        return;
    }
    let (hub, peer) = (Side::new(&[]), Side::new(&[]));
    let ep = peer.connect(&hub.address()).0;
    let came = Rc::new(Cell::new(None));
    let (outcome, count, sender) = (Rc::clone(&came), Rc::clone(&hub.count), ep.clone());
    let (worker, driven) = (hub.worker.clone(), peer.worker.clone());
    hub.iface.set_am_handler(ID, move |message| {
        count.set(count.get() + 1);
        if message.header() == Some(1) {
            sender.am_short(ID, 2, b"later").unwrap();
            driven.progress();
            outcome.set(Some(worker.progress_until(WAIT, || count.get() == 2)));
        }
    });
    send(&[&hub, &peer], &ep, 1);
    drive(&[&hub, &peer], || came.get().is_some());
    assert_eq!(came.get(), Some(true), "progress inside a handler does not read the socket");
    hub.iface.clear_am_handlers();
}

#[test]
fn each_refusal_has_a_reason_at_the_side_that_connects() {
    if !is_alone() {
        return;
    }
    let reasons = [
        (1_u32, "another version"),
        (2, "another interface"),
        (4, "set max_message"),
        (0, "refused the connection"),
    ];
    for (refusal, words) in reasons {
        let a = Side::new(&[]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (ep, failures) = a.connect(&forged(&a, &listener));
        listener.set_nonblocking(true).unwrap();
        let mut stream = None;
        drive(&[&a], || {
            stream = listener.accept().ok();
            stream.is_some()
        });
        let mut stream = stream.unwrap().0;
        let mut answer = support::Greeting::default().bytes();
        answer[6] = 3;
        answer[16..40].fill(0);
        answer[48..52].copy_from_slice(&refusal.to_le_bytes());
        support::seal(&mut answer);
        stream.write_all(&answer).unwrap();
        drive(&[&a], || !failures.borrow().is_empty());
        let (error, reason) = failures.borrow()[0].clone();
        assert_eq!(error, Error::REJECTED, "{reason}");
        assert!(reason.contains(words), "{reason}; expected {words}");
        assert_eq!(ep.am_short(ID, 1, b""), Err(Error::REJECTED));
    }
}

#[test]
fn a_peer_without_room_is_asked_again_until_the_time_to_connect_is_over() {
    if !is_alone() {
        return;
    }
    let full = Side::new(&[("max_connections", "1"), ("max_connections_per_source", "1")]);
    let (first, second) = (Side::new(&[]), Side::new(&[("connect_timeout", "700ms")]));
    let ep = first.connect(&full.address()).0;
    send(&[&full, &first], &ep, 1);
    drive(&[&full, &first], || full.count.get() == 1);
    let (_waiting, failures) = second.connect(&full.address());
    drive(&[&full, &second], || !failures.borrow().is_empty());
    let (error, reason) = failures.borrow()[0].clone();
    assert_eq!(error, Error::ENDPOINT_TIMEOUT, "{reason}");
    assert!(reason.contains("max_connections"), "{reason}");
    // Room that becomes free is taken.
    let third = Side::new(&[]);
    let (late, late_failures) = third.connect(&full.address());
    let end = Instant::now() + Duration::from_millis(200);
    drive(&[&full, &third], || Instant::now() > end);
    drop((ep, first));
    send(&[&full, &third], &late, 1);
    drive(&[&full, &third], || full.count.get() == 2);
    assert!(late_failures.borrow().is_empty(), "{:?}", late_failures.borrow());
}

#[test]
fn two_hundred_interfaces_are_served_by_one() {
    if !is_alone() {
        return;
    }
    // As many as descriptors permit: each interface takes about ten.
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits }).unwrap();
    let count = limits.maximum.map_or(200, |most| (most / 16).min(200));
    let hub = Side::new(&[]);
    let address = hub.address();
    let context = Context::builder().set("tls", "tcp").set("tcp.connect_timeout", "5m").build().unwrap();
    let worker = Worker::new(&context).unwrap();
    let mut peers = Vec::new();
    for _ in 0..count {
        let iface = worker.open("tcp", "lo").unwrap();
        let ep = iface.connect(&address).unwrap();
        peers.push((iface, ep));
    }
    let end = Instant::now() + LIMIT;
    for (_, ep) in &peers {
        while ep.am_short(ID, 1, b"x").is_err() {
            worker.progress();
            hub.worker.progress();
            assert!(Instant::now() < end);
        }
    }
    while hub.count.get() < count {
        worker.progress();
        hub.worker.progress();
        assert!(Instant::now() < end, "{} of {count} arrived", hub.count.get());
    }
    assert_eq!(hub.counter("connections"), count);
}
