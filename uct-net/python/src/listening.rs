//! A listener as both kinds of classes have it.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use pyo3::prelude::*;
use ucs::Error as Status;
use uct_net::{Connection, Listener, Result, Stage, Streams};

use crate::call::{Call, Outcome};
use crate::connected::Connected;
use crate::error::{error, exception};
use crate::lock;
use crate::state::{Member, NetState, Slot};

/// A listener.
pub(crate) struct Listening {
    pub(crate) state: Arc<NetState>,
    /// Shared by the calls that wait.
    streams: Slot<Arc<Mutex<Callers>>>,
    address: String,
    port: Option<u16>,
}

/// The callers of a listener. One call at a time waits for the next of them.
struct Callers {
    /// Until it is closed.
    streams: Option<Streams>,
    is_awaited: bool,
    waiting: Option<Waker>,
}

impl Member for Listening {
    fn end(&self) -> Option<(Connection, bool)> {
        self.close();
        None
    }
}

impl Listening {
    pub(crate) fn new(state: &Arc<NetState>, listener: Listener) -> Arc<Listening> {
        let (address, port) = (listener.address().to_owned(), listener.port());
        let callers = Callers { streams: Some(listener.into_streams()), is_awaited: false, waiting: None };
        let listening = Arc::new(Listening {
            state: Arc::clone(state),
            streams: Slot::new("listener", Arc::new(Mutex::new(callers))),
            address,
            port,
        });
        let member: Arc<dyn Member> = Arc::<Listening>::clone(&listening);
        state.add(Arc::downgrade(&member));
        listening
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn port(&self) -> Option<u16> {
        self.port
    }

    /// The next caller with which a connection is open, as what `make` makes of it.
    pub(crate) fn accept(
        &self,
        py: Python<'_>,
        make: fn(Python<'_>, Arc<Connected>) -> PyResult<Py<PyAny>>,
    ) -> PyResult<Call> {
        let callers = self.streams.get().map_err(|refused| exception(py, &refused))?;
        let net = self.state.net().map_err(|refused| exception(py, &refused))?;
        let (state, address) = (Arc::clone(&self.state), Arc::<str>::from(&*self.address));
        let about = (Stage::Listen, Arc::clone(&address));
        let work = async move {
            let turn = Turn::take(&callers, &address)?;
            let connection = poll_fn(|context| {
                let mut callers = lock(&turn.0);
                let Some(streams) = &mut callers.streams else { return Poll::Ready(Err(closed(&address))) };
                let next = streams.poll_next(context).map(|stream| Ok(stream.connection().clone()));
                if next.is_pending() {
                    callers.waiting = Some(context.waker().clone());
                }
                next
            })
            .await?;
            Ok(Outcome::made(move |py| make(py, Connected::new(&state, connection))))
        };
        Ok(Call::new(net, about, work))
    }

    /// As [`Listening::accept`], for an iteration; `None` if it is closed.
    pub(crate) fn next(
        &self,
        py: Python<'_>,
        make: fn(Python<'_>, Arc<Connected>) -> PyResult<Py<PyAny>>,
    ) -> PyResult<Option<Call>> {
        if self.streams.is_closed() { Ok(None) } else { Ok(Some(self.accept(py, make)?.next())) }
    }

    /// Closes it: a call that waits ends with an error.
    pub(crate) fn close(&self) {
        let Some(callers) = self.streams.take() else { return };
        let mut callers = lock(&callers);
        let (streams, waiting) = (callers.streams.take(), callers.waiting.take());
        drop(callers);
        drop(streams);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// The call that waits for the next caller.
struct Turn(Arc<Mutex<Callers>>);

impl Turn {
    fn take(callers: &Arc<Mutex<Callers>>, address: &str) -> Result<Turn> {
        if std::mem::replace(&mut lock(callers).is_awaited, true) {
            let reason = "another call of accept waits for this listener: one at a time does";
            return Err(error(Stage::Listen, address, Status::BUSY, reason));
        }
        Ok(Turn(Arc::clone(callers)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.0).is_awaited = false;
    }
}

fn closed(address: &str) -> uct_net::Error {
    error(Stage::Close, address, Status::CANCELED, "this side has closed the listener")
}
