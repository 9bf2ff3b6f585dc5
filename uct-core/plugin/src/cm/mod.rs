//! Connection managers: what one implements, and how it reports.
//!
//! Used by transports whose component has one, which name it in [`crate::define_plugin!`]. The order of events and the statuses of
//! calls are those of [`uct_abi::UctCmOps`]; [`CmState`] keeps them, and both sides of a connection use one.

mod state;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

use ucs::{Error, Result, Status};
use uct_abi::{
    UCT_CM_CONNECTED, UCT_CM_DISCONNECTED, UCT_CM_FAILED, UCT_CM_NOTIFIED, UCT_CM_REQUEST, UCT_CM_RESOLVED,
    UCT_OK, UctCmEvent, UctCmHandler, UctSocketAddress, UctStr,
};

pub use state::{CmState, Due, Input};
pub use uct_abi::UctCmAttr as CmAttr;

use crate::completion::Outcome;
use crate::failure::Failure;
use crate::host::Worker;
use crate::settings::Settings;

/// A connection manager. All calls come from the thread of its worker, except [`ConnectionManager::reject`].
///
/// The host checks lengths of private data against [`ConnectionManager::attributes`] ahead of each call.
pub trait ConnectionManager: Sized + 'static {
    /// A listener.
    type Listener: 'static;
    /// A client's request. It outlives its listener and its connection manager, and whatever thread drops it rejects the client.
    type Request: Send + 'static;
    /// One end of a connection.
    type Ep: 'static;

    /// Opens one on a worker.
    fn open(params: CmParams<'_, Self>) -> Result<Rc<Self>, Failure>;

    /// Its limits.
    fn attributes(&self) -> CmAttr;

    /// The descriptor that is readable as long as [`ConnectionManager::progress`] has something to do, deadlines among it.
    fn event_fd(&self) -> Result<RawFd>;

    /// Does what is due and reports; returns how many events it handled. No borrow of a cell is held while something is reported: the
    /// application may call anything, and destroy anything, inside.
    fn progress(self: &Rc<Self>) -> u32;

    /// Closes; listeners and endpoints are destroyed by then.
    fn close(&self) {}

    /// Listens. `backlog` is the number of clients that may wait in the system, if the application chose one.
    /// [`Error::BUSY`]: the address is in use. [`Error::NO_DEVICE`]: no device has it.
    fn listen(
        self: &Rc<Self>,
        user: CmUser,
        address: SocketAddr,
        backlog: Option<u32>,
    ) -> Result<Rc<Self::Listener>, Failure>;

    /// Where it listens, with the port that was chosen.
    fn listener_address(listener: &Rc<Self::Listener>) -> Result<SocketAddr>;

    /// Stops listening: no request of it is reported any more.
    fn listener_destroy(listener: Rc<Self::Listener>);

    /// Begins to connect.
    fn connect(self: &Rc<Self>, params: CmConnect) -> Result<Rc<Self::Ep>, Failure>;

    /// Sends the request to the server, once resolved.
    fn send(ep: &Rc<Self::Ep>, data: CmData<'_>) -> Result;

    /// Accepts a request that any connection manager of this type has reported, and makes its endpoint here.
    fn accept(
        self: &Rc<Self>,
        request: Self::Request,
        user: CmUser,
        data: CmData<'_>,
        timeout: Option<Duration>,
    ) -> Result<Rc<Self::Ep>, Failure>;

    /// Rejects a request. Any thread.
    fn reject(request: Self::Request, data: &[u8]) -> Result;

    /// Notifies the server that the client is connected.
    fn notify(ep: &Rc<Self::Ep>) -> Result;

    /// Disconnects; see [`CmState::disconnect`].
    fn disconnect(ep: &Rc<Self::Ep>, reason: &[u8]) -> Result<Outcome>;

    /// The addresses of this side and of the peer, as this side sees them.
    fn addresses(ep: &Rc<Self::Ep>) -> Result<(SocketAddr, SocketAddr)>;

    /// Finds out what prevents connections to an address, of a peer or of this machine: a finding for each step, up to
    /// the first obstacle. Needs no open connection manager; blocks for some seconds at most.
    fn diagnose(address: SocketAddr) -> Result<Vec<Finding>> {
        let _ = address;
        Err(Error::UNSUPPORTED)
    }

    /// Destroys, at any time. A connection that is established is disconnected. Nothing is reported any more.
    fn destroy(ep: Rc<Self::Ep>);
}

/// What one step of a diagnosis found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The obstacle, if there is one.
    pub obstacle: Option<Error>,
    /// A line of text, with the remedy of an obstacle.
    pub words: String,
}

/// How to open a connection manager.
pub struct CmParams<'a, C: ConnectionManager> {
    /// The worker that drives it.
    pub worker: Worker,
    /// The plugin's configuration.
    pub settings: Settings<'a>,
    /// Where it reports, until it is closed.
    pub events: CmEvents<C>,
}

/// The host's own mark of a listener or an endpoint; it gets it back with each event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CmUser(*mut c_void);

impl CmUser {
    /// The host's mark. For the tables of [`crate::define_plugin!`], and for tests of a connection manager.
    pub const fn new(mark: *mut c_void) -> CmUser {
        CmUser(mark)
    }
}

/// Whom to connect to.
pub struct CmConnect {
    /// For events.
    pub user: CmUser,
    /// The server.
    pub address: SocketAddr,
    /// The address to connect from.
    pub source: Option<SocketAddr>,
    /// What peer and network may take for each stage, if the application chose a limit.
    pub timeout: Option<Duration>,
}

/// What one side sends the other.
#[derive(Clone, Copy)]
pub struct CmData<'a> {
    /// Private data.
    pub private: &'a [u8],
    /// The data endpoint, where the transport has a token of it.
    pub token: Option<CmToken>,
}

/// The data endpoint whose connection is established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CmToken {
    /// Number of its queue pair.
    pub qp_number: u32,
    /// Whether that receives from a shared receive queue.
    pub has_srq: bool,
}

/// What a connection manager reports.
pub enum CmEvent<'a, R> {
    /// A client calls; of a listener.
    Request {
        /// What is accepted or rejected.
        request: R,
        /// The client's private data.
        private: &'a [u8],
        /// How it is reached.
        path: CmPath<'a>,
    },
    /// The peer's address is resolved.
    Resolved(CmPath<'a>),
    /// The server has accepted, with these private data.
    Connected(&'a [u8]),
    /// The client is connected.
    Notified,
    /// The peer has disconnected, for this reason.
    Disconnected(&'a [u8]),
    /// The peer of an established connection is lost; the reason as text.
    Lost(&'a str),
    /// The connection was not established.
    Failed {
        /// [`Error::REJECTED`] only for an explicit reject.
        error: Error,
        /// The private data of a reject.
        private: &'a [u8],
        /// The reason as text.
        reason: &'a str,
    },
}

/// How a peer is reached.
#[derive(Clone, Copy, Debug)]
pub struct CmPath<'a> {
    /// The address of this side.
    pub local: SocketAddr,
    /// The address of the peer, as this side sees it.
    pub peer: SocketAddr,
    /// The device that leads there; empty where it is not known.
    pub device: &'a str,
}

/// Where a connection manager reports.
pub struct CmEvents<C> {
    handler: UctCmHandler,
    argument: *mut c_void,
    cm: PhantomData<C>,
}

impl<C> Clone for CmEvents<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for CmEvents<C> {}

impl<C: ConnectionManager> CmEvents<C> {
    /// The host's handler. For the tables of [`crate::define_plugin!`], and for tests of a connection manager.
    ///
    /// # Safety
    /// The handler may be called with the argument as long as the value is used (`UctCmParams`), and takes requests of type `C`.
    pub unsafe fn new(handler: UctCmHandler, argument: *mut c_void) -> CmEvents<C> {
        CmEvents { handler, argument, cm: PhantomData }
    }

    /// Reports an event of a listener or an endpoint. From progress only; not after it was destroyed, which the application may do
    /// inside.
    pub fn report(&self, user: CmUser, event: CmEvent<'_, C::Request>) {
        let mut raw = UctCmEvent {
            size: size_of::<UctCmEvent>(),
            kind: 0,
            status: UCT_OK,
            user: user.0,
            request: std::ptr::null_mut(),
            data: [].as_ptr(),
            length: 0,
            local: UctSocketAddress::NONE,
            peer: UctSocketAddress::NONE,
            device: words(""),
            reason: words(""),
        };
        let data = |raw: &mut UctCmEvent, data: &[u8]| (raw.data, raw.length) = (data.as_ptr(), data.len());
        let path = |raw: &mut UctCmEvent, path: CmPath<'_>| {
            (raw.local, raw.peer, raw.device) = (path.local.into(), path.peer.into(), words(path.device));
        };
        raw.kind = match event {
            CmEvent::Request { request, private, path: by } => {
                raw.request = Box::into_raw(Box::new(request)).cast();
                data(&mut raw, private);
                path(&mut raw, by);
                UCT_CM_REQUEST
            }
            CmEvent::Resolved(by) => {
                path(&mut raw, by);
                UCT_CM_RESOLVED
            }
            CmEvent::Connected(private) => {
                data(&mut raw, private);
                UCT_CM_CONNECTED
            }
            CmEvent::Notified => UCT_CM_NOTIFIED,
            CmEvent::Disconnected(reason) => {
                data(&mut raw, reason);
                UCT_CM_DISCONNECTED
            }
            CmEvent::Lost(reason) => {
                raw.status = Status::from(Err::<(), _>(Error::CONNECTION_RESET)).raw();
                raw.reason = words(reason);
                UCT_CM_DISCONNECTED
            }
            CmEvent::Failed { error, private, reason } => {
                raw.status = error.status().raw();
                data(&mut raw, private);
                raw.reason = words(reason);
                UCT_CM_FAILED
            }
        };
        // SAFETY: handler and argument belong together until the connection manager is closed (`CmEvents::new`); the event is valid
        // for the call.
        unsafe { (self.handler)(self.argument, &raw const raw) }
    }
}

fn words(text: &str) -> UctStr {
    UctStr { data: text.as_ptr(), length: text.len() }
}
