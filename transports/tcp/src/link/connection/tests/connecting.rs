//! `connect`: the responses to a hello, and how often and how long it is tried.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ucs::clock::{duration_to_ticks, ticks};

use super::*;
use crate::proto::addr::IfaceAddress;
use crate::proto::wire::{Claim, HELLO, Refusal};

/// A connection to a listener of the test's, and its end of it, behind the first hello.
fn introduced(settings: &'static [(&'static str, &'static str)]) -> (Bed, TcpListener, TcpStream, Hello) {
    let bed = Bed::unconnected(settings);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    bed.conn.connect(&bed.iface.shared, listener.local_addr().unwrap(), None);
    let (stream, hello) = accept(&bed, &listener);
    (bed, listener, stream, hello)
}

/// Accepts an attempt, and reads its hello.
pub(super) fn accept(bed: &Bed, listener: &TcpListener) -> (TcpStream, Hello) {
    listener.set_nonblocking(true).unwrap();
    let (mut stream, _) = within(|| {
        bed.iface.advance();
        listener.accept().ok()
    });
    stream.set_nonblocking(true).unwrap();
    let mut bytes = [0; HELLO];
    let mut have = 0;
    within(|| {
        bed.iface.advance();
        have += stream.read(&mut bytes[have..]).unwrap_or(0);
        (have == HELLO).then_some(())
    });
    (stream, Hello::read(&bytes).unwrap())
}

pub(super) fn within<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "nothing happens");
    }
}

/// The error that the connection ends with.
pub(super) fn ended(bed: &Bed) -> Error {
    within(|| {
        bed.iface.advance();
        bed.failure()
    })
}

#[test]
fn an_accepted_connection_stands_and_sends_what_waited_also_if_the_answer_comes_byte_by_byte() {
    let (bed, _listener, mut stream, hello) = introduced(&[]);
    assert_eq!((hello.kind, hello.token, hello.sender), (HelloKind::Hello, 1, bed.iface.shared.id()));
    bed.send(1, b"early").unwrap();
    for byte in bed.hello(HelloKind::Accept).write() {
        assert_eq!(bed.conn.state(), State::Connecting);
        stream.write_all(&[byte]).unwrap();
        bed.progress();
    }
    within(|| {
        bed.iface.advance();
        (bed.conn.state() == State::Established).then_some(())
    });
    assert!(bed.conn.serves_rma() && !bed.conn.is_attempting());
    let mut bytes = Vec::new();
    within(|| {
        bed.iface.advance();
        let _ = stream.read_to_end(&mut bytes);
        (bytes == frame(1, b"early")).then_some(())
    });
}

#[test]
fn each_answer_that_is_no_acceptance_has_its_own_error_and_reason() {
    let refused =
        |refusal| move |hello: Hello| Hello { kind: HelloKind::Refuse, refusal, sender: 0, ..hello };
    type Change = Box<dyn Fn(Hello) -> Hello>;
    let cases: [(Change, Error, &str); 6] = [
        (Box::new(refused(Some(Refusal::Version))), Error::REJECTED, "another version"),
        (Box::new(refused(Some(Refusal::WrongIface))), Error::REJECTED, "another interface"),
        (Box::new(refused(Some(Refusal::MessageSize))), Error::REJECTED, "smaller messages"),
        (Box::new(refused(None)), Error::REJECTED, "refused the connection"),
        (Box::new(|hello| Hello { sender: 8, ..hello }), Error::UNREACHABLE, "hello is unexpected"),
        (
            Box::new(|hello| Hello { max_message: hello.max_message + 1, ..hello }),
            Error::UNREACHABLE,
            "set max_message",
        ),
    ];
    for (change, error, reason) in cases {
        let (bed, _listener, mut stream, _) = introduced(&[]);
        stream.write_all(&change(bed.hello(HelloKind::Accept)).write()).unwrap();
        assert_eq!(ended(&bed), error, "{reason}");
        let words = bed.iface.shared.last_failure();
        assert!(words.contains(reason), "{words}");
    }
    let (bed, _listener, mut stream, _) = introduced(&[]);
    stream.write_all(b"GET").unwrap();
    assert_eq!(ended(&bed), Error::UNREACHABLE);
}

#[test]
fn answers_that_fit_no_question_end_the_connection_before_long() {
    let duplicate =
        |hello| Hello { kind: HelloKind::Refuse, refusal: Some(Refusal::Duplicate), sender: 0, ..hello };
    let same = |hello| Hello { kind: HelloKind::Same, ..hello };
    let answers: [(&dyn Fn(Hello) -> Hello, usize); 2] = [(&duplicate, 2), (&same, 1)];
    for (answer, most) in answers {
        let (bed, listener, mut stream, _) = introduced(&[]);
        let mut attempts = vec![];
        let end = Instant::now() + Duration::from_secs(20);
        while bed.failure().is_none() {
            stream.write_all(&answer(bed.hello(HelloKind::Accept)).write()).unwrap();
            attempts.push(stream);
            let next = within(|| {
                bed.iface.advance();
                if bed.failure().is_some() { Some(None) } else { listener.accept().ok().map(Some) }
            });
            let Some((next, _)) = next else { break };
            stream = next;
            assert!(attempts.len() < 500 && Instant::now() < end, "{} attempts", attempts.len());
        }
        assert_eq!((bed.failure(), attempts.len()), (Some(Error::UNREACHABLE), most));
    }
}

#[test]
fn a_peer_without_room_and_one_that_hangs_up_are_tried_again() {
    let (bed, listener, mut stream, _) = introduced(&[("connect_timeout", "100s")]);
    let full =
        Hello { kind: HelloKind::Refuse, refusal: Some(Refusal::Full), ..bed.hello(HelloKind::Accept) };
    stream.write_all(&full.write()).unwrap();
    let (second, _) = accept(&bed, &listener);
    drop(second);
    let (mut third, _) = accept(&bed, &listener);
    third.write_all(&bed.hello(HelloKind::Accept).write()).unwrap();
    within(|| {
        bed.iface.advance();
        (bed.conn.state() == State::Established).then_some(())
    });
}

#[test]
fn an_address_where_nobody_listens_is_tried_as_often_as_configured() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    for (settings, tries) in [
        (&[("max_conn_retries", "0")] as &'static [_], "tried 1 times"),
        (&[("max_conn_retries", "3")], "tried 4 times"),
    ] {
        let bed = Bed::unconnected(settings);
        let began = Instant::now();
        bed.conn.connect(&bed.iface.shared, closed, None);
        assert_eq!(ended(&bed), Error::from_errno(libc::ECONNREFUSED));
        let words = bed.iface.shared.last_failure();
        assert!(words.contains(tries), "{words}");
        if tries == "tried 4 times" {
            // 5, 10 and 20 milliseconds.
            assert!(began.elapsed() >= Duration::from_millis(35), "{:?}", began.elapsed());
        }
    }
}

#[test]
fn a_peer_that_does_not_answer_is_given_up_after_the_time_limit() {
    let (bed, _listener, _stream, _) = introduced(&[("connect_timeout", "100s")]);
    let limit = duration_to_ticks(Duration::from_secs(100));
    bed.conn.tick(&bed.iface.shared, ticks() + limit / 2, false);
    assert_eq!(bed.conn.state(), State::Connecting);
    bed.conn.tick(&bed.iface.shared, ticks() + limit, false);
    assert_eq!(bed.failure(), Some(Error::ENDPOINT_TIMEOUT));
    assert!(bed.iface.shared.last_failure().contains("the peer's program has not answered"));
}

#[test]
fn an_attempt_is_one_while_the_system_or_the_peer_is_waited_for() {
    let bed = Bed::unconnected(&[]);
    assert!(!bed.conn.is_attempting() && !bed.conn.awaits_system());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    bed.conn.connect(&bed.iface.shared, address, None);
    assert!(bed.conn.is_attempting() && bed.conn.awaits_system());
    let (_stream, _) = accept(&bed, &listener);
    assert!(bed.conn.is_attempting() && !bed.conn.awaits_system());
    bed.conn.pause(&bed.iface.shared, Duration::from_secs(100));
    assert!(!bed.conn.is_attempting() && bed.conn.awaits_system());
}

const TOKEN: u64 = 0x5EC0_0000_0001;

/// A connection for endpoints to the peer's address, where a listener of the test's is.
pub(super) fn unopened(settings: &'static [(&'static str, &'static str)]) -> (Bed, TcpListener) {
    let mut bed = Bed::unconnected(settings);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let destination = IfaceAddress { id: 7, key: 0, sockets: vec![listener.local_addr().unwrap()] };
    bed.conn = bed.iface.table.add(7, TOKEN, Some(Rc::new(destination))).unwrap();
    (bed, listener)
}

/// Begins to connect it.
pub(super) fn open(bed: &Bed, listener: &TcpListener) -> (TcpStream, Hello) {
    assert!(!bed.conn.is_attempting() && !bed.conn.is_instead(3, 7));
    bed.conn.connect(&bed.iface.shared, listener.local_addr().unwrap(), None);
    accept(bed, listener)
}

/// Another connection, that was accepted from a peer of this id by its own account; the peer's end of it.
pub(super) fn accepted(bed: &Bed, peer: u64, token: u64) -> TcpStream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    let conn = bed.iface.table.add(peer, token, None).unwrap();
    conn.establish(&bed.iface.shared, &bed.hello(HelloKind::Hello), Some(Socket::from(ours)));
    theirs
}

fn welcome(bed: &Bed, mut stream: &TcpStream) {
    stream.write_all(&bed.hello(HelloKind::Accept).write()).unwrap();
    within(|| {
        bed.iface.advance();
        (bed.conn.state() == State::Established).then_some(())
    });
}

#[test]
fn of_two_attempts_that_of_the_smaller_id_is_used_and_an_established_connection_always() {
    // The peer's id is 7.
    let (bed, listener) = unopened(&[]);
    let (stream, _) = open(&bed, &listener);
    assert!(bed.conn.is_instead(3, 7) && !bed.conn.is_instead(9, 7));
    assert!(!bed.conn.is_instead(3, 8), "it goes to another peer");
    welcome(&bed, &stream);
    assert!(bed.conn.is_instead(3, 7) && bed.conn.is_instead(9, 7));
    assert!(!bed.conn.is_instead(3, 8) && !bed.conn.is_instead(9, 8), "it goes to another peer");
    bed.conn.fail(&bed.iface.shared, Error::CANCELED, "the test is over");
    assert!(!bed.conn.is_instead(3, 7));

    let (bed, listener) = unopened(&[]);
    let _stream = open(&bed, &listener);
    bed.conn.pause(&bed.iface.shared, Duration::from_secs(100));
    assert!(!bed.conn.is_instead(3, 7), "the attempt is over");
    assert!(!Bed::new(&[]).conn.is_instead(3, 7), "the peer opened it");
}

#[test]
fn a_claim_is_confirmed_only_with_the_token_and_both_ends() {
    let (bed, listener) = unopened(&[]);
    let (stream, _) = open(&bed, &listener);
    welcome(&bed, &stream);
    let (listener, source) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    let claim = Claim { token: TOKEN, listener, source };
    assert!(bed.conn.is_claimed(7, &claim));
    let mapped = |end: SocketAddr| match end.ip() {
        std::net::IpAddr::V4(ip) => SocketAddr::from((ip.to_ipv6_mapped(), end.port())),
        std::net::IpAddr::V6(_) => end,
    };
    let same = Claim { listener: mapped(listener), source: mapped(source), ..claim };
    assert!(bed.conn.is_claimed(7, &same), "the same addresses");
    assert!(!bed.conn.is_claimed(8, &claim), "another peer");
    let elsewhere = |end: SocketAddr| SocketAddr::from(([127, 0, 0, 2], end.port()));
    let other_port = |end: SocketAddr| SocketAddr::new(end.ip(), end.port() ^ 1);
    for false_claim in [
        Claim { token: claim.token + 1, ..claim },
        Claim { listener: source, source: listener, ..claim },
        Claim { listener: elsewhere(listener), ..claim },
        Claim { listener: other_port(listener), ..claim },
        Claim { source: elsewhere(source), ..claim },
        Claim { source: other_port(source), ..claim },
    ] {
        assert!(!bed.conn.is_claimed(7, &false_claim), "{false_claim:?}");
    }
    super::living::come_and_go(&bed);
    bed.progress();
    assert_eq!(bed.conn.state(), State::Established);
    assert!(!bed.conn.is_claimed(7, &claim) && !bed.conn.is_instead(3, 7), "no endpoint uses it any more");
}

#[test]
fn accepted_connections_are_asked_about_from_the_latest_on_and_four_of_them() {
    let (bed, listener) = unopened(&[]);
    let claimants: Vec<_> = (11..=16).map(|token| (token, accepted(&bed, 7, token))).collect();
    // None of these can be the peer's.
    let _others = [accepted(&bed, 8, 17), accepted(&bed, 7, 0)];
    let own = bed.iface.table.add(7, 5, bed.conn.destination().cloned().map(Rc::new)).unwrap();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    own.establish(&bed.iface.shared, &bed.hello(HelloKind::Accept), Some(Socket::from(ours)));

    let (mut stream, mut hello) = open(&bed, &listener);
    let duplicate = Hello {
        kind: HelloKind::Refuse,
        refusal: Some(Refusal::Duplicate),
        sender: 0,
        ..bed.hello(HelloKind::Accept)
    };
    for (token, theirs) in claimants.iter().rev().take(4) {
        let (listener_end, source) = (theirs.peer_addr().unwrap(), theirs.local_addr().unwrap());
        assert_eq!(hello.claim, Some(Claim { token: *token, listener: listener_end, source }));
        assert!(!hello.wants_own);
        stream.write_all(&duplicate.write()).unwrap();
        (stream, hello) = accept(&bed, &listener);
    }
    assert_eq!((hello.claim, hello.wants_own), (None, true), "enough were asked about");
    stream.write_all(&duplicate.write()).unwrap();
    assert_eq!(ended(&bed), Error::UNREACHABLE);
}

#[test]
fn an_attempt_that_waits_is_due_at_the_end_of_its_pause_or_of_the_time_limit() {
    let in_seconds =
        |seconds| ucs::clock::Deadline::at_ticks(ticks() + duration_to_ticks(Duration::from_secs(seconds)));
    for (settings, pause) in
        [(&[("connect_timeout", "100s")] as &'static [_], 10), (&[("connect_timeout", "10s")], 100)]
    {
        let (bed, _listener, _stream, _) = introduced(settings);
        bed.conn.pause(&bed.iface.shared, Duration::from_secs(pause));
        let next = bed.conn.tick(&bed.iface.shared, ticks(), false);
        assert!(next > in_seconds(5) && next <= in_seconds(10), "{settings:?}");
        assert!(!bed.conn.is_attempting());
    }
    let (bed, _listener, _stream, _) = introduced(&[("connect_timeout", "100s")]);
    bed.conn.pause(&bed.iface.shared, Duration::from_secs(10));
    let later = ticks() + duration_to_ticks(Duration::from_secs(10));
    let next = bed.conn.tick(&bed.iface.shared, later, false);
    assert!(bed.conn.is_attempting() && next > in_seconds(50) && next <= in_seconds(100));
}

#[test]
fn the_hello_leaves_when_the_system_has_connected_and_no_earlier() {
    let bed = Bed::unconnected(&[]);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    bed.conn.connect(&bed.iface.shared, listener.local_addr().unwrap(), None);
    for events in [ucs::event_set::Events::empty(), ucs::event_set::Events::READ] {
        assert!(bed.conn.on_connecting(&bed.iface.shared, events, &[]).is_none());
        assert!(bed.conn.awaits_system(), "{events:?}");
    }
    bed.conn.on_connecting(&bed.iface.shared, ucs::event_set::Events::WRITE, &[]);
    assert!(!bed.conn.awaits_system());
}

#[test]
fn what_a_socket_is_ready_for_is_what_the_system_says() {
    use ucs::event_set::Events;
    let bed = Bed::unconnected(&[]);
    assert_eq!(bed.conn.poll_socket(), Events::empty(), "there is no socket");
    let bed = Bed::new(&[]);
    assert_eq!(bed.conn.poll_socket(), Events::WRITE);
    (&bed.peer).write_all(b"x").unwrap();
    assert_eq!(bed.conn.poll_socket(), Events::READ | Events::WRITE);
    bed.fill(&pattern(900));
    assert_eq!(bed.conn.poll_socket(), Events::READ);
    bed.peer.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(bed.conn.poll_socket().contains(Events::READ | Events::ERROR));
}

#[test]
fn use_that_the_hello_has_told_is_not_told_again() {
    for is_early in [false, true] {
        let bed = Bed::unconnected(&[]);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let attach = || bed.conn.attach(&bed.iface.shared, std::rc::Weak::new());
        if is_early {
            attach();
        }
        bed.conn.connect(&bed.iface.shared, listener.local_addr().unwrap(), None);
        let (mut stream, hello) = accept(&bed, &listener);
        assert_eq!(hello.in_use, is_early);
        if !is_early {
            attach();
        }
        welcome(&bed, &stream);
        bed.send(1, b"behind").unwrap();
        let told = if is_early { Vec::new() } else { frame(crate::proto::wire::control::USE, &[]) };
        let expected = [told, frame(1, b"behind")].concat();
        let mut bytes = Vec::new();
        within(|| {
            bed.iface.advance();
            let _ = stream.read_to_end(&mut bytes);
            (bytes.len() >= expected.len()).then_some(())
        });
        assert_eq!(bytes, expected);
    }
}

/// A connection over a socket that is connected already, and the peer's end of it, behind the hello.
fn over_a_socket() -> (Bed, TcpStream, Hello) {
    let bed = Bed::unconnected(&[]);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let ours = TcpStream::connect(address).unwrap();
    ours.set_nonblocking(true).unwrap();
    bed.conn.connect_over(&bed.iface.shared, Socket::from(ours), address).unwrap();
    let (stream, hello) = accept(&bed, &listener);
    (bed, stream, hello)
}

#[test]
fn over_a_socket_that_is_connected_there_is_one_attempt() {
    let (bed, stream, hello) = over_a_socket();
    assert_eq!((hello.claim, hello.wants_own, hello.token), (None, true, 1));
    welcome(&bed, &stream);
    assert!(!bed.conn.is_instead(3, 7), "it is no answer to a peer that asks for its own");

    let (bed, stream, _) = over_a_socket();
    drop(stream);
    assert_eq!(ended(&bed), Error::UNREACHABLE);
    let words = bed.iface.shared.last_failure();
    assert!(words.contains("tried 1 times"), "{words}");

    let (bed, mut stream, _) = over_a_socket();
    let refusal = Some(Refusal::Full);
    let full = Hello { kind: HelloKind::Refuse, refusal, ..bed.hello(HelloKind::Accept) };
    stream.write_all(&full.write()).unwrap();
    assert_eq!(ended(&bed), Error::UNREACHABLE);
    let words = bed.iface.shared.last_failure();
    assert!(words.contains("does not take the connection over this socket now"), "{words}");
}

#[test]
fn an_accepted_connection_is_unused_up_to_eight_signs_of_life_behind_its_hello() {
    const SIGNS: usize = 8 * 8;
    for (length, is_unused) in
        [(0, true), (HELLO + SIGNS - 1, true), (HELLO + SIGNS, true), (HELLO + SIGNS + 1, false)]
    {
        let bed = Bed::unconnected(&[]);
        let mut theirs = accepted(&bed, 7, 11);
        let conn = bed.iface.table.all().into_iter().find(|conn| conn.token == 11).unwrap();
        theirs.write_all(&vec![0; length]).unwrap();
        within(|| {
            let waiting = rustix::io::ioctl_fionread(conn.socket.borrow().as_ref().unwrap());
            (waiting == Ok(length as u64)).then_some(())
        });
        assert_eq!(conn.is_unused(), is_unused, "{length} bytes have come");
    }
    assert!(!Bed::unconnected(&[]).conn.is_unused(), "it has no socket");
    let (bed, listener) = unopened(&[]);
    let (stream, _) = open(&bed, &listener);
    welcome(&bed, &stream);
    assert!(!bed.conn.is_unused(), "this side opened it");
}

#[test]
fn a_peer_that_has_no_room_in_time_is_named_as_the_reason() {
    let (bed, _listener, mut stream, _) = introduced(&[("connect_timeout", "100s")]);
    let refusal = Some(Refusal::Full);
    let full = Hello { kind: HelloKind::Refuse, refusal, ..bed.hello(HelloKind::Accept) };
    stream.write_all(&full.write()).unwrap();
    within(|| {
        bed.iface.advance();
        (!bed.conn.is_attempting()).then_some(())
    });
    bed.conn.tick(&bed.iface.shared, ticks() + duration_to_ticks(Duration::from_secs(100)), false);
    assert_eq!(bed.failure(), Some(Error::ENDPOINT_TIMEOUT));
    assert!(bed.iface.shared.last_failure().contains("accepts no further connection"));
}
