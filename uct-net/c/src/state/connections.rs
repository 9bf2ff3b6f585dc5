//! Connecting, listening, accepting and closing.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use uct_net::local::{Connect, Connection, Listen, Listener};
use uct_net::protocol::Engine;

use super::line::{Line, Serving};
use super::target::Target;
use super::{Done, State};
use crate::abi::*;
use crate::failure::{Failure, Outcome};
use crate::handles::{Handle, Kind};

/// A connection, and the operations that wait for what its peer sends.
pub struct Link {
    pub connection: Connection,
    pub messages: Rc<Line<Option<Target>>>,
    pub shared: Rc<Line<()>>,
    pub notices: Rc<Line<()>>,
}

impl Link {
    /// Ends what waits for the peer.
    pub fn close_lines(&self, state: &State) {
        self.messages.close(state);
        self.shared.close(state);
        self.notices.close(state);
    }
}

/// A listener, and the operations that wait for callers.
pub struct Doorway {
    address: String,
    listener: RefCell<Option<Listener>>,
    accepts: Rc<Line<()>>,
}

impl Doorway {
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Closes its socket, and ends what waits for callers.
    pub fn close(&self, state: &State) {
        let listener = self.listener.take();
        drop(listener);
        self.accepts.close(state);
    }
}

impl State {
    pub fn connect(self: &Rc<State>, engine: &Engine, connect: Connect, user: u64) -> u64 {
        let connecting = connect.into_future();
        self.start_droppable(engine, (UCT_EV_CONNECT, user), connecting, State::add_connection)
    }

    fn add_connection(&self, connection: Connection) -> Outcome<Done> {
        let link = Link { connection, messages: Line::new(), shared: Line::new(), notices: Line::new() };
        let handle = self.links.borrow_mut().insert(Rc::new(link))?;
        Ok(Done { result: handle.raw(), ..Done::default() })
    }

    pub fn listen(self: &Rc<State>, engine: &Engine, listen: Listen, user: u64) -> u64 {
        let done = |state: &State, listener: Listener| {
            let address = listener.address();
            let doorway = Doorway { address, listener: RefCell::new(Some(listener)), accepts: Line::new() };
            let handle = state.doorways.borrow_mut().insert(Rc::new(doorway))?;
            Ok(Done { result: handle.raw(), ..Done::default() })
        };
        self.start_droppable(engine, (UCT_EV_LISTEN, user), listen.into_future(), done)
    }

    pub fn accept(self: &Rc<State>, engine: &Engine, listener: Handle, user: u64) -> Outcome<u64> {
        let doorway = self.doorway(listener)?;
        let (op, is_first) = doorway.accepts.add(self, UCT_EV_ACCEPT, user, ());
        if is_first {
            let serving = Serving::new(self, &doorway.accepts);
            engine.spawn(serve_accepts(serving, doorway));
        }
        Ok(op)
    }

    pub fn close_listener(&self, raw: u64) -> Outcome {
        let doorway = self.remove(&self.doorways, raw, Kind::Listener)?;
        doorway.close(self);
        Ok(())
    }

    pub fn close_connection(self: &Rc<State>, engine: &Engine, raw: u64, user: u64) -> Outcome<u64> {
        let link = self.remove(&self.links, raw, Kind::Connection)?;
        link.close_lines(self);
        let connection = link.connection.clone();
        drop(link);
        let closing = async move { connection.close().await };
        Ok(self.start_droppable(engine, (UCT_EV_CONN_CLOSE, user), closing, |_, ()| Ok(Done::default())))
    }

    pub fn abort_connection(&self, raw: u64, reason: &str) -> Outcome {
        let link = self.remove(&self.links, raw, Kind::Connection)?;
        link.connection.abort(reason);
        link.close_lines(self);
        Ok(())
    }
}

async fn serve_accepts(serving: Serving<()>, doorway: Rc<Doorway>) {
    while let Some((flight, ())) = serving.next().await {
        let caller = poll_fn(|context| match doorway.listener.borrow_mut().as_mut() {
            Some(listener) => listener.poll_open(context).map_err(Failure::from),
            None => Poll::Ready(Err(Failure::canceled("the listener is closed"))),
        });
        if let Some(outcome) = serving.race(&flight, pin!(caller)).await {
            let state = serving.state();
            serving.end(&flight, outcome.and_then(|connection| state.add_connection(connection)));
        }
    }
}
