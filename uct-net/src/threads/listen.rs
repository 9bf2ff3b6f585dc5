//! Listening at an address, from any thread.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::confined::Confined;
use super::connection::Connection;
use super::engine::Entered;
use super::net::Net;
use super::operation::Operation;
use super::outside::Signals;
use crate::error::{Error, Result, Stage};
use crate::{flavour, local};

/// Waits for callers at an address. Dropping it closes its socket; connections that it has made continue.
pub struct Listener {
    inner: Confined<RefCell<local::Listener>>,
    signal: Signals,
    address: String,
    port: Option<u16>,
}

/// See [`Net::listen`].
pub type Listen = flavour::Listen<Net>;

impl Net {
    /// Listens at an address, as [`crate::local::Net::listen`].
    pub fn listen(&self, address: impl fmt::Display) -> Listen {
        Listen::new(self.clone(), address)
    }
}

impl IntoFuture for Listen {
    type Output = Result<Listener>;
    type IntoFuture = Operation<Listener>;

    fn into_future(self) -> Operation<Listener> {
        let Listen { net, address, by } = self;
        let begin = move |entered: &Entered<'_>| {
            let net = local::Net { inner: entered.net().clone() };
            local::Listen { net, address, by }.into_future()
        };
        Operation::new(&net.engine, Stage::Listen, begin, |entered, listener| Listener {
            address: listener.address(),
            port: listener.port(),
            inner: entered.confine(RefCell::new(listener)),
            signal: Signals::default(),
        })
    }
}

impl Listener {
    /// The address that it listens on, with the port that the system chose, in the form that [`super::Net::connect`] takes.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The port; `None` for a Unix socket.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The next caller, as [`local::Listener::accept`]. Waits without a limit.
    ///
    /// # Errors
    /// Those of [`local::Listener::accept`].
    pub fn accept(&mut self) -> Accept<'_> {
        Accept { listener: self }
    }

    /// As [`Listener::accept`].
    pub fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<Result<Incoming>> {
        self.waiting(context, |entered, listener, context| {
            listener.poll_accept(context).map_ok(|incoming| Incoming {
                peer: incoming.peer().to_owned(),
                private: incoming.private().to_vec(),
                #[cfg(feature = "tls")]
                tls_peer: incoming.tls_peer().cloned(),
                inner: entered.confine(Cell::new(Some(incoming))),
            })
        })
    }

    /// The next caller with which a connection is open; all are accepted.
    pub(super) fn poll_open(&mut self, context: &mut Context<'_>) -> Poll<Result<Connection>> {
        self.waiting(context, |entered, listener, context| {
            listener.poll_open(context).map_ok(|connection| Connection::new(entered, connection))
        })
    }

    /// Polls it with a waker for this flavour.
    fn waiting<R: Send>(
        &mut self,
        context: &Context<'_>,
        poll: impl FnOnce(&Entered<'_>, &mut local::Listener, &mut Context<'_>) -> Poll<Result<R>> + Send,
    ) -> Poll<Result<R>> {
        let waker = self.signal.waker(self.inner.engine().outside(), context.waker());
        let waker = &waker;
        let polled = self.inner.with(|entered, listener| {
            let outcome = poll(entered, &mut listener.borrow_mut(), &mut Context::from_waker(waker));
            if outcome.is_pending() {
                entered.rest();
            }
            outcome
        });
        polled.unwrap_or_else(|forked| Poll::Ready(Err(Error::forked(Stage::Listen, &*self.address, forked))))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The future of [`Listener::accept`]. Dropping it loses no caller.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Accept<'a> {
    listener: &'a mut Listener,
}

impl Future for Accept<'_> {
    type Output = Result<Incoming>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Incoming>> {
        self.listener.poll_accept(context)
    }
}

/// A caller that waits to be accepted. Dropping this rejects it.
pub struct Incoming {
    inner: Confined<Cell<Option<local::Incoming>>>,
    peer: String,
    private: Vec<u8>,
    #[cfg(feature = "tls")]
    tls_peer: Option<crate::TlsPeer>,
}

impl Incoming {
    /// The caller's address, as text for humans.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The private data that the caller sent; may be empty.
    pub fn private(&self) -> &[u8] {
        &self.private
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
    pub fn accept(self) -> Operation<Connection> {
        self.accept_with(Vec::new())
    }

    /// As [`Incoming::accept`], with private data for the caller, up to 64 KiB.
    ///
    /// # Errors
    /// As [`Incoming::accept`]; more private data.
    pub fn accept_with(self, private: impl Into<Vec<u8>>) -> Operation<Connection> {
        let (incoming, private) = (&self.inner, private.into());
        let begin = move |entered: &Entered<'_>| take(incoming, entered).accept_with(private);
        Operation::new(incoming.engine(), Stage::Handshake, begin, Connection::new)
    }

    /// Rejects the caller, whose error contains the reason.
    ///
    /// # Errors
    /// The caller has gone.
    pub fn reject(self, reason: &str) -> Operation<()> {
        let (incoming, reason) = (&self.inner, reason.to_owned());
        let begin = move |entered: &Entered<'_>| {
            let incoming = take(incoming, entered);
            async move { incoming.reject(&reason).await }
        };
        Operation::new(self.inner.engine(), Stage::Handshake, begin, |_entered, ()| ())
    }
}

fn take(incoming: &Confined<Cell<Option<local::Incoming>>>, entered: &Entered<'_>) -> local::Incoming {
    incoming.inside(entered).take().expect("present until it is answered")
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("peer", &self.peer).finish_non_exhaustive()
    }
}
