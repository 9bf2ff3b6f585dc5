//! Where a connection delivers frames.

use std::rc::{Rc, Weak};

use uct_net::protocol::{Credit, Engine, Fragment, Sink, Space};

use super::input::Input;
use super::{Event, Inside, State};

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
        let outcome = inside.of_peer(self.endpoint, self.peer, self.attempt, |endpoint, shared| {
            if !fragment.is_last() {
                return Err("its message has several fragments".to_owned());
            }
            if fragment.is_placed() {
                let outcome = endpoint.placed(shared, self.peer, fragment.len(), fragment.credit());
                return outcome.map_err(str::to_owned);
            }
            endpoint.arrived(shared, self.peer, Input::Net(fragment))
        });
        match outcome {
            Some(Ok(true)) => Credit::Held,
            Some(Ok(false)) | None => Credit::Returned,
            Some(Err(reason)) => {
                self.broken(reason);
                Credit::Returned
            }
        }
    }

    fn begin(&self, head: &[u8], length: usize, is_last: bool) -> bool {
        let Some(inside) = self.state.upgrade().filter(|_| is_last) else { return false };
        let taken = inside.of_peer(self.endpoint, self.peer, self.attempt, |endpoint, shared| {
            endpoint.place_frame(shared, self.peer, head, length)
        });
        taken == Some(true)
    }

    fn place(&self, offset: usize) -> Option<Space> {
        let inside = self.state.upgrade()?;
        let place = inside.of_peer(self.endpoint, self.peer, self.attempt, |endpoint, _| {
            endpoint.place_of(self.peer, offset)
        });
        place.flatten()
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
