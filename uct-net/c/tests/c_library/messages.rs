//! Messages between two nets.

use uct_net_c::abi::*;
use uct_net_c::exports::*;

use crate::program::*;

/// A receive into memory of the test.
fn recv_into(conn: Raw, place: &mut [u8]) -> u64 {
    // SAFETY: the test keeps the memory until the operation has ended, or the net is closed.
    unsafe { uct_recv_into(conn, place.as_mut_ptr().cast(), place.len(), 9) }
}

#[test]
fn messages_arrive_whole_and_receives_get_them_in_the_order_of_the_calls() {
    for tls in ["tcp", "posix"] {
        let pair = Pair::with(&[("tls", &format!("{tls},self"))]);
        let ([net, peer_net], [conn, peer]) = (pair.nets, pair.conns);
        let mut text = [0_u8; 64];
        // SAFETY: the room is that of the text.
        let length = unsafe { uct_conn_transport(conn, text.as_mut_ptr().cast(), text.len()) };
        assert!(text[..length as usize].starts_with(tls.as_bytes()));

        // Receives of both kinds that wait.
        let mut places = [[0_u8; 8]; 2];
        let [first, second] = &mut places;
        let waiting = [recv_into(conn, first), uct_recv(conn, 1), recv_into(conn, second), uct_recv(conn, 2)];
        let messages = [&b"one"[..], b"two", b"", b"four"];
        messages.iter().for_each(|message| assert_eq!(done(peer_net, send(peer, message, 4)).user, 4));
        let events = waiting.map(|op| done(net, op));
        assert_eq!(events.map(|event| event.length), [3, 3, 0, 4]);
        assert_eq!(events.map(|event| event.user), [9, 1, 9, 2]);
        assert_eq!((bytes(&events[1]), bytes(&events[3])), (b"two".to_vec(), b"four".to_vec()));
        assert_eq!(&places[0][..3], b"one");

        // A long one, and messages that have come first.
        let long: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
        let sent = [send(peer, &long, 0), send(peer, b"next", 0)];
        let mut place = vec![0; long.len()];
        let received = recv_into(conn, &mut place);
        sent.iter().for_each(|op| assert_eq!(done(peer_net, *op).kind, UCT_EV_SEND));
        assert_eq!(done(net, received).length, 3_000_000);
        assert_eq!(place, long);
        let next = done(net, uct_recv(conn, 0));
        assert_eq!(bytes(&next), b"next");
    }
}

#[test]
fn a_message_that_is_too_long_stays_the_next_one_and_its_length_is_known() {
    let pair = Pair::new();
    let ([net, peer_net], [conn, peer]) = (pair.nets, pair.conns);
    let mut place = [0_u8; 4];
    let waits = recv_into(conn, &mut place);
    done(peer_net, send(peer, b"seven!!", 0));
    let end = ended(net, waits);
    assert_eq!((end.status, end.length, end.kind), (TRUNCATED, 7, UCT_EV_RECV_INTO));
    assert!(
        reason(net, waits).contains("a message of 7 bytes has no room in 4 bytes"),
        "{}",
        reason(net, waits)
    );
    // The same for one that is there already.
    let end = ended(net, recv_into(conn, &mut place));
    assert_eq!((end.status, end.length), (TRUNCATED, 7));
    let message = done(net, uct_recv(conn, 0));
    assert_eq!(bytes(&message), b"seven!!");
}

#[test]
fn a_receive_that_is_cancelled_loses_no_message() {
    let pair = Pair::new();
    let ([net, peer_net], [conn, peer]) = (pair.nets, pair.conns);
    let mut place = [0_u8; 8];
    let waiting = [recv_into(conn, &mut place), uct_recv(conn, 0), uct_recv(conn, 0)];
    for op in [waiting[1], waiting[0]] {
        assert_eq!(uct_cancel(net, op), OK);
        assert_eq!(uct_cancel(net, op), NO_ELEM);
        assert_eq!(ended(net, op).status, CANCELED);
    }
    done(peer_net, send(peer, b"for the last", 0));
    let message = done(net, waiting[2]);
    assert_eq!(bytes(&message), b"for the last");
    assert_eq!(place, [0; 8]);
    assert_eq!(uct_cancel(net, waiting[2]), NO_ELEM);
    // Others that wait.
    let waiting = [uct_shared(conn, 0), uct_notified(conn, 0), uct_accept(pair.listener, 0)];
    for op in waiting {
        assert_eq!(uct_cancel(net, op), OK);
        assert_eq!(ended(net, op).status, CANCELED);
    }
}

#[test]
fn a_send_waits_for_room_and_is_cancelled() {
    let pair = Pair::with(&[("window", "4k"), ("tls", "tcp")]);
    let ([net, peer_net], [conn, peer]) = (pair.nets, pair.conns);
    let mut waits = None;
    for number in 0..1000_u32 {
        let op = send(peer, &[number as u8; 1000], 0);
        let mut event = uct_event::default();
        // SAFETY: room for one event.
        if unsafe { uct_wait(peer_net, op, 0, &raw mut event) } == IN_PROGRESS {
            waits = Some((op, number));
            break;
        }
    }
    let (op, number) = waits.expect("the peer's window is full at some time");
    // What has begun to leave is sent whole; this one has not.
    let late = send(peer, b"late", 0);
    assert_eq!(uct_cancel(peer_net, late), OK);
    assert_eq!(ended(peer_net, late).status, CANCELED);
    for number in 0..=number {
        let message = done(net, uct_recv(conn, 0));
        assert_eq!(bytes(&message), [number as u8; 1000]);
    }
    done(peer_net, op);
    done(peer_net, send(peer, b"after", 0));
    let message = done(net, uct_recv(conn, 0));
    assert_eq!(bytes(&message), b"after");
}
