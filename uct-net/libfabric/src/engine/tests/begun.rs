//! Messages of several frames: taken, thrown away and ended in their middle, by a peer that sends frame by frame.

use uct_net::{Connection, Net};

use super::ends::net_without_endpoint;
use super::*;
use crate::wire::{Envelope, Head, Hello, MAX_BEGUN};

const LENGTH: usize = 10;
const BYTES: [u8; LENGTH] = *b"0123456789";

/// A peer that speaks frames.
struct Peer {
    net: Net,
    connection: Connection,
}

impl Peer {
    fn of(side: &Side) -> Peer {
        let net = net_without_endpoint();
        let hello = Hello { address: ([127, 0, 0, 1], 9).into() };
        let connect = net.connect(side.endpoint.name()).private(hello.to_bytes()).within(LIMIT);
        let connection = net.block_on(connect).expect("a connection");
        Peer { net, connection }
    }

    fn send(&self, head: &Head, payload: &[u8]) {
        let frame = [head.bytes(), payload].concat();
        self.net.block_on(self.connection.send(&frame)).expect("it is sent");
    }

    fn begin(&self, tag: u64, delivery: bool) {
        let envelope = Envelope { tag: Some(tag), data: None, delivery };
        self.send(&Head::begin(77, &envelope, LENGTH as u64), &BYTES[..4]);
    }

    /// A short message, for which `side` waits: what was sent before has arrived then.
    fn mark(&self, side: &Side) {
        let envelope = Envelope { tag: None, data: None, delivery: false };
        self.send(&Head::message(0, &envelope), b"");
        side.endpoint.receive(&receive(&[], None, 99)).unwrap();
        assert_eq!(side.got().entry().context, 99);
    }
}

#[test]
fn a_receive_takes_a_message_of_which_parts_are_missing() {
    let side = Side::new(&domain("tcp"));
    let peer = Peer::of(&side);
    for taken_behind in 0..3 {
        let mut space = [b'-'; LENGTH + 1];
        let target = [buffer(&mut space)];
        let post = || side.endpoint.receive(&receive(&target, Some(1), 5)).unwrap();
        peer.begin(1, false);
        for (number, part) in [&BYTES[4..5], &BYTES[5..]].into_iter().enumerate() {
            if number == taken_behind {
                look(&side, 1);
                post();
            }
            peer.send(&Head::rest(), part);
        }
        if taken_behind == 2 {
            peer.mark(&side);
            post();
        }
        let entry = side.got().entry();
        assert_eq!((entry.context, entry.length), (5, LENGTH));
        assert_eq!(&space, b"0123456789-");
    }
}

/// Waits until there is an unexpected message.
fn look(side: &Side, tag: u64) {
    let limit = Instant::now() + LIMIT;
    loop {
        let tag = Some(TagFilter { tag, ignore: 0 });
        side.endpoint.peek(&Peek { from: None, tag, context: 6, action: PeekAction::Look }).unwrap();
        match side.got() {
            Out::Entry(entry) => return assert_eq!(entry.length, LENGTH, "what is announced is the whole"),
            Out::Error(error) => assert_eq!(error.errno, Errno::NO_MESSAGE),
        }
        side.domain.progress();
        assert!(Instant::now() < limit, "no message");
    }
}

#[test]
fn a_message_that_is_too_long_is_cut_and_says_so_at_its_end() {
    let side = Side::new(&domain("tcp"));
    let peer = Peer::of(&side);
    for is_posted in [true, false] {
        for room in [0, 3, 4, 7] {
            let mut space = [b'-'; LENGTH];
            let target = [buffer(&mut space[..room])];
            let post = || side.endpoint.receive(&receive(&target, Some(1), 5)).unwrap();
            if is_posted {
                post();
            }
            peer.begin(1, false);
            if !is_posted {
                look(&side, 1);
                post();
            }
            peer.send(&Head::rest(), &BYTES[4..]);
            let error = side.got().error();
            assert_eq!((error.errno, error.excess), (Errno::TRUNCATED, LENGTH - room));
            assert_eq!((&space[..room], &space[room..]), (&BYTES[..room], &b"----------"[room..]));
        }
    }
}

#[test]
fn the_sender_of_a_message_that_nobody_wants_hears_of_its_end_when_all_of_it_has_come() {
    let side = Side::new(&domain("tcp"));
    let peer = Peer::of(&side);
    peer.begin(1, true);
    look(&side, 1);
    let tag = Some(TagFilter { tag: 1, ignore: 0 });
    side.endpoint.peek(&Peek { from: None, tag, context: 6, action: PeekAction::Discard }).unwrap();
    side.got().entry();
    for _ in 0..100 {
        side.domain.progress();
    }
    let early = peer.net.block_on(peer.connection.recv().within(Duration::from_millis(20)));
    assert!(early.is_err(), "it has ended before its last bytes came");
    peer.send(&Head::rest(), &BYTES[4..]);
    let end = peer.net.block_on(peer.connection.recv().within(LIMIT)).expect("an end");
    assert_eq!(&end[..], Head::done(77, 0).bytes());
    peer.mark(&side);
}

#[test]
fn a_message_whose_peer_goes_in_its_middle_is_an_error_or_was_never_there() {
    for is_posted in [true, false] {
        let side = Side::new(&domain("tcp"));
        let peer = Peer::of(&side);
        let mut space = [0; LENGTH];
        if is_posted {
            side.endpoint.receive(&receive(&[buffer(&mut space)], Some(1), 5)).unwrap();
            peer.begin(1, false);
        } else {
            peer.begin(1, false);
            look(&side, 1);
        }
        peer.net.block_on(peer.connection.close().within(LIMIT)).expect("an end");
        if is_posted {
            let error = side.got().error();
            assert_eq!((error.entry.context, error.errno), (5, Errno::SHUT_DOWN));
            continue;
        }
        let limit = Instant::now() + LIMIT;
        let tag = Some(TagFilter { tag: 1, ignore: 0 });
        loop {
            side.endpoint.peek(&Peek { from: None, tag, context: 6, action: PeekAction::Look }).unwrap();
            if let Out::Error(error) = side.got() {
                break assert_eq!(error.errno, Errno::NO_MESSAGE);
            }
            side.domain.progress();
            assert!(Instant::now() < limit, "it is still there");
        }
    }
}

#[test]
fn frames_that_are_no_message_end_the_connection_with_the_reason() {
    let side = Side::new(&domain("tcp"));
    let envelope = Envelope { tag: Some(1), data: None, delivery: false };
    let begin =
        |length: usize, payload: &[u8]| [Head::begin(0, &envelope, length as u64).bytes(), payload].concat();
    let rest = |payload: &[u8]| [Head::rest().bytes(), payload].concat();
    let cases: [(&[Vec<u8>], &str); 7] = [
        (&[rest(b"x")], "not begun"),
        (&[begin(10, b"x"), begin(10, b"x")], "within another"),
        (&[begin(MAX_BEGUN + 1, b"x")], "a length that none has"),
        (&[begin(0, b"")], "a length that none has"),
        (&[begin(1, b"x")], "a length that none has"),
        (&[begin(3, b"x"), rest(b"")], "more or fewer bytes"),
        (&[begin(3, b"x"), rest(b"xyz")], "more or fewer bytes"),
    ];
    for (frames, reason) in cases {
        let error = super::ends::hostile(&side, frames);
        assert!(error.reason.contains(reason), "{reason}: {error}");
    }
}
