//! Connecting to a listener by its address.

use std::cell::Cell;
use std::fmt;
use std::future::IntoFuture;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use tracing::{Instrument, debug_span};
use ucs::Error as Status;
use uct_core::select::Request;

use super::cm;
use super::connection::Connection;
use super::handshake;
use super::net::{Net, NetHandle};
use super::socket::{FrameSocket, Place};
use super::trace;
use crate::error::{Error, Result, Stage};

/// An attempt to connect, made by `.await`. Its methods set what the attempt needs.
#[must_use = "nothing is connected until it is awaited"]
pub struct Connect {
    net: NetHandle,
    address: String,
    by: Option<String>,
    from: Option<SocketAddr>,
    limit: Duration,
    requests: Vec<Request>,
    require: Vec<String>,
    private: Vec<u8>,
    #[cfg(feature = "tls")]
    server_name: Option<String>,
}

impl Net {
    /// Connects to a listener: `host:port`, `1.2.3.4:7000`, `[::1]:7000`, or `unix:/path`. Both sides send their interfaces, the cheapest
    /// transport that both can use is opened, and a message crosses it in both directions before the connection is returned. If
    /// the chosen transport does not work, the next one is tried, with a warning in the log.
    ///
    /// The future returns an [`crate::Error`] with the stage at which it failed: the address does not resolve, no listener replies, the listener
    /// rejects, no common transport, or the time limit. Nothing blocks: a host name is resolved in a thread of its own.
    pub fn connect(&self, address: impl fmt::Display) -> Connect {
        Connect {
            net: self.inner.clone(),
            address: address.to_string(),
            by: None,
            from: None,
            limit: self.inner.options.connect_timeout,
            requests: Vec::new(),
            require: Vec::new(),
            private: Vec::new(),
            #[cfg(feature = "tls")]
            server_name: None,
        }
    }
}

impl Connect {
    /// Time limit of the whole attempt, after which the error is `TIMED_OUT`. Default: [`crate::NetOptions::connect_timeout`].
    pub fn within(mut self, limit: Duration) -> Connect {
        self.limit = limit;
        self
    }

    /// Connects by a connection manager, `rdmacm`, to a listener that has [`super::Listen::by`]. The address is an IP address or a name of a
    /// network device with an RDMA device. The first lane is `rc_verbs` on the device that leads there; it is kept if it is the one that
    /// is chosen. Without such a device, or the connection manager, it is an error, as with `Tls::confidential`, which encrypts no RDMA.
    pub fn by(mut self, manager: impl Into<String>) -> Connect {
        self.by = Some(manager.into());
        self
    }

    /// The address of this machine to call from; port 0 lets the system choose one. It decides the device of a call by a connection manager, and
    /// the address that the listener sees. The devices of other lanes than the one over the call itself are chosen as usual
    /// ([`Connect::require`]). An address that this machine does not have is an error, as is one of another family than the called one, or
    /// any for a Unix path.
    pub fn from(mut self, source: SocketAddr) -> Connect {
        self.from = Some(source);
        self
    }

    /// Permits only a transport (`posix`), a device (`eth0`) or both (`tcp/eth0`) of this name. May be repeated: any of them.
    pub fn require(mut self, name: impl Into<String>) -> Connect {
        self.require.push(name.into());
        self
    }

    /// The operation and size for which selection compares the transports. May be repeated: of several requests the one that can be met at the
    /// lowest cost counts. Default: [`crate::NetOptions::request`].
    pub fn request(mut self, request: Request) -> Connect {
        self.requests.push(request);
        self
    }

    /// Private data for the listener, which can read them before it accepts. At most 64 KiB; more is an error of connecting.
    pub fn private(mut self, private: impl Into<Vec<u8>>) -> Connect {
        self.private = private.into();
        self
    }

    /// The name that the listener's certificate must be valid for, with [`crate::NetOptions::tls`]. Default: the host of the address; a
    /// Unix path has none.
    #[cfg(feature = "tls")]
    pub fn server_name(mut self, name: impl Into<String>) -> Connect {
        self.server_name = Some(name.into());
        self
    }

    /// Notes how far it has come.
    async fn run(self, stage: Rc<Cell<Stage>>) -> Result<Connection> {
        #[cfg(feature = "tls")]
        let session = super::secure::session(&self.net, &self.address, self.server_name.as_deref())?;
        let Connect { net, address, by, from, mut requests, require, private, .. } = self;
        if requests.is_empty() {
            requests.push(net.options.request);
        }
        let mut places = resolve(&address).instrument(debug_span!("resolve")).await?;
        if let Some(source) = from {
            places.retain(|place| place.is_of_family(source));
            if places.is_empty() {
                let reason =
                    format!("it cannot be called from {}, an address of another family", source.ip());
                return Err(Error::new(Stage::Resolve, address, Status::INVALID_ADDR, reason).hint(
                    "call an address of the same family, IPv4 or IPv6; a path is called without from",
                ));
            }
        }
        stage.set(Stage::Dial);
        let mut last = None;
        for place in places {
            let dialled = async {
                match &by {
                    Some(manager) => cm::dial(&net, manager, &place, from).await,
                    None => FrameSocket::dial(&net.reactor, &place, from).await,
                }
            };
            match dialled.instrument(debug_span!("dial", %place)).await {
                Ok(socket) => {
                    stage.set(Stage::Handshake);
                    #[cfg(feature = "tls")]
                    let tls_peer = match session {
                        Some(session) => Some(handshake::secure(&net, &socket, session).await?),
                        None => None,
                    };
                    let made = handshake::call(&net, &socket, &requests, &require, private);
                    let connection = made.instrument(debug_span!("handshake")).await?;
                    #[cfg(feature = "tls")]
                    if let Some(peer) = tls_peer {
                        connection.note_tls_peer(peer);
                    }
                    return Ok(connection);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| unresolved(&address, "it has no address")))
    }
}

impl IntoFuture for Connect {
    type Output = Result<Connection>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Connection>>>>;

    fn into_future(self) -> Self::IntoFuture {
        let (limit, address) = (self.limit, self.address.clone());
        let mut sleep = self.net.reactor.sleep(limit);
        let stage = Rc::new(Cell::new(Stage::Resolve));
        let span = trace::calling(&address);
        let mut connecting = Box::pin(self.run(Rc::clone(&stage)).instrument(span.clone()));
        Box::pin(std::future::poll_fn(move |context| {
            if let Poll::Ready(outcome) = connecting.as_mut().poll(context) {
                return Poll::Ready(trace::outcome(&span, outcome));
            }
            sleep.poll_due(context).map(|()| {
                let error = Error::new(
                    stage.get(),
                    &*address,
                    Status::TIMED_OUT,
                    format!("not connected within {limit:?}"),
                );
                let error = error.hint(match stage.get() {
                    Stage::Handshake => "the listener was reached and does not continue: it may be busy",
                    Stage::Resolve => {
                        "the name was not resolved in time: check the resolver, or use an IP address"
                    }
                    _ => "nothing replies at this address: check the address, the network and its firewalls",
                });
                trace::outcome(&span, Err(error))
            })
        }))
    }
}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("address", &self.address).finish_non_exhaustive()
    }
}

fn unresolved(address: &str, reason: impl Into<String>) -> Error {
    Error::new(Stage::Resolve, address, Status::INVALID_ADDR, reason)
        .hint("expected host:port, 1.2.3.4:port, [::1]:port or unix:/path")
}

/// What a name stands for. One that has to be looked up is, in a thread of its own: the system's look-up blocks.
pub(crate) async fn resolve(address: &str) -> Result<Vec<Place>> {
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok(vec![Place::Unix(path.into())]);
    }
    if let Ok(address) = address.parse::<SocketAddr>() {
        return Ok(vec![Place::Ip(address)]);
    }
    if !address.contains(':') {
        return Err(unresolved(address, "it names no port"));
    }
    let answer = Arc::new(Mutex::new(LookUp::default()));
    let (place, name) = (Arc::clone(&answer), address.to_owned());
    let look_up = move || {
        let found =
            name.to_socket_addrs().map(Iterator::collect::<Vec<_>>).map_err(|error| error.to_string());
        let mut place = place.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        place.found = Some(found);
        if let Some(waker) = place.waker.take() {
            waker.wake();
        }
    };
    std::thread::Builder::new()
        .name("uct-net-resolve".to_owned())
        .spawn(look_up)
        .map_err(|error| unresolved(address, format!("no thread to look it up: {error}")))?;
    let found = std::future::poll_fn(|context| {
        let mut answer = answer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match answer.found.take() {
            Some(found) => Poll::Ready(found),
            None => {
                answer.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    });
    let found = found.await.map_err(|error| unresolved(address, error))?;
    Ok(found.into_iter().map(Place::Ip).collect())
}

/// The result of a name look-up, and the task that waits for it.
#[derive(Default)]
struct LookUp {
    found: Option<std::result::Result<Vec<SocketAddr>, String>>,
    waker: Option<Waker>,
}
