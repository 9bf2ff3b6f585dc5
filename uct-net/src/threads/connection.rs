//! A connection that any thread may use.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ucs::memory::fork::Forked;

use super::confined::Confined;
use super::engine::{Engine, Entered};
use super::limit::Limit;
use super::message::Message;
use super::outside::Signals;
use crate::error::{Error, Result, Stage};
use crate::flavour::{self, Flavour};
use crate::local;
use crate::local::Explanation;
use crate::local::conn::{Conn, Ticket};
use crate::local::net::OPERATIONS;

/// Progress calls that a receiver makes at least before it waits for its waker, while there is something to do.
const POLLS: u32 = 8;
/// Progress calls that it makes if no other thread makes any: about a microsecond.
const PATIENT_POLLS: u32 = 64;

/// A connection to another program, for any thread. Cheap to clone.
///
/// As [`crate::local::Connection`]: messages arrive complete and in order, or the connection fails. Several threads may send and
/// receive at once; each message is received by one of them.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Shared>,
}

struct Shared {
    local: Confined<local::Connection>,
    reader: Signals,
    writer: Signals,
    /// Messages to the next pause of a task.
    pause: AtomicU32,
    peer: String,
    private: Vec<u8>,
    explanation: Explanation,
    #[cfg(feature = "tls")]
    tls_peer: Option<crate::TlsPeer>,
}

impl Connection {
    pub(super) fn new(entered: &Entered<'_>, connection: local::Connection) -> Connection {
        let inner = Shared {
            peer: connection.peer().to_owned(),
            private: connection.private().to_vec(),
            explanation: connection.explanation().clone(),
            #[cfg(feature = "tls")]
            tls_peer: connection.tls_peer().cloned(),
            local: entered.confine(connection),
            reader: Signals::default(),
            writer: Signals::default(),
            pause: AtomicU32::new(OPERATIONS),
        };
        Connection { inner: Arc::new(inner) }
    }

    /// The peer's address, as text for humans.
    pub fn peer(&self) -> &str {
        &self.inner.peer
    }

    /// The private data that the peer sent with the handshake; may be empty.
    pub fn private(&self) -> &[u8] {
        &self.inner.private
    }

    /// What TLS has proved about the peer; `None` without [`crate::NetOptions::tls`].
    #[cfg(feature = "tls")]
    pub fn tls_peer(&self) -> Option<&crate::TlsPeer> {
        self.inner.tls_peer.as_ref()
    }

    /// Which transport was chosen, and why.
    pub fn explanation(&self) -> &Explanation {
        &self.inner.explanation
    }

    /// Sends a message of up to the peer's [`crate::NetOptions::max_message`] bytes, as [`crate::local::Connection::send`].
    ///
    /// # Errors
    /// The connection has failed or is closed. A message longer than the peer's [`crate::NetOptions::max_message`] ends the connection.
    pub fn send<'a>(&'a self, message: &'a [u8]) -> Send<'a> {
        Send::new(self, message)
    }

    /// Receives the next message. A future that is dropped loses no message. Waits without a limit; see `Recv::within`.
    ///
    /// # Errors
    /// The connection has failed, or the peer has closed it ([`Error::is_closed_by_peer`]). Messages that arrived before are returned first.
    pub fn recv(&self) -> Recv<'_> {
        Recv::new(self)
    }

    /// Receives the next message into memory of the application, as [`crate::local::Connection::recv_into`].
    ///
    /// # Errors
    /// As [`crate::local::Connection::recv_into`].
    pub fn recv_into<'a>(&'a self, target: &'a mut [u8]) -> RecvInto<'a> {
        RecvInto::new(self, target)
    }

    /// Closes the connection: sends what is queued and the end, and is done when the peer's library has received everything. The peer's
    /// application need not have read it. Without a limit (`Close::within`) it waits as long as the peer is alive.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn close(&self) -> Close<'_> {
        Close::new(self)
    }

    /// Makes a stream of bytes of the connection, without boundaries of messages. Both sides have to do this.
    pub fn into_stream(self) -> Stream {
        Stream::new(self)
    }

    /// Ends the connection immediately: queued messages are not sent, and the peer gets an error with the reason, of which up to 64 bytes are
    /// sent. On this side the connection has failed with `CANCELED`.
    pub fn abort(&self, reason: &str) {
        let _ = self.inner.local.with(|_entered, local| local.abort(reason));
    }

    /// Waits until the connection has ended, and returns the reason.
    pub async fn closed(&self) -> Error {
        std::future::poll_fn(|context| {
            let polled = self.waiting(&self.inner.reader, context, |_entered, local, context| {
                local.conn().poll_closed(context)
            });
            polled.unwrap_or_else(|forked| Poll::Ready(self.refused(forked)))
        })
        .await
    }

    /// The error in a child of a fork.
    pub(super) fn refused(&self, forked: Forked) -> Error {
        Error::forked(Stage::Connected, self.peer(), forked)
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.inner.local.engine()
    }

    pub(super) fn local(&self) -> &Confined<local::Connection> {
        &self.inner.local
    }

    /// Polls something that may have to wait for the peer.
    fn waiting<R: std::marker::Send>(
        &self,
        signal: &Signals,
        context: &Context<'_>,
        poll: impl FnOnce(&Entered<'_>, &local::Connection, &mut Context<'_>) -> Poll<R> + std::marker::Send,
    ) -> Result<Poll<R>, Forked> {
        let waker = signal.waker(self.engine().outside(), context.waker());
        let waker = &waker;
        self.inner.local.with(|entered, local| {
            let outcome = poll(entered, local, &mut Context::from_waker(waker));
            if outcome.is_pending() {
                entered.rest();
            }
            outcome
        })
    }

    /// The next message as it is taken; makes progress for it.
    #[inline(always)]
    fn poll_taken<T: std::marker::Send>(
        &self,
        context: &Context<'_>,
        mut take: impl FnMut(&Entered<'_>, &Rc<Conn>) -> Result<Option<T>> + std::marker::Send,
    ) -> Poll<Result<T>> {
        let inner = &*self.inner;
        let take = &mut take;
        // Most messages come while no waker has to be registered for them.
        let taken = inner.local.with(|entered, local| {
            let polls = if entered.is_driven() { POLLS } else { PATIENT_POLLS };
            for _ in 0..polls {
                if let Some(taken) = take(entered, local.conn())? {
                    return Ok(Some(taken));
                }
                if !entered.turn() && entered.is_driven() {
                    break;
                }
            }
            entered.returns();
            Ok(None)
        });
        let taken = taken.map_err(|forked| self.refused(forked))??;
        if let Some(taken) = taken {
            return Poll::Ready(Ok(taken));
        }
        let polled = self.waiting(&inner.reader, context, |entered, local, context| {
            match take(entered, local.conn())? {
                Some(taken) => Poll::Ready(Ok(taken)),
                None => {
                    local.conn().wait_for_message(context);
                    Poll::Pending
                }
            }
        });
        polled.unwrap_or_else(|forked| Poll::Ready(Err(self.refused(forked))))
    }

    /// Polls something that waits until messages have left.
    fn writing<R: std::marker::Send>(
        &self,
        context: &Context<'_>,
        poll: impl FnOnce(&local::Connection, &mut Context<'_>) -> Poll<Result<R>> + std::marker::Send,
    ) -> Poll<Result<R>> {
        let polled =
            self.waiting(&self.inner.writer, context, |_entered, local, context| poll(local, context));
        polled.unwrap_or_else(|forked| Poll::Ready(Err(self.refused(forked))))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer())
            .field("over", &self.explanation().chosen)
            .finish_non_exhaustive()
    }
}

/// See [`Connection::send`].
pub type Send<'a> = flavour::Send<'a, Connection>;
/// See [`Connection::recv`].
pub type Recv<'a> = flavour::Recv<'a, Connection>;
/// See [`Connection::recv_into`].
pub type RecvInto<'a> = flavour::RecvInto<'a, Connection>;
/// See [`Connection::close`].
pub type Close<'a> = flavour::Close<'a, Connection>;
/// See [`Connection::into_stream`].
pub type Stream = flavour::Stream<Connection>;
/// An operation with a time limit, as `within` of [`Recv`], [`Send`] and [`Close`] returns it.
pub type Within<F> = flavour::Within<F, Limit>;

impl Flavour for Connection {
    type Message = Message;
    type Timer = Limit;

    fn peer_name(&self) -> &str {
        self.peer()
    }

    fn timer(&self, time: Duration) -> Limit {
        Limit::new(self.engine(), time)
    }

    fn poll_turn(&self, context: &mut Context<'_>) -> Poll<()> {
        let pause = &self.inner.pause;
        // SYNC: a count that threads write at once comes out a little higher or lower.
        let left = pause.load(Ordering::Relaxed);
        if left > 0 {
            // SYNC: as above.
            pause.store(left - 1, Ordering::Relaxed);
            return Poll::Ready(());
        }
        // SYNC: as above.
        pause.store(OPERATIONS, Ordering::Relaxed);
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Result<Message>> {
        self.poll_taken(context, |entered, conn| {
            Ok(conn.try_receive()?.map(|message| Message::new(entered, message)))
        })
    }

    fn poll_message_into(&self, target: &mut [u8], context: &mut Context<'_>) -> Poll<Result<usize>> {
        self.poll_taken(context, |_entered, conn| {
            conn.leave_offers(true);
            conn.try_receive_into(target)
        })
    }

    fn stop_receiving_into(&self) {
        let _ = self.inner.local.with(|_entered, local| local.conn().leave_offers(false));
    }

    fn begin_send(&self, message: &[u8]) -> Result<Option<Ticket>> {
        let begun = self.inner.local.with(|entered, local| {
            let queued = local.begin_send(message)?;
            if queued.is_some() {
                entered.returns();
            }
            Ok(queued)
        });
        begun.map_err(|forked| self.refused(forked))?
    }

    fn poll_left(&self, ticket: Ticket, context: &mut Context<'_>) -> Poll<Result> {
        self.writing(context, |local, context| local.poll_left(ticket, context))
    }

    fn withdraw(&self, ticket: Ticket) {
        let _ = self.inner.local.with(|_entered, local| local.withdraw(ticket));
    }

    fn poll_write(&self, bytes: &[u8], context: &mut Context<'_>) -> Poll<Result<usize>> {
        let sent = self.inner.local.with(|entered, local| {
            let sent = local.conn().send_some(bytes)?;
            if sent == 0 {
                entered.returns();
            }
            Ok(sent)
        });
        let sent = sent.map_err(|forked| self.refused(forked))??;
        if sent > 0 {
            return Poll::Ready(Ok(sent));
        }
        // There may be room by now.
        self.writing(context, |local, context| local.poll_write(bytes, context))
    }

    fn poll_flushed(&self, context: &mut Context<'_>) -> Poll<Result> {
        self.writing(context, |local, context| local.poll_flushed(context))
    }

    fn poll_shutdown(&self, context: &mut Context<'_>) -> Poll<Result> {
        self.writing(context, |local, context| local.poll_shutdown(context))
    }

    fn poll_close(&self, is_first: bool, context: &mut Context<'_>) -> Poll<Result> {
        self.writing(context, |local, context| local.poll_close(is_first, context))
    }
}
