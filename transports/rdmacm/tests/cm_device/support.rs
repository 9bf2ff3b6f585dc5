//! Two sides with a connection manager each, and what their endpoints report.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uct_core::cm::{Cm, CmData, CmEp, CmEvent, ConnectOptions, Listener, Request};
use uct_core::{Context, Error, Worker};

#[path = "../../../../ucs/testing/poll.rs"]
mod poll;
#[path = "../../../../ucs/testing/skip.rs"]
pub mod skip;

use poll::poll_until;

/// Longest wait for anything; a watchdog, not a tuning knob.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What was reported, kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    Resolved(SocketAddr, SocketAddr, String),
    Connected(Vec<u8>),
    Notified,
    Disconnected(Option<String>),
    Failed(Error, Vec<u8>, String),
}

impl Told {
    pub fn of(event: CmEvent<'_>) -> Told {
        match event {
            CmEvent::Resolved { local, peer, device } => Told::Resolved(local, peer, device.to_owned()),
            CmEvent::Connected { private } => Told::Connected(private.to_vec()),
            CmEvent::Notified => Told::Notified,
            CmEvent::Disconnected { lost, .. } => Told::Disconnected(lost.map(str::to_owned)),
            CmEvent::Failed { error, private, reason } => {
                Told::Failed(error, private.to_vec(), reason.to_owned())
            }
        }
    }
}

/// An endpoint and its events.
pub struct End {
    pub ep: CmEp,
    pub told: Rc<RefCell<VecDeque<Told>>>,
}

/// A worker with a connection manager.
pub struct Side {
    pub worker: Worker,
    pub cm: Cm,
}

/// Both sides, and the turn to use the machine.
pub struct Net {
    pub client: Side,
    pub server: Side,
    /// Where the server listens; across the cable if there is one.
    pub server_ip: String,
    _turn: MutexGuard<'static, ()>,
}

/// `None` says that the test is skipped.
pub fn net() -> Option<Net> {
    net_with(&[])
}

/// As [`net`], with keys of section rdmacm set.
pub fn net_with(keys: &[(&str, &str)]) -> Option<Net> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut builder = Context::builder();
    for (key, value) in keys {
        builder = builder.set(format!("rdmacm.{key}"), *value);
    }
    let context = match builder.build() {
        Ok(context) => context,
        Err(error) => {
            skip::skip("verbs", error);
            return None;
        }
    };
    let side = || {
        let worker = Worker::new(&context).unwrap_or_else(|error| panic!("{error}"));
        worker.open_cm("rdmacm").map(|cm| Side { worker, cm })
    };
    match (side(), side()) {
        (Ok(client), Ok(server)) => {
            let server_ip = if is_pair() { "10.7.0.2" } else { "10.7.0.1" }.to_owned();
            Some(Net { client, server, server_ip, _turn: turn })
        }
        (Err(error), _) | (_, Err(error)) => {
            skip::skip("verbs", error);
            None
        }
    }
}

/// Whether there are two devices that are connected by a cable.
pub fn is_pair() -> bool {
    std::path::Path::new("/sys/class/infiniband/mlx5_1").exists()
}

/// A listener that keeps its requests.
pub struct Listening {
    pub listener: Listener,
    pub requests: Rc<RefCell<VecDeque<Request>>>,
}

impl Listening {
    pub fn address(&self) -> SocketAddr {
        self.listener.address().expect("it listens")
    }
}

impl Net {
    pub fn server_address(&self, port: u16) -> SocketAddr {
        format!("{}:{port}", self.server_ip).parse().expect("an address")
    }

    pub fn listen(&self) -> Listening {
        self.listen_on(self.server_address(0))
    }

    pub fn listen_on(&self, address: SocketAddr) -> Listening {
        let requests = Rc::new(RefCell::new(VecDeque::new()));
        let kept = Rc::clone(&requests);
        let listener = self
            .server
            .cm
            .listen(address, None, move |request| kept.borrow_mut().push_back(request))
            .unwrap_or_else(|error| panic!("{error}"));
        Listening { listener, requests }
    }

    /// A client that sends these private data as soon as the server is resolved, and notifies as soon as it is connected.
    pub fn connect(&self, server: SocketAddr, private: &[u8]) -> End {
        let private = private.to_vec();
        self.connect_with(server, ConnectOptions::default(), move |ep, told| match told {
            Told::Resolved(..) => ep.send(&private[..]).expect("resolved"),
            Told::Connected(_) => ep.notify().expect("connected"),
            _ => {}
        })
    }

    /// A client that does nothing by itself.
    pub fn call(&self, server: SocketAddr, options: ConnectOptions) -> End {
        self.connect_with(server, options, |_, _| {})
    }

    /// A client that sends a request and never notifies.
    pub fn ask(&self, server: SocketAddr, options: ConnectOptions) -> End {
        self.connect_with(server, options, |ep, told| {
            if let Told::Resolved(..) = told {
                ep.send(b"").expect("resolved");
            }
        })
    }

    pub fn connect_with(
        &self,
        server: SocketAddr,
        mut options: ConnectOptions,
        mut then: impl FnMut(&CmEp, &Told) + 'static,
    ) -> End {
        // The system would take the way inside the machine.
        if is_pair() && server.is_ipv4() && options.source.is_none() {
            options.source = Some("10.7.0.1:0".parse().expect("an address"));
        }
        let told = Rc::new(RefCell::new(VecDeque::new()));
        let kept = Rc::clone(&told);
        let ep = self
            .client
            .cm
            .connect(server, options, move |ep, event| {
                let event = Told::of(event);
                then(ep, &event);
                kept.borrow_mut().push_back(event);
            })
            .unwrap_or_else(|error| panic!("{error}"));
        End { ep, told }
    }

    /// The next request of a listener.
    #[track_caller]
    pub fn request(&self, listening: &Listening) -> Request {
        self.until("a request", || listening.requests.borrow_mut().pop_front())
    }

    #[track_caller]
    pub fn accept(&self, request: Request, private: &[u8]) -> End {
        self.try_accept(request, CmData { private, token: None }).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn try_accept(&self, request: Request, data: CmData<'_>) -> Result<End, uct_core::Refused> {
        let told = Rc::new(RefCell::new(VecDeque::new()));
        let kept = Rc::clone(&told);
        let ep = request.accept(&self.server.cm, data, None, move |_, event| {
            kept.borrow_mut().push_back(Told::of(event));
        })?;
        Ok(End { ep, told })
    }

    /// A connection that both sides know.
    pub fn connected(&self) -> (Listening, End, End) {
        let listening = self.listen();
        let client = self.connect(listening.address(), b"hello");
        let server = self.accept(self.request(&listening), b"welcome");
        self.resolved(&client);
        assert_eq!(self.told(&client), Told::Connected(b"welcome".to_vec()));
        assert_eq!(self.told(&server), Told::Notified);
        (listening, client, server)
    }

    /// The next event of an end.
    #[track_caller]
    pub fn told(&self, end: &End) -> Told {
        self.until("an event", || end.told.borrow_mut().pop_front())
    }

    /// The client gets the event that the server is resolved.
    #[track_caller]
    pub fn resolved(&self, end: &End) {
        let told = self.told(end);
        assert!(matches!(told, Told::Resolved(..)), "{told:?}");
    }

    /// The failure that is reported to an end.
    #[track_caller]
    pub fn failure(&self, end: &End) -> (Error, Vec<u8>, String) {
        match self.told(end) {
            Told::Failed(error, private, reason) => (error, private, reason),
            other => panic!("{other:?}"),
        }
    }

    /// Moves both sides on until there is an answer; panics if that takes too long.
    #[track_caller]
    pub fn until<T>(&self, what: &str, mut done: impl FnMut() -> Option<T>) -> T {
        let mut answer = None;
        let progress = || self.client.worker.progress() + self.server.worker.progress();
        let is_there = poll_until(PATIENCE, progress, || {
            answer = done();
            answer.is_some()
        });
        assert!(is_there, "{what}: not within {PATIENCE:?}");
        answer.expect("it is there")
    }

    /// Moves both sides on for some time, in which nothing is to happen.
    pub fn idle(&self, time: Duration) {
        let deadline = Instant::now() + time;
        self.until("time", || (Instant::now() >= deadline).then_some(()));
    }
}
