//! Peers that are not there, go, or break the protocol.

use uct_net::Net;

use super::*;
use crate::wire::{Envelope, Head, Hello};

#[test]
fn what_waits_for_a_peer_that_is_not_there_ends_in_errors() {
    let side = Side::new(&domain("tcp"));
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let to = side.addresses.insert(nobody);
    for round in 0..2 {
        let mut space = [0; 4];
        let target = [buffer(&mut space)];
        let directed = Receive { from: Some(to), ..receive(&target, Some(1), 1) };
        side.endpoint.receive(&directed).unwrap();
        side.endpoint.send(&send(to, &[reading(b"x")], Some(1), 2)).unwrap();
        let long = vec![0; 100_000];
        side.endpoint.send(&send(to, &[reading(&long)], Some(1), 3)).unwrap();
        let source = [reading(&long)];
        let remote = Remote { key: 1, offset: 0 };
        let write = Rma { to, buffers: &source, remote, data: None, context: 4, mode: REPORTED };
        side.endpoint.write(&write).unwrap();
        let error = side.got().error();
        assert_eq!((error.entry.context, error.errno), (1, Errno::REFUSED), "{round}: {error:?}");
        let mut contexts: Vec<_> = (0..3)
            .map(|_| {
                let error = side.sent().error();
                assert_eq!(error.errno, Errno::REFUSED);
                assert!(error.reason.unwrap().contains("call the listener"));
                error.entry.context
            })
            .collect();
        contexts.sort_unstable();
        assert_eq!(contexts, [2, 3, 4]);
    }
    assert_eq!(side.counters.send.as_ref().unwrap().errors(), 4);
}

#[test]
fn messages_that_have_not_left_are_canceled() {
    let side = Side::new(&domain("tcp"));
    // It never replies to a call.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = side.addresses.insert(silent.local_addr().unwrap());
    let long = vec![0; 100_000];
    let (short, long) = ([reading(b"x")], [reading(&long)]);
    side.endpoint.send(&send(to, &short, None, 1)).unwrap();
    side.endpoint.send(&send(to, &long, Some(1), 2)).unwrap();
    side.endpoint.send(&Send { mode: DELIVERY, ..send(to, &short, Some(1), 3) }).unwrap();
    side.endpoint.send(&Send { mode: DELIVERY, ..send(to, &long, None, 4) }).unwrap();
    assert_eq!(side.endpoint.cancel(5), Err(Errno::NOT_FOUND));
    for context in [3, 1, 4, 2] {
        side.endpoint.cancel(context).unwrap();
        let error = side.sent().error();
        assert_eq!((error.entry.context, error.errno), (context, Errno::CANCELED));
        assert_eq!(side.endpoint.cancel(context), Err(Errno::NOT_FOUND));
    }
    assert!(side.transmit.is_empty());
    assert_eq!(side.counters.send.as_ref().unwrap().errors(), 4);
}

#[test]
fn what_was_sent_arrives_though_its_endpoint_is_closed_at_once() {
    for (way, left, right, to_right, _) in pairs() {
        const MESSAGES: usize = 200;
        for number in 0..MESSAGES {
            let bytes = [number as u8; 300];
            let source = [reading(&bytes)];
            let message = Send { mode: INJECT, ..send(to_right, &source, None, 0) };
            retry(&left, || left.endpoint.send(&message));
        }
        drop(left);
        for number in 0..MESSAGES {
            let mut space = [0; 300];
            right.endpoint.receive(&receive(&[buffer(&mut space)], None, number)).unwrap();
            assert_eq!(right.got().entry().context, number, "{way}");
            assert_eq!(space, [number as u8; 300], "{way}");
        }
    }
}

#[test]
fn a_peer_that_closes_ends_what_waits_for_it_and_nothing_else() {
    for (way, left, right, to_right, to_left) in pairs() {
        let mut spaces = [[0; 4]; 2];
        let [first, second] = &mut spaces;
        let target = [buffer(first)];
        let directed = Receive { from: Some(to_left), ..receive(&target, Some(1), 1) };
        right.endpoint.receive(&directed).unwrap();
        right.endpoint.receive(&receive(&[buffer(second)], Some(2), 2)).unwrap();
        let long = vec![7; 300_000];
        left.endpoint.send(&send(to_right, &[reading(b"kept")], Some(3), 0)).unwrap();
        left.endpoint.send(&send(to_right, &[reading(&long)], Some(4), 0)).unwrap();
        left.sent().entry();
        left.endpoint.close();
        let error = right.got().error();
        assert_eq!((error.entry.context, error.errno), (1, Errno::SHUT_DOWN), "{way}: {error:?}");
        // What has come whole is received; what was only announced is not there any more.
        let mut kept = [0; 4];
        right.endpoint.receive(&receive(&[buffer(&mut kept)], Some(3), 3)).unwrap();
        assert_eq!(right.got().entry().context, 3);
        assert_eq!(&kept, b"kept");
        let tag = Some(TagFilter { tag: 4, ignore: 0 });
        right.endpoint.peek(&Peek { from: None, tag, context: 4, action: PeekAction::Look }).unwrap();
        assert_eq!(right.got().error().errno, Errno::NO_MESSAGE, "{way}");
        // A later send calls again, in vain, and so does a receive from it alone.
        right.endpoint.send(&send(to_left, &[reading(b"x")], None, 5)).unwrap();
        assert_eq!(right.sent().error().errno, Errno::REFUSED, "{way}");
        assert!(right.receive.is_empty());
        let directed = Receive { from: Some(to_left), ..receive(&target, Some(1), 6) };
        right.endpoint.receive(&directed).unwrap();
        let error = right.got().error();
        assert_eq!((error.entry.context, error.errno), (6, Errno::REFUSED), "{way}: {error:?}");
        right.endpoint.receive_many(&Receive { tag: None, context: 7, ..directed }, 1).unwrap();
        let error = right.got().error();
        assert_eq!((error.entry.context, error.errno), (7, Errno::RESET), "{way}: {error:?}");
    }
}

/// The net of a program that is no endpoint.
pub(super) fn net_without_endpoint() -> Net {
    let overrides = vec![("tls".to_owned(), "tcp".to_owned())];
    let sources = Sources { file: FileSource::None, env: Vec::new(), overrides };
    let context = Context::builder().sources(sources).build().expect("a context");
    Net::new(&context, NetOptions::default()).expect("a net")
}

/// Sends frames to an endpoint as a peer that has connected properly, and returns how the connection ended.
pub(super) fn hostile(side: &Side, frames: &[Vec<u8>]) -> uct_net::Error {
    let net = net_without_endpoint();
    let hello = Hello { address: ([127, 0, 0, 1], 9).into() };
    net.block_on(async {
        let connect = net.connect(side.endpoint.name()).private(hello.to_bytes()).within(LIMIT);
        let connection = connect.await.expect("a connection");
        for frame in frames {
            if let Err(error) = connection.send(frame).await {
                return error;
            }
        }
        loop {
            if let Err(error) = connection.recv().within(LIMIT).await {
                return error;
            }
        }
    })
}

#[test]
fn a_peer_that_breaks_the_protocol_ends_its_connection_with_the_reason_and_nothing_else() {
    let domain = domain("tcp");
    let (side, other) = (Side::new(&domain), Side::new(&domain));
    let to = other.knows(&side);
    let tagged = Envelope { tag: Some(1), data: None, delivery: false };
    let cases: [(&[Vec<u8>], &str); 11] = [
        (&[vec![]], "ends inside a field"),
        (&[vec![0; 8]], "unknown kind 0"),
        (&[Head::message(0, &tagged).bytes()[..9].to_vec()], "ends inside a field"),
        (&[Head::fragment(0).bytes().to_vec()], "not asked for"),
        (&[Head::fetch(5, 0, 1).bytes().to_vec()], "not announced"),
        (&[Head::done(5, 0).bytes().to_vec()], "not begun"),
        (&[Head::done(5, u32::MAX).bytes().to_vec()], "no error number"),
        (&[Head::data(0, true).bytes().to_vec()], "not begun"),
        (&[vec![9, 0, 0, 0, 0, 0, 0, 0]], "ends inside a field"),
        (&[[Head::read(0, 1, 2, 3).bytes(), b"x"].concat()], "goes on after"),
        (&[vec![1; 300_000]], "several fragments"),
    ];
    for (frames, reason) in cases {
        let error = hostile(&side, frames);
        assert!(error.reason.contains(reason), "{reason}: {error}");
        other.endpoint.send(&send(to, &[reading(b"fine")], None, 0)).unwrap();
        let mut space = [0; 4];
        side.endpoint.receive(&receive(&[buffer(&mut space)], None, 1)).unwrap();
        side.got().entry();
        assert_eq!(&space, b"fine");
    }
}

#[test]
fn a_peer_that_ends_an_operation_before_it_has_left_is_cut_off() {
    let side = Side::new(&domain("tcp"));
    let net = net_without_endpoint();
    let hello = Hello { address: ([127, 0, 0, 1], 9).into() }.to_bytes();
    let long = vec![0; 16 << 20];
    let connection = net.block_on(async {
        let mut listener = net.listen("127.0.0.1:0").await.expect("a listener");
        let to = side.addresses.insert(listener.address().parse().unwrap());
        let source = [reading(&long)];
        let remote = Remote { key: 1, offset: 0 };
        let write = Rma { to, buffers: &source, remote, data: None, context: 4, mode: REPORTED };
        side.endpoint.write(&write).unwrap();
        let incoming = listener.accept().await.expect("a call");
        let connection = incoming.accept_with(hello).await.expect("a connection");
        connection.send(Head::done(0, 0).bytes()).await.expect("it is sent");
        connection
    });
    // Nothing is received there, so most of the write still waits.
    let error = side.sent().error();
    assert_eq!((error.entry.context, error.errno), (4, Errno::IO), "{error:?}");
    assert!(error.reason.unwrap().contains("too early"));
    drop(connection);
}

#[test]
fn a_caller_that_is_no_endpoint_is_rejected_with_the_reason() {
    let side = Side::new(&domain("tcp"));
    let net = net_without_endpoint();
    let own = Hello { address: side.endpoint.name() }.to_bytes();
    for (private, reason) in [(b"hello".to_vec(), "no endpoint"), (own, "the address of this endpoint")] {
        let refused = net.block_on(net.connect(side.endpoint.name()).private(private).within(LIMIT));
        let error = refused.expect_err("it is refused");
        assert!(error.reason.contains(reason), "{error}");
    }
}

#[test]
fn a_caller_with_the_address_of_a_connected_peer_is_rejected_and_ends_nothing() {
    let (_, left, right, to_right, _) = pairs().nth(2).unwrap();
    let exchange = || {
        let mut space = [0; 4];
        right.endpoint.receive(&receive(&[buffer(&mut space)], None, 1)).unwrap();
        left.endpoint.send(&send(to_right, &[reading(b"fine")], None, 0)).unwrap();
        left.sent().entry();
        right.got().entry();
    };
    exchange();
    let net = net_without_endpoint();
    let hello = Hello { address: left.endpoint.name() }.to_bytes();
    let called = net.block_on(net.connect(right.endpoint.name()).private(hello).within(LIMIT));
    let error = called.expect_err("it is refused");
    assert!(error.reason.contains("is connected"), "{error}");
    exchange();
    assert!(left.transmit.is_empty() && right.receive.is_empty());
}

#[test]
fn callers_with_ever_new_addresses_take_few_places() {
    let side = Side::new(&domain("tcp"));
    let net = net_without_endpoint();
    for port in 1..=100 {
        let hello = Hello { address: ([127, 0, 0, 1], port).into() }.to_bytes();
        let connection = net.block_on(net.connect(side.endpoint.name()).private(hello).within(LIMIT));
        net.block_on(connection.expect("a connection").close().within(LIMIT)).expect("an end");
    }
    assert!(side.endpoint.peers() < 50, "{} places", side.endpoint.peers());
}

#[test]
fn a_sleeper_is_woken_by_an_entry_a_counter_and_a_signal() {
    let (_, left, right, to_right, _) = pairs().nth(1).unwrap();
    assert_eq!(right.domain.wait(&right.receive, Some(Duration::from_millis(1))), Err(Errno::AGAIN));
    let mut space = [0; 2];
    right.endpoint.receive(&receive(&[buffer(&mut space)], None, 1)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            left.endpoint.send(&send(to_right, &[reading(b"ab")], None, 1)).unwrap();
            left.domain.wait(&left.transmit, Some(LIMIT)).unwrap();
        });
        right.domain.wait(&right.receive, Some(LIMIT)).unwrap();
        assert_eq!(right.got().entry().context, 1);
    });
    let counter = right.counters.receive.as_ref().unwrap();
    assert_eq!(right.domain.wait_counter(counter, 1, Some(LIMIT)), Ok(()));
    assert_eq!(right.domain.wait_counter(counter, 2, Some(Duration::ZERO)), Err(Errno::AGAIN));
    std::thread::scope(|scope| {
        scope.spawn(|| right.receive.signal());
        assert_eq!(right.domain.wait(&right.receive, Some(LIMIT)), Err(Errno::AGAIN));
    });
}
