//! Connecting and listening by a connection manager of UCT. Its private data have room for one endpoint on each side ([`LaneAddress`]); the
//! handshake goes over that endpoint ([`Channel`]), which then becomes the lane if it is the one that is chosen.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ucs::Error as Status;
use ucs::admission::{Limits, Places, Source, Vacancy};
use ucs::text::PeerText;
use uct_host::cm::{Cm, CmData, CmEp, CmEvent, CmToken, ConnectOptions, Listener, Request};
use uct_host::{Capabilities, Iface, IfaceAddress, OpenError};

use super::agenda::Agenda;
use super::channel::{Channel, FailureTarget, LIMITS};
use super::conn::Conn;
use super::handshake::Forget;
use super::lane::{HalfLane, Lane};
use super::net::NetHandle;
use super::socket::{FrameSocket, Place};
use crate::error::{Error, Result, Stage};
use crate::proto::envelope::Token;
use crate::proto::lane_address::LaneAddress;

/// Used without being asked for: every listener accepts TCP connections.
const ALWAYS_USED: &str = "tcp";
/// Callers that a listener has not accepted yet, for each listener; TCP callers wait in the system's queue of the socket. Beyond it,
/// the oldest one of the source with the most is rejected.
const MAX_WAITING: usize = 1024;
/// The private data of that rejection.
const FULL: &[u8] = b"too many callers wait; try again";

/// The connection manager of a name, for an address.
fn open(net: &NetHandle, name: &str, stage: Stage, place: &Place) -> Result<(Cm, SocketAddr)> {
    let refused = |status, reason: String| Error::new(stage, place.to_string(), status, reason);
    if name == ALWAYS_USED {
        let reason = format!("by({name:?}) is not needed: connections are made over TCP without it");
        return Err(refused(Status::UNSUPPORTED, reason).hint("leave it out"));
    }
    // The endpoint that it connects leaves the machine in clear. Nothing was sent yet, and no caller is let in.
    if let Some(limit) = net.options.limit() {
        let reason = format!("by({name:?}) cannot be confidential: {limit}");
        return Err(refused(Status::UNSUPPORTED, reason).hint("leave by out: TCP connects inside TLS"));
    }
    let cm = net.manager(name).map_err(|error| match &error {
        OpenError::NoSuchCm { .. } => refused(Status::INVALID_PARAM, error.to_string())
            .hint("rdmacm is a plugin, or feature rdmacm of uct-core; uct_info -v names what was loaded"),
        OpenError::Refused(cause) => refused(cause.status, error.to_string()),
        _ => refused(Status::IO_ERROR, error.to_string()),
    })?;
    match place {
        Place::Ip(address) => Ok((cm, *address)),
        Place::Unix(_) => Err(refused(Status::INVALID_ADDR, format!("{name} takes no path"))
            .hint("give an IP address of a network device that has an RDMA device")),
    }
}

/// The endpoint of this side, before it is connected to the peer's. Both sides create one.
struct LocalEnd<'a> {
    iface: Iface,
    conn: Rc<Conn>,
    guard: Forget<'a>,
    target: FailureTarget,
    half: HalfLane,
    address: LaneAddress,
    token: Option<CmToken>,
}

/// The interface on a device whose endpoints a connection manager connects; the error is the reason why there is none.
fn carrier<'a>(net: &'a NetHandle, device: &str) -> std::result::Result<&'a Iface, String> {
    let is_meant = |iface: &&Iface| {
        iface.resource().device == device && !iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE)
    };
    net.selector.ifaces().iter().find(is_meant).ok_or_else(|| {
        format!("rc_verbs is needed on {device}, and is not open there (uct_info -d has the reason)")
    })
}

/// Parses the peer's private data.
fn unpack(iface: &Iface, private: &[u8]) -> std::result::Result<LaneAddress, String> {
    let own = iface.address().map_err(|error| format!("{} has no address: {error}", iface.resource()))?;
    let address =
        LaneAddress::parse(private, &own, iface.attributes().ep_addr_len).map_err(|error| error.reason)?;
    iface.is_reachable(&address.iface).map_err(|error| error.to_string())?;
    Ok(address)
}

impl<'a> LocalEnd<'a> {
    fn new(
        net: &'a NetHandle,
        iface: &Iface,
        target: FailureTarget,
        peer: &str,
    ) -> std::result::Result<LocalEnd<'a>, String> {
        let conn = net.add_with(LIMITS, Token::short, peer).map_err(|error| error.reason)?;
        let guard = Forget::new(net, &conn);
        target.replace(Rc::downgrade(&conn));
        let link = Rc::clone(&target);
        let half = HalfLane::apart(iface, move |failure| {
            if let Some(conn) = connection(&link) {
                conn.lane_failed(&failure);
            }
        });
        let half = half.map_err(|error| error.to_string())?;
        let failed = |error: Status| format!("{} has no address: {error}", iface.resource());
        let address = LaneAddress {
            token: conn.token(),
            iface: iface.address().map_err(failed)?,
            endpoint: half.address().map_err(failed)?,
        };
        let token = half.cm_token().ok();
        Ok(LocalEnd { iface: iface.clone(), conn, guard, target, half, address, token })
    }

    /// Connects it to the peer's.
    fn connect(self, peer: LaneAddress) -> std::result::Result<ConnectedEnd<'a>, String> {
        let LocalEnd { iface, conn, guard, target, half, .. } = self;
        let lane = half.connect(&iface, &peer.iface, &peer.endpoint, peer.token);
        let lane = lane.map_err(|error| error.to_string())?;
        Ok(ConnectedEnd { iface, peer: peer.iface, conn, guard, target, lane })
    }
}

/// An endpoint that is connected.
struct ConnectedEnd<'a> {
    iface: Iface,
    peer: IfaceAddress,
    conn: Rc<Conn>,
    guard: Forget<'a>,
    target: FailureTarget,
    lane: Lane,
}

impl ConnectedEnd<'_> {
    /// The socket of the handshake over this endpoint. `made_by` is kept as long as the endpoint.
    fn into_socket(self, net: &NetHandle, made_by: CmEp, peer: String, address: SocketAddr) -> FrameSocket {
        self.conn.open(self.lane.made_by(made_by), LIMITS.0);
        self.guard.keep();
        let channel = Channel::new(net.clone(), self.conn, self.target, (self.iface, self.peer));
        FrameSocket::of_channel(&net.reactor, channel, peer, address)
    }
}

fn connection(target: &FailureTarget) -> Option<Rc<Conn>> {
    target.borrow().upgrade()
}

/// Event of the client's connection attempt.
enum CallEvent {
    /// This device leads to the peer.
    Resolved(String),
    /// The peer has accepted, with these private data.
    Connected(Vec<u8>),
    Failed(Status, String),
}

/// The latest event of one connection that the client has not processed.
struct Events {
    latest: RefCell<Option<CallEvent>>,
    waker: Cell<Option<Waker>>,
    agenda: Rc<Agenda>,
}

impl Events {
    fn add(&self, latest: CallEvent) {
        self.latest.replace(Some(latest));
        self.agenda.wake_later(self.waker.take());
    }

    async fn next(&self) -> CallEvent {
        poll_fn(|context| match self.latest.take() {
            Some(latest) => Poll::Ready(latest),
            None => {
                self.waker.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

/// Fails the connection that uses the endpoint when the connection manager's connection ends; returns status and reason. That end has no
/// order with the messages of the endpoint: those that arrived before are delivered first.
fn note_end(
    agenda: &Agenda,
    ep: &CmEp,
    target: &FailureTarget,
    event: CmEvent<'_>,
) -> Option<(Status, String)> {
    let end = match event {
        CmEvent::Failed { error: Status::REJECTED, private, .. } => {
            (Status::REJECTED, format!("the peer rejected the connection: {}", PeerText::new(private)))
        }
        CmEvent::Failed { error, reason, .. } => (error, reason.to_owned()),
        CmEvent::Disconnected { lost, .. } => {
            let _ = ep.disconnect(b"");
            let by = ep.cm().component().to_owned();
            let reason = lost.map_or_else(|| format!("the peer's {by} connection has ended"), str::to_owned);
            (Status::CONNECTION_RESET, reason)
        }
        _ => return None,
    };
    let (target, (status, reason)) = (Rc::clone(target), end.clone());
    agenda.end_later(move || {
        if let Some(conn) = connection(&target) {
            conn.lost(status, reason);
        }
    });
    Some(end)
}

/// Calls a listener, from an address of this machine if one is given. Each stage of the connection manager has the limit of a step of the handshake.
pub(crate) async fn dial(
    net: &NetHandle,
    name: &str,
    place: &Place,
    source: Option<SocketAddr>,
) -> Result<FrameSocket> {
    let peer = place.to_string();
    let failed = |status, reason: String| Error::new(Stage::Dial, &*peer, status, reason);
    let refused = |reason: String| failed(Status::UNREACHABLE, reason);
    let (cm, address) = open(net, name, Stage::Dial, place)?;
    let _underway = net.reactor.begin_handshake();
    let events =
        Events { latest: RefCell::default(), waker: Cell::default(), agenda: Rc::clone(&net.agenda) };
    let (events, target) = (Rc::new(events), FailureTarget::default());
    let (queue, link) = (Rc::clone(&events), Rc::clone(&target));
    let report = move |ep: &CmEp, event: CmEvent<'_>| match event {
        CmEvent::Resolved { device, .. } => queue.add(CallEvent::Resolved(device.to_owned())),
        CmEvent::Connected { private } => queue.add(CallEvent::Connected(private.to_vec())),
        other => {
            if let Some((status, reason)) = note_end(&queue.agenda, ep, &link, other) {
                queue.add(CallEvent::Failed(status, reason));
            }
        }
    };
    let options = ConnectOptions { source, timeout: Some(net.options.handshake_timeout) };
    let ep = cm.connect(address, options, report);
    let ep = ep.map_err(|error| failed(error.status, error.to_string()))?;
    let device = match events.next().await {
        CallEvent::Resolved(device) => device,
        CallEvent::Failed(status, reason) => return Err(failed(status, reason)),
        CallEvent::Connected(_) => {
            return Err(failed(Status::IO_ERROR, format!("{name} connects what it did not resolve")));
        }
    };
    let iface = carrier(net, &device).map_err(refused)?;
    let local = LocalEnd::new(net, iface, target, &peer).map_err(refused)?;
    let private = local.address.to_bytes();
    ep.send(CmData { private: &private, token: local.token }).map_err(|status| {
        let length = private.len();
        failed(
            status,
            format!("{name} does not send {length} bytes of addresses of {}: {status}", iface.resource()),
        )
    })?;
    let private = match events.next().await {
        CallEvent::Connected(private) => private,
        CallEvent::Failed(status, reason) => return Err(failed(status, reason)),
        CallEvent::Resolved(_) => return Err(failed(Status::IO_ERROR, format!("{name} resolves twice"))),
    };
    let theirs = unpack(iface, &private).map_err(|reason| failed(Status::UNSUPPORTED, reason))?;
    let connected = local.connect(theirs).map_err(refused)?;
    ep.notify().map_err(|status| failed(status, format!("{name} does not notify the peer: {status}")))?;
    Ok(connected.into_socket(net, ep, peer, address))
}

/// Listens by a connection manager.
pub(crate) struct CmListener {
    cm: Cm,
    waiting: Rc<Waiting>,
    _listener: Listener,
}

/// Requests that the listener has not accepted yet.
struct Waiting {
    requests: RefCell<Requests>,
    waker: Cell<Option<Waker>>,
    agenda: Rc<Agenda>,
}

/// The oldest first. Beyond [`MAX_WAITING`], the oldest one of the source with the most gives way, so no host keeps others out.
struct Requests {
    places: Places<u64>,
    waiting: BTreeMap<u64, Request>,
    made: u64,
}

impl CmListener {
    pub(crate) fn new(net: &NetHandle, name: &str, place: &Place) -> Result<CmListener> {
        let (cm, address) = open(net, name, Stage::Listen, place)?;
        let (waker, agenda) = (Cell::default(), Rc::clone(&net.agenda));
        let requests = RefCell::new(Requests::new());
        let waiting = Rc::new(Waiting { requests, waker, agenda });
        let queue = Rc::clone(&waiting);
        let listener = cm
            .listen(address, None, move |request| queue.add(request))
            .map_err(|error| Error::new(Stage::Listen, place.to_string(), error.status, error.to_string()))?;
        Ok(CmListener { cm, waiting, _listener: listener })
    }

    /// The next request; registers the waker if there is none yet.
    pub(crate) fn next(&self, context: &Context<'_>) -> Option<Request> {
        let next = self.waiting.requests.borrow_mut().take_oldest();
        if next.is_none() {
            self.waiting.waker.set(Some(context.waker().clone()));
        }
        next
    }

    /// Connects an endpoint of this side to the caller's, or rejects the caller with the reason.
    pub(crate) fn accept(&self, net: &NetHandle, request: Request) -> Result<FrameSocket> {
        let (peer, address) = (request.peer().to_string(), request.peer());
        let failed = |status, reason: String| Error::new(Stage::Handshake, &*peer, status, reason);
        let prepare = || {
            let iface = carrier(net, request.device())?;
            let theirs = unpack(iface, request.private())?;
            let local = LocalEnd::new(net, iface, FailureTarget::default(), &peer)?;
            let (private, token) = (local.address.to_bytes(), local.token);
            Ok::<_, String>((local.connect(theirs)?, private, token))
        };
        let (connected, private, token) = match prepare() {
            Ok(prepared) => prepared,
            Err(reason) => {
                let most = reason.len().min(self.cm.limits().reject);
                let _ = request.reject(&reason.as_bytes()[..most]);
                return Err(failed(Status::REJECTED, reason));
            }
        };
        let (link, agenda) = (Rc::clone(&connected.target), Rc::clone(&net.agenda));
        let report = move |ep: &CmEp, event: CmEvent<'_>| drop(note_end(&agenda, ep, &link, event));
        let limit = Some(net.options.handshake_timeout);
        let ep = request.accept(&self.cm, CmData { private: &private, token }, limit, report);
        let ep = ep.map_err(|error| failed(error.status, error.to_string()))?;
        Ok(connected.into_socket(net, ep, peer, address))
    }
}

impl Waiting {
    fn add(&self, request: Request) {
        let refused = self.requests.borrow_mut().add(request);
        if let Some(refused) = refused {
            let _ = refused.reject(FULL);
        }
        self.agenda.wake_later(self.waker.take());
    }
}

impl Requests {
    fn new() -> Requests {
        Requests { places: Places::new(Limits::shared(MAX_WAITING)), waiting: BTreeMap::new(), made: 0 }
    }

    /// Adds one; returns the one that gives way to it.
    fn add(&mut self, request: Request) -> Option<Request> {
        let (source, now) = (Source::of(request.peer().ip()), Instant::now());
        let gives_way = match self.places.ask(source, false, (now, Duration::ZERO), |_| true) {
            Vacancy::Free => None,
            Vacancy::Instead(number) => self.waiting.remove(&number),
            Vacancy::None => return Some(request),
        };
        self.places.add(self.made, source, now);
        self.waiting.insert(self.made, request);
        self.made += 1;
        gives_way
    }

    fn take_oldest(&mut self) -> Option<Request> {
        let (number, request) = self.waiting.pop_first()?;
        self.places.remove(number);
        Some(request)
    }
}
