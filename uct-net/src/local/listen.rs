//! Listening at an address.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::debug_span;
use ucs::admission::Source;
use ucs::log::Limited;
use ucs::sys::net::Purpose;

use super::cm::CmListener;
use super::connect::resolve;
use super::connection::Connection;
use super::crowd::Crowd;
use super::handshake::{self, Caller};
use super::net::{Net, NetHandle};
use super::reactor::Sleep;
#[cfg(feature = "tls")]
use super::secure;
use super::socket::{FrameSocket, ListeningSocket};
use super::span::{Instrument, Span, stage};
use super::trace;
use crate::error::{Error, Result, Stage};
use crate::flavour;
use crate::proto::handshake::GAVE_WAY;

/// Callers that wait in the system's queue.
const BACKLOG: i32 = 4096;
/// Attempts to find a port number that is free both for TCP and for the connection manager, if the system chooses it.
const PORTS: u32 = 16;
/// Of the places of callers, those that are given anew at most before callers go on whose bytes have arrived: each is looked at several times
/// before it gives way to those that came after it.
const SHARE: usize = 8;
/// Callers that are returned, at most, before other tasks have a turn: more may come than one task can accept.
const IN_A_ROW: usize = 64;
/// Connections that [`Listener::poll_open`] opens at once.
const MAX_OPENING: usize = 128;
/// How long a listener waits when the system refuses to take a caller, for instance for want of descriptors. The caller stays in the queue.
const REFUSED: Duration = Duration::from_millis(100);

/// Lines about it.
static PAUSES: Limited = Limited::new(1);

/// Waits for callers at an address. Dropping it closes its socket; connections that it has made continue.
pub struct Listener {
    net: NetHandle,
    socket: ListeningSocket,
    by: Option<CmListener>,
    /// Callers whose hello has not arrived yet, and those that `accept` has not returned.
    half_open: Crowd<Incoming>,
    /// Those that [`Listener::poll_open`] accepts.
    opening: Crowd<Connection>,
    /// The rest of [`REFUSED`].
    pause: Option<Sleep>,
    /// The rest of [`IN_A_ROW`].
    turn: usize,
}

/// A caller that waits to be accepted. Dropping this rejects it.
pub struct Incoming {
    /// Until it is answered.
    caller: Option<Caller>,
    span: Span,
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
        let half_open = Crowd::new(net.options.max_half_open);
        Ok(Listener {
            net,
            socket,
            by,
            half_open,
            opening: Crowd::new(MAX_OPENING),
            pause: None,
            turn: IN_A_ROW,
        })
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
    /// dropped with a line in the log at level debug. Half-open callers make progress only while this future is polled. If all places are
    /// taken ([`crate::NetOptions::max_half_open`]), or no descriptor is free, the oldest half-open caller of the source with the most gives
    /// way. If there is none, callers stay in the system's queue; without a descriptor the listener tries again every 100 ms, with a warning
    /// in the log.
    ///
    /// # Errors
    /// In a child of a fork: the listener is the parent's.
    pub async fn accept(&mut self) -> Result<Incoming> {
        std::future::poll_fn(|context| self.poll_accept(context)).await
    }

    pub(crate) fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<Result<Incoming>> {
        self.net.check_fork().map_err(|forked| Error::forked(Stage::Listen, self.address(), forked))?;
        if self.turn == 0 {
            self.turn = IN_A_ROW;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.pause.as_mut().is_some_and(|pause| pause.poll_due(context).is_ready()) {
            self.pause = None;
        }
        let mut is_asked = self.pause.is_some();
        let mut is_by_asked = self.by.is_none();
        let mut is_by_next = false;
        if self.half_open.is_full() {
            // What has arrived counts for callers that would give way. The driver may have looked many polls before: those that accept a burst
            // take long.
            let _ = self.net.reactor.turn(Duration::ZERO);
        }
        self.half_open.go_on(context);
        let mut left = (self.net.options.max_half_open / SHARE).max(1);
        while !(is_asked && is_by_asked) && left > 0 && self.half_open.has_room(&self.net.reactor, context) {
            left -= 1;
            // In turns, so that many callers of one kind do not delay the others.
            is_by_next = !is_by_asked && (is_asked || !is_by_next);
            if is_by_next && let Some(by) = &self.by {
                match by.next(context).map(|request| by.accept(&self.net, request)) {
                    Some(Ok(socket)) => drop(self.begin(socket, context)),
                    Some(Err(error)) => ucs::log::debug!("a caller was dropped: {error}"),
                    None => is_by_asked = true,
                }
                continue;
            }
            let refused = match self.socket.poll_accept(&self.net.reactor, context) {
                Poll::Ready(Ok(socket)) => match self.begin(socket, context) {
                    true => continue,
                    false => "the descriptors of the process are running out".to_owned(),
                },
                // A descriptor of one that says nothing is as good as another.
                Poll::Ready(Err(_)) if self.half_open.give_way() => continue,
                Poll::Ready(Err(error)) => error.to_string(),
                Poll::Pending => {
                    is_asked = true;
                    continue;
                }
            };
            if let Some(left_out) = PAUSES.admit() {
                ucs::log::warn!("no connections are accepted for {REFUSED:?}: {refused}{left_out}");
            }
            let mut pause = self.net.reactor.sleep(REFUSED);
            is_asked = pause.poll_due(context).is_pending();
            self.pause = is_asked.then_some(pause);
        }
        if let Some(incoming) = self.half_open.take() {
            self.turn -= 1;
            return Poll::Ready(Ok(incoming));
        }
        self.turn = IN_A_ROW;
        if !(is_asked && is_by_asked) && (left == 0 || !self.half_open.is_full()) {
            // There is room again, and no task waits for the socket.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Begins the handshake of a caller; false if there is no descriptor for it. It is told why.
    fn begin(&mut self, socket: FrameSocket, context: &mut Context<'_>) -> bool {
        // Half of the reserve is for callers that are on their way to a connection, or to a refusal with its reason.
        let is_short = socket.is_among_last(self.net.options.reserved_descriptors / 2);
        let begun = Caller::new(self.net.clone(), socket).map(|caller| {
            let from = (caller.source(), is_short);
            self.half_open.begin(from, Box::pin(begin_handshake(caller)), context)
        });
        begun.unwrap_or_else(|error| {
            ucs::log::debug!("a caller was dropped: {error}");
            true
        })
    }

    /// For protocols of libraries: the next caller with which a connection is open. Accepts all callers, up to 128 at once, while it is polled; those
    /// with which the handshake fails are left out.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Result<Connection>> {
        let mut refused = Ok(());
        let mut has_room = true;
        self.opening.go_on(context);
        let mut left = MAX_OPENING / SHARE;
        while left > 0 {
            left -= 1;
            has_room = self.opening.has_room(&self.net.reactor, context);
            if !has_room {
                break;
            }
            match self.poll_accept(context) {
                Poll::Ready(Ok(incoming)) => {
                    let from = (incoming.source(), false);
                    let _ = self.opening.begin(from, Box::pin(incoming.accept()), context);
                }
                Poll::Ready(Err(error)) => {
                    refused = Err(error);
                    break;
                }
                Poll::Pending => break,
            }
        }
        if let Some(connection) = self.opening.take() {
            return Poll::Ready(Ok(connection));
        }
        refused?;
        if left == 0 || !has_room && !self.opening.is_full() {
            // No task waits for the listener.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

async fn begin_handshake(mut caller: Caller) -> Result<Incoming> {
    let span = trace::accepting(caller.peer());
    if let Err(error) = receive_hello(&mut caller).instrument(span.clone()).await {
        trace::note_end(&span, &error);
        // It counts as half open for that time.
        caller.fail(&error).await;
        return Err(error);
    }
    caller.drop_reason("not taken");
    Ok(Incoming { caller: Some(caller), span })
}

async fn receive_hello(caller: &mut Caller) -> Result {
    #[cfg(feature = "tls")]
    caller.secure().await?;
    handshake::read_hello(caller).instrument(stage!("hello")).await
}

impl Incoming {
    /// The caller's address, as text for humans.
    pub fn peer(&self) -> &str {
        self.caller.as_ref().map_or("", Caller::peer)
    }

    /// What it shares limits with.
    fn source(&self) -> Source {
        self.caller.as_ref().map_or(Source::UNKNOWN, Caller::source)
    }

    /// The private data that the caller sent; may be empty.
    pub fn private(&self) -> &[u8] {
        self.caller.as_ref().map_or(&[], |caller| &caller.private)
    }

    /// What TLS has proved about the caller; `None` without [`crate::NetOptions::tls`].
    #[cfg(feature = "tls")]
    pub fn tls_peer(&self) -> Option<&crate::TlsPeer> {
        self.caller.as_ref()?.tls_peer.as_ref()
    }

    /// Accepts the caller: chooses the transport with it and opens it. Done when a message has crossed in both directions. Each step has the
    /// limit of [`crate::NetOptions::handshake_timeout`], all of them together have twice that, and lanes have time of their own.
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
        let mut caller = self.caller.take().expect("present until it is answered");
        caller.check_fork().map_err(|forked| Error::forked(Stage::Handshake, caller.peer(), forked))?;
        caller.drop_reason(GAVE_WAY);
        let span = self.span.clone();
        let stage = span.child(|| debug_span!("handshake"));
        let made = handshake::take(caller, private.into()).instrument(stage).await;
        trace::outcome(&span, made)
    }

    /// Rejects the caller, whose error contains the reason.
    ///
    /// # Errors
    /// The caller has gone.
    pub async fn reject(mut self, reason: &str) -> Result {
        let caller = self.caller.take().expect("present until it is answered");
        trace::note_end(&self.span, format_args!("rejected by this side: {reason}"));
        caller.reject(reason).await
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if self.caller.as_ref().is_some_and(|caller| caller.check_fork().is_ok()) {
            trace::note_end(&self.span, "not taken by this side");
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
