//! The side that calls.

use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ucs::Error as Status;
use ucs::text::{PeerLines, PeerText};
use uct_host::select::{Candidate, Explanation as Explained, PeerAddresses, Request, SelectError, Selector};
use uct_host::{Iface, IfaceAddress, SocketSide};

use super::super::announced;
use super::super::conn::Conn;
use super::super::connection::{Connection, Explanation};
use super::super::lane::HalfLane;
use super::super::net::NetHandle;
use super::super::socket::FrameSocket;
use super::super::standing::{Standing, is_for_socket};
use super::forget::Forget;
use super::lane;
use super::steps::Steps;
use crate::error::{Error, Result, Stage};
use crate::proto::envelope::Kind;
use crate::proto::handshake::client::{Action, Actions, Input};
use crate::proto::handshake::{Awaits, Client, End, Failure, Proposal};

/// The remedy where the listener's reason is not known.
const AGAIN: &str = "the listener may have ended, or have needed the place for another caller: try again";

/// Runs the client's side.
pub(crate) async fn call(
    net: &NetHandle,
    socket: &FrameSocket,
    requests: &[Request],
    require: &[String],
    private: Vec<u8>,
) -> Result<Connection> {
    let steps = Steps::of_client(net, socket);
    let standing = Standing::of(net, socket);
    let key = steps.key()?;
    let key = key.as_ref().map(|(key, nonce)| (&**key, *nonce));
    let (machine, actions) = Client::new(private, announced::own(net, &standing), key);
    let wanted = (requests, require);
    let mut call = Call { steps: &steps, standing, machine, wanted, server: None, lane: None };
    match call.run(actions).await {
        Ok(()) => call.done(),
        Err(error) => Err(call.refusal().unwrap_or_else(|| match error.status {
            Status::CONNECTION_RESET if error.hint.is_none() => error.hint(AGAIN),
            _ => error,
        })),
    }
}

/// A call, as far as it has come.
struct Call<'a> {
    steps: &'a Steps<'a>,
    standing: Standing<'a>,
    machine: Client,
    /// The requests of the application, and the transports that it requires.
    wanted: (&'a [Request], &'a [String]),
    server: Option<Server<'a>>,
    lane: Option<Lane<'a>>,
}

/// A lane that was chosen.
struct Lane<'a> {
    chosen: Chosen,
    conn: Rc<Conn>,
    guard: Forget<'a>,
    /// Its endpoint; `None` over the socket of the handshake.
    half: Option<HalfLane>,
}

impl Call<'_> {
    async fn run(&mut self, mut actions: Actions) -> Result {
        let steps = self.steps;
        loop {
            let mut next = Actions::new();
            for action in actions {
                match action {
                    Action::Send(bytes) => steps.send(&bytes).await?,
                    Action::Welcomed { private, addresses, explanation } => {
                        let taken = (addresses, explanation, private);
                        self.server = Some(Server::new(steps, &self.standing, self.wanted, taken));
                    }
                    Action::Choose(failed) => next = self.choose(failed).await?,
                    Action::Open(peer) => next = self.open(&peer),
                    Action::Take(peer) => self.take(&peer)?,
                    Action::Done => return Ok(()),
                    Action::Fail(failure) => return Err(steps.failed(failure)),
                }
            }
            actions = if next.is_empty() { self.next().await? } else { next };
        }
    }

    /// Why the server has refused this side, if it has: it may be the cause of a lane's or the socket's error.
    fn refusal(&mut self) -> Option<Error> {
        let received = pin!(self.steps.socket.receive());
        let Poll::Ready(Ok(frame)) = received.poll(&mut Context::from_waker(Waker::noop())) else {
            return None;
        };
        let failed =
            self.machine.handle(Input::Received(&frame)).into_iter().find_map(|action| match action {
                Action::Fail(failure @ Failure::Rejected(_)) => Some(failure),
                _ => None,
            });
        failed.map(|failure| self.steps.failed(failure))
    }

    fn lane(&self) -> Result<&Lane<'_>> {
        self.lane.as_ref().ok_or_else(|| self.steps.failed(Failure::NotAwaited))
    }

    /// Waits for what the machine waits for.
    async fn next(&mut self) -> Result<Actions> {
        let frame = match self.machine.awaits() {
            Awaits::Frame(what) => self.steps.frame(what).await?,
            Awaits::Message { or_frame } => {
                let conn = Rc::clone(&self.lane()?.conn);
                let answered = match or_frame {
                    true => self.steps.message_or_frame(&conn).await?,
                    false => self.steps.message(&conn, false).await.map(|()| None),
                };
                match answered {
                    Ok(None) => return Ok(self.machine.handle(Input::Replied)),
                    Ok(Some(frame)) => frame,
                    // There is no socket for another one any more.
                    Err(error) if self.lane()?.chosen.over_socket => return Err(error),
                    Err(error) => {
                        let reason = format!("no message came back: {error}");
                        return Ok(self.machine.handle(Input::LaneFailed(reason)));
                    }
                }
            }
            Awaits::Use | Awaits::Decision | Awaits::Nothing => {
                return Err(self.steps.failed(Failure::NotAwaited));
            }
        };
        Ok(self.machine.handle(Input::Received(&frame)))
    }

    /// Chooses the next lane, and prepares this side's end of it. Without one the server is told so.
    async fn choose(&mut self, failed: Option<String>) -> Result<Actions> {
        let net = self.steps.net;
        let server = self.server.as_mut().ok_or_else(|| self.steps.failed(Failure::NotAwaited))?;
        if let (Some(lane), Some(reason)) = (self.lane.take(), failed) {
            server.strike(self.steps, &lane.chosen, reason);
        }
        loop {
            let chosen = match server.next(self.steps) {
                Ok(chosen) => chosen,
                Err(error) => {
                    let error = server.nothing_left(self.steps, self.wanted.1, &error);
                    for action in self.machine.handle(Input::NoneLeft(&error.reason)) {
                        if let Action::Send(bytes) = action {
                            let _ = self.steps.send(&bytes).await;
                        }
                    }
                    return Err(error);
                }
            };
            let conn = net.add(self.steps.socket.peer())?;
            let guard = Forget::new(net, &conn);
            match prepare(net, &chosen, &conn) {
                Ok((half, proposal)) => {
                    let over_socket = chosen.over_socket;
                    self.lane = Some(Lane { chosen, conn, guard, half });
                    return Ok(self.machine.handle(Input::Chosen { over_socket, proposal }));
                }
                Err(reason) => server.strike(self.steps, &chosen, reason),
            }
        }
    }

    /// Opens the lane to the server's end, and sends a message over it.
    fn open(&mut self, peer: &End) -> Actions {
        let Some(Lane { chosen, conn, half, .. }) = &mut self.lane else { return Actions::new() };
        let connected =
            half.take().map(|half| half.connect(&chosen.iface, &chosen.theirs, &peer.endpoint, peer.token));
        match connected {
            Some(Ok(lane)) => {
                conn.open(lane, peer.window);
                conn.control(Kind::Probe, Vec::new());
                Actions::new()
            }
            Some(Err(error)) => self.machine.handle(Input::LaneFailed(format!("this side: {error}"))),
            None => self.machine.handle(Input::LaneFailed("this side has no endpoint".to_owned())),
        }
    }

    /// Makes the socket of the handshake the lane, and sends a message over it. There is no other lane afterwards.
    fn take(&mut self, peer: &End) -> Result {
        let Lane { chosen, conn, .. } = self.lane()?;
        lane::take_socket(self.steps, conn, &chosen.iface, &chosen.theirs, SocketSide::Called, peer)?;
        conn.control(Kind::Probe, Vec::new());
        Ok(())
    }

    fn done(self) -> Result<Connection> {
        let (Some(server), Some(lane)) = (self.server, self.lane) else {
            return Err(self.steps.failed(Failure::NotAwaited));
        };
        lane.guard.keep();
        lane.conn.set_peer_pid(self.steps.socket.origin().pid());
        let net = self.steps.net;
        let explanation = Explanation {
            chosen: lane::name(net, &lane.chosen.iface),
            ours: lane.chosen.explanation,
            theirs: server.explanation,
            tried: server.tried,
        };
        Ok(Connection::new(net.clone(), lane.conn, lane.chosen.iface, explanation, server.private))
    }
}

/// This side's endpoint beside the socket of the handshake, and what the server is told of the lane; the error is a reason.
fn prepare(
    net: &NetHandle,
    chosen: &Chosen,
    conn: &Rc<Conn>,
) -> std::result::Result<(Option<HalfLane>, Proposal), String> {
    let Chosen { iface, theirs, over_socket, .. } = chosen;
    let own = announced::address(net, iface).map_err(|error| format!("this side has no address: {error}"))?;
    if *over_socket {
        let theirs = announced::named(net, iface, theirs.clone());
        return Ok((None, Proposal { own, theirs, end: lane::end(net, conn, Vec::new()) }));
    }
    let half = HalfLane::open(iface, theirs, lane::on_failure(conn));
    let half = half.map_err(|error| format!("this side: {error}"))?;
    let endpoint = half.address().map_err(|error| format!("this side has no endpoint address: {error}"))?;
    Ok((Some(half), Proposal { own, theirs: theirs.clone(), end: lane::end(net, conn, endpoint) }))
}

/// A pair of interfaces.
struct Chosen {
    iface: Iface,
    theirs: IfaceAddress,
    /// Over the socket of the handshake, or the endpoint in its place.
    over_socket: bool,
    explanation: Explained,
}

/// What the client has learned from the server's first answer, and what it makes of it.
struct Server<'a> {
    addresses: PeerAddresses,
    /// As it has sent them.
    announced: PeerAddresses,
    explanation: PeerLines,
    private: Vec<u8>,
    request: &'a Request,
    /// All interfaces that may be used, and those that were not tried.
    selector: Selector,
    left: Vec<Iface>,
    is_required: bool,
    tried: Vec<(String, String)>,
    /// Why an interface that was asked for may not be used.
    refused: Option<String>,
}

impl<'a> Server<'a> {
    fn new(
        steps: &Steps<'_>,
        standing: &Standing<'_>,
        (requests, require): (&'a [Request], &[String]),
        (announced, explanation, private): (PeerAddresses, PeerLines, Vec<u8>),
    ) -> Server<'a> {
        let Steps { net, socket, .. } = steps;
        let addresses = announced::understood(net, announced.clone());
        let named = |iface: &&Iface| {
            let resource = iface.resource();
            let names = [&resource.transport, &resource.device, &resource.to_string()];
            require.is_empty() || require.iter().any(|name| names.contains(&name))
        };
        // The address that was called decides the device, of the transport that the connection manager has connected.
        let over = socket.ends().map(|(iface, _)| iface).filter(|iface| named(iface));
        let beside = |other: &Iface| {
            let (over, other) = (over?.resource(), other.resource());
            let is_beside = other.transport == over.transport && other.device != over.device;
            is_beside.then(|| format!("the connection manager's connection leads over {}", over.device))
        };
        let selector = standing.permitted(&addresses).without(beside);
        let left: Vec<Iface> = selector.ifaces().iter().filter(named).cloned().collect();
        let request = cheapest(&Selector::of(&net.worker, left.clone()), requests, &addresses);
        let refused = net.selector.ifaces().iter().filter(named).find_map(|iface| standing.refuses(iface));
        Server {
            addresses,
            announced,
            explanation,
            private,
            request,
            selector,
            left,
            is_required: !require.is_empty(),
            tried: Vec::new(),
            refused,
        }
    }

    /// The next lane.
    fn next(&self, steps: &Steps<'_>) -> std::result::Result<Chosen, SelectError> {
        let Steps { net, socket, .. } = steps;
        let (request, peer) = (self.request, Some(&self.addresses));
        let of = |ifaces: Vec<Iface>| Selector::of(&net.worker, ifaces);
        // Once something was tried, the reasons of the rest are the first explanation's.
        let chosen = match self.is_required || !self.tried.is_empty() {
            true => of(self.left.clone()).choose(request, peer),
            false => self.selector.choose(request, peer),
        };
        let choice = match chosen {
            // What stays on the machine needs no TLS.
            Ok(choice) if net.options.wraps(&choice.iface) => {
                let near = self.left.iter().filter(|iface| !net.options.wraps(iface)).cloned().collect();
                of(near).choose(request, peer).unwrap_or(choice)
            }
            Ok(choice) => choice,
            Err(error) => {
                // The socket of the handshake leads to the peer, whatever its address does. All else that is asked for holds here as well.
                let over = self.over_socket(net, socket);
                let over = over.filter(|(iface, _)| of(vec![iface.clone()]).choose(request, None).is_ok());
                let (iface, theirs) = over.ok_or(error)?;
                let explanation = self.selector.explain(request, peer);
                return Ok(Chosen { iface, theirs, over_socket: true, explanation });
            }
        };
        let over_socket = is_for_socket(net, socket, &choice.iface);
        let theirs = socket.ends().filter(|_| over_socket).map(|(_, theirs)| theirs.clone());
        let theirs = theirs.or(choice.peer).expect("a choice for a peer has the peer's address");
        Ok(Chosen { iface: choice.iface, theirs, over_socket, explanation: choice.explanation })
    }

    /// An interface of each side, of one transport, that can use the socket of the handshake.
    fn over_socket(&self, net: &NetHandle, socket: &FrameSocket) -> Option<(Iface, IfaceAddress)> {
        self.left.iter().filter(|iface| is_for_socket(net, socket, iface)).find_map(|iface| {
            let transport = &iface.resource().transport;
            let first = || self.addresses.ifaces.iter().find(|theirs| &theirs.address.transport == transport);
            let theirs = socket.ends().map(|(_, theirs)| theirs).or_else(|| Some(&first()?.address))?;
            Some((iface.clone(), theirs.clone()))
        })
    }

    /// A lane does not work; the next one is tried.
    fn strike(&mut self, steps: &Steps<'_>, chosen: &Chosen, reason: String) {
        let name = lane::name(steps.net, &chosen.iface);
        if let Some(left_out) = steps.net.given_up_lanes.admit() {
            ucs::log::warn!(
                peer = steps.socket.peer(),
                "{name} was chosen and does not work: {reason}; trying the next{left_out}"
            );
        }
        self.left.retain(|iface| iface.resource() != chosen.iface.resource());
        self.tried.push((name, reason));
    }

    fn nothing_left(&self, steps: &Steps<'_>, require: &[String], error: &SelectError) -> Error {
        let mut reason = match &self.tried[..] {
            [_, ..] if self.left.is_empty() => "no transport is left".to_owned(),
            _ => error.to_string(),
        };
        if !require.is_empty() {
            let context = steps.net.worker.context();
            for name in require.iter().filter(|name| !context.has_name(name)) {
                reason = format!("no transport and no device here has the name {name}; {reason}");
            }
            reason = format!("{} is required: {reason}", require.join(" or "));
        }
        for (lane, why) in &self.tried {
            reason = format!("{reason}; {lane} was tried: {why}");
        }
        if let Some(refused) = &self.refused {
            reason = format!("{reason}; {refused}");
        }
        let theirs = self.announced.ifaces.iter();
        let theirs = theirs.map(|iface| format!("{}/{}", iface.address.transport, iface.device));
        let theirs = theirs.collect::<Vec<_>>().join(", ");
        let is_named = |text: &str| require.iter().any(|name| text.contains(name.as_str()));
        // What it does not offer to this side it has a reason for.
        let verdict = self.explanation.untrusted().lines().find(|line| is_named(line));
        if let Some(verdict) = verdict.filter(|_| !is_named(&theirs)) {
            reason = format!("{reason}; the peer: {}", PeerText::new(verdict));
        }
        let theirs = PeerText::new(theirs);
        let limit = steps.net.options.limit().map_or_else(String::new, |limit| format!("; {limit}"));
        Error::new(Stage::Choose, steps.socket.peer(), Status::UNREACHABLE, reason)
            .hint(format!("the peer has {theirs}{limit}"))
    }
}

/// The request that costs least; the last one if none can be met.
fn cheapest<'a>(selector: &Selector, requests: &'a [Request], peer: &PeerAddresses) -> &'a Request {
    let cost = |request: &&Request| match requests {
        [_] => f64::INFINITY,
        _ => {
            let explanation = selector.explain(request, Some(peer));
            explanation.chosen().and_then(Candidate::cost).map_or(f64::INFINITY, |cost| cost.total)
        }
    };
    let costs = requests.iter().map(|request| (cost(&request), request));
    let least =
        costs.reduce(|least, next| if least.0.is_finite() && least.0 <= next.0 { least } else { next });
    least.expect("there is at least one request").1
}
