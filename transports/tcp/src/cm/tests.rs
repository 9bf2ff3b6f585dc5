//! The connection manager over loopback: two ends of it, or one and a socket of the test, which writes and reads frames.

use std::ffi::c_void;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uct_plugin::abi::*;

use super::*;
use crate::proto::cm::{Kind, Refusal, refuse, write};

/// How long an expected event may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The settings of a test.
struct Values(&'static [(&'static str, &'static str)]);

impl ucs::config::Lookup for Values {
    fn text(&self, _section: &str, name: &str) -> Option<std::borrow::Cow<'_, str>> {
        self.0.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into())
    }
}

/// An event as it was reported.
#[derive(Default)]
struct Seen {
    kind: u32,
    status: UctStatus,
    user: usize,
    data: Vec<u8>,
    reason: String,
    device: String,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    request: Option<TcpCmRequest>,
}

/// What the handler calls once, inside the next event.
type Inside = Box<dyn FnOnce()>;

#[derive(Default)]
struct Log {
    events: RefCell<Vec<Seen>>,
    told: Cell<u32>,
    inside: RefCell<Option<Inside>>,
}

unsafe extern "C" fn note(log: *mut c_void, event: *const UctCmEvent) {
    // SAFETY: the bed keeps its log as long as its connection manager.
    let log = unsafe { &*log.cast::<Log>() };
    // SAFETY: the event is valid for the call.
    let event = unsafe { &*event };
    // SAFETY: as above.
    let words = |text: UctStr| unsafe { std::slice::from_raw_parts(text.data, text.length) };
    let words = |text| String::from_utf8(words(text).to_vec()).unwrap();
    let request = (!event.request.is_null()).then(|| {
        // SAFETY: a request is a box of this type, and the handler's.
        *unsafe { Box::from_raw(event.request.cast::<TcpCmRequest>()) }
    });
    log.events.borrow_mut().push(Seen {
        kind: event.kind,
        status: event.status,
        user: event.user.addr(),
        // SAFETY: as above.
        data: unsafe { std::slice::from_raw_parts(event.data, event.length) }.to_vec(),
        reason: words(event.reason),
        device: words(event.device),
        local: event.local.get(),
        peer: event.peer.get(),
        request,
    });
    log.told.set(log.told.get() + 1);
    let inside = log.inside.borrow_mut().take();
    if let Some(inside) = inside {
        inside();
    }
}

const LISTENER: usize = 1;
const CLIENT: usize = 2;
const SERVER: usize = 3;

fn user(number: usize) -> CmUser {
    CmUser::new(ptr::without_provenance_mut(number))
}

fn private(private: &[u8]) -> CmData<'_> {
    CmData { private, token: None }
}

/// A connection manager and what it reports.
struct Bed {
    cm: Rc<TcpCm>,
    log: Box<Log>,
    /// Events that progress has counted: at the end as many as were reported.
    counted: Cell<u32>,
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.counted.get(), self.log.told.get(), "progress counts its events");
        }
    }
}

impl Bed {
    fn new(settings: &'static [(&'static str, &'static str)]) -> Bed {
        let log = Box::<Log>::default();
        // SAFETY: the bed keeps the log as long as the connection manager, whose requests are of this type.
        let events = unsafe { CmEvents::new(note, ptr::from_ref(&*log).cast_mut().cast()) };
        let config = TcpConfig::from_settings(&Values(settings)).unwrap();
        Bed { cm: TcpCm::with(config, events).unwrap(), log, counted: Cell::new(0) }
    }

    fn listen(&self) -> (Rc<TcpCmListener>, SocketAddr) {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = self.cm.listen(user(LISTENER), any, None).unwrap();
        let address = TcpCm::listener_address(&listener).unwrap();
        (listener, address)
    }

    fn connect_within(&self, address: SocketAddr, timeout: Duration) -> Rc<TcpCmEp> {
        let timeout = Some(timeout);
        self.cm.connect(CmConnect { user: user(CLIENT), address, source: None, timeout }).unwrap()
    }

    fn connect(&self, address: SocketAddr) -> Rc<TcpCmEp> {
        self.connect_within(address, LIMIT)
    }

    /// Sleeps until the descriptor is readable and makes progress, until something is so.
    #[track_caller]
    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let end = Instant::now() + LIMIT;
        while !done() {
            assert!(Instant::now() < end, "it did not happen: {what}");
            self.step(Duration::from_millis(20));
        }
    }

    /// Sleeps for so long at most; whether there was something to do.
    fn step(&self, time: Duration) -> bool {
        // SAFETY: the descriptor is the connection manager's.
        let fd = unsafe { BorrowedFd::borrow_raw(self.cm.event_fd().unwrap()) };
        let time = Timespec { tv_sec: 0, tv_nsec: time.as_nanos() as i64 };
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&time)).unwrap() > 0;
        self.progress();
        ready
    }

    fn progress(&self) {
        self.counted.set(self.counted.get() + self.cm.progress());
    }

    /// The next event.
    #[track_caller]
    fn next(&self) -> Seen {
        self.until("an event", || !self.log.events.borrow().is_empty());
        self.log.events.borrow_mut().remove(0)
    }

    /// The next event, which is to be of this kind and user.
    #[track_caller]
    fn expect(&self, user: usize, kind: u32) -> Seen {
        let seen = self.next();
        assert_eq!((seen.user, seen.kind), (user, kind), "{}", seen.reason);
        assert_eq!(seen.status == UCT_OK, kind != UCT_CM_FAILED);
        seen
    }

    /// The next event, which is to be this failure.
    #[track_caller]
    fn failure(&self, user: usize, error: Error, words: &str) -> Seen {
        let seen = self.expect(user, UCT_CM_FAILED);
        assert_eq!(seen.status, error.status().raw(), "{}", seen.reason);
        assert!(seen.reason.contains(words), "{}, expected: {words}", seen.reason);
        seen
    }

    /// A client that has sent its request, and the request.
    fn request(&self, address: SocketAddr) -> (Rc<TcpCmEp>, TcpCmRequest) {
        let client = self.connect(address);
        self.expect(CLIENT, UCT_CM_RESOLVED);
        TcpCm::send(&client, private(b"request")).unwrap();
        let seen = self.expect(LISTENER, UCT_CM_REQUEST);
        assert_eq!(seen.data, b"request");
        (client, seen.request.unwrap())
    }

    fn accept(&self, request: TcpCmRequest) -> Rc<TcpCmEp> {
        self.cm.accept(request, user(SERVER), private(b"answer"), Some(LIMIT)).unwrap()
    }

    /// A client and its server, of an established connection.
    fn pair(&self) -> (Rc<TcpCmEp>, Rc<TcpCmEp>) {
        let (listener, address) = self.listen();
        let (client, request) = self.request(address);
        let server = self.accept(request);
        assert_eq!(self.expect(CLIENT, UCT_CM_CONNECTED).data, b"answer");
        TcpCm::notify(&client).unwrap();
        self.expect(SERVER, UCT_CM_NOTIFIED);
        TcpCm::listener_destroy(listener);
        (client, server)
    }

    /// A client of a server that is the test's, which has sent its request.
    fn client_of_test(&self) -> (Rc<TcpCmEp>, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = self.connect(listener.local_addr().unwrap());
        self.expect(CLIENT, UCT_CM_RESOLVED);
        TcpCm::send(&client, private(b"request")).unwrap();
        let mut stream = listener.accept().unwrap().0;
        assert_eq!(self.read(&mut stream, 23), write(Kind::Request, b"request"));
        (client, stream)
    }

    /// So many bytes, or as many as come until the other side has closed.
    fn read(&self, stream: &mut TcpStream, most: usize) -> Vec<u8> {
        stream.set_nonblocking(true).unwrap();
        let mut bytes = Vec::new();
        self.until("bytes, or the end", || {
            let mut more = vec![0; most - bytes.len()];
            match stream.read(&mut more) {
                Ok(0) => true,
                Ok(count) => {
                    bytes.extend_from_slice(&more[..count]);
                    bytes.len() == most
                }
                Err(error) => error.kind() != ErrorKind::WouldBlock,
            }
        });
        bytes
    }

    /// What comes until the other side has closed.
    fn read_all(&self, stream: &mut TcpStream) -> Vec<u8> {
        self.read(stream, 1 << 20)
    }

    /// Nothing is reported, in as many steps as other events took.
    fn nothing_follows(&self) {
        for _ in 0..16 {
            self.progress();
        }
        assert_eq!(self.log.events.borrow().len(), 0);
    }
}

#[test]
fn both_ends_learn_of_each_step_of_a_connection_and_of_its_end() {
    let bed = Bed::new(&[]);
    let (listener, address) = bed.listen();
    let client = bed.connect(address);
    assert_eq!(TcpCm::addresses(&client), Err(Error::BUSY));
    let resolved = bed.expect(CLIENT, UCT_CM_RESOLVED);
    let (local, peer) = TcpCm::addresses(&client).unwrap();
    assert_eq!((resolved.local, resolved.peer, resolved.device.as_str()), (Some(local), Some(peer), "lo"));
    assert_eq!(peer, address);
    TcpCm::send(&client, private(&[7; MAX_DATA])).unwrap();
    let request = bed.expect(LISTENER, UCT_CM_REQUEST);
    assert!(request.data == [7; MAX_DATA]);
    assert_eq!((request.local, request.peer, request.device.as_str()), (Some(address), Some(local), "lo"));
    let server = bed.accept(request.request.unwrap());
    assert_eq!(TcpCm::addresses(&server), Ok((peer, local)));
    assert_eq!(bed.expect(CLIENT, UCT_CM_CONNECTED).data, b"answer");
    TcpCm::notify(&client).unwrap();
    bed.expect(SERVER, UCT_CM_NOTIFIED);
    assert_eq!(TcpCm::disconnect(&client, b"done"), Ok(Outcome::Done));
    assert_eq!(TcpCm::disconnect(&client, b"again"), Ok(Outcome::InProgress));
    assert_eq!(bed.expect(SERVER, UCT_CM_DISCONNECTED).data, b"done");
    assert_eq!(TcpCm::disconnect(&server, b"so am I"), Ok(Outcome::Done));
    assert_eq!(bed.expect(CLIENT, UCT_CM_DISCONNECTED).data, b"so am I");
    assert_eq!(TcpCm::disconnect(&client, b""), Err(Error::NOT_CONNECTED));
    bed.nothing_follows();
    [client, server].into_iter().for_each(TcpCm::destroy);
    TcpCm::listener_destroy(listener);
    assert!(bed.cm.sources.borrow().is_empty() && bed.cm.deadlines.borrow().is_empty());
    assert!(!bed.step(Duration::ZERO), "nothing is watched any more");
}

#[test]
fn destroying_an_end_disconnects_it_and_it_reports_nothing_more() {
    for destroys_client in [true, false] {
        let bed = Bed::new(&[]);
        let (client, server) = bed.pair();
        let (ended, other, left) =
            if destroys_client { (client, server, SERVER) } else { (server, client, CLIENT) };
        TcpCm::destroy(ended);
        assert_eq!(bed.expect(left, UCT_CM_DISCONNECTED).data, b"");
        assert_eq!(TcpCm::disconnect(&other, b"to nobody"), Ok(Outcome::Done));
        bed.nothing_follows();
        TcpCm::destroy(other);
        assert!(bed.cm.sources.borrow().is_empty());
    }
}

#[test]
fn an_end_that_has_disconnected_says_so_once() {
    let bed = Bed::new(&[]);
    let (client, mut stream) = bed.client_of_test();
    stream.write_all(&write(Kind::Accept, b"")).unwrap();
    bed.expect(CLIENT, UCT_CM_CONNECTED);
    TcpCm::notify(&client).unwrap();
    TcpCm::disconnect(&client, b"the reason").unwrap();
    TcpCm::destroy(client);
    let expected = [write(Kind::Notify, b""), write(Kind::Disconnect, b"the reason")].concat();
    assert_eq!(bed.read_all(&mut stream), expected);
}

#[test]
fn an_end_that_is_not_connected_is_destroyed_without_a_word() {
    let bed = Bed::new(&[]);
    let (client, mut stream) = bed.client_of_test();
    TcpCm::destroy(client);
    assert_eq!(bed.read_all(&mut stream), b"");
    bed.nothing_follows();
}

#[test]
fn frames_in_single_bytes_and_several_at_once_are_the_same_events() {
    let bed = Bed::new(&[]);
    let (listener, address) = bed.listen();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in write(Kind::Request, b"slow") {
        assert!(bed.log.events.borrow().is_empty());
        stream.write_all(&[byte]).unwrap();
        bed.step(Duration::from_millis(20));
    }
    let request = bed.expect(LISTENER, UCT_CM_REQUEST);
    assert_eq!(request.data, b"slow");
    let server = bed.accept(request.request.unwrap());
    stream.write_all(&[write(Kind::Notify, b""), write(Kind::Disconnect, b"bye")].concat()).unwrap();
    bed.expect(SERVER, UCT_CM_NOTIFIED);
    assert_eq!(bed.expect(SERVER, UCT_CM_DISCONNECTED).data, b"bye");
    drop((listener, server));
}

#[test]
fn what_a_full_socket_does_not_take_follows_when_there_is_room() {
    const FRAMES: usize = 400;
    let bed = Bed::new(&[("hello_timeout", "1h")]);
    let (client, mut stream) = bed.client_of_test();
    stream.write_all(&write(Kind::Accept, b"")).unwrap();
    bed.expect(CLIENT, UCT_CM_CONNECTED);
    client.narrow();
    let data = |number: usize| vec![number as u8; MAX_DATA];
    let frames: Vec<_> = (0..FRAMES).map(|number| write(Kind::Disconnect, &data(number))).collect();
    for frame in &frames {
        client.queue(frame);
    }
    assert!(client.has_queued(), "the socket takes all of it");
    TcpCm::disconnect(&client, b"the last").unwrap();
    let expected = [frames.concat(), write(Kind::Disconnect, b"the last")].concat();
    assert!(bed.read_all(&mut stream) == expected, "and its end behind all of it");
    assert!(!client.has_queued());
    // It is watched for reading alone now.
    assert!(!bed.step(Duration::ZERO));
}

#[test]
fn the_answers_of_a_server_are_the_clients_failures() {
    let mut unknown = refuse(Refusal::TooMany);
    unknown[12] = 77;
    let answers: [(Vec<u8>, Error, &str); 9] = [
        (write(Kind::Reject, b"no"), Error::REJECTED, "rejected the request"),
        (refuse(Refusal::TooMany), Error::EXCEEDS_LIMIT, "cm_max_pending_per_source"),
        (refuse(Refusal::Version), Error::UNSUPPORTED, "another version"),
        (unknown, Error::UNSUPPORTED, "does not know"),
        (write(Kind::Request, b""), Error::IO_ERROR, "a request out of turn"),
        (write(Kind::Notify, b""), Error::IO_ERROR, "out of turn"),
        (write(Kind::Disconnect, b""), Error::IO_ERROR, "out of turn"),
        (b"SSH-2.0-x\r\n".to_vec(), Error::IO_ERROR, "does not use the protocol"),
        (Vec::new(), Error::CONNECTION_RESET, "answer the request"),
    ];
    for (answer, error, words) in answers {
        let bed = Bed::new(&[]);
        let (client, mut stream) = bed.client_of_test();
        stream.write_all(&answer).unwrap();
        drop(stream);
        let failure = bed.failure(CLIENT, error, words);
        assert_eq!(failure.data, if error == Error::REJECTED { &b"no"[..] } else { b"" });
        bed.nothing_follows();
        assert_eq!(TcpCm::disconnect(&client, b""), Err(Error::NOT_CONNECTED));
        assert!(!bed.step(Duration::ZERO), "its socket is not watched any more");
    }
}

#[test]
fn a_peer_that_resets_or_closes_an_established_connection_is_a_loss() {
    for is_reset in [true, false] {
        let bed = Bed::new(&[]);
        let (client, mut stream) = bed.client_of_test();
        stream.write_all(&write(Kind::Accept, b"")).unwrap();
        bed.expect(CLIENT, UCT_CM_CONNECTED);
        if is_reset {
            // What the peer has not read has its system send a reset.
            TcpCm::notify(&client).unwrap();
            bed.until("it has come", || stream.peek(&mut [0]).is_ok());
        }
        drop(stream);
        let lost = bed.next();
        assert_eq!((lost.user, lost.kind), (CLIENT, UCT_CM_DISCONNECTED));
        assert_eq!(lost.status, Error::CONNECTION_RESET.status().raw());
        let words = if is_reset { "receive from" } else { "closed the connection" };
        assert!(lost.reason.contains(words) && lost.reason.contains("stay connected"), "{}", lost.reason);
        bed.nothing_follows();
    }
}

#[test]
fn a_client_that_leaves_instead_of_notifying_fails_the_server() {
    let bed = Bed::new(&[]);
    let (_listener, address) = bed.listen();
    let (client, request) = bed.request(address);
    let _server = bed.accept(request);
    bed.expect(CLIENT, UCT_CM_CONNECTED);
    TcpCm::disconnect(&client, b"sorry").unwrap();
    let failure = bed.failure(SERVER, Error::CONNECTION_RESET, "without a notification");
    assert_eq!(failure.data, b"sorry");
}

#[test]
fn a_stage_of_the_peer_has_a_limit_and_one_of_the_application_has_none() {
    let bed = Bed::new(&[]);
    let limits = || bed.cm.deadlines.borrow().len();
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = bed.connect(server.local_addr().unwrap());
    assert_eq!(limits(), 1, "it is resolved in time");
    bed.expect(CLIENT, UCT_CM_RESOLVED);
    assert_eq!(limits(), 0, "the application is to send");
    TcpCm::send(&client, private(b"")).unwrap();
    assert_eq!(limits(), 1, "the answer comes in time");
    let mut answering = server.accept().unwrap().0;
    answering.write_all(&write(Kind::Accept, b"")).unwrap();
    bed.expect(CLIENT, UCT_CM_CONNECTED);
    assert_eq!(limits(), 0, "the application is to notify");

    let (_listener, address) = bed.listen();
    let mut stream = TcpStream::connect(address).unwrap();
    bed.until("a caller", || limits() == 1);
    stream.write_all(&write(Kind::Request, b"")).unwrap();
    let request = bed.expect(LISTENER, UCT_CM_REQUEST).request.unwrap();
    assert_eq!(limits(), 0, "the application is to accept");
    let _server = bed.accept(request);
    assert_eq!(limits(), 1, "the notification comes in time");
    stream.write_all(&write(Kind::Notify, b"")).unwrap();
    bed.expect(SERVER, UCT_CM_NOTIFIED);
    assert_eq!(limits(), 0);
}

#[test]
fn a_server_that_does_not_answer_and_a_client_that_does_not_notify_run_out_of_time() {
    let short = Duration::from_millis(30);
    let bed = Bed::new(&[]);
    let (listener, address) = bed.listen();
    // On a machine that is too busy it is not even resolved in time.
    let client = (0..20).find_map(|times| {
        let client = bed.connect_within(address, short * (1 << times));
        let is_resolved = bed.next().kind == UCT_CM_RESOLVED;
        is_resolved.then_some(client)
    });
    let client = client.expect("a second is enough");
    let before = Instant::now();
    TcpCm::send(&client, private(b"")).unwrap();
    let mut request = None;
    bed.until("the time is over", || {
        let found = bed.log.events.borrow_mut().iter_mut().find_map(|seen| seen.request.take());
        request = request.take().or(found);
        bed.log.events.borrow().iter().any(|seen| seen.kind == UCT_CM_FAILED) && request.is_some()
    });
    assert!(before.elapsed() >= short);
    bed.log.events.borrow_mut().retain(|seen| seen.kind == UCT_CM_FAILED);
    bed.failure(CLIENT, Error::TIMED_OUT, "answer the request: 127.0.0.1");
    drop(request);

    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&write(Kind::Request, b"")).unwrap();
    let request = bed.expect(LISTENER, UCT_CM_REQUEST).request.unwrap();
    let server = bed.cm.accept(request, user(SERVER), private(b""), Some(short)).unwrap();
    bed.failure(SERVER, Error::TIMED_OUT, "notify: 127.0.0.1");
    bed.nothing_follows();
    drop((listener, server));
}

#[test]
fn a_limit_that_the_application_leaves_out_is_the_configured_one() {
    let bed = Bed::new(&[("connect_timeout", "30ms")]);
    let (listener, address) = bed.listen();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&write(Kind::Request, b"")).unwrap();
    let request = bed.expect(LISTENER, UCT_CM_REQUEST).request.unwrap();
    let _server = bed.cm.accept(request, user(SERVER), private(b""), None).unwrap();
    bed.failure(SERVER, Error::TIMED_OUT, "30ms");
    drop(listener);
}

#[test]
fn a_caller_without_a_whole_request_is_dropped_in_time_and_garbage_at_once() {
    let bed = Bed::new(&[("hello_timeout", "20ms")]);
    let (_listener, address) = bed.listen();
    let mut silent = TcpStream::connect(address).unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&write(Kind::Request, b"half of it")[..20]).unwrap();
    let mut gone = TcpStream::connect(address).unwrap();
    gone.write_all(&write(Kind::Request, b"")[..9]).unwrap();
    drop(gone);
    assert_eq!((bed.read_all(&mut silent), bed.read_all(&mut half)), (Vec::new(), Vec::new()));
    bed.until("all are forgotten", || bed.cm.sources.borrow().len() == 1);
    assert!(bed.cm.deadlines.borrow().is_empty());

    let bed = Bed::new(&[("hello_timeout", "1h")]);
    let (_listener, address) = bed.listen();
    let other_version = [&b"UCTc\x02\0"[..], &[0; 10]].concat();
    let garbage: [(Vec<u8>, Vec<u8>); 5] = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), Vec::new()),
        (write(Kind::Accept, b""), Vec::new()),
        (write(Kind::Notify, b""), Vec::new()),
        ([write(Kind::Request, b""), write(Kind::Notify, b"")].concat(), Vec::new()),
        (other_version, refuse(Refusal::Version)),
    ];
    for (bytes, answer) in garbage {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&bytes).unwrap();
        assert_eq!(bed.read_all(&mut stream), answer, "{bytes:?}");
        assert_eq!((bed.cm.sources.borrow().len(), bed.cm.deadlines.borrow().len()), (1, 0));
    }
    bed.nothing_follows();
}

#[test]
fn a_request_is_rejected_with_the_reason_and_by_dropping_it() {
    let bed = Bed::new(&[]);
    let (_listener, address) = bed.listen();
    let (_client, request) = bed.request(address);
    assert_eq!(TcpCm::reject(request, b"no"), Ok(()));
    assert_eq!(bed.failure(CLIENT, Error::REJECTED, "rejected").data, b"no");
    let (_client, request) = bed.request(address);
    drop(request);
    bed.failure(CLIENT, Error::CONNECTION_RESET, "closed the connection");
}

#[test]
fn a_request_whose_client_has_gone_is_neither_accepted_nor_rejected() {
    let bed = Bed::new(&[]);
    let (_listener, address) = bed.listen();
    let gone = || {
        let (client, request) = bed.request(address);
        TcpCm::destroy(client);
        bed.until("it has gone", || request.check().is_err());
        request
    };
    assert_eq!(TcpCm::reject(gone(), b""), Err(Error::CONNECTION_RESET));
    let accepted = bed.cm.accept(gone(), user(SERVER), private(b""), None);
    let failure = accepted.map(drop).expect_err("nobody is there");
    assert!(failure.status == Error::CONNECTION_RESET && failure.reason.contains("client"), "{failure:?}");
}

#[test]
fn callers_beyond_the_limit_wait_and_are_taken_when_there_is_room() {
    let bed = Bed::new(&[("cm_max_pending", "2"), ("cm_max_pending_per_source", "2")]);
    let (listener, address) = bed.listen();
    let call = |name: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&write(Kind::Request, name)).unwrap();
        stream
    };
    let streams = [call(b"1"), call(b"2"), call(b"3")];
    let mut requests: Vec<_> = (0..2).map(|_| bed.expect(LISTENER, UCT_CM_REQUEST)).collect();
    bed.until("it rests", || !bed.cm.deadlines.borrow().is_empty());
    bed.nothing_follows();
    requests.remove(0);
    let third = bed.expect(LISTENER, UCT_CM_REQUEST);
    let names = [&requests[0].data, &third.data];
    assert!(names == [b"1", b"3"] || names == [b"2", b"3"], "{names:?}");
    drop((requests, third));
    let fourth = call(b"4");
    assert_eq!(bed.expect(LISTENER, UCT_CM_REQUEST).data, b"4");
    drop((listener, streams, fourth));
}

#[test]
fn a_source_with_its_share_of_requests_is_refused_and_gets_it_back() {
    let bed = Bed::new(&[("cm_max_pending", "4"), ("cm_max_pending_per_source", "1")]);
    let (_listener, address) = bed.listen();
    let (_client, request) = bed.request(address);
    let mut refused = TcpStream::connect(address).unwrap();
    assert_eq!(bed.read_all(&mut refused), refuse(Refusal::TooMany));
    drop(request);
    bed.failure(CLIENT, Error::CONNECTION_RESET, "closed");
    bed.request(address);
}

#[test]
fn silent_callers_give_way_to_others_when_all_places_are_theirs() {
    let bed = Bed::new(&[("cm_max_pending", "1"), ("hello_timeout", "1h")]);
    let (_listener, address) = bed.listen();
    let mut silent = TcpStream::connect(address).unwrap();
    bed.until("it has a place", || bed.cm.sources.borrow().len() == 2);
    let mut honest = TcpStream::connect(address).unwrap();
    honest.write_all(&write(Kind::Request, b"honest")).unwrap();
    assert_eq!(bed.expect(LISTENER, UCT_CM_REQUEST).data, b"honest");
    assert_eq!(bed.read_all(&mut silent), refuse(Refusal::TooMany));
    assert_eq!(bed.cm.sources.borrow().len(), 1, "both are no callers any more");
}

#[test]
fn a_listener_that_is_destroyed_inside_its_event_reports_no_other_one() {
    let bed = Bed::new(&[]);
    let (listener, address) = bed.listen();
    let mut streams: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    for stream in &mut streams {
        stream.write_all(&write(Kind::Request, b"")).unwrap();
    }
    *bed.log.inside.borrow_mut() = Some(Box::new(move || TcpCm::listener_destroy(listener)));
    drop(bed.expect(LISTENER, UCT_CM_REQUEST));
    for stream in &mut streams {
        assert_eq!(bed.read_all(stream), b"");
    }
    bed.nothing_follows();
}

#[test]
fn a_caller_whose_listener_has_gone_is_closed_and_not_reported() {
    let bed = Bed::new(&[("hello_timeout", "1h")]);
    let (listener, address) = bed.listen();
    let mut stream = TcpStream::connect(address).unwrap();
    bed.until("it has a place", || bed.cm.sources.borrow().len() == 2);
    TcpCm::listener_destroy(listener);
    stream.write_all(&write(Kind::Request, b"")).unwrap();
    assert_eq!(bed.read_all(&mut stream), b"");
    bed.nothing_follows();
    assert!(bed.cm.sources.borrow().is_empty());
    let refused = TcpStream::connect(address).map(drop).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::ConnectionRefused));
}

#[test]
fn an_end_that_is_destroyed_inside_its_event_reports_nothing_more() {
    let bed = Bed::new(&[]);
    let (client, mut stream) = bed.client_of_test();
    let frames = [write(Kind::Accept, b""), write(Kind::Disconnect, b"bye")].concat();
    *bed.log.inside.borrow_mut() = Some(Box::new(move || TcpCm::destroy(client)));
    stream.write_all(&frames).unwrap();
    bed.expect(CLIENT, UCT_CM_CONNECTED);
    bed.nothing_follows();
    assert_eq!(bed.read_all(&mut stream), write(Kind::Disconnect, b""));
}

#[test]
fn closing_closes_callers_that_have_sent_nothing() {
    let bed = Bed::new(&[("hello_timeout", "1h")]);
    let (listener, address) = bed.listen();
    let mut silent = TcpStream::connect(address).unwrap();
    bed.until("it has a place", || bed.cm.sources.borrow().len() == 2);
    TcpCm::listener_destroy(listener);
    bed.cm.close();
    assert_eq!(bed.read_all(&mut silent), b"");
}

#[test]
fn addresses_where_nobody_listens_are_failures_and_senseless_ones_are_refused() {
    let bed = Bed::new(&[]);
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let client = bed.connect(free);
    bed.failure(CLIENT, Error::NOT_CONNECTED, "resolve 127.0.0.1");
    bed.nothing_follows();
    assert_eq!(TcpCm::send(&client, private(b"")), Err(Error::NOT_CONNECTED));
    TcpCm::destroy(client);
    assert!(bed.cm.sources.borrow().is_empty());

    // One of a whole network, where no connection leads.
    let client = bed.connect("255.255.255.255:7".parse().unwrap());
    assert_eq!(TcpCm::addresses(&client), Err(Error::NOT_CONNECTED));
    bed.failure(CLIENT, Error::UNREACHABLE, "resolve 255.255.255.255:7");
    bed.nothing_follows();
    TcpCm::destroy(client);
    assert!(bed.cm.sources.borrow().is_empty());

    let senseless = [
        ("127.0.0.1:0", "address and port"),
        ("224.0.0.1:7", "no program can listen"),
        ("[fe80::1]:7", "%eth0"),
    ];
    for (address, words) in senseless {
        let address = address.parse().unwrap();
        let params = CmConnect { user: user(CLIENT), address, source: None, timeout: None };
        let refused = bed.cm.connect(params).map(drop).expect_err("nobody can be there");
        assert_eq!(refused.status, Error::INVALID_ADDR);
        assert!(refused.reason.contains(words), "{refused:?}");
    }
    // An address for documentation, which no machine has.
    let foreign: SocketAddr = "192.0.2.1:0".parse().unwrap();
    let params = CmConnect { user: user(CLIENT), address: free, source: Some(foreign), timeout: None };
    let refused = bed.cm.connect(params).map(drop).expect_err("it is no address of this machine");
    assert!(refused.status == Error::NO_DEVICE && refused.reason.contains("connect from"), "{refused:?}");
    let refused = bed.cm.listen(user(LISTENER), foreign, None).map(drop).expect_err("as above");
    assert_eq!(refused.status, Error::NO_DEVICE);
    assert_eq!(bed.cm.device_of(foreign.ip()), "");
    assert_eq!(bed.cm.device_of(foreign.ip()), "", "nothing is remembered of it");
    assert!(bed.cm.devices.borrow().is_empty());
    let (_listener, address) = bed.listen();
    let refused = bed.cm.listen(user(LISTENER), address, None).map(drop).expect_err("it is in use");
    assert_eq!(refused.status, Error::BUSY);
    let params = CmConnect { user: user(CLIENT), address, source: Some(address), timeout: None };
    let refused = bed.cm.connect(params).map(drop).expect_err("as above");
    assert_eq!(refused.status, Error::BUSY);
}

#[test]
fn the_limits_are_those_of_the_frames() {
    let attributes = Bed::new(&[]).cm.attributes();
    let of_data = [
        attributes.max_connect_data,
        attributes.max_accept_data,
        attributes.max_reject_data,
        attributes.max_disconnect_data,
    ];
    assert_eq!((of_data, attributes.size), ([MAX_DATA; 4], size_of::<CmAttr>()));
}

/// A source that notes its deadlines.
#[derive(Default)]
struct Timed(Cell<u32>);

impl Source for Timed {
    fn on_events(self: Rc<Self>, _cm: &Rc<TcpCm>, _events: Events) -> u32 {
        panic!("it has no socket")
    }

    fn on_deadline(self: Rc<Self>, _cm: &Rc<TcpCm>) -> u32 {
        self.0.set(self.0.get() + 1);
        1
    }
}

#[test]
fn a_deadline_is_told_once_when_it_has_passed_and_one_that_was_changed_is_not() {
    let bed = Bed::new(&[]);
    let source = || {
        let (number, source) = (bed.cm.next_number(), Rc::<Timed>::default());
        bed.cm.add_unwatched(number, Rc::clone(&source) as Rc<dyn Source>);
        (number, source)
    };
    let (first, second, dropped, forgotten) = (source(), source(), source(), source());
    let numbers = BTreeSet::from([first.0, second.0, dropped.0, forgotten.0]);
    assert!(numbers.len() == 4 && !numbers.contains(&TIMER));
    let [soon, later, never] = [
        Deadline::after(Duration::from_millis(2)),
        Deadline::after(Duration::from_millis(40)),
        Deadline::NEVER,
    ];
    // The later one first, so that the timer is set to an earlier time.
    bed.cm.set_deadline(second.0, never, later);
    bed.cm.set_deadline(dropped.0, never, soon);
    bed.cm.set_deadline(dropped.0, soon, never);
    bed.cm.set_deadline(forgotten.0, never, soon);
    bed.cm.forget(forgotten.0);
    bed.cm.set_deadline(first.0, never, soon);
    bed.until("the first", || first.1.0.get() > 0);
    assert!(soon.expired());
    bed.until("the second", || second.1.0.get() > 0);
    assert!(later.expired());
    assert!(!bed.step(Duration::from_millis(5)), "the timer is at rest");
    let told = [&first.1, &second.1, &dropped.1, &forgotten.1].map(|source| source.0.get());
    assert_eq!(told, [1, 1, 0, 0]);
    // One that has passed already.
    bed.cm.set_deadline(first.0, never, Deadline::at_ticks(0));
    bed.until("at once", || first.1.0.get() == 2);
    assert_eq!(bed.counted.replace(0), 3, "progress counts them as events");
}
