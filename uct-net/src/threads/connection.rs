//! A connection that any thread may use.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::confined::Confined;
use super::engine::{Engine, Entered};
use super::message::Message;
use super::outside::Signals;
use super::within::Within;
use crate::error::{Error, Result, Stage};
use crate::local;
use crate::local::Explanation;
use crate::local::conn::Ticket;
use crate::proto::envelope::Kind;

/// Progress calls that a receiver makes at least before it waits for its waker, while there is something to do.
const POLLS: u32 = 8;
/// Progress calls that it makes if no other thread makes any: about a microsecond.
const PATIENT_POLLS: u32 = 64;

/// A connection to another program, for any thread. Cheap to clone.
///
/// As [`crate::local::Connection`]: messages arrive whole and in order, or the connection fails. Several threads may send and
/// receive at once; each message goes to one receiver.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Shared>,
}

struct Shared {
    local: Confined<local::Connection>,
    reader: Signals,
    writer: Signals,
    peer: String,
    private: Vec<u8>,
    explanation: Explanation,
}

impl Connection {
    pub(super) fn new(entered: &Entered<'_>, connection: local::Connection) -> Connection {
        let inner = Shared {
            peer: connection.peer().to_owned(),
            private: connection.private().to_vec(),
            explanation: connection.explanation().clone(),
            local: entered.confine(connection),
            reader: Signals::default(),
            writer: Signals::default(),
        };
        Connection { inner: Arc::new(inner) }
    }

    /// The peer's address, for a person.
    pub fn peer(&self) -> &str {
        &self.inner.peer
    }

    /// What the peer sent along with the handshake; empty if nothing.
    pub fn private(&self) -> &[u8] {
        &self.inner.private
    }

    /// Why it goes over the transport that it goes over.
    pub fn explanation(&self) -> &Explanation {
        &self.inner.explanation
    }

    /// Sends a message of any length, as [`crate::local::Connection::send`].
    ///
    /// # Errors
    /// The connection has failed or is closed. A message that is longer than the peer takes fails the connection.
    pub fn send<'a>(&'a self, message: &'a [u8]) -> Send<'a> {
        Send { connection: self, step: Step::New(message) }
    }

    /// Receives the next message. A future that is dropped loses nothing.
    ///
    /// # Errors
    /// The connection has failed, or the peer has closed it ([`Error::is_closed_by_peer`]); what arrived before comes first.
    pub fn recv(&self) -> Recv<'_> {
        Recv { connection: self }
    }

    /// Closes: sends what is queued, tells the peer, and is done when the peer has received it all. The peer need not have read it.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn close(&self) -> Close<'_> {
        Close { connection: self, is_begun: false }
    }

    /// Gives the connection up at once: nothing that is queued is sent, and the peer sees an error with the reason.
    pub fn abort(&self, reason: &str) {
        self.inner.local.with(|_entered, local| local.abort(reason));
    }

    /// Waits until the connection has ended, and says why.
    pub async fn closed(&self) -> Error {
        std::future::poll_fn(|context| {
            self.waiting(&self.inner.reader, context, |local, context| {
                local.conn().poll_closed(context).map_or(Poll::Pending, Poll::Ready)
            })
        })
        .await
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.inner.local.engine()
    }

    /// Polls something that may have to wait for the peer.
    fn waiting<R: std::marker::Send>(
        &self,
        signal: &Signals,
        context: &Context<'_>,
        poll: impl FnOnce(&local::Connection, &mut Context<'_>) -> Poll<R> + std::marker::Send,
    ) -> Poll<R> {
        let waker = signal.waker(self.engine().outside(), context.waker());
        let waker = &waker;
        self.inner.local.with(|entered, local| {
            let outcome = poll(local, &mut Context::from_waker(waker));
            if outcome.is_pending() {
                entered.rest();
            }
            outcome
        })
    }

    pub(super) fn poll_message(&self, context: &Context<'_>) -> Poll<Result<Message>> {
        let inner = &*self.inner;
        // Most messages come while nobody has to be registered for them.
        let received = inner.local.with(|entered, local| {
            let polls = if entered.is_driven() { POLLS } else { PATIENT_POLLS };
            for _ in 0..polls {
                if let Some(message) = local.conn().try_receive()? {
                    return Ok(Some(Message::new(entered, message)));
                }
                if !entered.turn() && entered.is_driven() {
                    break;
                }
            }
            entered.returns();
            Ok(None)
        })?;
        if let Some(message) = received {
            return Poll::Ready(Ok(message));
        }
        let waker = inner.reader.waker(self.engine().outside(), context.waker());
        let waker = &waker;
        inner.local.with(|entered, local| match local.conn().poll_receive(&Context::from_waker(waker))? {
            Some(message) => Poll::Ready(Ok(Message::new(entered, message))),
            None => {
                entered.rest();
                Poll::Pending
            }
        })
    }

    /// Sends bytes if there is room now, or else queues as many as there may be; 0 if the caller has to wait, and is registered.
    pub(super) fn poll_queue(
        &self,
        context: &Context<'_>,
        bytes: &[u8],
        limit: usize,
    ) -> Poll<Result<usize>> {
        let taken = self.inner.local.with(|entered, local| {
            let conn = local.conn();
            if conn.try_send(bytes)? {
                return Ok(bytes.len());
            }
            let taken = bytes.len().min(limit.saturating_sub(conn.queued()));
            if taken > 0 {
                conn.queue(Kind::Last, bytes[..taken].to_vec())?;
            } else {
                entered.returns();
            }
            Ok(taken)
        })?;
        if taken > 0 {
            return Poll::Ready(Ok(taken));
        }
        self.waiting(&self.inner.writer, context, |local, context| {
            let conn = local.conn();
            // There may be room by now.
            let taken = bytes.len().min(limit.saturating_sub(conn.queued()));
            if taken == 0 {
                conn.wait_for_room(context);
                return Poll::Pending;
            }
            Poll::Ready(conn.queue(Kind::Last, bytes[..taken].to_vec()).map(|_ticket| taken))
        })
    }

    pub(super) fn poll_flushed(&self, context: &Context<'_>) -> Poll<Result> {
        self.waiting(&self.inner.writer, context, |local, context| local.poll_flushed(context))
    }

    pub(super) fn poll_shutdown(&self, context: &Context<'_>) -> Poll<Result> {
        self.waiting(&self.inner.writer, context, |local, context| local.poll_shutdown(context))
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
#[must_use = "futures do nothing unless they are awaited"]
pub struct Send<'a> {
    connection: &'a Connection,
    step: Step<'a>,
}

enum Step<'a> {
    New(&'a [u8]),
    Queued(Ticket),
    Done,
}

impl<'a> Send<'a> {
    /// With a limit. A message of which nothing has left by then is taken back.
    pub fn within(self, limit: Duration) -> Within<Send<'a>> {
        let connection = self.connection;
        Within::new(self, limit, connection.engine(), Stage::Connected, connection.peer())
    }
}

impl Future for Send<'_> {
    type Output = Result;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result> {
        let connection = self.connection;
        let ticket = match self.step {
            Step::New(message) => {
                let queued = connection.inner.local.with(|entered, local| {
                    let conn = local.conn();
                    if conn.try_send(message)? {
                        return Ok(None);
                    }
                    let ticket = conn.queue(Kind::Last, message.to_vec())?;
                    entered.returns();
                    Ok(Some(ticket))
                })?;
                let Some(ticket) = queued else {
                    self.step = Step::Done;
                    return Poll::Ready(Ok(()));
                };
                self.step = Step::Queued(ticket);
                ticket
            }
            Step::Queued(ticket) => ticket,
            Step::Done => return Poll::Ready(Ok(())),
        };
        let has_left = connection.waiting(&connection.inner.writer, context, |local, context| {
            match local.conn().poll_left(ticket, context) {
                Ok(true) => Poll::Ready(Ok(())),
                Ok(false) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            }
        });
        if has_left.is_ready() {
            self.step = Step::Done;
        }
        has_left
    }
}

impl Drop for Send<'_> {
    fn drop(&mut self) {
        if let Step::Queued(ticket) = self.step {
            self.connection.inner.local.with(|_entered, local| local.conn().withdraw(ticket));
        }
    }
}

impl fmt::Debug for Send<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Send").field("connection", self.connection).finish_non_exhaustive()
    }
}

/// See [`Connection::recv`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Recv<'a> {
    connection: &'a Connection,
}

impl<'a> Recv<'a> {
    /// With a limit.
    pub fn within(self, limit: Duration) -> Within<Recv<'a>> {
        let connection = self.connection;
        Within::new(self, limit, connection.engine(), Stage::Connected, connection.peer())
    }
}

impl Future for Recv<'_> {
    type Output = Result<Message>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Message>> {
        self.connection.poll_message(context)
    }
}

/// See [`Connection::close`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Close<'a> {
    connection: &'a Connection,
    is_begun: bool,
}

impl<'a> Close<'a> {
    /// With a limit. The connection is closed either way; over the limit nobody knows what the peer received.
    pub fn within(self, limit: Duration) -> Within<Close<'a>> {
        let connection = self.connection;
        Within::new(self, limit, connection.engine(), Stage::Close, connection.peer())
    }
}

impl Future for Close<'_> {
    type Output = Result;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result> {
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let connection = self.connection;
        connection.waiting(&connection.inner.writer, context, |local, context| {
            if is_first {
                local.conn().end(true);
            }
            match local.conn().poll_ended(context) {
                Ok(true) => Poll::Ready(Ok(())),
                Ok(false) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            }
        })
    }
}
