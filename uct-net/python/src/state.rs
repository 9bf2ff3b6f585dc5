//! What all objects of a net share: the net, whether it is still open, and the connections and listeners that end with
//! it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use pyo3::prelude::*;
use ucs::Error as Status;
use ucs::memory::fork::{ForkGuard, Forked};
use uct_net::{Connection, Net, NetOptions, Result, Stage, Wait};

use crate::call::{Call, Outcome};
use crate::error::{argument, error};
use crate::event_loop::{Driven, EventLoops};
use crate::lock;
use crate::settings::{END, Settings};

/// The open nets of this process, which end when the interpreter does.
static OPEN: Mutex<Vec<Weak<NetState>>> = Mutex::new(Vec::new());

/// The peer of an error that is no peer's.
pub(crate) const THIS_PROCESS: &str = "this process";

/// What all objects of a net share.
pub(crate) struct NetState {
    net: Slot<Net>,
    /// The transports and devices that its connections may use, if not all.
    pub(crate) require: Vec<String>,
    /// Whether event loops may poll for what tasks wait for.
    may_poll: bool,
    pub(crate) loops: EventLoops,
    members: Mutex<Vec<Weak<dyn Member>>>,
}

/// What ends with its net.
pub(crate) trait Member: Send + Sync {
    /// Ends it; a connection is returned to be closed, and whether calls are waiting for it.
    fn end(&self) -> Option<(Connection, bool)>;
}

/// Something that can be closed, and is used by calls until then.
pub(crate) struct Slot<T> {
    value: Mutex<Option<T>>,
    /// A clone for each call.
    calls: Arc<()>,
    /// What it is, for errors.
    what: &'static str,
    fork: ForkGuard,
}

impl<T: Clone> Slot<T> {
    pub(crate) fn new(what: &'static str, value: T) -> Slot<T> {
        Slot { value: Mutex::new(Some(value)), calls: Arc::new(()), what, fork: ForkGuard::new() }
    }

    /// A handle for a call.
    ///
    /// # Errors
    /// It is closed, or the parent's.
    pub(crate) fn get(&self) -> Result<T> {
        self.check_fork()?;
        let value = lock(&self.value).clone();
        value.ok_or_else(|| {
            let reason = format!("this side has closed the {}", self.what);
            error(Stage::Close, THIS_PROCESS, Status::CANCELED, reason)
        })
    }

    fn check_fork(&self) -> Result {
        let forked =
            |forked: Forked| error(Stage::Connected, THIS_PROCESS, Status::from(forked), forked.to_string());
        self.fork.check().map_err(forked)
    }

    /// Takes it out; `None` if it is closed already.
    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.value).take()
    }

    /// Held by each call.
    pub(crate) fn in_use(&self) -> Arc<()> {
        Arc::clone(&self.calls)
    }

    /// Whether calls are waiting.
    pub(crate) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.calls) > 1
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.value).is_none()
    }
}

impl NetState {
    /// Opens a net. Blocks meanwhile.
    pub(crate) fn open(py: Python<'_>, settings: Settings, require: Vec<String>) -> PyResult<Arc<NetState>> {
        let Settings { context, options } = settings;
        let NetOptions { wait, .. } = options;
        let net = py.detach(|| Net::new(&context, options)).map_err(|refused| argument(py, &refused))?;
        let state = Arc::new(NetState {
            net: Slot::new("net", net),
            require,
            may_poll: wait != Wait::Sleep,
            loops: EventLoops::default(),
            members: Mutex::default(),
        });
        let mut open = lock(&OPEN);
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&state));
        Ok(state)
    }

    /// The net.
    ///
    /// # Errors
    /// It is closed, or the parent's.
    pub(crate) fn net(&self) -> Result<Net> {
        self.net.get()
    }

    /// Whether this is the process whose memory it is.
    ///
    /// # Errors
    /// It is the parent's.
    pub(crate) fn check_fork(&self) -> Result {
        self.net.check_fork()
    }

    /// Has a connection or listener end with the net.
    pub(crate) fn add(&self, member: Weak<dyn Member>) {
        let mut members = lock(&self.members);
        if members.len() == members.capacity() {
            members.retain(|member| member.strong_count() > 0);
        }
        members.push(member);
    }

    /// Ends the net: closes its connections and listeners, and delivers what was sent last within the limit. `None` if
    /// it is closed.
    pub(crate) fn close(self: &Arc<NetState>, limit: Duration) -> Option<Call> {
        let net = self.net.get().ok()?;
        drop(self.net.take());
        let members = std::mem::take(&mut *lock(&self.members));
        let connections =
            members.iter().filter_map(Weak::upgrade).filter_map(|member| member.end()).collect();
        let (state, own) = (Arc::clone(self), net.clone());
        let work = async move {
            close_connections(connections, limit).await;
            Ok(Outcome::made(move |py| {
                state.loops.leave(py)?;
                py.detach(|| drop(own));
                Ok(py.None())
            }))
        };
        Some(Call::new(net, (Stage::Close, THIS_PROCESS.into()), work))
    }
}

impl Driven for NetState {
    fn open_net(&self) -> Option<Net> {
        self.net().ok()
    }

    fn may_poll(&self) -> bool {
        self.may_poll
    }
}

/// Closes all of them at once; what has not ended within the limit is ended.
async fn close_connections(connections: Vec<(Connection, bool)>, limit: Duration) {
    let mut closing: Vec<_> = connections
        .iter()
        .map(|(connection, is_in_use)| (connection.close().within(limit), connection, is_in_use))
        .collect();
    std::future::poll_fn(|context| {
        closing.retain_mut(|(close, connection, is_in_use)| match Pin::new(close).poll(context) {
            Poll::Pending => true,
            Poll::Ready(outcome) => {
                if outcome.is_err() || **is_in_use {
                    connection.abort("the net was closed");
                }
                false
            }
        });
        if closing.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Ends all nets, when the interpreter does: what was sent last is delivered, for up to 1 s.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) {
    let open = std::mem::take(&mut *lock(&OPEN));
    for state in open.iter().filter_map(Weak::upgrade) {
        if let Some(call) = state.close(END) {
            // Nobody is left to be told.
            let _ = call.block(py, None);
        }
    }
}
