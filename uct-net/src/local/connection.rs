//! A connection: messages both ways, in order, each whole.

use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use uct_core::{Ep, Iface};

use super::conn::{Conn, Ticket};
use super::message::Message;
use super::net::NetHandle;
use super::reactor::Sleep;
use crate::error::{Error, Result};
use crate::flavour::{self, Flavour, Timer};
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
        Send::new(self, message)
    }

    /// Receives the next message. A future that is dropped loses nothing.
    ///
    /// # Errors
    /// The connection has failed, or the peer has closed it ([`Error::is_closed_by_peer`]); what arrived before comes first.
    pub fn recv(&self) -> Recv<'_> {
        Recv::new(self)
    }

    /// Closes: sends what is queued, tells the peer, and is done when the peer has received it all. The peer need not have read it.
    ///
    /// # Errors
    /// The connection has failed.
    pub fn close(&self) -> Close<'_> {
        Close::new(self)
    }

    /// As a stream of bytes, without bounds of messages. Both sides have to do so.
    pub fn into_stream(self) -> Stream {
        Stream::new(self)
    }

    /// Gives the connection up at once: nothing that is queued is sent, and the peer sees an error with the reason.
    pub fn abort(&self, reason: &str) {
        self.inner.conn.abort(reason);
    }

    /// Waits until the connection has ended, and says why.
    pub async fn closed(&self) -> Error {
        std::future::poll_fn(|context| self.inner.conn.poll_closed(context)).await
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
pub type Send<'a> = flavour::Send<'a, Connection>;
/// See [`Connection::recv`].
pub type Recv<'a> = flavour::Recv<'a, Connection>;
/// See [`Connection::close`].
pub type Close<'a> = flavour::Close<'a, Connection>;
/// See [`Connection::into_stream`].
pub type Stream = flavour::Stream<Connection>;
/// An operation with a limit; `within` of [`Recv`] and of the others returns it.
pub type Within<F> = flavour::Within<F, Sleep>;

impl Flavour for Connection {
    type Message = Message;
    type Timer = Sleep;

    fn peer_name(&self) -> &str {
        self.peer()
    }

    fn timer(&self, time: Duration) -> Sleep {
        self.net().reactor.sleep(time)
    }

    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Result<Message>> {
        for _ in 0..POLLS {
            if let Some(message) = self.conn().poll_receive(context)? {
                return Poll::Ready(Ok(message));
            }
            if !self.net().turn() {
                break;
            }
        }
        Poll::Pending
    }

    fn begin_send(&self, message: &[u8]) -> Result<Option<Ticket>> {
        if self.conn().try_send(message)? {
            return Ok(None);
        }
        self.conn().queue(Kind::Last, message.to_vec()).map(Some)
    }

    fn poll_left(&self, ticket: Ticket, context: &mut Context<'_>) -> Poll<Result> {
        self.conn().poll_left(ticket, context)
    }

    fn withdraw(&self, ticket: Ticket) {
        self.conn().withdraw(ticket);
    }

    fn poll_write(&self, bytes: &[u8], context: &mut Context<'_>) -> Poll<Result<usize>> {
        self.conn().poll_send_some(bytes, context)
    }

    fn poll_flushed(&self, context: &mut Context<'_>) -> Poll<Result> {
        self.conn().poll_idle(context)
    }

    fn poll_shutdown(&self, context: &mut Context<'_>) -> Poll<Result> {
        self.conn().end(false);
        self.conn().poll_idle(context)
    }

    fn poll_close(&self, is_first: bool, context: &mut Context<'_>) -> Poll<Result> {
        if is_first {
            self.conn().end(true);
        }
        self.conn().poll_ended(context)
    }
}

impl Timer for Sleep {
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Sleep::poll_due(self, context)
    }
}
