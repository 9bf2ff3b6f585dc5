//! Calling peers, and being called.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use uct_net::local::{Connection, Incoming, Listener};
use uct_net::protocol::Engine;

use super::link::Link;
use super::sink::PeerSink;
use super::{Inner, Inside, State};
use crate::wire::{Hello, MAX_HEAD};

/// The reason of a side that rejects a call since its own is on the way.
const CROSSING: &str = "crossing calls: that of the lower address is kept";
/// The reason where a connection is open already. Its end may not have been noticed yet.
const CONNECTED: &str = "a peer with this address is connected";
/// How long to wait until the next call for this reason.
const NEXT_CALL: Duration = Duration::from_millis(100);
/// How long a side whose call was rejected so waits for the peer's, or calls again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Shortest frames of a connection that is of use.
const MIN_FRAGMENT: usize = 512 + MAX_HEAD;

/// Ends the accepting of calls.
#[derive(Default)]
pub(in super::super) struct Stop(RefCell<(bool, Option<Waker>)>);

impl Stop {
    /// No further call is accepted, and the listener is closed.
    pub(in super::super) fn stop(&self) {
        let (is_stopped, waker) = &mut *self.0.borrow_mut();
        *is_stopped = true;
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    }

    fn is_stopped(&self, waker: &Waker) -> bool {
        let (is_stopped, registered) = &mut *self.0.borrow_mut();
        *registered = Some(waker.clone());
        *is_stopped
    }
}

/// What becomes of a call.
enum Verdict {
    Accept { peer: u32, attempt: u32 },
    Reject(&'static str),
}

impl State {
    /// Accepts calls for an endpoint until it is closed.
    pub(in super::super) fn accept(
        &self,
        engine: &Engine,
        endpoint: usize,
        listener: Listener,
        stop: &Rc<Stop>,
    ) {
        let (state, own, stop) = (Rc::downgrade(&self.0), engine.clone(), Rc::clone(stop));
        engine.spawn(async move {
            let mut listener = listener;
            loop {
                let next = {
                    let mut next = pin!(listener.accept());
                    poll_fn(|context| {
                        if stop.is_stopped(context.waker()) {
                            return Poll::Ready(None);
                        }
                        next.as_mut().poll(context).map(Some)
                    })
                    .await
                };
                match next {
                    None => return,
                    Some(Err(error)) => {
                        ucs::log::error!("an endpoint of libfabric accepts no more calls: {error}");
                        return;
                    }
                    Some(Ok(incoming)) => {
                        let Some(state) = state.upgrade().map(State) else { return };
                        state.called(&own, endpoint, incoming);
                    }
                }
            }
        });
    }

    /// A caller wants to connect.
    fn called(&self, engine: &Engine, endpoint: usize, incoming: Incoming) {
        let hello = Hello::parse(incoming.private()).map_err(|error| error.to_string());
        let verdict = hello.map(|hello| {
            let mut inner = self.0.inner.borrow_mut();
            inner.verdict(endpoint, hello)
        });
        let reason = match verdict {
            Ok(Verdict::Accept { peer, attempt }) => {
                return self.take_call(engine, endpoint, peer, attempt, incoming);
            }
            Ok(Verdict::Reject(reason)) => reason.to_owned(),
            Err(reason) => reason,
        };
        engine.spawn(async move {
            let _ = incoming.reject(&reason).await;
        });
    }

    fn take_call(&self, engine: &Engine, endpoint: usize, peer: u32, attempt: u32, incoming: Incoming) {
        let (state, own) = (Rc::downgrade(&self.0), engine.clone());
        let Some(hello) = self.hello(endpoint) else { return };
        engine.spawn(async move {
            let outcome = incoming.accept_with(hello).await;
            opened(&state, &own, endpoint, peer, attempt, outcome);
        });
    }

    fn hello(&self, endpoint: usize) -> Option<Vec<u8>> {
        let inner = self.0.inner.borrow();
        inner.endpoints.get(endpoint).map(|endpoint| Hello { address: endpoint.address }.to_bytes())
    }

    /// Calls the peers that something is to be sent to, and finds those that are in this domain.
    pub(super) fn open_links(&self, inner: &mut Inner, engine: &Engine) {
        while let Some((endpoint, peer)) = inner.shared.to_open.pop() {
            if !inner.open_local(endpoint, peer) {
                self.call(inner, engine, endpoint, peer);
            }
        }
    }

    fn call(&self, inner: &mut Inner, engine: &Engine, endpoint: usize, peer: u32) {
        let Some(caller) = inner.endpoints.get_mut(endpoint) else { return };
        let hello = Hello { address: caller.address }.to_bytes();
        let state = caller.peer(peer);
        if !matches!(state.link, Link::Closed) {
            return;
        }
        state.link = Link::Calling;
        state.attempt += 1;
        let (attempt, address) = (state.attempt, state.address);
        let (state, own) = (Rc::downgrade(&self.0), engine.clone());
        engine.spawn(async move {
            let is_rejected = |outcome: &uct_net::Result<Connection>, reason| {
                outcome.as_ref().is_err_and(|error| error.reason.contains(reason))
            };
            let limit = Instant::now() + PATIENCE;
            let outcome = loop {
                let outcome = own.net().connect(address).private(hello.clone()).await;
                if !is_rejected(&outcome, CONNECTED) || Instant::now() > limit {
                    break outcome;
                }
                own.net().sleep(NEXT_CALL).await;
            };
            if is_rejected(&outcome, CROSSING) && expects(&state, endpoint, peer, attempt) {
                own.net().sleep(PATIENCE).await;
            }
            opened(&state, &own, endpoint, peer, attempt, outcome);
        });
    }
}

/// The peer's own call is on the way. Returns whether it has not come yet.
fn expects(state: &Weak<Inside>, endpoint: usize, peer: u32, attempt: u32) -> bool {
    let Some(inside) = state.upgrade() else { return false };
    let mut inner = inside.inner.borrow_mut();
    let Some(endpoint) = inner.endpoints.get_mut(endpoint) else { return false };
    let peer = endpoint.peer(peer);
    if peer.attempt != attempt {
        return false;
    }
    peer.link = Link::Called;
    true
}

/// An attempt to connect has ended.
fn opened(
    state: &Weak<Inside>,
    engine: &Engine,
    endpoint: usize,
    peer: u32,
    attempt: u32,
    outcome: uct_net::Result<Connection>,
) {
    let Some(state) = state.upgrade().map(State) else { return };
    let is_current = {
        let mut inner = state.0.inner.borrow_mut();
        let endpoint = inner.endpoints.get_mut(endpoint);
        endpoint.is_some_and(|endpoint| endpoint.peer(peer).attempt == attempt)
    };
    if !is_current {
        // A later one has taken its place; dropping it ends it in order.
        return;
    }
    let connection = match outcome {
        Ok(connection) if connection.fragment() >= MIN_FRAGMENT => connection,
        Ok(connection) => {
            connection.abort("its messages are too short for libfabric");
            let reason = format!("{} carries at most {} bytes", connection.peer(), connection.fragment());
            return state.failed(engine, endpoint, peer, super::Errno::IO, &reason);
        }
        Err(error) => return state.failed_by(engine, endpoint, peer, &error),
    };
    let sink = PeerSink::new(&state, engine, endpoint, peer, attempt);
    {
        let mut inner = state.0.inner.borrow_mut();
        let Inner { endpoints, shared, .. } = &mut *inner;
        let Some(endpoint) = endpoints.get_mut(endpoint) else { return };
        let peer_state = endpoint.peer(peer);
        ucs::log::info!("libfabric: {} over {}", peer_state.address, connection.explanation().chosen);
        peer_state.link = Link::over(connection.clone());
        peer_state.is_blocked = false;
        endpoint.is_due(shared, peer);
    }
    // What has arrived already is delivered in this call.
    connection.deliver_to(Rc::new(sink));
    engine.request_turn();
}

impl Inner {
    /// Whether the peer is an endpoint of this domain: then frames go there from now on.
    fn open_local(&mut self, endpoint: usize, peer: u32) -> bool {
        let Some(own) = self.endpoints.get_mut(endpoint) else { return true };
        let (own_address, address) = (own.address, own.peer(peer).address);
        let Some((other, _)) = self.endpoints.iter().find(|(_, other)| other.address == address) else {
            return false;
        };
        let back = self.endpoints[other].peer_with(own_address);
        let Inner { endpoints, shared, .. } = self;
        for (endpoint, peer, to, there) in [(endpoint, peer, other, back), (other, back, endpoint, peer)] {
            let endpoint = &mut endpoints[endpoint];
            let state = endpoint.peer(peer);
            if matches!(state.link, Link::Closed) {
                state.attempt += 1;
                state.link = Link::Local { endpoint: to, peer: there };
                state.is_blocked = false;
            }
            endpoint.is_due(shared, peer);
        }
        true
    }

    /// What becomes of a call of this peer.
    fn verdict(&mut self, endpoint: usize, hello: Hello) -> Verdict {
        let Inner { endpoints, shared, .. } = self;
        let Some(endpoint) = endpoints.get_mut(endpoint) else {
            return Verdict::Reject("the endpoint is closed");
        };
        let own = endpoint.address;
        if hello.address == own {
            return Verdict::Reject("it has the address of this endpoint");
        }
        let peer = endpoint.caller_with(shared, hello.address);
        let state = endpoint.peer(peer);
        match &state.link {
            Link::Calling if own < hello.address => Verdict::Reject(CROSSING),
            Link::Local { .. } => Verdict::Reject("it has the address of another endpoint of this process"),
            // A caller need not be who it says: it ends nobody's connection.
            Link::Net { .. } => Verdict::Reject(CONNECTED),
            Link::Calling | Link::Called | Link::Closed => {
                state.attempt += 1;
                state.link = Link::Called;
                Verdict::Accept { peer, attempt: state.attempt }
            }
        }
    }
}
