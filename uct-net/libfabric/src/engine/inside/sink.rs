//! Where a connection delivers frames.

use std::rc::{Rc, Weak};

use uct_net::protocol::{Credit, Engine, Fragment, Sink};

use super::input::Input;
use super::{Event, Inner, Inside, State};

/// The sink of a peer's connection.
pub(super) struct PeerSink {
    /// Weak: the state has the connection, which has this.
    state: Weak<Inside>,
    engine: Engine,
    endpoint: usize,
    peer: u32,
    attempt: u32,
}

impl PeerSink {
    pub(super) fn new(state: &State, engine: &Engine, endpoint: usize, peer: u32, attempt: u32) -> PeerSink {
        PeerSink { state: Rc::downgrade(&state.0), engine: engine.clone(), endpoint, peer, attempt }
    }

    fn note(&self, event: Event) {
        if let Some(inside) = self.state.upgrade() {
            State(inside).note(&self.engine, event);
        }
    }

    fn broken(&self, reason: String) {
        let (endpoint, peer, attempt) = (self.endpoint, self.peer, self.attempt);
        self.note(Event::Broken { endpoint, peer, attempt, reason });
    }
}

impl Sink for PeerSink {
    fn deliver(&self, fragment: &Fragment<'_>) -> Credit {
        let Some(inside) = self.state.upgrade() else { return Credit::Returned };
        let mut inner = inside.inner.borrow_mut();
        let Inner { endpoints, shared, .. } = &mut *inner;
        let Some(endpoint) = endpoints.get_mut(self.endpoint) else { return Credit::Returned };
        let peer = endpoint.peer(self.peer);
        if peer.attempt != self.attempt || !peer.link.is_open() {
            return Credit::Returned;
        }
        if !fragment.is_last() {
            drop(inner);
            self.broken("its message has several fragments".to_owned());
            return Credit::Returned;
        }
        match endpoint.arrived(shared, self.peer, Input::Net(fragment)) {
            Ok(true) => Credit::Held,
            Ok(false) => Credit::Returned,
            Err(reason) => {
                drop(inner);
                self.broken(reason);
                Credit::Returned
            }
        }
    }

    fn writable(&self) {
        let (endpoint, peer, attempt) = (self.endpoint, self.peer, self.attempt);
        self.note(Event::Writable { endpoint, peer, attempt });
    }

    fn ended(&self, reason: uct_net::Error) {
        let (endpoint, peer, attempt) = (self.endpoint, self.peer, self.attempt);
        self.note(Event::Ended { endpoint, peer, attempt, reason });
    }
}
