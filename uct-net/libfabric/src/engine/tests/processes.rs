//! Peers that are processes of their own, and are killed or stopped in the middle of traffic.

use std::io::Write;
use std::net::SocketAddr;

use super::*;
use child::Running;
use victim::Victim;

#[path = "../../../../tests/support/child.rs"]
mod child;
#[path = "../../../../tests/support/victim.rs"]
mod victim;

/// What makes a process the peer: `TRANSPORT ADDRESS`, the address of the side that it answers.
const PEER: &str = "UCT_FI_PEER";
const TRANSPORTS: [&str; 2] = ["posix", "tcp"];
/// The region of the peer.
const KEY: u64 = 5;
/// Bytes of it, and of a message that is announced.
const LONG: usize = 300_000;
/// Bytes of messages that are sent in frames, and more of them than there is room for.
const MEDIUM: usize = 100_000;
const COUNT: usize = 400;
/// Tags.
const MESSAGE: u64 = 1;
const REPLY: u64 = 2;
const OTHER: u64 = 3;

/// The peer: it replies to each message with its length.
#[test]
fn the_peer() {
    let Ok(role) = std::env::var(PEER) else { return };
    let (transport, address) = role.split_once(' ').expect("a transport and an address");
    let side = Side::new(&domain(transport));
    let to = side.addresses.insert(address.parse().expect("an address"));
    let (mut region, mut space) = (vec![0; LONG], vec![0; LONG]);
    let access = Access { read: true, write: true };
    let _region = side.domain.register(buffer(&mut region), KEY, access).expect("a region");
    println!("\nlistening {}", side.endpoint.name());
    std::io::stdout().flush().expect("the parent reads");
    loop {
        let target = [buffer(&mut space)];
        side.endpoint.receive(&receive(&target, Some(MESSAGE), 0)).expect("posted");
        side.domain.wait(&side.receive, Some(LIMIT)).expect("a message");
        let length = side.got().entry().length.to_le_bytes();
        let source = [reading(&length)];
        let reply = Send { mode: INJECT, ..send(to, &source, Some(REPLY), 0) };
        retry(&side, || side.endpoint.send(&reply));
    }
}

/// A side whose peer is another process.
struct Scene {
    side: Side,
    to: u64,
    victim: Victim,
    _peer: Running,
}

impl Scene {
    fn new(transport: &str) -> Scene {
        let side = Side::new(&domain(transport));
        let role = format!("{transport} {}", side.endpoint.name());
        let mut peer = child::start(the_peer, (PEER, &role));
        let (address, _) = child::line(&mut peer.0, "listening");
        let to = side.addresses.insert(address.parse::<SocketAddr>().expect("an address"));
        let scene = Scene { side, to, victim: Victim::new(peer.0.id()), _peer: peer };
        scene.send(b"connected", 0);
        scene.side.sent().entry();
        assert_eq!(scene.reply(), 9);
        scene
    }

    fn send(&self, bytes: &[u8], context: usize) {
        self.side.endpoint.send(&send(self.to, &[reading(bytes)], Some(MESSAGE), context)).unwrap();
    }

    /// The length that the peer replies.
    fn reply(&self) -> usize {
        let mut length = [0; size_of::<usize>()];
        self.side.endpoint.receive(&receive(&[buffer(&mut length)], Some(REPLY), 0)).unwrap();
        self.side.got().entry();
        usize::from_le_bytes(length)
    }

    fn access<'a>(&self, buffers: &'a [Buffer], context: usize) -> Rma<'a> {
        let remote = Remote { key: KEY, offset: 0 };
        Rma { to: self.to, buffers, remote, data: None, context, mode: REPORTED }
    }
}

#[test]
fn a_killed_peer_is_an_error_for_what_waits_for_it_and_nothing_else() {
    for transport in TRANSPORTS {
        let scene = Scene::new(transport);
        let Scene { side, to, victim, .. } = &scene;
        victim.stop();
        let (mut first, mut second, mut long) = ([0; 4], [0; 4], vec![7; LONG]);
        let target = [buffer(&mut first)];
        let directed = Receive { from: Some(*to), ..receive(&target, Some(OTHER), 1) };
        side.endpoint.receive(&directed).unwrap();
        side.endpoint.receive(&receive(&[buffer(&mut second)], Some(OTHER), 2)).unwrap();
        let mut third = [0; 64];
        let target = [buffer(&mut third)];
        let directed = Receive { from: Some(*to), ..receive(&target, None, 8) };
        side.endpoint.receive_many(&directed, 1).unwrap();
        let bytes = [buffer(&mut long)];
        side.endpoint.send(&send(*to, &bytes, Some(MESSAGE), 3)).unwrap();
        side.endpoint.write(&scene.access(&bytes, 4)).unwrap();
        side.endpoint.read(&scene.access(&bytes, 5)).unwrap();
        let short = [reading(b"x")];
        let delivered = Send { mode: DELIVERY, ..send(*to, &short, Some(MESSAGE), 6) };
        side.endpoint.send(&delivered).unwrap();
        // As much as this side queues for it.
        let mut last = 6;
        let more = |context| side.endpoint.send(&send(*to, &bytes, Some(MESSAGE), context));
        while more(last + 1).is_ok() {
            last += 1;
        }
        assert_eq!(more(last + 1), Err(Errno::AGAIN));
        assert!(side.transmit.is_empty(), "the peer is stopped");

        victim.kill();
        let error = side.got().error();
        assert_eq!((error.entry.context, error.errno), (1, Errno::RESET), "{transport}: {error:?}");
        let error = side.got().error();
        assert_eq!((error.entry.context, error.errno), (8, Errno::RESET), "{transport}: {error:?}");
        assert_ne!(error.entry.flags & flags::MULTI_RECV, 0, "its buffer is given back");
        let mut contexts: Vec<_> = (3..=last)
            .map(|_| {
                let error = side.sent().error();
                assert_eq!(error.errno, Errno::RESET, "{transport}: {error:?}");
                assert!(error.reason.is_some());
                error.entry.context
            })
            .collect();
        contexts.sort_unstable();
        assert_eq!(contexts, (3..=last).collect::<Vec<_>>());

        // Others are served; a later send calls again, in vain.
        let other = Side::new(&domain(transport));
        other.endpoint.send(&send(other.knows(side), &[reading(b"fine")], Some(OTHER), 0)).unwrap();
        assert_eq!(side.got().entry().context, 2);
        assert_eq!(&second, b"fine");
        scene.send(b"x", 7);
        assert_eq!(side.sent().error().errno, Errno::REFUSED);
    }
}

#[test]
fn a_stopped_peer_gets_everything_when_it_goes_on() {
    for transport in TRANSPORTS {
        let scene = Scene::new(transport);
        let long = vec![7; LONG];
        scene.victim.stop();
        let lengths = [1, 4000, LONG, 0, LONG - 1];
        for (context, &length) in lengths.iter().enumerate() {
            scene.send(&long[..length], context);
        }
        let bytes = [reading(&long)];
        scene.side.endpoint.write(&scene.access(&bytes, lengths.len())).unwrap();
        scene.victim.go_on();
        assert_eq!(lengths.map(|_| scene.reply()), lengths, "{transport}");
        let mut contexts: Vec<_> = (0..=lengths.len()).map(|_| scene.side.sent().entry().context).collect();
        contexts.sort_unstable();
        assert_eq!(contexts, (0..=lengths.len()).collect::<Vec<_>>());
    }
}

#[test]
fn messages_that_a_stopped_peer_has_no_room_for_are_canceled_and_others_arrive() {
    for transport in TRANSPORTS {
        let scene = Scene::new(transport);
        scene.victim.stop();
        let bytes = vec![7; MEDIUM];
        for context in 0..COUNT {
            scene.send(&bytes[context..], context);
        }
        let is_canceled: Vec<_> =
            (0..COUNT).map(|context| scene.side.endpoint.cancel(context).is_ok()).collect();
        assert!(is_canceled[COUNT - 1], "{transport}: it waits");
        scene.victim.go_on();
        for _ in 0..COUNT {
            match scene.side.sent() {
                Out::Entry(entry) => assert!(!is_canceled[entry.context], "{transport}"),
                Out::Error(error) => {
                    assert!(is_canceled[error.entry.context], "{transport}: {error:?}");
                    assert_eq!(error.errno, Errno::CANCELED);
                }
            }
        }
        for context in (0..COUNT).filter(|context| !is_canceled[*context]) {
            assert_eq!(scene.reply(), MEDIUM - context, "{transport}");
        }
        scene.send(b"the last", 0);
        assert_eq!(scene.reply(), 8);
    }
}

#[test]
fn an_endpoint_closes_though_a_peer_is_stopped() {
    // Closing takes its time here, so both do it at once.
    std::thread::scope(|scope| {
        for transport in TRANSPORTS {
            scope.spawn(move || {
                let scene = Scene::new(transport);
                scene.victim.stop();
                let long = vec![7; LONG];
                scene.send(b"x", 1);
                scene.send(&long, 2);
                scene.side.endpoint.close();
                assert_eq!(scene.side.endpoint.send(&send(scene.to, &[], None, 3)), Err(Errno::INVALID));
            });
        }
    });
}
