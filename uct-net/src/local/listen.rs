//! Listening at an address.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::{Instrument, Span, debug_span};
use ucs::sys::net::Purpose;
use uct_core::select::PeerAddresses;

use super::cm::CmListener;
use super::connect::resolve;
use super::connection::Connection;
use super::handshake;
use super::net::{Net, NetHandle};
use super::reactor::Sleep;
#[cfg(feature = "tls")]
use super::secure;
use super::socket::{FrameSocket, ListeningSocket};
use super::trace;
use crate::error::{Error, Result, Stage};
use crate::flavour;

/// Callers that wait in the system's queue.
const BACKLOG: i32 = 4096;
/// Attempts to find a port number that is free both for TCP and for the connection manager, if the system chooses it.
const PORTS: u32 = 16;
/// How long a listener waits when the system refuses to take a caller, for instance for want of descriptors. The caller stays in the queue.
const REFUSED: Duration = Duration::from_millis(100);

/// Waits for callers at an address. Dropping it closes its socket; connections that it has made continue.
pub struct Listener {
    net: NetHandle,
    socket: ListeningSocket,
    by: Option<CmListener>,
    /// Callers whose hello has not arrived yet.
    half_open: Vec<Pin<Box<dyn Future<Output = Result<Incoming>>>>>,
    ready: VecDeque<Incoming>,
    /// The rest of [`REFUSED`].
    pause: Option<Sleep>,
}

/// A caller that waits to be accepted. Dropping this rejects it.
pub struct Incoming {
    net: NetHandle,
    socket: Option<FrameSocket>,
    client: (Vec<u8>, PeerAddresses),
    span: Span,
    #[cfg(feature = "tls")]
    tls_peer: Option<crate::TlsPeer>,
}

/// See [`Net::listen`].
pub type Listen = flavour::Listen<Net>;

impl Net {
    /// Listens at `*:7000` or `[::]:7000`, which are all addresses of this machine, those of IPv4 as well, at `0.0.0.0:7000`, `name:7000`,
    /// `unix:/path`, or `unix:@name` for an abstract Unix socket. With port 0 the system chooses one, see [`Listener::address`].
    ///
    /// The future returns an error if there is no such address, if it is in use, or not permitted; the error names which, and a remedy.
    pub fn listen(&self, address: impl fmt::Display) -> Listen {
        Listen::new(self.clone(), address)
    }
}

impl Listen {
    async fn run(self) -> Result<Listener> {
        let Listen { net: Net { inner: net }, address, by } = self;
        net.check_fork().map_err(|forked| Error::forked(Stage::Listen, &*address, forked))?;
        #[cfg(feature = "tls")]
        secure::check_listener(&net, &address)?;
        let place = resolve(&address, Purpose::Listen).await?.into_iter().next();
        let place = place.ok_or_else(|| {
            Error::new(Stage::Resolve, &*address, ucs::Error::INVALID_ADDR, "it has no address")
        })?;
        let mut left = if place.port() == Some(0) { PORTS } else { 1 };
        let (socket, by) = loop {
            let socket = ListeningSocket::bind(&net.reactor, &place, BACKLOG)?;
            let by = by.as_deref().map(|name| CmListener::new(&net, name, socket.place())).transpose();
            left -= 1;
            match by {
                // The port number is in use by a listener of the connection manager.
                Err(error) if error.status == ucs::Error::BUSY && left > 0 => {}
                by => break (socket, by?),
            }
        };
        Ok(Listener { net, socket, by, half_open: Vec::new(), ready: VecDeque::new(), pause: None })
    }
}

impl IntoFuture for Listen {
    type Output = Result<Listener>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Listener>>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl Listener {
    /// The address that it listens on, with the port that the system chose, in the form that [`Net::connect`] takes.
    pub fn address(&self) -> String {
        self.socket.place().to_string()
    }

    /// The port; `None` for a Unix socket.
    pub fn port(&self) -> Option<u16> {
        self.socket.place().port()
    }

    /// The next caller. Waits without a limit. Callers that do not complete the first step of the handshake in time, or violate the protocol, are
    /// dropped with a line in the log at level debug. Half-open callers make progress only while this future is polled. If the system refuses to
    /// accept a caller, for example because no descriptor is free, the caller stays in the system's queue, and the listener tries again every
    /// 100 ms, with a warning in the log.
    ///
    /// # Errors
    /// In a child of a fork: the listener is the parent's.
    pub async fn accept(&mut self) -> Result<Incoming> {
        std::future::poll_fn(|context| self.poll_accept(context)).await
    }

    pub(crate) fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<Result<Incoming>> {
        self.net.check_fork().map_err(|forked| Error::forked(Stage::Listen, self.address(), forked))?;
        if self.pause.as_mut().is_some_and(|pause| pause.poll_due(context).is_ready()) {
            self.pause = None;
        }
        let mut is_asked = self.pause.is_some();
        let mut is_by_asked = self.by.is_none();
        let mut is_by_next = false;
        while !(is_asked && is_by_asked)
            && self.half_open.len() + self.ready.len() < self.net.options.max_half_open
        {
            // In turns, so that many callers of one kind do not delay the others.
            is_by_next = !is_by_asked && (is_asked || !is_by_next);
            if is_by_next && let Some(by) = &self.by {
                match by.next(context).map(|request| by.accept(&self.net, request)) {
                    Some(Ok(socket)) => {
                        self.half_open.push(Box::pin(begin_handshake(self.net.clone(), socket)))
                    }
                    Some(Err(error)) => ucs::log::debug!("a caller was dropped: {error}"),
                    None => is_by_asked = true,
                }
                continue;
            }
            match self.socket.poll_accept(&self.net.reactor, context) {
                Poll::Ready(Ok(socket)) => {
                    self.half_open.push(Box::pin(begin_handshake(self.net.clone(), socket)))
                }
                Poll::Ready(Err(error)) => {
                    ucs::log::warn!("no connections are accepted for {REFUSED:?}: {error}");
                    let mut pause = self.net.reactor.sleep(REFUSED);
                    is_asked = pause.poll_due(context).is_pending();
                    self.pause = is_asked.then_some(pause);
                }
                Poll::Pending => is_asked = true,
            }
        }
        let ready = &mut self.ready;
        self.half_open.retain_mut(|caller| match caller.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(incoming)) => {
                ready.push_back(incoming);
                false
            }
            Poll::Ready(Err(error)) => {
                ucs::log::debug!("a caller was dropped: {error}");
                false
            }
        });
        if let Some(incoming) = self.ready.pop_front() {
            return Poll::Ready(Ok(incoming));
        }
        if !(is_asked && is_by_asked) && self.half_open.len() < self.net.options.max_half_open {
            // There is room again, and no task waits for the socket.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

async fn begin_handshake(net: NetHandle, socket: FrameSocket) -> Result<Incoming> {
    let span = trace::accepting(socket.peer());
    let begun = receive_hello(&net, &socket).instrument(span.clone()).await;
    let (client, _tls_peer) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            trace::note_end(&span, &error);
            if socket.ends().is_some() {
                // Its endpoint is kept until it has closed the connection. It counts as half open for that time.
                handshake::part(&net, &socket).await;
            }
            return Err(error);
        }
    };
    Ok(Incoming {
        net,
        socket: Some(socket),
        client,
        span,
        #[cfg(feature = "tls")]
        tls_peer: _tls_peer,
    })
}

/// Private data and addresses of a caller, and its identity by TLS.
type Hello = ((Vec<u8>, PeerAddresses), TlsPeer);
#[cfg(feature = "tls")]
type TlsPeer = Option<crate::TlsPeer>;
#[cfg(not(feature = "tls"))]
type TlsPeer = ();

async fn receive_hello(net: &NetHandle, socket: &FrameSocket) -> Result<Hello> {
    #[cfg(feature = "tls")]
    let tls_peer = secure::accept(net, socket).await?;
    #[cfg(not(feature = "tls"))]
    let tls_peer = ();
    let hello = handshake::read_hello(net, socket).instrument(debug_span!("hello")).await;
    if let Err(error) = &hello
        && error.status == ucs::Error::UNSUPPORTED
    {
        // The caller uses another version, or TLS: send the reason before the connection ends.
        handshake::refuse(net, socket, &error.reason).await?;
        handshake::part(net, socket).await;
    }
    Ok((hello?, tls_peer))
}

impl Incoming {
    /// The caller's address, as text for humans.
    pub fn peer(&self) -> &str {
        self.socket.as_ref().map_or("", FrameSocket::peer)
    }

    /// The private data that the caller sent; may be empty.
    pub fn private(&self) -> &[u8] {
        &self.client.0
    }

    /// What TLS has proved about the caller; `None` without [`crate::NetOptions::tls`].
    #[cfg(feature = "tls")]
    pub fn tls_peer(&self) -> Option<&crate::TlsPeer> {
        self.tls_peer.as_ref()
    }

    /// Accepts the caller: chooses the transport with it and opens it. Done when a message has crossed in both directions. Each step has the
    /// limit of [`crate::NetOptions::handshake_timeout`].
    ///
    /// # Errors
    /// The caller has gone or does not reply in time, or no transport works.
    pub async fn accept(self) -> Result<Connection> {
        self.accept_with(Vec::new()).await
    }

    /// As [`Incoming::accept`], with private data for the caller, up to 64 KiB.
    ///
    /// # Errors
    /// As [`Incoming::accept`]; more private data.
    pub async fn accept_with(mut self, private: impl Into<Vec<u8>>) -> Result<Connection> {
        let socket = self.socket.take().expect("present until it is answered");
        let refused = |forked| Error::forked(Stage::Handshake, socket.peer(), forked);
        self.net.check_fork().map_err(refused)?;
        let client = std::mem::take(&mut self.client);
        let span = self.span.clone();
        let stage = debug_span!(parent: &span, "handshake");
        let made = handshake::take(&self.net, &socket, client, private.into()).instrument(stage).await;
        #[cfg(feature = "tls")]
        if let (Ok(connection), Some(peer)) = (&made, self.tls_peer.take()) {
            connection.note_tls_peer(peer);
        }
        trace::outcome(&span, made)
    }

    /// Rejects the caller, whose error contains the reason.
    ///
    /// # Errors
    /// The caller has gone.
    pub async fn reject(mut self, reason: &str) -> Result {
        let socket = self.socket.take().expect("present until it is answered");
        trace::note_end(&self.span, format_args!("rejected by this side: {reason}"));
        handshake::refuse(&self.net, &socket, reason).await
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket
            && self.net.check_fork().is_ok()
        {
            trace::note_end(&self.span, "not taken by this side");
            // So few bytes find room in the socket at once.
            let mut refusal = std::pin::pin!(handshake::refuse(&self.net, socket, "not taken"));
            let _ = refusal.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("peer", &self.peer()).finish_non_exhaustive()
    }
}
