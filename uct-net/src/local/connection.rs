//! A connection: messages both ways, in order, each whole.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use uct_core::{Ep, Iface};

use super::conn::{Conn, Ticket};
use super::message::Message;
use super::net::NetHandle;
use super::within::Within;
use crate::error::{Error, Result, Stage};
use crate::proto::envelope::Kind;

/// Progress calls that a receiver makes before it waits for its waker.
const POLLS: u32 = 8;

/// A connection to another program. Cheap to clone within the thread.
///
/// Messages arrive whole and in order, or the connection fails; a dead peer fails it, and a reason comes with each failure. When the
/// last handle is dropped, what was sent is delivered and the peer sees an orderly end.
#[derive(Clone)]
pub struct Connection {
    inner: Rc<Handle>,
}

/// All handles of one connection.
struct Handle {
    net: NetHandle,
    conn: Rc<Conn>,
    iface: Iface,
    explanation: Explanation,
    private: Vec<u8>,
}

/// Why a connection goes over the transport that it goes over, as both sides see it.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Transport and device: `posix/memory`.
    pub chosen: String,
    /// The verdict of this side on each of its candidates.
    pub ours: uct_core::select::Explanation,
    /// The verdict of the peer on each of its candidates.
    pub theirs: String,
    /// What was tried first and did not work, with the reason.
    pub tried: Vec<(String, String)>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "connected over {}", self.chosen)?;
        for (lane, reason) in &self.tried {
            writeln!(f, "tried and left: {lane}: {reason}")?;
        }
        write!(f, "this side:\n{}the peer:\n{}", self.ours, self.theirs)
    }
}

impl Connection {
    pub(crate) fn new(
        net: NetHandle,
        conn: Rc<Conn>,
        iface: Iface,
        explanation: Explanation,
        private: Vec<u8>,
    ) -> Connection {
        Connection { inner: Rc::new(Handle { net, conn, iface, explanation, private }) }
    }

    pub(crate) fn conn(&self) -> &Rc<Conn> {
        &self.inner.conn
    }

    pub(crate) fn net(&self) -> &NetHandle {
        &self.inner.net
    }

    /// Who it leads to, for a person.
    pub fn peer(&self) -> &str {
        self.inner.conn.peer()
    }

    /// What the peer sent along with the handshake; empty if nothing.
    pub fn private(&self) -> &[u8] {
        &self.inner.private
    }

    /// Why it goes over the transport that it goes over.
    pub fn explanation(&self) -> &Explanation {
        &self.inner.explanation
    }

    /// The interface that it goes over.
    pub fn iface(&self) -> &Iface {
        &self.inner.iface
    }

    /// The endpoint that it goes over, for operations that this crate does not have.
    pub fn endpoint(&self) -> &Ep {
        &self.inner.conn.lane().expect("a connection has a lane").ep
    }

    /// Sends a message of any length; done when it is the transport's. The bytes are copied at the first poll, and the future does not
    /// use them afterwards. A future that is dropped takes back a message of which nothing has left; what has begun goes on.
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
        self.inner.conn.abort(reason);
    }

    /// Waits until the connection has ended, and says why.
    pub async fn closed(&self) -> Error {
        std::future::poll_fn(|context| match self.inner.conn.poll_closed(context) {
            Some(error) => Poll::Ready(error),
            None => Poll::Pending,
        })
        .await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.conn.end(true);
        self.net.linger(Rc::clone(&self.conn));
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
        Within::new(self, limit, connection.net(), Stage::Connected, connection.peer())
    }
}

impl Future for Send<'_> {
    type Output = Result;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result> {
        let conn = self.connection.conn();
        let ticket = match self.step {
            Step::New(message) => {
                if conn.try_send(message)? {
                    self.step = Step::Done;
                    return Poll::Ready(Ok(()));
                }
                conn.queue(Kind::Last, message.to_vec())?
            }
            Step::Queued(ticket) => ticket,
            Step::Done => return Poll::Ready(Ok(())),
        };
        if conn.poll_left(ticket, context)? {
            self.step = Step::Done;
            return Poll::Ready(Ok(()));
        }
        self.step = Step::Queued(ticket);
        Poll::Pending
    }
}

impl Drop for Send<'_> {
    fn drop(&mut self) {
        if let Step::Queued(ticket) = self.step {
            self.connection.conn().withdraw(ticket);
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
        Within::new(self, limit, connection.net(), Stage::Connected, connection.peer())
    }
}

impl Future for Recv<'_> {
    type Output = Result<Message>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Message>> {
        let (net, conn) = (self.connection.net(), self.connection.conn());
        for _ in 0..POLLS {
            if let Some(message) = conn.poll_receive(context)? {
                return Poll::Ready(Ok(message));
            }
            if !net.turn() {
                break;
            }
        }
        Poll::Pending
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
        Within::new(self, limit, connection.net(), Stage::Close, connection.peer())
    }
}

impl Future for Close<'_> {
    type Output = Result;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result> {
        let conn = self.connection.conn();
        if !std::mem::replace(&mut self.is_begun, true) {
            conn.end(true);
        }
        if conn.poll_ended(context)? { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

/// Reads and writes of a stream, which has the connection.
impl Connection {
    pub(crate) fn poll_message(&self, context: &mut Context<'_>) -> Poll<Result<Message>> {
        Pin::new(&mut self.recv()).poll(context)
    }

    pub(crate) fn poll_shutdown(&self, context: &mut Context<'_>) -> Poll<Result> {
        self.conn().end(false);
        ready!(self.poll_flushed(context))?;
        Poll::Ready(Ok(()))
    }

    /// Whether all that is queued has left.
    pub(crate) fn poll_flushed(&self, context: &mut Context<'_>) -> Poll<Result> {
        match self.conn().poll_idle(context)? {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }
}
