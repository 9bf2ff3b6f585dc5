//! Identities: what an unauthenticated peer learns, and what a peer that was given an address can do in the name of another.
//!
//! The attacker is a socket of the test. It uses the handshake that docs/tcp.md describes, and may know the addresses of both
//! victims.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{Greeting, HELLO, Side, drive, forged, id_of, introduce, key_of, receive_hello, send};

/// Bytes received on a socket.
fn received(stream: &mut TcpStream) -> usize {
    let mut bytes = [0; 4096];
    let mut count = 0;
    while let Ok(received @ 1..) = stream.read(&mut bytes) {
        count += received;
    }
    count
}

#[test]
fn a_refusal_teaches_nothing_that_lets_in() {
    let a = Side::new(&[]);
    let (_, refusal) = introduce(&a, &Greeting { key: 1, ..Greeting::default() });
    let refusal = refusal.expect("a refusal");
    assert!(refusal.is_refusal());
    let secrets = [id_of(&a.address()), key_of(&a.address())];
    for at in 0..=HELLO - 8 {
        let word = u64::from_le_bytes(refusal.bytes[at..at + 8].try_into().unwrap());
        assert!(!secrets.contains(&word), "the refusal has a secret at {at}");
        if word != 0 {
            let (_, again) = introduce(&a, &Greeting { key: word, ..Greeting::default() });
            assert!(again.is_none_or(|again| again.is_refusal()), "a word of the refusal lets in");
        }
    }
    assert_eq!(a.counter("connections"), 0);
    let (_kept, answer) = introduce(&a, &Greeting { key: key_of(&a.address()), ..Greeting::default() });
    assert!(!answer.expect("an answer").is_refusal(), "the key of the address lets in");
}

#[test]
fn an_id_that_was_seen_in_a_hello_does_not_let_in() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    // `b` was not given the address of `a` and sees only its id.
    let (ep, _) = a.connect(&b.address());
    send(&[&a, &b], &ep, 1);
    drive(&[&a, &b], || b.count.get() == 1);
    let (_, answer) = introduce(&a, &Greeting { key: id_of(&a.address()), ..Greeting::default() });
    assert!(answer.expect("an answer").is_refusal());
}

/// `b` sends to `a` while an attacker claims to be `a`, as often as `claims` says, ahead of and behind the creation of an endpoint.
fn nothing_goes_astray(a_connects_first: bool, connected_ahead: bool, claims: usize) {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let sides = [&a, &b];
    let forged = |token| Greeting {
        sender: id_of(&a.address()),
        key: key_of(&b.address()),
        token,
        ..Greeting::default()
    };
    let from_a = a_connects_first.then(|| {
        let (ep, failures) = a.connect(&b.address());
        send(&sides, &ep, 1);
        drive(&sides, || b.count.get() == 1);
        (ep, failures)
    });
    let first = connected_ahead.then(|| {
        let (ep, failures) = b.connect(&a.address());
        send(&sides, &ep, 1);
        drive(&sides, || a.count.get() == 1);
        (ep, failures)
    });
    let mut attackers: Vec<TcpStream> =
        (0..claims).map(|number| introduce(&b, &forged(u64::MAX - number as u64)).0).collect();
    let before = a.count.get();
    let (ep, failures) = b.connect(&a.address());
    for number in 0..10 {
        send(&sides, &ep, number);
        if number == 5 {
            attackers.push(introduce(&b, &forged(u64::MAX)).0);
        }
    }
    drive(&sides, || a.count.get() == before + 10);
    for attacker in &mut attackers {
        assert_eq!(received(attacker), 0, "the attacker got something that was meant for another");
    }
    // Nor is the owner of the id locked out, or cut off.
    let count = b.count.get();
    let (again, failures_again) = a.connect(&b.address());
    send(&sides, &again, 1);
    if let Some((ep, _)) = &from_a {
        send(&sides, ep, 1);
    }
    let more = 1 + u64::from(from_a.is_some());
    drive(&sides, || b.count.get() == count + more);
    for failures in [Some(failures), Some(failures_again), from_a.map(|of| of.1), first.map(|of| of.1)]
        .into_iter()
        .flatten()
    {
        assert!(failures.borrow().is_empty(), "{:?}", failures.borrow());
    }
}

#[test]
fn a_claim_to_the_id_of_a_connected_peer_gets_nothing_and_replaces_nothing() {
    nothing_goes_astray(false, true, 1);
    nothing_goes_astray(true, false, 1);
    nothing_goes_astray(true, true, 1);
}

#[test]
fn a_claim_to_an_id_ahead_of_its_owner_gets_nothing() {
    nothing_goes_astray(false, false, 1);
    nothing_goes_astray(false, false, 20);
    nothing_goes_astray(true, false, 20);
}

#[test]
fn a_token_that_a_hello_disclosed_proves_nothing_on_another_connection() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let sides = [&a, &b];
    let (to_b, failures_of_a) = a.connect(&b.address());
    send(&sides, &to_b, 1);
    drive(&sides, || b.count.get() == 1);
    // `b` is given an address with the id of `a` at which the attacker listens, and names the connection of `a` there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut false_address = forged(&a, &listener);
    false_address.iface[4..12].copy_from_slice(&id_of(&a.address()).to_le_bytes());
    let (_to_attacker, _) = b.connect(&false_address);
    let (_kept, hello) = receive_hello(&b, &listener);
    let token = u64::from_le_bytes(hello[56..64].try_into().unwrap());
    assert_ne!(token, 0, "the hello names a connection");
    let replayed = Greeting {
        sender: id_of(&a.address()),
        key: key_of(&b.address()),
        token,
        // In use, and wanted whatever others there are: else the two ids decide whether it is refused as a duplicate.
        flags: 3,
        ..Greeting::default()
    };
    let (mut attacker, answer) = introduce(&b, &replayed);
    assert!(!answer.expect("an answer").is_refusal());
    // It is the latest one that claims to be `a`, and so is named first.
    let (to_a, failures_of_b) = b.connect(&a.address());
    for number in 0..10 {
        send(&sides, &to_a, number);
    }
    drive(&sides, || a.count.get() == 10 || received(&mut attacker) > 0);
    assert_eq!(a.count.get(), 10, "the attacker got what was meant for another");
    assert_eq!(received(&mut attacker), 0, "the attacker got what was meant for another");
    assert!(failures_of_a.borrow().is_empty() && failures_of_b.borrow().is_empty());
}

#[test]
fn a_peer_that_was_met_by_its_own_connection_is_answered_on_it() {
    let (a, b) = (Side::new(&[]), Side::new(&[]));
    let sides = [&a, &b];
    let (to_b, failures) = a.connect(&b.address());
    send(&sides, &to_b, 1);
    drive(&sides, || b.count.get() == 1);
    let (to_a, failures_of_b) = b.connect(&a.address());
    for number in 0..100 {
        send(&sides, &to_a, number);
        send(&sides, &to_b, number);
    }
    drive(&sides, || a.count.get() == 100 && b.count.get() == 101);
    let end = Instant::now() + Duration::from_millis(50);
    drive(&sides, || Instant::now() > end);
    assert_eq!((a.counter("connections"), b.counter("connections")), (1, 1), "they share one socket");
    assert!(failures.borrow().is_empty() && failures_of_b.borrow().is_empty());
}
