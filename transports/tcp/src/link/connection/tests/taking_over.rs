//! `identity`: an accepted connection that the peer confirms as its own takes the place of the attempt that asked.

use std::net::{TcpListener, TcpStream};

use super::super::Use;
use super::connecting::{accept, accepted, ended, open, unopened, within};
use super::receiving::take_room;
use super::*;
use crate::proto::wire::{Refusal, control};

/// The connection with this token.
fn conn_of(bed: &Bed, token: u64) -> Rc<Conn> {
    bed.iface.table.all().into_iter().find(|conn| conn.token == token).expect("a connection")
}

/// The peer answers a hello.
fn say(bed: &Bed, mut stream: &TcpStream, kind: HelloKind, refusal: Option<Refusal>) {
    stream.write_all(&Hello { kind, refusal, ..bed.hello(HelloKind::Accept) }.write()).unwrap();
}

/// The peer confirms that the connection that was named is its own.
fn confirm(bed: &Bed, stream: &TcpStream) {
    say(bed, stream, HelloKind::Same, None);
    within(|| {
        bed.iface.advance();
        (bed.conn.state() == State::Established).then_some(())
    });
}

/// The messages, once there are so many.
fn messages(bed: &Bed, count: usize) -> Vec<(u8, Vec<u8>)> {
    within(|| {
        bed.iface.advance();
        (bed.inbox.messages.borrow().len() >= count).then_some(())
    });
    bed.messages()
}

#[test]
fn what_was_queued_and_received_in_part_goes_on_over_the_confirmed_connection() {
    let (bed, listener) = unopened(&[]);
    let _older = accepted(&bed, 7, 11);
    let mut theirs = accepted(&bed, 7, 12);
    let other = conn_of(&bed, 12);
    let (data, begun, mut expected) = (pattern(8000), frame(1, &pattern(500)), Vec::new());
    let head = frame_header(3, data.len()).to_ne_bytes();
    while !other.is_blocked() {
        bed.iface.shared.next_epoch();
        other.send_frame(&bed.iface.shared, &head, data.as_slice()).unwrap();
        expected.extend(frame(3, &data));
        assert!(expected.len() < 1 << 28, "the socket is never full");
    }
    bed.send(4, b"early").unwrap();
    expected.extend(frame(4, b"early"));
    theirs
        .write_all(&[frame(control::USE, &[]), frame(2, b"ahead"), begun[..300].to_vec()].concat())
        .unwrap();
    assert_eq!(messages(&bed, 1), [(2, b"ahead".to_vec())]);

    let (stream, hello) = open(&bed, &listener);
    assert_eq!(hello.claim.map(|claim| claim.token), Some(12), "the later one");
    let before = bed.iface.table.len();
    confirm(&bed, &stream);
    assert!(other.is_over() && other.fd.get() < 0);
    assert_eq!((bed.iface.table.len(), bed.conn.peer_use.get()), (before - 1, Use::Using));
    assert!(!bed.conn.is_instead(3, 7), "the peer opened it");
    theirs.write_all(&begun[300..]).unwrap();
    assert_eq!(messages(&bed, 1), [(1, pattern(500))]);
    theirs.set_nonblocking(true).unwrap();
    let mut came = Vec::new();
    within(|| {
        bed.iface.advance();
        let _ = theirs.read_to_end(&mut came);
        (came.len() >= expected.len()).then_some(())
    });
    assert!(came == expected && !bed.iface.shared.is_blocked());
}

#[test]
fn a_large_message_that_waits_for_room_waits_on_over_the_confirmed_connection() {
    let settings = &[("rx_seg_size", "16k"), ("max_message", "64k"), ("max_announced", "64k")];
    let (bed, listener) = unopened(settings);
    let [one, two] = [1, 2].map(|source| take_room(&bed.iface, source, 65_568).expect("room"));
    let mut theirs = accepted(&bed, 7, 11);
    let (other, large) = (conn_of(&bed, 11), frame(2, &pattern(30_000)));
    theirs.write_all(&large[..1008]).unwrap();
    within(|| {
        bed.iface.advance();
        other.is_held().then_some(())
    });
    let (stream, _) = open(&bed, &listener);
    confirm(&bed, &stream);
    bed.progress();
    assert!(bed.conn.is_held(), "there is no room yet");
    bed.iface.shared.give_room(one);
    theirs.write_all(&large[1008..]).unwrap();
    assert!(messages(&bed, 1) == [(2, pattern(30_000))]);
    bed.iface.shared.give_room(two);
    assert!(!bed.conn.is_held());
}

#[test]
fn where_the_confirmed_connection_has_ended_meanwhile_another_one_is_opened() {
    let (bed, listener) = unopened(&[]);
    let theirs = accepted(&bed, 7, 11);
    let other = conn_of(&bed, 11);
    let (stream, hello) = open(&bed, &listener);
    assert_eq!(hello.claim.map(|claim| claim.token), Some(11));
    drop(theirs);
    within(|| {
        bed.iface.advance();
        other.is_over().then_some(())
    });
    say(&bed, &stream, HelloKind::Same, None);
    let (stream, hello) = accept(&bed, &listener);
    assert_eq!((hello.claim, hello.wants_own), (None, true));
    say(&bed, &stream, HelloKind::Refuse, Some(Refusal::Duplicate));
    assert_eq!(ended(&bed), Error::UNREACHABLE, "it may not be refused for another one");
}

#[test]
fn an_attempt_that_waits_for_the_peers_own_connection_goes_on_when_that_comes() {
    let wait = |bed: &Bed, listener: &TcpListener, refusal| {
        let (stream, hello) = open(bed, listener);
        assert_eq!((hello.claim, hello.wants_own), (None, false));
        say(bed, &stream, HelloKind::Refuse, Some(refusal));
        within(|| {
            bed.iface.advance();
            (!bed.conn.is_attempting()).then_some(())
        });
    };
    let (bed, listener) = unopened(&[]);
    wait(&bed, &listener, Refusal::Duplicate);
    let _theirs = accepted(&bed, 7, 11);
    bed.iface.table.on_claimant(&bed.iface.shared, 8);
    assert!(!bed.conn.is_attempting(), "another peer has come");
    bed.iface.table.on_claimant(&bed.iface.shared, 7);
    assert!(bed.conn.is_attempting());
    let (stream, hello) = accept(&bed, &listener);
    assert_eq!(hello.claim.map(|claim| claim.token), Some(11));
    confirm(&bed, &stream);

    let (bed, listener) = unopened(&[]);
    wait(&bed, &listener, Refusal::Full);
    let _theirs = accepted(&bed, 7, 11);
    bed.iface.table.on_claimant(&bed.iface.shared, 7);
    assert!(!bed.conn.is_attempting(), "it waits for room");
}

#[test]
fn a_refused_side_waits_once_and_only_where_no_connection_can_be_the_peers() {
    let (bed, listener) = unopened(&[]);
    let _first = open(&bed, &listener);
    let look = || {
        bed.conn.look_for_peers_own(&bed.iface.shared, &bed.iface.table.all());
        bed.conn.is_attempting()
    };
    assert_eq!([look(), look()], [false, true]);

    let (bed, listener) = unopened(&[]);
    let _first = open(&bed, &listener);
    let _theirs = accepted(&bed, 7, 11);
    bed.conn.look_for_peers_own(&bed.iface.shared, &bed.iface.table.all());
    assert!(bed.conn.is_attempting());
}
