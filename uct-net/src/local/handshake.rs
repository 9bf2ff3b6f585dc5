//! The two sides of a handshake, over a socket or what a connection manager has connected; see [`crate::proto::handshake`] for the
//! order of frames.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use ucs::Error as Status;
use ucs::text::{PeerLines, PeerText};
use uct_core::select::{Candidate, Explanation as Explained, PeerAddresses, Request, SelectError, Selector};
use uct_core::{EpFailure, Iface, IfaceAddress, SocketSide};

use super::announced;
use super::conn::Conn;
use super::connection::{Connection, Explanation};
use super::handshake_link::LaneSource;
use super::lane::HalfLane;
use super::net::NetHandle;
#[cfg(feature = "tls")]
use super::peer_loss::PeerLoss;
#[cfg(feature = "tls")]
use super::session::Session;
use super::socket::FrameSocket;
#[cfg(feature = "tls")]
use super::span::{Instrument, stage};
use super::standing::{Standing, add_accepted, is_for_socket};
#[cfg(feature = "tls")]
use crate::TlsPeer;
use crate::error::{Error, Result, Stage};
use crate::proto::envelope::{Kind, Token};
use crate::proto::handshake::{End, Frame};
use crate::proto::proof::{self, Nonce, Side};

/// Longest explanation that is sent to a peer.
const MAX_EXPLANATION: usize = 32 << 10;

/// The remedy for a peer that was reached and does not continue.
const NOT_CONTINUED: &str = "check that the peer is a program with uct-net whose Net is driven, and that the network drops no packets, nor long ones (MTU)";

/// What the client has learned from the server's first answer.
struct Server {
    addresses: PeerAddresses,
    /// As it has sent them.
    announced: PeerAddresses,
    explanation: PeerLines,
    private: Vec<u8>,
    end: End,
}

/// Completes TLS, within a limit for all of it.
#[cfg(feature = "tls")]
pub(crate) async fn secure(net: &NetHandle, socket: &FrameSocket, session: Session) -> Result<TlsPeer> {
    let secured = limited(net, socket, Limit::handshake(net), "complete TLS", socket.secure(session));
    secured.instrument(stage!("tls")).await.map_err(|error| match error.status {
        Status::CONNECTION_RESET => error.hint("it may not use TLS: set tls on both sides or on neither"),
        _ => error,
    })
}

/// Refuses a caller that expects other security, and waits until it has hung up, within a limit.
pub(crate) async fn part(net: &NetHandle, socket: &FrameSocket) {
    let parting = async {
        socket.part().await;
        Ok(())
    };
    let _ = limited(net, socket, Limit::handshake(net), "hang up", parting).await;
}

/// Runs the client's side.
pub(crate) async fn call(
    net: &NetHandle,
    socket: &FrameSocket,
    requests: &[Request],
    require: &[String],
    private: Vec<u8>,
) -> Result<Connection> {
    if let Some(key) = &net.options.shared_key {
        ask(net, socket, key).await?;
    }
    let addresses = announced::own(net);
    send(net, socket, &Frame::Hello { private, addresses }).await?;
    let server = match receive(net, socket, "take the connection").await? {
        Frame::Welcome { private, addresses, explanation, end } => {
            let known = announced::understood(net, addresses.clone());
            Server { addresses: known, announced: addresses, explanation, private, end }
        }
        Frame::Refused { reason } => return Err(rejected(socket, &reason)),
        other => return Err(unexpected(socket, &other)),
    };

    let named = |iface: &&Iface| {
        let resource = iface.resource();
        let names = [&resource.transport, &resource.device, &resource.to_string()];
        require.is_empty() || require.iter().any(|name| names.contains(&name))
    };
    let standing = Standing::of(net, socket);
    // The address that was called decides the device, of the transport that the connection manager has connected.
    let over = socket.ends().map(|(iface, _)| iface).filter(|iface| named(iface));
    let beside = |other: &Iface| {
        let (over, other) = (over?.resource(), other.resource());
        let is_beside = other.transport == over.transport && other.device != over.device;
        is_beside.then(|| format!("the connection manager's connection leads over {}", over.device))
    };
    let selector = standing.permitted(&server.addresses).without(beside);
    let mut left: Vec<Iface> = selector.ifaces().iter().filter(named).cloned().collect();
    let request = cheapest(&Selector::of(&net.worker, left.clone()), requests, &server.addresses);
    let mut tried: Vec<(String, String)> = Vec::new();
    loop {
        // The end in the Welcome is that of the first lane.
        let end = tried.is_empty().then_some(&server.end);
        // Once something was tried, the reasons of the rest are the first explanation's.
        let chosen = if require.is_empty() && tried.is_empty() {
            selector.choose(request, Some(&server.addresses))
        } else {
            Selector::of(&net.worker, left.clone()).choose(request, Some(&server.addresses))
        };
        let choice = match chosen {
            // What stays on the machine needs no TLS.
            Ok(choice) if net.options.wraps(&choice.iface) => {
                let near = left.iter().filter(|iface| !net.options.wraps(iface)).cloned().collect();
                let near = Selector::of(&net.worker, near).choose(request, Some(&server.addresses));
                near.unwrap_or(choice)
            }
            Ok(choice) => choice,
            Err(error) => {
                // The socket of the handshake leads to the peer, whatever its address does. All else that is asked for holds here as well.
                let suits = |iface: &Iface| {
                    Selector::of(&net.worker, vec![iface.clone()]).choose(request, None).is_ok()
                };
                let over = over_this_socket(net, socket, &left, &server.addresses);
                if let Some((iface, theirs)) = over.filter(|(iface, _)| suits(iface)) {
                    let name = lane_name(net, &iface);
                    let conn = match open_over(net, socket, &iface, theirs, end).await {
                        Ok(conn) => conn,
                        Err(Attempt::Failed(error)) => return Err(error),
                        Err(Attempt::NextLane(reason)) => {
                            left.retain(|other| other.resource() != iface.resource());
                            tried.push((name, reason));
                            continue;
                        }
                    };
                    let explanation = Explanation {
                        chosen: name,
                        ours: selector.explain(request, Some(&server.addresses)),
                        theirs: server.explanation,
                        tried,
                    };
                    return Ok(Connection::new(net.clone(), conn, iface, explanation, server.private));
                }
                let refused =
                    net.selector.ifaces().iter().filter(named).find_map(|iface| standing.refuses(iface));
                let error = nothing_left(net, socket, &left, &tried, require, &server, (&error, refused));
                // The server would only see that this side is gone.
                let _ = send(net, socket, &Frame::Unable { reason: PeerText::new(&error.reason) }).await;
                return Err(error);
            }
        };
        let address = choice.peer.expect("a choice for a peer has the peer's address");
        let name = lane_name(net, &choice.iface);
        let opened = if is_for_socket(net, socket, &choice.iface) {
            let theirs = socket.ends().map_or(&address, |(_, theirs)| theirs);
            open_over(net, socket, &choice.iface, theirs, end).await
        } else {
            open_lane(net, socket, &choice.iface, &address, end).await
        };
        match opened {
            Ok(conn) => {
                let iface = choice.iface.clone();
                let explanation =
                    Explanation { chosen: name, ours: choice.explanation, theirs: server.explanation, tried };
                return Ok(Connection::new(net.clone(), conn, iface, explanation, server.private));
            }
            Err(Attempt::Failed(error)) => return Err(error),
            Err(Attempt::NextLane(reason)) => {
                if let Some(left_out) = net.given_up_lanes.admit() {
                    ucs::log::warn!(
                        peer = socket.peer(),
                        "{name} was chosen and does not work: {reason}; trying the next{left_out}"
                    );
                }
                left.retain(|iface| iface.resource() != choice.iface.resource());
                tried.push((name, reason));
            }
        }
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

/// Why a lane was not opened.
enum Attempt {
    /// The handshake is over.
    Failed(Error),
    /// Another one may work.
    NextLane(String),
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Attempt {
        Attempt::Failed(error)
    }
}

/// What the client needs of its own side to propose a lane.
struct LocalEnd<'a> {
    address: IfaceAddress,
    conn: Rc<Conn>,
    guard: Forget<'a>,
}

impl LocalEnd<'_> {
    fn new<'a>(net: &'a NetHandle, socket: &FrameSocket, iface: &Iface) -> Result<LocalEnd<'a>, Attempt> {
        let address =
            announced::address(net, iface).map_err(|error| next("this side has no address", &error))?;
        let conn = net.add(socket.peer())?;
        let guard = Forget::new(net, &conn);
        Ok(LocalEnd { address, conn, guard })
    }
}

/// Why the next lane is to be tried.
fn next(what: &str, error: &dyn std::fmt::Display) -> Attempt {
    Attempt::NextLane(format!("{what}: {error}"))
}

/// Proposes a lane, and returns the server's end of it.
async fn propose(net: &NetHandle, socket: &FrameSocket, lane: Frame, what: &str) -> Result<End, Attempt> {
    send(net, socket, &lane).await?;
    match receive(net, socket, what).await? {
        Frame::Ready { end } => Ok(end),
        Frame::Unable { reason } => Err(Attempt::NextLane(format!("the peer: {reason}"))),
        other => Err(unexpected(socket, &other).into()),
    }
}

/// The client opens a lane and has a message cross it both ways. `end` is the server's, if this is the first lane that is tried.
async fn open_lane(
    net: &NetHandle,
    socket: &FrameSocket,
    iface: &Iface,
    theirs: &IfaceAddress,
    end: Option<&End>,
) -> Result<Rc<Conn>, Attempt> {
    let LocalEnd { address: own, conn, guard } = LocalEnd::new(net, socket, iface)?;
    let half = HalfLane::open(iface, theirs, on_failure(&conn)).map_err(|error| next("this side", &error))?;
    let endpoint = half.address().map_err(|error| next("this side has no endpoint address", &error))?;
    let (theirs_too, own_end) = (theirs.clone(), own_end(net, &conn, endpoint));
    let open = |peer: &End| {
        let lane = half.connect(iface, theirs, &peer.endpoint, peer.token);
        conn.open(lane.map_err(|error| next("this side", &error))?, peer.window);
        conn.control(Kind::Probe, Vec::new());
        Ok::<_, Attempt>(())
    };
    match end.filter(|_| own_end.endpoint.is_empty()) {
        Some(peer) => {
            send(net, socket, &Frame::Direct { own, theirs: theirs_too, end: own_end }).await?;
            open(peer)?;
            probe_or_refusal(net, socket, &conn).await?;
        }
        None => {
            let lane = Frame::Lane { own, theirs: theirs_too, end: own_end };
            open(&propose(net, socket, lane, "open its end of the lane").await?)?;
            probe(net, &conn, false).await.map_err(|error| next("no message came back", &error))?;
        }
    }
    send(net, socket, &Frame::Connected).await?;
    guard.keep();
    Ok(conn)
}

/// Waits for the answer over the lane, and for the server's refusal to open it.
async fn probe_or_refusal(net: &NetHandle, socket: &FrameSocket, conn: &Conn) -> Result<(), Attempt> {
    let (mut answer, mut frame) = (std::pin::pin!(probe(net, conn, false)), std::pin::pin!(socket.receive()));
    std::future::poll_fn(|context| {
        if let Poll::Ready(answered) = answer.as_mut().poll(context) {
            return Poll::Ready(answered.map_err(|error| next("no message came back", &error)));
        }
        let frame = std::task::ready!(frame.as_mut().poll(context));
        Poll::Ready(Err(match frame {
            Ok(Frame::Unable { reason }) => Attempt::NextLane(format!("the peer: {reason}")),
            Ok(other) => unexpected(socket, &other).into(),
            Err(error) => error.into(),
        }))
    })
    .await
}

/// This side's end of a lane.
fn own_end(net: &NetHandle, conn: &Conn, endpoint: Vec<u8>) -> End {
    End { token: conn.token(), window: net.options.window, endpoint }
}

/// What a lane of an interface is called in explanations.
fn lane_name(net: &NetHandle, iface: &Iface) -> String {
    let inside = if net.options.wraps(iface) { " inside TLS" } else { "" };
    format!("{}{inside}", iface.resource())
}

/// An interface of each side, of one transport, that can use the socket of the handshake.
fn over_this_socket<'a>(
    net: &NetHandle,
    socket: &'a FrameSocket,
    own: &[Iface],
    peer: &'a PeerAddresses,
) -> Option<(Iface, &'a IfaceAddress)> {
    own.iter().filter(|iface| is_for_socket(net, socket, iface)).find_map(|iface| {
        let transport = &iface.resource().transport;
        let first = || peer.ifaces.iter().find(|theirs| &theirs.address.transport == transport);
        let theirs = socket.ends().map(|(_, theirs)| theirs).or_else(|| Some(&first()?.address))?;
        Some((iface.clone(), theirs))
    })
}

/// The client makes the socket of the handshake the lane, and has a message cross it both ways. There is no other lane afterwards.
async fn open_over(
    net: &NetHandle,
    socket: &FrameSocket,
    iface: &Iface,
    theirs: &IfaceAddress,
    end: Option<&End>,
) -> Result<Rc<Conn>, Attempt> {
    let LocalEnd { address: own, conn, guard } = LocalEnd::new(net, socket, iface)?;
    let theirs_too = announced::named(net, iface, theirs.clone());
    let own_end = own_end(net, &conn, Vec::new());
    let peer = match end {
        Some(peer) => {
            send(net, socket, &Frame::Takeover { own, theirs: theirs_too, end: own_end }).await?;
            peer.clone()
        }
        None => {
            let lane = Frame::Over { own, theirs: theirs_too, end: own_end };
            propose(net, socket, lane, "take over the socket").await?
        }
    };
    take_socket(net, socket, &conn, iface, theirs, SocketSide::Called, &peer)?;
    conn.control(Kind::Probe, Vec::new());
    probe(net, &conn, false).await?;
    guard.keep();
    Ok(conn)
}

/// Hands the socket of the handshake to an interface, or one to what encrypts, and opens the lane over it.
fn take_socket(
    net: &NetHandle,
    socket: &FrameSocket,
    conn: &Rc<Conn>,
    iface: &Iface,
    theirs: &IfaceAddress,
    side: SocketSide,
    peer: &End,
) -> Result<(), Error> {
    let failed = |status, reason: String| Error::new(Stage::Open, socket.peer(), status, reason);
    let refused = |refused: uct_core::Refused| failed(refused.status, refused.to_string());
    let handed = if net.options.wraps(iface) {
        wrap(net, socket, conn, iface).map(LaneSource::Socket)
    } else {
        socket.hand_over(conn, peer.token)
    };
    let handed =
        handed.map_err(|error| failed(Status::from(error), "the socket cannot be handed over".to_owned()))?;
    let lane = match handed {
        LaneSource::Lane(lane) => lane,
        LaneSource::Socket(own) => {
            let half = HalfLane::over(iface, theirs, (own, side), on_failure(conn)).map_err(refused)?;
            half.connect(iface, theirs, &peer.endpoint, peer.token).map_err(refused)?
        }
    };
    conn.open(lane, peer.window);
    Ok(())
}

/// Has the session of the handshake encrypt what goes through a socket, which is returned.
#[cfg(feature = "tls")]
fn wrap(net: &NetHandle, socket: &FrameSocket, conn: &Rc<Conn>, iface: &Iface) -> std::io::Result<OwnedFd> {
    let tls = net.options.tls.as_ref().ok_or(std::io::ErrorKind::Unsupported)?;
    let peer_loss = PeerLoss::of(net.worker.context().config(), &iface.resource().transport);
    let secured = socket.hand_over_secured().ok_or(std::io::ErrorKind::NotConnected)??;
    net.pumps.add(&net.reactor, secured, (&peer_loss, tls.close_timeout), conn)
}

#[cfg(not(feature = "tls"))]
fn wrap(_: &NetHandle, _: &FrameSocket, _: &Rc<Conn>, _: &Iface) -> std::io::Result<OwnedFd> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// The client proves that it knows the key, once the server has.
async fn ask(net: &NetHandle, socket: &FrameSocket, key: &[u8]) -> Result {
    let client = fresh_nonce(socket)?;
    send(net, socket, &Frame::Ask { nonce: client }).await?;
    let (server, proof) = match receive(net, socket, "prove that it knows the shared key").await? {
        Frame::Challenge { nonce, proof } => (nonce, proof),
        Frame::Refused { reason } => return Err(rejected(socket, &reason)),
        other => return Err(unexpected(socket, &other)),
    };
    if !proof::check(key, Side::Server, &client, &server, &proof) {
        let error = socket.failed(Status::REJECTED, "the peer does not know the shared key".to_owned());
        return Err(error.hint("both sides need the same shared_key"));
    }
    let proof = proof::prove(key, Side::Client, &client, &server);
    send(net, socket, &Frame::Answer { proof }).await
}

/// The server does the same.
async fn challenge(net: &NetHandle, socket: &FrameSocket, key: &[u8], client: &Nonce) -> Result {
    let server = fresh_nonce(socket)?;
    let proof = proof::prove(key, Side::Server, client, &server);
    send(net, socket, &Frame::Challenge { nonce: server, proof }).await?;
    match receive(net, socket, "prove that it knows the shared key").await? {
        Frame::Answer { proof } if proof::check(key, Side::Client, client, &server, &proof) => Ok(()),
        Frame::Answer { .. } => {
            refuse(net, socket, "it does not know the shared key").await?;
            Err(socket.failed(Status::REJECTED, "the caller does not know the shared key".to_owned()))
        }
        other => Err(unexpected(socket, &other)),
    }
}

fn fresh_nonce(socket: &FrameSocket) -> Result<Nonce> {
    proof::nonce().map_err(|error| socket.failed(Status::IO_ERROR, error.to_string()))
}

/// The server reads the client's first frame, after both have proved that they know the key, if one is required.
pub(crate) async fn read_hello(net: &NetHandle, socket: &FrameSocket) -> Result<(Vec<u8>, PeerAddresses)> {
    let mut frame = receive(net, socket, "send its first frame").await?;
    let key = net.options.shared_key.as_deref();
    let refusal = match (&frame, key) {
        (Frame::Ask { nonce }, Some(key)) => {
            challenge(net, socket, key, nonce).await?;
            frame = receive(net, socket, "send its first frame").await?;
            None
        }
        (Frame::Ask { .. }, None) => {
            Some("this side has no shared key: set shared_key on both or on neither")
        }
        (Frame::Hello { .. }, Some(_)) => Some("this side requires a shared key: set shared_key"),
        _ => None,
    };
    if let Some(reason) = refusal {
        refuse(net, socket, reason).await?;
        return Err(socket.failed(Status::REJECTED, reason.to_owned()));
    }
    match frame {
        Frame::Hello { private, addresses } => Ok((private, addresses)),
        other => Err(unexpected(socket, &other)),
    }
}

/// The server refuses.
pub(crate) async fn refuse(net: &NetHandle, socket: &FrameSocket, reason: &str) -> Result {
    send(net, socket, &Frame::Refused { reason: PeerText::new(reason) }).await
}

/// Runs the rest of the server's side.
pub(crate) async fn take(
    net: &NetHandle,
    socket: &FrameSocket,
    client: (Vec<u8>, PeerAddresses),
    private: Vec<u8>,
) -> Result<Connection> {
    // The first lane's connection, if its endpoints need no more of each other.
    let conn = match add_accepted(net, socket) {
        Ok(conn) => conn,
        Err(error) => {
            refuse(net, socket, &error.reason).await?;
            return Err(error);
        }
    };
    let mut first = Some((Rc::clone(&conn), Forget::new(net, &conn)));
    let (client_private, addresses) = client;
    let addresses = announced::understood(net, addresses);
    let standing = Standing::of(net, socket);
    let verdicts = standing.permitted(&addresses).explain(&net.options.request, Some(&addresses));
    let mut explanation = verdicts.to_string();
    while explanation.len() > MAX_EXPLANATION {
        // A line a candidate: the last ones are those that were rejected.
        let end = explanation.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
        explanation.truncate(end);
    }
    let (addresses_of_this_side, end) = (announced::own(net), own_end(net, &conn, Vec::new()));
    let welcome = Frame::Welcome {
        private,
        addresses: addresses_of_this_side,
        explanation: PeerLines::new(explanation),
        end,
    };
    send(net, socket, &welcome).await?;
    let mut tried: Vec<(String, String)> = Vec::new();
    let mut frame = receive(net, socket, "choose a transport").await?;
    loop {
        let direct = first.take().filter(|_| matches!(frame, Frame::Direct { .. } | Frame::Takeover { .. }));
        let (theirs, own, end) = match frame {
            Frame::Lane { own, theirs, end } => (own, theirs, end),
            Frame::Direct { own, theirs, end } if direct.is_some() => (own, theirs, end),
            Frame::Over { own, theirs, end } => {
                let Some((iface, own)) = adopting(net, socket, &theirs, own.clone()) else {
                    let reason = "it has no such interface open that takes over this socket";
                    tried.push((format!("{} over this socket", own.transport), reason.to_owned()));
                    check_patience(net, socket, &tried)?;
                    send(net, socket, &Frame::Unable { reason: PeerText::new(reason) }).await?;
                    frame = receive(net, socket, "choose another transport").await?;
                    continue;
                };
                let conn = add_accepted(net, socket)?;
                let guard = Forget::new(net, &conn);
                send(net, socket, &Frame::Ready { end: own_end(net, &conn, Vec::new()) }).await?;
                accept_over(net, socket, (&conn, guard), &iface, (&own, &end)).await?;
                let explanation = chosen_by_peer(net, &iface, verdicts, tried);
                return Ok(Connection::new(net.clone(), conn, iface, explanation, client_private));
            }
            Frame::Takeover { own, theirs, end } => {
                let Some((conn, guard)) = direct else {
                    return Err(unexpected(socket, &Frame::Takeover { own, theirs, end }));
                };
                let (iface, own) = adopting(net, socket, &theirs, own).ok_or_else(|| {
                    let reason = "the peer hands this socket to an interface that does not take it over";
                    socket.failed(Status::UNREACHABLE, reason.to_owned())
                })?;
                accept_over(net, socket, (&conn, guard), &iface, (&own, &end)).await?;
                let explanation = chosen_by_peer(net, &iface, verdicts, tried);
                return Ok(Connection::new(net.clone(), conn, iface, explanation, client_private));
            }
            Frame::Unable { reason } => {
                let reason = format!("the peer gave up: {reason}");
                return Err(Error::new(Stage::Choose, socket.peer(), Status::UNREACHABLE, reason));
            }
            other => return Err(unexpected(socket, &other)),
        };
        let name = format!("{} of the peer's choice", own.transport);
        let is_direct = direct.is_some();
        match open_chosen(net, socket, (&standing, &verdicts), direct, (&theirs, &own, &end)) {
            Ok((conn, guard, iface, ready)) => {
                if !is_direct {
                    send(net, socket, &Frame::Ready { end: ready }).await?;
                }
                // The client sends a message over the lane, then Connected; or tries another one.
                let time = net.options.lane_timeout.saturating_mul(2);
                let limit = Limit { time, option: "twice lane_timeout" };
                frame = receive_within(net, socket, limit, "use the lane").await?;
                if matches!(frame, Frame::Connected) {
                    probe(net, &conn, true).await?;
                    guard.keep();
                    net.accepted.opened_beside(conn.token().index());
                    let explanation = chosen_by_peer(net, &iface, verdicts, tried);
                    return Ok(Connection::new(net.clone(), conn, iface, explanation, client_private));
                }
                tried.push((iface.resource().to_string(), "no message crossed it both ways".to_owned()));
            }
            Err(reason) => {
                send(net, socket, &Frame::Unable { reason: PeerText::new(&reason) }).await?;
                tried.push((name, reason));
                frame = receive(net, socket, "choose another transport").await?;
            }
        }
        check_patience(net, socket, &tried)?;
    }
}

/// The server makes the socket of the handshake the lane.
async fn accept_over(
    net: &NetHandle,
    socket: &FrameSocket,
    (conn, guard): (&Rc<Conn>, Forget<'_>),
    iface: &Iface,
    (own, end): (&IfaceAddress, &End),
) -> Result {
    take_socket(net, socket, conn, iface, own, SocketSide::Accepted, end)?;
    // The client's message comes behind this side's part of the transport's handshake: both have heard of each other.
    probe(net, conn, true).await?;
    guard.keep();
    Ok(())
}

/// What the server knows of the choice.
fn chosen_by_peer(
    net: &NetHandle,
    iface: &Iface,
    ours: Explained,
    tried: Vec<(String, String)>,
) -> Explanation {
    let theirs = PeerLines::new("the peer chose; its own explanation has its verdicts");
    Explanation { chosen: lane_name(net, iface), ours, theirs, tried }
}

/// As many as this side has: a client that goes on is a mistake.
fn check_patience(net: &NetHandle, socket: &FrameSocket, tried: &[(String, String)]) -> Result {
    // Each may have been tried over the socket, and by itself.
    if tried.len() > 2 * net.selector.ifaces().len() {
        return Err(socket.failed(Status::REJECTED, "the peer tries one lane after the other".to_owned()));
    }
    Ok(())
}

/// The interface that a client means, if it takes over the socket, and the client's own address for it.
fn adopting(
    net: &NetHandle,
    socket: &FrameSocket,
    theirs: &IfaceAddress,
    mut own: IfaceAddress,
) -> Option<(Iface, IfaceAddress)> {
    let is_meant = |iface: &&Iface| {
        is_for_socket(net, socket, iface) && announced::address(net, iface).as_ref() == Ok(theirs)
    };
    let iface = net.selector.ifaces().iter().find(is_meant)?;
    // Both have to mean the same: inside TLS, or in clear.
    (own.transport == theirs.transport && announced::understand(net, &mut own)).then(|| (iface.clone(), own))
}

/// Opens the server's end of the lane that the client has chosen, of the connection in the Welcome or of a new one; an error is for
/// the client.
fn open_chosen<'a>(
    net: &'a NetHandle,
    socket: &FrameSocket,
    (standing, verdicts): (&Standing<'_>, &Explained),
    first: Option<(Rc<Conn>, Forget<'a>)>,
    (theirs, own, end): (&IfaceAddress, &IfaceAddress, &End),
) -> std::result::Result<(Rc<Conn>, Forget<'a>, Iface, End), String> {
    // One that carries messages inside TLS has another name, and takes over the handshake's socket only.
    let is_meant = |iface: &&Iface| !net.options.wraps(iface) && iface.address().as_ref() == Ok(own);
    let iface = net.selector.ifaces().iter().find(is_meant).ok_or("it has no such interface open")?;
    let name = iface.resource().to_string();
    if let Some(reason) = standing.refuses_beside(iface) {
        return Err(reason);
    }
    let verdict = verdicts.candidates.iter().find(|candidate| candidate.name() == name);
    if verdict.is_none_or(|candidate| candidate.cost().is_none()) {
        return Err(format!("it found {name} unusable: see its explanation"));
    }
    let is_direct = first.is_some();
    let (conn, guard) = match first {
        Some(first) => first,
        None => {
            let conn = add_accepted(net, socket).map_err(|error| error.reason)?;
            let guard = Forget::new(net, &conn);
            (conn, guard)
        }
    };
    let half = HalfLane::open(iface, theirs, on_failure(&conn)).map_err(|error| error.to_string())?;
    let endpoint = half.address().map_err(|error| format!("{name} has no endpoint address: {error}"))?;
    if is_direct && !endpoint.is_empty() {
        return Err(format!(
            "endpoints of {name} need each other's addresses: the client has to wait for one"
        ));
    }
    let lane = half.connect(iface, theirs, &end.endpoint, end.token).map_err(|error| error.to_string())?;
    conn.open(lane, end.window);
    let ready = own_end(net, &conn, endpoint);
    Ok((conn, guard, iface.clone(), ready))
}

fn on_failure(conn: &Rc<Conn>) -> impl FnOnce(EpFailure) + use<> {
    let conn = Rc::downgrade(conn);
    move |failure| {
        if let Some(conn) = conn.upgrade() {
            conn.lane_failed(&failure);
        }
    }
}

/// Waits until the first message has come over the lane.
async fn probe(net: &NetHandle, conn: &Conn, asked: bool) -> Result {
    let limit = net.options.lane_timeout;
    let mut sleep = net.reactor.sleep(limit);
    std::future::poll_fn(|context| match conn.poll_probe(asked, context) {
        Ok(true) => Poll::Ready(Ok(())),
        Err(error) => Poll::Ready(Err(error)),
        Ok(false) => sleep.poll_due(context).map(|()| {
            let reason = format!("no message came over the lane within {limit:?} (lane_timeout)");
            Err(Error::new(Stage::Open, conn.peer(), Status::TIMED_OUT, reason)
                .hint("run uct_info --doctor on both sides, and check what the network drops"))
        }),
    })
    .await
}

async fn receive(net: &NetHandle, socket: &FrameSocket, what: &str) -> Result<Frame> {
    receive_within(net, socket, Limit::handshake(net), what).await
}

/// The next frame, within a limit.
async fn receive_within(net: &NetHandle, socket: &FrameSocket, limit: Limit, what: &str) -> Result<Frame> {
    limited(net, socket, limit, what, socket.receive()).await
}

/// Sends a frame, within a limit: a peer that reads nothing leaves no room for it.
async fn send(net: &NetHandle, socket: &FrameSocket, frame: &Frame) -> Result {
    limited(net, socket, Limit::handshake(net), "take what this side sends", socket.send(frame)).await
}

/// A limit, and the option that it comes from.
struct Limit {
    time: Duration,
    option: &'static str,
}

impl Limit {
    fn handshake(net: &NetHandle) -> Limit {
        Limit { time: net.options.handshake_timeout, option: "handshake_timeout" }
    }
}

async fn limited<T>(
    net: &NetHandle,
    socket: &FrameSocket,
    limit: Limit,
    what: &str,
    step: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut sleep = net.reactor.sleep(limit.time);
    let mut step = std::pin::pin!(step);
    std::future::poll_fn(|context| {
        if let std::task::Poll::Ready(outcome) = step.as_mut().poll(context) {
            return std::task::Poll::Ready(outcome);
        }
        sleep.poll_due(context).map(|()| {
            let reason = format!("the peer did not {what} within {:?} ({})", limit.time, limit.option);
            Err(socket.failed(Status::TIMED_OUT, reason).hint(NOT_CONTINUED))
        })
    })
    .await
}

fn unexpected(socket: &FrameSocket, frame: &Frame) -> Error {
    let reason = format!("the peer sent {} out of order", frame.name());
    socket.failed(Status::IO_ERROR, reason)
}

fn rejected(socket: &FrameSocket, reason: &PeerText) -> Error {
    socket.failed(Status::REJECTED, format!("the peer rejected the connection: {reason}"))
}

fn nothing_left(
    net: &NetHandle,
    socket: &FrameSocket,
    left: &[Iface],
    tried: &[(String, String)],
    require: &[String],
    server: &Server,
    (error, refused): (&SelectError, Option<String>),
) -> Error {
    let mut reason = match tried {
        [_, ..] if left.is_empty() => "no transport is left".to_owned(),
        _ => error.to_string(),
    };
    if !require.is_empty() {
        reason = format!("{} is required: {reason}", require.join(" or "));
    }
    for (lane, why) in tried {
        reason = format!("{reason}; {lane} was tried: {why}");
    }
    if let Some(refused) = refused {
        reason = format!("{reason}; {refused}");
    }
    let theirs =
        server.announced.ifaces.iter().map(|iface| format!("{}/{}", iface.address.transport, iface.device));
    let theirs = PeerText::new(theirs.collect::<Vec<_>>().join(", "));
    let limit = net.options.limit().map_or_else(String::new, |limit| format!("; {limit}"));
    Error::new(Stage::Choose, socket.peer(), Status::UNREACHABLE, reason)
        .hint(format!("the peer has {theirs}{limit}"))
}

/// Removes a connection whose handshake failed.
pub(super) struct Forget<'a> {
    net: &'a NetHandle,
    token: Option<Token>,
}

impl<'a> Forget<'a> {
    pub(super) fn new(net: &'a NetHandle, conn: &Conn) -> Forget<'a> {
        Forget { net, token: Some(conn.token()) }
    }

    pub(super) fn keep(mut self) {
        self.token = None;
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.net.forget(token);
        }
    }
}
