//! Connecting to a listener by its address.

use std::cell::Cell;
use std::fmt;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use ucs::Error as Status;
use ucs::sys::net::{self, BadAddress, ParsedAddress, Purpose};

use super::cm;
use super::connection::Connection;
use super::handshake;
use super::net::Net;
use super::socket::{FrameSocket, Place};
use super::span::{Instrument, stage};
use super::trace;
use crate::error::{Error, Result, Stage};
use crate::flavour::{self, Settings};
use crate::wake::wake;

/// See [`Net::connect`].
pub type Connect = flavour::Connect<Net>;

impl Net {
    /// Connects to a listener: `host:port`, `1.2.3.4:7000`, `[::1]:7000`, `[fe80::1%eth0]:7000`, `unix:/path`, or `unix:@name` for an
    /// abstract Unix socket. The port may be the name of a service in /etc/services. Both sides send their interfaces, the cheapest
    /// transport that both can use is opened, and a message crosses it in both directions before the connection is returned. If
    /// the chosen transport does not work, the next one is tried, with a warning in the log.
    ///
    /// The future returns an [`crate::Error`] with the stage at which it failed: the address does not resolve, no listener replies, the listener
    /// rejects, no common transport, or the time limit. Nothing blocks: a host name is resolved in a thread of its own.
    pub fn connect(&self, address: impl fmt::Display) -> Connect {
        Connect::new(self.clone(), address)
    }
}

impl Connect {
    /// Notes how far it has come.
    async fn run(self, stage: Rc<Cell<Stage>>) -> Result<Connection> {
        let Connect { net: Net { inner: net }, settings } = self;
        #[cfg(feature = "tls")]
        let session = super::secure::session(&net, &settings.address, settings.server_name.as_deref())?;
        let Settings { address, by, from, mut requests, require, private, .. } = settings;
        if requests.is_empty() {
            requests.push(net.options.request);
        }
        let mut places = resolve(&address, Purpose::Connect).instrument(stage!("resolve")).await?;
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
            let named = place.to_string();
            match dialled.instrument(stage!("dial", place = %named)).await {
                Ok(socket) => {
                    stage.set(Stage::Handshake);
                    #[cfg(feature = "tls")]
                    let tls_peer = match session {
                        Some(session) => Some(handshake::secure(&net, &socket, session).await?),
                        None => None,
                    };
                    let made = handshake::call(&net, &socket, &requests, &require, private);
                    let connection = made.instrument(stage!("handshake")).await?;
                    #[cfg(feature = "tls")]
                    if let Some(peer) = tls_peer {
                        connection.note_tls_peer(peer);
                    }
                    return Ok(connection);
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            Error::new(Stage::Resolve, &*address, Status::INVALID_ADDR, "it has no address")
                .hint("check the name")
        }))
    }
}

impl IntoFuture for Connect {
    type Output = Result<Connection>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Connection>>>>;

    fn into_future(self) -> Self::IntoFuture {
        let net = &self.net.inner;
        let limit = self.settings.limit.unwrap_or(net.options.connect_timeout);
        let (mut sleep, address) = (net.reactor.sleep(limit), self.settings.address.clone());
        let stage = Rc::new(Cell::new(Stage::Resolve));
        let (span, own) = (trace::calling(&address), self.net.inner.clone());
        let mut connecting = Box::pin(self.run(Rc::clone(&stage)).instrument(span.clone()));
        Box::pin(std::future::poll_fn(move |context| {
            own.check_fork().map_err(|forked| Error::forked(stage.get(), &*address, forked))?;
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
                    Stage::Handshake => {
                        "the listener was reached and does not continue: its program has to accept the connection, and may be busy"
                    }
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

/// What an address stands for. A name is looked up in a thread of its own: the system's look-up blocks.
pub(crate) async fn resolve(address: &str, purpose: Purpose) -> Result<Vec<Place>> {
    let refused = |bad: BadAddress| Error::unresolved(address, bad);
    let (host, service) = match ParsedAddress::parse(address, purpose).map_err(refused)? {
        ParsedAddress::Ip(address) => return Ok(vec![Place::Ip(address)]),
        ParsedAddress::Unix(path) => return Ok(vec![Place::Unix(path)]),
        ParsedAddress::Name { host, service } => (host, service),
    };
    let answer = Arc::new(Mutex::new(LookUp::default()));
    let place = Arc::clone(&answer);
    let look_up = move || {
        let found = net::look_up(&host, &service);
        let mut place = place.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        place.found = Some(found);
        let waker = place.waker.take();
        // It may look at once.
        drop(place);
        waker.into_iter().for_each(wake);
    };
    std::thread::Builder::new().name("uct-net-resolve".to_owned()).spawn(look_up).map_err(|error| {
        let reason = format!("no thread to look it up: {error}");
        Error::new(Stage::Resolve, address, Status::INVALID_ADDR, reason)
            .hint("give an IP address, or permit more threads")
    })?;
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
    Ok(found.await.map_err(refused)?.into_iter().map(Place::Ip).collect())
}

/// The result of a name look-up, and the task that waits for it.
#[derive(Default)]
struct LookUp {
    found: Option<std::result::Result<Vec<SocketAddr>, BadAddress>>,
    waker: Option<Waker>,
}
