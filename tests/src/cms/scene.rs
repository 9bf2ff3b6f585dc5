//! What most cases have: a worker with a connection manager, and ends that keep the events that they get.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use uct_host::cm::{Cm, CmEp, CmEvent, ConnectOptions, Listener, Request};
use uct_host::{Error, Posted, Refused, Worker};

use super::CmSetup;
use crate::pair::poll_until;

/// An event that must come has come by then.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// An event, kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Resolved,
    Connected(Vec<u8>),
    Notified,
    Disconnected(Vec<u8>),
    Lost,
    Failed(Error, Vec<u8>),
}

impl Seen {
    fn of(event: &CmEvent<'_>) -> Seen {
        match event {
            CmEvent::Resolved { .. } => Seen::Resolved,
            CmEvent::Connected { private } => Seen::Connected(private.to_vec()),
            CmEvent::Notified => Seen::Notified,
            CmEvent::Disconnected { reason, lost: None } => Seen::Disconnected(reason.to_vec()),
            CmEvent::Disconnected { lost: Some(words), .. } => {
                assert!(!words.is_empty(), "a loss without a reason");
                Seen::Lost
            }
            CmEvent::Failed { error, private, reason } => {
                assert!(!reason.is_empty(), "a failure without a reason");
                Seen::Failed(*error, private.to_vec())
            }
        }
    }
}

/// A worker with a connection manager.
pub(super) struct Scene {
    pub(super) worker: Worker,
    pub(super) cm: Cm,
    /// Where clients connect from, if they do not choose themselves.
    source: Option<SocketAddr>,
}

/// The events that an end has got so far.
pub(super) type Log = Rc<RefCell<Vec<Seen>>>;

/// One end of a connection. Without `ep` it is destroyed.
pub(super) struct End {
    pub(super) ep: Option<CmEp>,
    pub(super) seen: Log,
}

/// How a client goes on by itself.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) private: Vec<u8>,
    pub(super) options: ConnectOptions,
    pub(super) notifies: bool,
}

impl Default for Client {
    fn default() -> Client {
        Client { private: b"from the client".to_vec(), options: ConnectOptions::default(), notifies: true }
    }
}

/// Requests that a listener has got.
pub(super) type Inbox = Rc<RefCell<Vec<Request>>>;

impl Scene {
    pub(super) fn new(setup: &CmSetup) -> Scene {
        Scene::with(setup, &[])
    }

    pub(super) fn with(setup: &CmSetup, settings: &[(&str, &str)]) -> Scene {
        let worker = Worker::new(&setup.context(settings)).expect("a worker");
        let cm = worker.open_cm(&setup.component).expect("a connection manager");
        Scene { worker, cm, source: setup.source }
    }

    /// A listener that keeps requests.
    pub(super) fn listen(&self, setup: &CmSetup) -> (Listener, SocketAddr, Inbox) {
        let inbox = Inbox::default();
        let kept = Rc::clone(&inbox);
        let listener = self.cm.listen(setup.any_port(), None, move |request| kept.borrow_mut().push(request));
        let listener = listener.expect("it listens");
        let address = listener.address().expect("its address");
        (listener, address, inbox)
    }

    /// A client that sends its private data as soon as it can, and notifies.
    pub(super) fn connect(&self, address: SocketAddr, client: &Client) -> End {
        let seen = Log::default();
        let (kept, client) = (Rc::clone(&seen), client.clone());
        let options = ConnectOptions { source: client.options.source.or(self.source), ..client.options };
        let ep = self.cm.connect(address, options, move |ep, event| {
            kept.borrow_mut().push(Seen::of(&event));
            match event {
                CmEvent::Resolved { .. } => ep.send(&client.private[..]).expect("the request leaves"),
                CmEvent::Connected { .. } if client.notifies => ep.notify().expect("the notification leaves"),
                _ => {}
            }
        });
        End { ep: Some(ep.expect("it connects")), seen }
    }

    /// Accepts a request here.
    #[track_caller]
    pub(super) fn accept(&self, request: Request, private: &[u8]) -> End {
        self.try_accept(request, private).expect("the request is accepted")
    }

    /// Accepts a request here, if its client is there.
    pub(super) fn try_accept(&self, request: Request, private: &[u8]) -> Result<End, Refused> {
        let seen = Log::default();
        let kept = Rc::clone(&seen);
        let ep = request
            .accept(&self.cm, private, None, move |_, event| kept.borrow_mut().push(Seen::of(&event)))?;
        Ok(End { ep: Some(ep), seen })
    }

    /// Progress until something holds.
    #[track_caller]
    pub(super) fn until(&self, what: &str, done: impl FnMut() -> bool) {
        assert!(poll_until(LIMIT, || self.worker.progress(), done), "it did not happen: {what}");
    }

    /// Progress for as long as something that must not happen would take.
    pub(super) fn linger(&self) {
        let count = Cell::new(0);
        self.worker.progress_until(LIMIT, || {
            count.set(count.get() + 1);
            count.get() > 20_000
        });
    }

    /// The event that the peer of [`End::disconnect`] gets.
    pub(super) fn disconnected(&self, reason: &[u8]) -> Seen {
        Seen::Disconnected(reason[..reason.len().min(self.cm.limits().disconnect)].to_vec())
    }

    /// The next request.
    #[track_caller]
    pub(super) fn request(&self, inbox: &Inbox) -> Request {
        self.until("a request", || !inbox.borrow().is_empty());
        inbox.borrow_mut().remove(0)
    }

    /// A connection, and the listener.
    #[track_caller]
    pub(super) fn pair(&self, setup: &CmSetup) -> (End, End, Listener) {
        let (listener, address, inbox) = self.listen(setup);
        let client = self.connect(address, &Client::default());
        let server = self.accept(self.request(&inbox), b"from the server");
        self.until("both are connected", || client.count() == 2 && server.count() == 1);
        assert_eq!(client.log(), [Seen::Resolved, Seen::Connected(b"from the server".to_vec())]);
        assert_eq!(server.log(), [Seen::Notified]);
        (client, server, listener)
    }
}

impl End {
    pub(super) fn ep(&self) -> &CmEp {
        self.ep.as_ref().expect("it is not destroyed")
    }

    pub(super) fn log(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }

    pub(super) fn count(&self) -> usize {
        self.seen.borrow().len()
    }

    pub(super) fn last(&self) -> Option<Seen> {
        self.seen.borrow().last().cloned()
    }

    /// Why it failed, once it has.
    pub(super) fn failure(&self) -> Option<Error> {
        match self.last() {
            Some(Seen::Failed(error, _)) => Some(error),
            _ => None,
        }
    }

    /// Disconnects with as much of the reason as the connection manager carries.
    pub(super) fn disconnect(&self, reason: &[u8]) -> Result<Posted, Error> {
        let most = self.ep().cm().limits().disconnect;
        self.ep().disconnect(&reason[..reason.len().min(most)])
    }

    pub(super) fn destroy(&mut self) {
        self.ep = None;
    }
}
