//! `connect`: what the answers to a hello lead to, and how often and how long it is tried.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ucs::clock::{duration_to_ticks, ticks};

use super::*;
use crate::proto::wire::{HELLO, Refusal};

/// A connection to a listener of the test's, and its end of it, behind the first hello.
fn introduced(settings: &'static [(&'static str, &'static str)]) -> (Bed, TcpListener, TcpStream, Hello) {
    let bed = Bed::unconnected(settings);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    bed.conn.connect(&bed.iface.shared, listener.local_addr().unwrap(), None);
    let (stream, hello) = accept(&bed, &listener);
    (bed, listener, stream, hello)
}

/// Accepts an attempt, and reads its hello.
fn accept(bed: &Bed, listener: &TcpListener) -> (TcpStream, Hello) {
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

fn within<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "nothing happens");
    }
}

/// The error that the connection ends with.
fn ended(bed: &Bed) -> Error {
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
        (Box::new(|hello| Hello { sender: 8, ..hello }), Error::UNREACHABLE, "makes no sense"),
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
    let (bed, listener, mut stream, _) = introduced(&[]);
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
