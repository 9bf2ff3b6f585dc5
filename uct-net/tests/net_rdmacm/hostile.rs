//! Hostile peers that call by rdma_cm: bad private data, bad bytes over the first lane, or silence.
//! Each gets the reason where it can be sent, and honest callers are accepted as before. Needs an RDMA device; skipped without one.

#[path = "../../../ucs/testing/poll.rs"]
mod poll;
mod storm;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::support::rdmacm::{CM, Machine, devices, host, machine, pair};
use crate::support::{LIMIT, patient, rdmacm};
use poll::poll_until;
use uct_core::cm::{Cm, CmData, CmEp, CmEvent, CmToken, ConnectOptions, Request};
use uct_core::{Context, Ep, Error as Status, Iface, IfaceAddress, SendFlags, Worker};
use uct_net::local::{AM_ID, Net};
use uct_net::{NetOptions, Stage};

/// The version of the handshake, in private data and in frames.
const VERSION: u8 = 6;
const OWN_TOKEN: u64 = 0x0123_4567_89ab_cdef;
/// Kinds of messages.
const LAST: u8 = 1;
const PART: u8 = 2;
const PROBE: u8 = 4;
const FIN: u8 = 6;
const ABORT: u8 = 8;
const SHARE: u8 = 9;
const OFFER: u8 = 10;

/// An event of the connection manager at a raw peer.
#[derive(Debug)]
enum RawEvent {
    Resolved,
    Connected(Vec<u8>),
    Over(Status, Vec<u8>),
}

/// Kinds and payloads of messages.
type Inbox = VecDeque<(u8, Vec<u8>)>;
type Sent<'a> = &'a [(u8, &'a [u8])];

/// A peer with an endpoint and a connection manager, and no `uct-net`.
struct Raw {
    worker: Worker,
    cm: Cm,
    iface: Iface,
    ep: Ep,
    inbox: Rc<RefCell<Inbox>>,
    events: Rc<RefCell<VecDeque<RawEvent>>>,
}

impl Raw {
    fn new(context: &Context, device: &str) -> Raw {
        let worker = Worker::new(context).expect("a worker");
        let cm = worker.open_cm(CM).expect("it is there");
        let iface = worker.open("rc_verbs", device).expect("an interface");
        let inbox = Rc::new(RefCell::new(VecDeque::new()));
        let came = Rc::clone(&inbox);
        iface.set_am_handler(AM_ID, move |message| {
            came.borrow_mut().push_back((message[8], message[16..].to_vec()));
        });
        Raw::over(worker, cm, iface, inbox)
    }

    fn over(worker: Worker, cm: Cm, iface: Iface, inbox: Rc<RefCell<Inbox>>) -> Raw {
        let ep = iface.create_ep(|_failure| ()).expect("an endpoint");
        Raw { worker, cm, iface, ep, inbox, events: Rc::default() }
    }

    /// Another peer over the same interface.
    fn beside(&self) -> Raw {
        Raw::over(self.worker.clone(), self.cm.clone(), self.iface.clone(), Rc::clone(&self.inbox))
    }

    fn token(&self) -> Option<CmToken> {
        self.ep.cm_token().ok()
    }

    /// The private data of an honest side.
    fn private_data(&self) -> Vec<u8> {
        let IfaceAddress { device, iface, .. } = self.iface.address().expect("an address");
        let endpoint = self.ep.address().expect("an address");
        [&[b'U', VERSION][..], &OWN_TOKEN.to_le_bytes(), &device, &iface, &endpoint].concat()
    }

    /// Connects the endpoint to the peer's; its token.
    fn join(&self, private_data: &[u8]) -> u64 {
        let own = self.iface.address().expect("an address");
        let (device, rest) = private_data[10..].split_at(own.device.len());
        let (iface, endpoint) = rest.split_at(own.iface.len());
        let peer = IfaceAddress { device: device.to_vec(), iface: iface.to_vec(), ..own };
        self.ep.connect_to_ep(&peer, endpoint).expect("connected");
        u64::from_le_bytes(private_data[2..10].try_into().expect("eight bytes"))
    }

    #[track_caller]
    fn until<T>(&self, what: &str, mut done: impl FnMut() -> Option<T>) -> T {
        let mut answer = None;
        let is_there = poll_until(
            LIMIT,
            || self.worker.progress(),
            || {
                answer = done();
                answer.is_some()
            },
        );
        assert!(is_there, "no {what}");
        answer.expect("it is there")
    }

    #[track_caller]
    fn next_event(&self) -> RawEvent {
        self.until("event", || self.events.borrow_mut().pop_front())
    }

    /// Begins to call; the first event is that the address is resolved.
    fn begin(&self, address: &str) -> CmEp {
        let source = rdmacm::is_pair().then(|| "10.7.0.1:0".parse().expect("an address"));
        let options = ConnectOptions { source, timeout: Some(LIMIT) };
        let events = Rc::clone(&self.events);
        let ep = self.cm.connect(address.parse().expect("an address"), options, move |_ep, event| {
            events.borrow_mut().push_back(match event {
                CmEvent::Resolved { .. } => RawEvent::Resolved,
                CmEvent::Connected { private } => RawEvent::Connected(private.to_vec()),
                CmEvent::Failed { error, private, .. } => RawEvent::Over(error, private.to_vec()),
                CmEvent::Disconnected { .. } => RawEvent::Over(Status::CONNECTION_RESET, vec![]),
                CmEvent::Notified => return,
            });
        });
        ep.expect("an address that leads there")
    }

    /// Calls with these private data; returns the event that follows.
    fn call(&self, address: &str, private: &[u8]) -> (CmEp, RawEvent) {
        let ep = self.begin(address);
        assert!(matches!(self.next_event(), RawEvent::Resolved));
        ep.send(CmData { private, token: self.token() }).expect("resolved");
        let answer = self.next_event();
        (ep, answer)
    }

    /// Calls as an honest client; what messages to the listener carry.
    fn connect(&self, address: &str) -> (CmEp, u64) {
        let (ep, event) = self.call(address, &self.private_data());
        let RawEvent::Connected(private_data) = event else { panic!("{event:?}") };
        let token = self.join(&private_data);
        ep.notify().expect("connected");
        (ep, token)
    }

    /// Accepts a caller with these private data.
    fn accept(&self, request: Request, private: &[u8]) -> CmEp {
        let events = Rc::clone(&self.events);
        let data = CmData { private, token: self.token() };
        let ep = request.accept(&self.cm, data, Some(LIMIT), move |_ep, event| {
            if !matches!(event, CmEvent::Notified) {
                events.borrow_mut().push_back(RawEvent::Over(Status::CONNECTION_RESET, vec![]));
            }
        });
        ep.expect("the client waits")
    }

    /// Sends a message; false if the endpoint has failed.
    fn send(&self, token: u64, kind: u8, payload: &[u8]) -> bool {
        let granted = (64_u32 << 10).to_le_bytes();
        let bytes = [&token.to_ne_bytes()[..], &[kind, 0, 0, 0], &granted, payload].concat();
        let pack = |buffer: &mut [u8]| {
            buffer[..bytes.len()].copy_from_slice(&bytes);
            bytes.len()
        };
        self.until("room", || match self.ep.am_bcopy(AM_ID, SendFlags::empty(), pack) {
            Err(Status::NO_RESOURCE) => None,
            sent => Some(sent.is_ok()),
        })
    }

    /// The reason with which the peer gives the connection up; `None` if it ends it in order.
    fn aborted(&self) -> Option<String> {
        loop {
            let next = self.until("message", || {
                let is_over = self.ep.failure().is_some() || !self.events.borrow().is_empty();
                let message = self.inbox.borrow_mut().pop_front();
                message.or_else(|| is_over.then(|| (FIN, Vec::new())))
            });
            match next {
                (ABORT, reason) => return Some(String::from_utf8_lossy(&reason).into_owned()),
                (FIN, _) => return None,
                _ => {}
            }
        }
    }
}

/// Runs `harm` between two honest callers of a listener.
fn attacked(machine: &Machine, options: NetOptions, harm: impl FnOnce(&str)) {
    pair(
        machine,
        (options, patient()),
        async |_net, mut listener| {
            for _ in 0..2 {
                let connection = listener.accept().await?.accept().await?;
                let message = connection.recv().within(LIMIT).await?;
                connection.send(&message).await?;
                connection.closed().await;
            }
            Ok(())
        },
        async move |net, address| {
            let honest = async || {
                let connection = net.connect(&address).by(CM).require("rc_verbs").await?;
                connection.send(b"honest").await?;
                assert_eq!(&*connection.recv().within(LIMIT).await?, b"honest");
                connection.close().within(LIMIT).await
            };
            honest().await?;
            harm(&address);
            honest().await
        },
    );
}

#[test]
fn private_data_that_no_honest_caller_sends_are_rejected_with_the_reason() {
    let Some(machine) = machine() else { return };
    attacked(&machine, patient(), |address| {
        let raw = Raw::new(&machine.context, devices().0);
        let good = raw.private_data();
        let mut other_version = good.clone();
        other_version[1] = VERSION + 1;
        // An address that is none of rc_verbs, and the endpoint number 0.
        let (mut bad_iface, mut bad_endpoint) = (good.clone(), good.clone());
        bad_iface[34] ^= 0xff;
        bad_endpoint[38..].fill(0);
        for (private, reason) in [
            (&b""[..], "another program"),
            (b"GET / HTTP/1.1", "another program"),
            (&other_version, "update the older one"),
            (&good[..good.len() - 1], "where 54 are expected"),
            (&bad_iface, "address"),
            (&bad_endpoint, "address"),
        ] {
            let raw = Raw::new(&machine.context, devices().0);
            let (_ep, event) = raw.call(address, private);
            let RawEvent::Over(Status::REJECTED, text) = event else { panic!("{reason}: {event:?}") };
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(text.contains(reason), "{text:?}, expected {reason:?}");
        }
    });
}

#[test]
fn what_no_honest_caller_sends_over_the_first_lane_ends_that_caller() {
    let Some(machine) = machine() else { return };
    attacked(&machine, patient(), |address| {
        let header =
            |what: u8, length: u32| [&b"UCTN"[..], &[VERSION, what, 0, 0], &length.to_le_bytes()].concat();
        let long = [0; 4000];
        let cases: [(&str, Sent<'_>); 9] = [
            ("another protocol", &[(LAST, b"GET / HTTP/1.1\r\n\r\n")]),
            ("another version", &[(LAST, b"UCTN\x09\x01\0\0\0\0\0\0")]),
            ("TLS", &[(LAST, b"\x16\x03\x01\x02\x00\x01")]),
            ("a frame that is too long", &[(LAST, &header(1, u32::MAX))]),
            ("a frame that makes no sense", &[(LAST, &header(7, 0))]),
            ("an unknown kind of message", &[(99, b"")]),
            ("memory that is none", &[(SHARE, b"abc")]),
            ("an offer that is too long", &[(OFFER, &[0xff; 40])]),
            ("two probes", &[(PROBE, b""), (PROBE, b"")]),
        ];
        for (name, messages) in cases {
            let raw = Raw::new(&machine.context, devices().0);
            let (_ep, token) = raw.connect(address);
            for (kind, payload) in messages {
                raw.send(token, *kind, payload);
            }
            println!("{name}: {:?}", raw.aborted());
        }
        // Without an end: more than the window permits, or than a frame may have, and a message that is too long.
        for kind in [LAST, PART] {
            let raw = Raw::new(&machine.context, devices().0);
            let (_ep, token) = raw.connect(address);
            // The beginning of a frame, so that the listener waits for the rest.
            raw.send(token, LAST, &header(1, 200 << 10)[..11]);
            let goes_on = || raw.inbox.borrow().iter().all(|(kind, _)| ![ABORT, FIN].contains(kind));
            let mut sent = 0;
            while goes_on() && raw.send(token, kind, &long) {
                sent += 1;
                assert!(sent < 10_000, "it takes all of it");
            }
            let reason = raw.aborted();
            assert!(
                kind == LAST || reason.as_ref().is_some_and(|reason| reason.contains("max_message is")),
                "{reason:?}"
            );
        }
    });
}

#[test]
fn silent_callers_take_a_bounded_number_of_places_for_a_bounded_time() {
    let Some(machine) = machine() else { return };
    let options = NetOptions { max_half_open: 1, handshake_timeout: Duration::from_secs(2), ..patient() };
    attacked(&machine, options, |address| {
        let raws: Vec<_> = (0..2).map(|_| Raw::new(&machine.context, devices().0)).collect();
        // The first one is silent; the second one waits for its place.
        let silent: Vec<_> = raws.iter().map(|raw| raw.connect(address)).collect();
        for raw in &raws {
            raw.aborted();
        }
        drop(silent);
    });
}

#[test]
fn callers_that_are_gone_at_any_stage_leave_nothing() {
    let Some(machine) = machine() else { return };
    attacked(&machine, patient(), |address| {
        for stage in 0..4 {
            let raw = Raw::new(&machine.context, devices().0);
            match stage {
                0 => drop(raw.call(address, &raw.private_data())),
                1 => drop(raw.connect(address)),
                2 => {
                    let (_ep, token) = raw.connect(address);
                    raw.send(token, LAST, b"UCTN");
                }
                _ => {
                    let (ep, token) = raw.connect(address);
                    raw.send(token, LAST, b"UCTN");
                    drop(ep);
                    raw.aborted();
                }
            }
        }
    });
}

/// A listener that is no `uct-net`: `answer` answers the first caller.
fn listener(machine: &Machine, answer: impl FnOnce(&Raw, Request) + Send + 'static) -> SocketAddr {
    let (sender, receiver) = std::sync::mpsc::channel();
    let context = machine.context.clone();
    std::thread::spawn(move || {
        let raw = Raw::new(&context, devices().1);
        let requests = Rc::new(RefCell::new(VecDeque::new()));
        let kept = Rc::clone(&requests);
        let place = format!("{}:0", host()).parse().expect("an address");
        let listener = raw.cm.listen(place, None, move |request| kept.borrow_mut().push_back(request));
        let listener = listener.expect("it listens");
        sender.send(listener.address().expect("it listens")).expect("the client waits");
        let request = raw.until("caller", || requests.borrow_mut().pop_front());
        answer(&raw, request);
    });
    receiver.recv_timeout(LIMIT).expect("it listens")
}

#[test]
fn a_listener_that_is_another_program_is_an_error_with_that_reason() {
    let Some(machine) = machine() else { return };
    let call = |options: NetOptions, address: SocketAddr| {
        let net = Net::new(&machine.context, options).expect("a net");
        net.block_on(net.connect(address).by(CM)).expect_err("no peer of this library")
    };
    let address = listener(&machine, move |raw, request| {
        let _ep = raw.accept(request, b"hello");
        raw.next_event();
    });
    let error = call(patient(), address);
    assert_eq!((error.stage, error.status), (Stage::Dial, Status::UNSUPPORTED));
    assert!(error.to_string().contains("another program"), "{error}");

    let address = listener(&machine, move |_raw, request| {
        request.reject(b"not\x1b[2J here").expect("the client waits");
    });
    let error = call(patient(), address);
    assert_eq!((error.stage, error.status), (Stage::Dial, Status::REJECTED));
    assert!(error.to_string().contains(r"not\u{1b}[2J here"), "{error}");

    // It accepts, and sends nothing or garbage over the lane.
    for bytes in [None, Some(&b"SSH-2.0-OpenSSH"[..])] {
        let address = listener(&machine, move |raw, request| {
            let token = raw.join(request.private());
            let _ep = raw.accept(request, &raw.private_data());
            raw.until("Hello", || (!raw.inbox.borrow().is_empty()).then_some(()));
            if let Some(bytes) = bytes {
                raw.send(token, LAST, bytes);
            }
            raw.next_event();
        });
        let options = NetOptions { handshake_timeout: Duration::from_secs(3), ..patient() };
        let error = call(options, address);
        assert_eq!(error.stage, Stage::Handshake, "{error}");
        let expected = if bytes.is_some() { "it uses another protocol" } else { "handshake_timeout" };
        assert!(error.to_string().contains(expected), "{error}");
    }
}
