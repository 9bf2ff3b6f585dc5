//! The side that is called.

use std::rc::Rc;

use ucs::text::PeerLines;
use uct_host::select::Explanation as Explained;
use uct_host::{Iface, IfaceAddress, SocketSide};

use super::super::announced;
use super::super::conn::Conn;
use super::super::connection::{Connection, Explanation};
use super::super::lane::HalfLane;
use super::super::standing::{Standing, add_accepted, is_for_socket};
use super::caller::Caller;
use super::forget::Forget;
use super::lane;
use super::steps::Steps;
use crate::error::Result;
use crate::proto::handshake::server::{Acceptance, Action, Actions, Input};
use crate::proto::handshake::{Awaits, End, Failure, Proposal, Server, Way};

/// Longest explanation that is sent to a peer.
const MAX_EXPLANATION: usize = 32 << 10;

/// The server reads the client's first frame, after both have proved that they know the key, if one is required.
pub(crate) async fn read_hello(caller: &mut Caller) -> Result {
    let Caller { net, socket, machine, private, addresses, .. } = caller;
    let steps = Steps::of_server(net, socket);
    loop {
        let Awaits::Frame(what) = machine.awaits() else { return Err(steps.failed(Failure::NotAwaited)) };
        for action in machine.handle(Input::Received(&steps.frame(what).await?)) {
            match action {
                Action::Send(bytes) => steps.send(&bytes).await?,
                Action::Introduced { private: clients, addresses: theirs } => {
                    (*private, *addresses) = (clients, theirs);
                    return Ok(());
                }
                Action::Fail(failure) => return Err(steps.failed(failure)),
                Action::Open(..) | Action::Take | Action::Done => {
                    return Err(steps.failed(Failure::NotAwaited));
                }
            }
        }
    }
}

/// Runs the rest of the server's side.
pub(crate) async fn take(mut caller: Caller, private: Vec<u8>) -> Result<Connection> {
    let made = connect(&mut caller, private).await;
    match &made {
        Err(error) => caller.refuse_for(error),
        #[cfg(feature = "tls")]
        Ok(connection) => caller.tls_peer.take().into_iter().for_each(|peer| connection.note_tls_peer(peer)),
        #[cfg(not(feature = "tls"))]
        Ok(_) => {}
    }
    made
}

async fn connect(caller: &mut Caller, private: Vec<u8>) -> Result<Connection> {
    let Caller { net, socket, machine, private: clients, addresses, .. } = caller;
    let (net, socket) = (&*net, &*socket);
    // The first lane's connection, if its endpoints need no more of each other.
    let conn = add_accepted(net, socket)?;
    let first = Some((Rc::clone(&conn), Forget::of_server(net, &conn)));
    let steps = Steps::of_server(net, socket);
    let addresses = announced::understood(net, std::mem::take(addresses));
    let standing = Standing::of(net, socket);
    let verdicts = standing.permitted(&addresses).explain(&net.options.request, Some(&addresses));
    let mut explanation = verdicts.to_string();
    while explanation.len() > MAX_EXPLANATION {
        // A line a candidate: the last ones are those that were rejected.
        let end = explanation.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
        explanation.truncate(end);
    }
    let own = announced::own(net, &standing);
    let mut taking = Taking { steps: &steps, standing, verdicts, first, lane: None, tried: Vec::new() };
    let actions = machine.handle(Input::Accepted(Acceptance {
        private,
        addresses: own,
        explanation: PeerLines::new(explanation),
        end: lane::end(net, &conn, Vec::new()),
    }));
    drop(conn);
    match taking.run(machine, actions).await {
        Ok(()) => taking.done(std::mem::take(clients)),
        Err(error) => {
            taking.give_up();
            Err(error)
        }
    }
}

/// A caller that is accepted, as far as it has come.
struct Taking<'a> {
    steps: &'a Steps<'a>,
    standing: Standing<'a>,
    verdicts: Explained,
    /// The connection in the Welcome.
    first: Option<(Rc<Conn>, Forget<'a>)>,
    lane: Option<Lane<'a>>,
    tried: Vec<(String, String)>,
}

/// A lane that the client has chosen.
struct Lane<'a> {
    iface: Iface,
    conn: Rc<Conn>,
    guard: Forget<'a>,
    /// The client's address and end, of one over the socket of the handshake.
    over_socket: Option<(IfaceAddress, End)>,
}

impl<'a> Taking<'a> {
    async fn run(&mut self, machine: &mut Server, mut actions: Actions) -> Result {
        loop {
            let mut next = Actions::new();
            for action in actions {
                match action {
                    Action::Send(bytes) => self.steps.send(&bytes).await?,
                    Action::Open(way, proposal) => {
                        next = machine.handle(match self.open(way, proposal) {
                            Ok(end) => Input::Opened(end),
                            Err(reason) => Input::Unable(reason),
                        });
                    }
                    Action::Take => self.take_socket()?,
                    Action::Done => return Ok(()),
                    Action::Fail(failure) => return Err(self.steps.failed(failure)),
                    Action::Introduced { .. } => return Err(self.steps.failed(Failure::NotAwaited)),
                }
            }
            actions = match (next.is_empty(), machine.awaits()) {
                (false, _) => next,
                (true, Awaits::Frame(what)) => {
                    machine.handle(Input::Received(&self.steps.frame(what).await?))
                }
                (true, Awaits::Use) => machine.handle(Input::Received(&self.steps.use_of_lane().await?)),
                (true, Awaits::Message { .. }) => {
                    self.steps.message(self.conn()?, true).await?;
                    machine.handle(Input::Asked)
                }
                (true, Awaits::Decision | Awaits::Nothing) => {
                    return Err(self.steps.failed(Failure::NotAwaited));
                }
            };
        }
    }

    /// The client's end of the lane is told of a failure.
    fn give_up(&mut self) {
        if let Some(lane) = &mut self.lane {
            lane.guard.fail();
        }
    }

    fn conn(&self) -> Result<&Rc<Conn>> {
        let lane = self.lane.as_ref();
        lane.map(|lane| &lane.conn).ok_or_else(|| self.steps.failed(Failure::NotAwaited))
    }

    /// Opens this side's end of a lane, or, over the socket of the handshake, finds out whether that is possible. The error is for the client.
    fn open(&mut self, way: Way, proposal: Proposal) -> std::result::Result<End, String> {
        self.give_up();
        if let Some(lane) = self.lane.take() {
            let reason = "no message crossed it both ways".to_owned();
            self.tried.push((lane.iface.resource().to_string(), reason));
        }
        let (conn, guard) = match self.first.take().filter(|_| way.is_first()) {
            Some(first) => first,
            None => {
                let conn = match add_accepted(self.steps.net, self.steps.socket) {
                    Ok(conn) => conn,
                    Err(error) => return Err(error.reason),
                };
                let guard = Forget::of_server(self.steps.net, &conn);
                (conn, guard)
            }
        };
        let transport = proposal.own.transport.clone();
        let opened = match way.takes_socket() {
            true => self.adopting(proposal).map(|(iface, over)| (iface, Some(over), Vec::new())),
            false => self.beside(way, &proposal, &conn).map(|(iface, endpoint)| (iface, None, endpoint)),
        };
        match opened {
            Ok((iface, over_socket, endpoint)) => {
                let end = lane::end(self.steps.net, &conn, endpoint);
                self.lane = Some(Lane { iface, conn, guard, over_socket });
                Ok(end)
            }
            Err(reason) => {
                let how = if way.takes_socket() { "over this socket" } else { "of the peer's choice" };
                self.tried.push((format!("{transport} {how}"), reason.clone()));
                Err(reason)
            }
        }
    }

    /// The interface that a client means, if it takes over the socket, and the client's own address for it.
    fn adopting(&self, proposal: Proposal) -> std::result::Result<(Iface, (IfaceAddress, End)), String> {
        let Steps { net, socket, .. } = self.steps;
        let Proposal { mut own, theirs, end } = proposal;
        let is_meant = |iface: &&Iface| {
            is_for_socket(net, socket, iface) && announced::address(net, iface).as_ref() == Ok(&theirs)
        };
        let iface = net.selector.ifaces().iter().find(is_meant);
        // Both have to mean the same: inside TLS, or in clear.
        let is_same = own.transport == theirs.transport && announced::understand(net, &mut own);
        let iface =
            iface.filter(|_| is_same).ok_or("it has no such interface open that takes over this socket")?;
        Ok((iface.clone(), (own, end)))
    }

    /// Opens an endpoint beside the socket of the handshake. Returns its interface and its address.
    fn beside(
        &self,
        way: Way,
        proposal: &Proposal,
        conn: &Rc<Conn>,
    ) -> std::result::Result<(Iface, Vec<u8>), String> {
        let net = self.steps.net;
        let Proposal { own: theirs, theirs: own, end } = proposal;
        // One that carries messages inside TLS has another name, and takes over the handshake's socket only.
        let is_meant = |iface: &&Iface| !net.options.wraps(iface) && iface.address().as_ref() == Ok(own);
        let iface = net.selector.ifaces().iter().find(is_meant).ok_or("it has no such interface open")?;
        if let Some(reason) = self.standing.refuses_beside(iface) {
            return Err(reason);
        }
        let name = iface.resource().to_string();
        let verdict = self.verdicts.candidates.iter().find(|candidate| candidate.name() == name);
        if verdict.is_none_or(|candidate| candidate.cost().is_none()) {
            return Err(format!("it found {name} unusable: see its explanation"));
        }
        let half =
            HalfLane::open(iface, theirs, lane::on_failure(conn)).map_err(|error| error.to_string())?;
        let endpoint = half.address().map_err(|error| format!("{name} has no endpoint address: {error}"))?;
        if way.is_first() && !endpoint.is_empty() {
            return Err(format!(
                "endpoints of {name} need each other's addresses: the client has to wait for one"
            ));
        }
        let lane =
            half.connect(iface, theirs, &end.endpoint, end.token).map_err(|error| error.to_string())?;
        conn.open(lane, end.window);
        self.steps.add_lane();
        Ok((iface.clone(), endpoint))
    }

    /// Makes the socket of the handshake the lane.
    fn take_socket(&self) -> Result {
        let lane = self.lane.as_ref();
        let lane = lane.and_then(|lane| Some((lane, lane.over_socket.as_ref()?)));
        let (lane, (theirs, peer)) = lane.ok_or_else(|| self.steps.failed(Failure::NotAwaited))?;
        lane::take_socket(self.steps, &lane.conn, &lane.iface, theirs, SocketSide::Accepted, peer)
    }

    fn done(self, private: Vec<u8>) -> Result<Connection> {
        let Some(lane) = self.lane else { return Err(self.steps.failed(Failure::NotAwaited)) };
        lane.guard.keep();
        lane.conn.set_peer_pid(self.steps.socket.origin().pid());
        let net = self.steps.net;
        if lane.over_socket.is_none() && !net.accepted.counts_all() {
            lane.conn.give_up_place();
        }
        let explanation = Explanation {
            chosen: lane::name(net, &lane.iface),
            ours: self.verdicts,
            theirs: PeerLines::new("the peer chose; its own explanation has its verdicts"),
            tried: self.tried,
        };
        Ok(Connection::new(net.clone(), lane.conn, lane.iface, explanation, private))
    }
}
