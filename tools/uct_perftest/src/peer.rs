//! The other side: how it is found, and messages to and from it beside those that are measured. With them the two sides agree on
//! what to measure, synchronise, and report how it ended. Built on a connection of `uct-net`, whose endpoint is measured.
//!
//! A message is its kind (1 byte) and a body.

use std::collections::VecDeque;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::future::{Either, FutureExt, pending, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uct_core::select::{Explanation, Request};
use uct_core::{Ep, Error as Status, Iface};
use uct_net::local::{Connect, Connection, Listener, Net};
use uct_net::{Error, Stage};
use uct_tools_common::Failure;
use uct_tools_common::log::Limited;
use uct_tools_common::text::{PeerText, Visible};

/// The client's private data.
const PRIVATE: &[u8] = b"uct_perftest 3";
/// Most messages that have arrived and were not asked for.
const MOST_WAITING: usize = 64;
/// Time for which a client tries again while there is no listener.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for the reason of a side that gives up.
const FAREWELL: Duration = Duration::from_secs(1);

/// The private data of the client's further connections.
const FURTHER: &[u8] = b"uct_perftest 3, measured";

/// What a message holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// What the client wants to measure.
    Plan = 1,
    /// Memory that the peer may access.
    Memory = 2,
    /// This side is ready for the next case.
    Ready = 3,
    /// The server's figures of a case.
    Report = 4,
    /// The client is still active.
    Alive = 5,
    /// All is done.
    Done = 6,
    /// One side gives up; a human-readable reason.
    Failed = 7,
    /// The server has the plan and serves this client: further connections are expected from now on.
    Agreed = 8,
}

/// The other side.
pub(crate) struct Peer {
    net: Net,
    connection: Connection,
    way: Way,
    patience: Duration,
    waiting: VecDeque<(u8, Vec<u8>)>,
}

/// How further connections are made.
pub(crate) enum Way {
    /// At the client.
    Called(Called),
    /// At the server.
    Listener(Box<Listener>),
}

/// Where the server listens, and the connection manager that leads there in place of TCP.
pub(crate) struct Called {
    pub address: String,
    pub by: Option<String>,
}

impl Called {
    fn connect(&self, net: &Net) -> Connect {
        let connect = net.connect(&self.address);
        self.by.iter().fold(connect, Connect::by)
    }

    /// How to start the server.
    fn advice(&self) -> String {
        let port = self.address.rsplit(':').next().unwrap_or_default();
        let by = self.by.as_ref().map_or_else(String::new, |by| format!(" --by {by}"));
        format!("start one there with: uct_perftest -p {port}{by}")
    }
}

/// What the client asks of further connections: the interface of the first one.
pub(crate) struct Further {
    iface: String,
    patience: Duration,
}

impl Further {
    pub(crate) async fn connect(&self, net: &Net, called: &Called) -> uct_net::Result<Connection> {
        called.connect(net).private(FURTHER).require(&*self.iface).within(self.patience).await
    }
}

/// The first client whose connection is open. A program that is none is turned away; a client that fails or stops in the middle keeps no other
/// one out.
async fn first_client(listener: &mut Listener) -> uct_net::Result<Connection> {
    let refused = Limited::default();
    let warn = |words: std::fmt::Arguments<'_>| {
        if let Some(left_out) = refused.admit() {
            uct_tools_common::log::warn!("{words}{left_out}");
        }
    };
    let mut opening = FuturesUnordered::from_iter([pending().boxed_local()]);
    loop {
        match select(pin!(listener.accept()), opening.select_next_some()).await {
            Either::Left((incoming, _)) => {
                let incoming = incoming?;
                if incoming.private() == PRIVATE {
                    opening.push(incoming.accept().boxed_local());
                    continue;
                }
                let peer = incoming.peer();
                warn(format_args!("{peer} was rejected: it is not a uct_perftest of this version"));
                // It may have gone.
                let _ = incoming.reject("it is not a uct_perftest of this version").await;
            }
            Either::Right((Ok(connection), _)) => return Ok(connection),
            Either::Right((Err(error), _)) => warn(format_args!("a client failed: {error}")),
        }
    }
}

impl Peer {
    /// Connects to the server; tries again while there is no listener yet, for a moment.
    pub(crate) fn call(
        net: &Net,
        called: Called,
        requests: &[Request],
        patience: Duration,
    ) -> Result<Peer, Failure> {
        let until = Instant::now() + CONNECT_PATIENCE.min(patience);
        let attempt = || {
            let connect = called.connect(net).private(PRIVATE).within(patience);
            requests.iter().fold(connect, |connect, request| connect.request(*request))
        };
        let outcome = net.block_on(async {
            loop {
                match attempt().await {
                    Err(error) if may_start(&error) && Instant::now() < until => {
                        net.sleep(RETRY_INTERVAL).await;
                    }
                    outcome => return outcome,
                }
            }
        });
        match outcome {
            Ok(connection) => Ok(Peer::over(net, connection, Way::Called(called), patience)),
            Err(error) if may_start(&error) => {
                let Error { peer, reason, .. } = error;
                Err(format!("no server at {peer}: {reason}; {}", called.advice()).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a client. Other programs are turned away.
    pub(crate) fn accept(net: &Net, mut listener: Listener, patience: Duration) -> Result<Peer, Failure> {
        let accepted = net.block_on(net.within(patience, first_client(&mut listener)));
        let Some(accepted) = accepted else {
            let waited = patience.as_secs_f64();
            let port = listener.port().map_or_else(String::new, |port| format!(" -p {port}"));
            return Err(format!(
                "no client came within {waited} s; start one with: uct_perftest{port} HOST, or wait longer with --timeout"
            )
            .into());
        };
        Ok(Peer::over(net, accepted?, Way::Listener(Box::new(listener)), patience))
    }

    fn over(net: &Net, connection: Connection, way: Way, patience: Duration) -> Peer {
        Peer { net: net.clone(), connection, way, patience, waiting: VecDeque::new() }
    }

    /// Opens a further connection over the same interface; both sides call it.
    pub(crate) fn open(&mut self) -> Result<Connection, Failure> {
        let (net, further) = (self.net.clone(), self.further());
        let opened = net.block_on(net.within(self.patience, async {
            match &mut self.way {
                Way::Called(called) => further.connect(&net, called).await,
                Way::Listener(listener) => listener.accept().await?.accept().await,
            }
        }));
        match opened {
            Some(opened) => opened.map_err(|error| gone(&error)),
            None => Err(self.silent("connect")),
        }
    }

    /// What drives the connections to it.
    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    /// How further connections are made.
    pub(crate) fn way(&mut self) -> &mut Way {
        &mut self.way
    }

    pub(crate) fn further(&self) -> Further {
        Further { iface: self.iface().resource().to_string(), patience: self.patience }
    }

    /// The interface that leads to it.
    pub(crate) fn iface(&self) -> &Iface {
        self.connection.iface()
    }

    /// The endpoint that leads to it.
    pub(crate) fn ep(&self) -> &Ep {
        self.connection.endpoint()
    }

    /// This side's verdict on each of its candidates.
    pub(crate) fn explanation(&self) -> &Explanation {
        &self.connection.explanation().ours
    }

    /// Has the worker's progress pass over all interfaces but the one that is measured.
    pub(crate) fn stop_other_ifaces(&self) {
        let own = self.iface().resource();
        for iface in self.net.ifaces().iter().filter(|iface| iface.resource() != own) {
            iface.progress_disable();
        }
    }

    /// Sends a message. Waits while the peer does not receive.
    pub(crate) fn send(&mut self, kind: Kind, body: &[u8]) -> Result<(), Failure> {
        self.send_within(self.patience, kind, body)
    }

    fn send_within(&mut self, limit: Duration, kind: Kind, body: &[u8]) -> Result<(), Failure> {
        let message = [&[kind as u8], body].concat();
        match self.net.block_on(self.net.within(limit, self.connection.send(&message))) {
            // A peer that has given up has said why before it closed.
            Some(sent) => sent.map_err(|error| self.given_up().unwrap_or_else(|| gone(&error))),
            None => Err(self.silent("receive")),
        }
    }

    /// Sends a message with a value.
    pub(crate) fn send_value(&mut self, kind: Kind, value: &impl Serialize) -> Result<(), Failure> {
        self.send(kind, &serde_json::to_vec(value)?)
    }

    /// Waits for a message of a kind; an error if another kind comes, if the peer gives up, or if it is gone.
    pub(crate) fn receive(&mut self, kind: Kind) -> Result<Vec<u8>, Failure> {
        loop {
            while let Some((found, body)) = self.waiting.pop_front() {
                if found == kind as u8 {
                    return Ok(body);
                }
                if found == Kind::Failed as u8 {
                    return Err(given_up(&body));
                }
                if found != Kind::Alive as u8 {
                    return Err(format!("the peer sent a message of kind {found}, expected {kind:?}").into());
                }
            }
            let received = self.net.block_on(self.net.within(self.patience, self.connection.recv()));
            match received {
                Some(Ok(message)) => self.keep(&message)?,
                Some(Err(error)) => return Err(gone(&error)),
                None => return Err(self.silent("answer")),
            }
        }
    }

    /// As [`Peer::receive`], for a message with a value.
    pub(crate) fn receive_value<T: DeserializeOwned>(&mut self, kind: Kind) -> Result<T, Failure> {
        let body = self.receive(kind)?;
        serde_json::from_slice(&body).map_err(|error| {
            // It may quote the peer.
            let error = error.to_string();
            format!("the peer's message {kind:?} cannot be parsed: {}", Visible(&error)).into()
        })
    }

    /// Checks for a sign of life while something else is going on, without waiting; returns whether there was one.
    pub(crate) fn look(&mut self) -> Result<bool, Failure> {
        let gone = self.fill();
        let before = self.waiting.len();
        self.waiting.retain(|(kind, _)| *kind != Kind::Alive as u8);
        if let Some(failure) = self.reason() {
            return Err(failure);
        }
        if self.waiting.is_empty() {
            gone?;
        }
        Ok(self.waiting.len() < before)
    }

    /// Why the peer gave up, if it did.
    pub(crate) fn given_up(&mut self) -> Option<Failure> {
        let _ = self.fill();
        self.reason()
    }

    fn reason(&self) -> Option<Failure> {
        let (_, body) = self.waiting.iter().find(|(kind, _)| *kind == Kind::Failed as u8)?;
        Some(given_up(body))
    }

    /// Tells the peer why this side gives up, as far as it still listens, and returns the reason.
    pub(crate) fn give_up(&mut self, failure: Failure) -> Failure {
        let _ = self.send_within(FAREWELL.min(self.patience), Kind::Failed, failure.to_string().as_bytes());
        failure
    }

    /// Takes what has arrived.
    fn fill(&mut self) -> Result<(), Failure> {
        let mut context = Context::from_waker(Waker::noop());
        let mut has_paused = false;
        loop {
            let received = pin!(self.connection.recv()).poll(&mut context);
            match received {
                Poll::Ready(Ok(message)) => self.keep(&message)?,
                Poll::Ready(Err(error)) => return Err(gone(&error)),
                // It may have been the turn of other tasks, of which there are none here.
                Poll::Pending if !has_paused => has_paused = true,
                Poll::Pending => return Ok(()),
            }
        }
    }

    fn keep(&mut self, message: &[u8]) -> Result<(), Failure> {
        let Some((kind, body)) = message.split_first() else {
            return Err("the peer sent an empty message".into());
        };
        if self.waiting.len() == MOST_WAITING {
            self.waiting.clear();
            return Err("the peer sends more messages than a peer of this version does".into());
        }
        self.waiting.push_back((*kind, body.to_vec()));
        Ok(())
    }

    fn silent(&self, what: &str) -> Failure {
        let seconds = self.patience.as_secs_f64();
        format!("the peer did not {what} within {seconds} s; allow more with --timeout").into()
    }
}

/// Whether there may be a server soon.
fn may_start(error: &Error) -> bool {
    error.stage == Stage::Dial && ![Status::UNSUPPORTED, Status::INVALID_PARAM].contains(&error.status)
}

/// Listens at a port: for IPv6 and IPv4, or for IPv4 alone where there is no IPv6, and by a connection manager, which takes one of
/// them at an address.
pub(crate) fn listen(net: &Net, port: u16, by: Option<&str>) -> Result<Listener, Failure> {
    let listening = net.block_on(async {
        if let Some(by) = by {
            return net.listen(format!("0.0.0.0:{port}")).by(by).await;
        }
        net.listen(format!("*:{port}")).await
    });
    listening.map_err(|error| format!("{error} (-p, on both sides)").into())
}

fn given_up(reason: &[u8]) -> Failure {
    format!("the peer gave up: {}", PeerText::new(reason)).into()
}

fn gone(error: &Error) -> Failure {
    if error.is_closed_by_peer() {
        return "the peer closed the connection: see its output for the reason".into();
    }
    format!("{error}: see also the peer's output").into()
}

/// Two ends within this thread.
#[cfg(test)]
pub(crate) mod pair {
    use futures_util::future::try_join;
    use uct_core::configuration::Sources;
    use uct_core::select::Selector;
    use uct_core::{Context, Worker};
    use uct_net::NetOptions;

    use super::*;

    pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

    pub(crate) fn peers() -> (Peer, Peer) {
        let context = Context::builder().sources(Sources::default()).build().unwrap();
        let worker = Worker::new(&context).unwrap();
        let selector = Selector::of(&worker, vec![worker.open("self", "memory").unwrap()]);
        let net = Net::over(&worker, selector, NetOptions::default()).unwrap();
        let both = net.block_on(async {
            let mut listener = net.listen("127.0.0.1:0").await?;
            let call = net.connect(listener.address());
            try_join(async { call.await }, async { listener.accept().await?.accept().await }).await
        });
        let (left, right) = both.unwrap();
        let called = || Called { address: String::new(), by: None };
        let peer = |connection| Peer::over(&net, connection, Way::Called(called()), PATIENCE);
        (peer(left), peer(right))
    }
}

#[cfg(test)]
mod tests {
    use super::pair::peers;
    use super::*;

    #[test]
    fn messages_arrive_in_order_and_signs_of_life_are_not_among_them() {
        let (mut left, mut right) = peers();
        assert!(!right.look().unwrap());
        left.send(Kind::Alive, &[]).unwrap();
        left.send(Kind::Ready, b"one").unwrap();
        left.send(Kind::Ready, b"two").unwrap();
        assert!(right.look().unwrap());
        assert!(!right.look().unwrap());
        assert_eq!(right.receive(Kind::Ready).unwrap(), b"one");
        assert_eq!(right.receive(Kind::Ready).unwrap(), b"two");
        right.patience = Duration::from_millis(20);
        let silent = right.receive(Kind::Ready).unwrap_err().to_string();
        assert!(silent.contains("--timeout"), "{silent}");
    }

    #[test]
    fn a_peer_that_gives_up_goes_away_or_is_out_of_step_is_an_error() {
        let (mut left, mut right) = peers();
        left.give_up("no more".into());
        assert!(right.look().unwrap_err().to_string().contains("no more"));
        assert!(right.receive(Kind::Ready).unwrap_err().to_string().contains("no more"));
        left.send(Kind::Done, &[]).unwrap();
        drop(left);
        assert!(right.receive(Kind::Ready).unwrap_err().to_string().contains("expected Ready"));
        assert!(right.receive(Kind::Ready).unwrap_err().to_string().contains("closed the connection"));
    }

    #[test]
    fn a_peer_that_floods_or_sends_nothing_at_all_is_refused() {
        let (mut left, mut right) = peers();
        (0..=MOST_WAITING).for_each(|_| left.send(Kind::Ready, &[]).unwrap());
        assert!(right.look().unwrap_err().to_string().contains("more messages"));
        let (left, mut right) = peers();
        left.net.block_on(left.connection.send(&[])).unwrap();
        assert!(right.look().unwrap_err().to_string().contains("empty"));
    }
}
