//! A connection: messages in both directions, complete and in order.

#[cfg(feature = "tls")]
use std::cell::OnceCell;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ucs::text::PeerLines;
use uct_host::{Ep, Grant, Iface};

use super::conn::delivery::Sink;
use super::conn::{Conn, Ticket};
use super::lane::InPlace;
use super::message::Message;
use super::net::NetHandle;
use super::reactor::Sleep;
use crate::error::{Error, Result};
use crate::flavour::{self, Flavour, Timer};

/// Progress calls that a receiver makes before it waits for its waker.
const POLLS: u32 = 8;

/// A connection to another program. Cheap to clone within the thread.
///
/// Messages arrive complete and in order, or the connection fails with a reason; a dead peer makes it fail. Dropping the last handle
/// delivers what was sent, for up to 1 s, and the peer gets an orderly end.
#[derive(Clone)]
pub struct Connection {
    inner: Rc<Handle>,
}

/// A send that has started: [`Connection::start_send`].
#[derive(Debug)]
pub struct Started(Ticket);

/// All handles of one connection.
struct Handle {
    net: NetHandle,
    conn: Rc<Conn>,
    iface: Iface,
    explanation: Explanation,
    over: Arc<str>,
    private: Vec<u8>,
    /// Keys to parts of memory, which end with the connection.
    grants: RefCell<Vec<Grant>>,
    #[cfg(feature = "tls")]
    tls_peer: OnceCell<crate::TlsPeer>,
}

/// Which transport was chosen for a connection, and why, as reported by both sides.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Transport and device, for example `posix/memory`. Behind a transport that carries everything inside TLS, there is ` inside TLS`.
    pub chosen: String,
    /// The verdict of this side on each of its candidates.
    pub ours: uct_host::select::Explanation,
    /// The verdict of the peer on each of its candidates, in its own words.
    pub theirs: PeerLines,
    /// Candidates that were tried first and did not work, each with the reason.
    pub tried: Vec<(String, String)>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "connected over {}", self.chosen)?;
        for (lane, reason) in &self.tried {
            writeln!(f, "tried and rejected: {lane}: {reason}")?;
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
        let handle = Handle {
            net,
            conn,
            iface,
            over: explanation.chosen.as_str().into(),
            explanation,
            private,
            grants: RefCell::default(),
            #[cfg(feature = "tls")]
            tls_peer: OnceCell::new(),
        };
        Connection { inner: Rc::new(handle) }
    }

    pub(crate) fn conn(&self) -> &Rc<Conn> {
        &self.inner.conn
    }

    /// Transport and device.
    pub(crate) fn over(&self) -> &Arc<str> {
        &self.inner.over
    }

    pub(crate) fn net(&self) -> &NetHandle {
        &self.inner.net
    }

    /// Holds the key to a part of memory that the peer is sent.
    pub(super) fn keep(&self, grant: Grant) {
        let mut grants = self.inner.grants.borrow_mut();
        if grants.len() == grants.capacity() {
            grants.retain(|grant| !grant.is_over());
        }
        grants.push(grant);
    }

    /// Ends the keys to exactly these bytes; returns whether there was one.
    pub(super) fn take_back(&self, address: u64, length: usize) -> bool {
        let is_it = |grant: &mut Grant| (grant.address(), grant.len()) == (address, length);
        let ended: Vec<Grant> = self.inner.grants.borrow_mut().extract_if(.., is_it).collect();
        !ended.is_empty()
    }

    /// The peer's address, as text for humans.
    pub fn peer(&self) -> &str {
        self.inner.conn.peer()
    }

    /// The private data that the peer sent with the handshake; may be empty.
    pub fn private(&self) -> &[u8] {
        &self.inner.private
    }

    /// What TLS has proved about the peer; `None` without [`crate::NetOptions::tls`].
    #[cfg(feature = "tls")]
    pub fn tls_peer(&self) -> Option<&crate::TlsPeer> {
        self.inner.tls_peer.get()
    }

    /// TLS has proved this about the peer, ahead of the handshake.
    #[cfg(feature = "tls")]
    pub(crate) fn note_tls_peer(&self, peer: crate::TlsPeer) {
        self.inner.tls_peer.get_or_init(|| peer);
    }

    /// Which transport was chosen, and why.
    pub fn explanation(&self) -> &Explanation {
        &self.inner.explanation
    }

    /// The interface that it uses.
    pub fn iface(&self) -> &Iface {
        &self.inner.iface
    }

    /// The endpoint that it uses, for operations that this crate does not have. Over a lane inside TLS they make progress only while the
    /// [`Net`](super::Net) is driven: `Worker::progress` alone moves nothing, `Net::block_on` of a future that is ready moves what is ready, and
    /// `Ep::get_short`, which blocks, returns `TIMED_OUT`.
    pub fn endpoint(&self) -> &Ep {
        &self.inner.conn.lane().expect("a connection has a lane").ep
    }

    /// For protocols of libraries: has what arrives go to the sink, each fragment straight from the buffer of the transport, in place of [`Connection::recv`].
    /// Fragments that have arrived already are delivered before this returns. A message of the peer's [`Connection::send`] that is longer than the
    /// peer's [`Connection::fragment`] comes in several fragments, each message of its [`Connection::try_send`] in one.
    ///
    /// Returns false if the connection has a sink already; it keeps that one.
    pub fn deliver_to(&self, sink: Rc<dyn Sink>) -> bool {
        let is_taken = self.inner.conn.deliver_to(sink);
        if is_taken {
            self.inner.net.place_messages(&self.inner.iface);
        }
        is_taken
    }

    /// Gives the peer credit back for fragments that the sink has taken with [`Credit::Held`](super::Credit::Held): the sum of their
    /// [`Fragment::credit`](super::Fragment::credit). May be called by a sink.
    pub fn release(&self, credit: u32) {
        self.inner.conn.release(credit);
    }

    /// Sends a message of a header and the caller's bytes, up to [`Connection::fragment`] bytes together, as one fragment, at once or not at all. The bytes are
    /// copied straight to the transport's buffer, and not used afterwards. Returns false, and sends nothing, if there is no credit or room now: the
    /// sink is told when there may be ([`Sink::writable`]).
    ///
    /// # Errors
    /// The connection has failed or is closed. `INVALID_PARAM`: the message is longer than [`Connection::fragment`], and the connection goes on.
    pub fn try_send(&self, head: &[u8], parts: &[&[u8]]) -> Result<bool> {
        self.inner.conn.try_send_parts(head, parts)
    }

    /// The longest message of [`Connection::try_send`], in bytes.
    pub fn fragment(&self) -> usize {
        self.inner.conn.longest_fragment()
    }

    /// For protocols of libraries: begins [`Connection::send`], as its first poll does. `None` if the transport has the message. Otherwise the message is
    /// sent whatever becomes of the rest of the operation, which [`Connection::finish_send`] makes a future of.
    ///
    /// # Errors
    /// As [`Connection::send`].
    #[inline]
    pub fn start_send(&self, message: &[u8]) -> Result<Option<Started>> {
        Ok(self.inner.conn.send(message)?.map(Started))
    }

    /// The rest of a send that has started on this connection. Dropping it withdraws a message of which nothing has been sent.
    pub fn finish_send(&self, started: Started) -> Send<'_> {
        Send::begun(self, Some(started.0))
    }

    /// For protocols of libraries: the next message, if it has arrived. Makes no progress.
    ///
    /// # Errors
    /// As [`Connection::recv`].
    pub fn try_recv(&self) -> Result<Option<Message>> {
        self.inner.conn.try_receive()
    }

    /// As [`Connection::try_recv`], into memory of the application; returns the length.
    ///
    /// # Errors
    /// As [`Connection::recv_into`].
    pub fn try_recv_into(&self, target: &mut [u8]) -> Result<Option<usize>> {
        self.inner.conn.try_receive_into(target)
    }

    /// The length of the next message, if that is known here already.
    pub fn next_length(&self) -> Option<usize> {
        self.inner.conn.next_length()
    }

    /// Whether everything that was handed over so far gets to the peer without further progress of this side: the transport has passed it to the
    /// peer's memory or to the system.
    pub fn has_left(&self) -> bool {
        self.inner.conn.has_all_left() && self.inner.net.is_sent()
    }

    /// Reads of the peer's memory that the device, the processor or the kernel carries out: the domain whose memory and keys they take. `None`
    /// if the transport has none, or emulates them by messages.
    pub fn in_place(&self) -> Option<&InPlace> {
        self.inner.conn.lane()?.large.as_ref()
    }

    /// Sends a message of up to the peer's [`crate::NetOptions::max_message`] bytes. Done when the transport has it, and a large one that goes
    /// by rendezvous (key `rndv_thresh`) when the peer has read it. Waits while the peer's window is full, without a limit (see
    /// `Send::within`). The bytes are copied at the first poll, and not used afterwards. Dropping the future withdraws a message of which
    /// nothing has been sent; otherwise it is sent completely.
    ///
    /// # Errors
    /// The connection has failed or is closed. A longer message ends the connection.
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

    /// Receives the next message into memory of the application; returns its length. A large one is read there straight from the sender's memory where
    /// memory is shared; others are copied. A future that is dropped loses no message.
    ///
    /// # Errors
    /// As [`Connection::recv`]. `MESSAGE_TRUNCATED` if the message is longer than `target`: it stays the next one, for a call with more room.
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
        self.inner.conn.abort(reason);
    }

    /// Waits until the connection has ended, and returns the reason.
    pub async fn closed(&self) -> Error {
        std::future::poll_fn(|context| self.inner.conn.poll_closed(context)).await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.net.check_fork().is_err() {
            return;
        }
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
/// See [`Connection::recv_into`].
pub type RecvInto<'a> = flavour::RecvInto<'a, Connection>;
/// See [`Connection::close`].
pub type Close<'a> = flavour::Close<'a, Connection>;
/// See [`Connection::into_stream`].
pub type Stream = flavour::Stream<Connection>;
/// An operation with a time limit, as `within` of [`Recv`], [`Send`] and [`Close`] returns it.
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

    fn poll_turn(&self, context: &mut Context<'_>) -> Poll<()> {
        self.net().poll_turn(context)
    }

    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Result<Message>> {
        for _ in 0..POLLS {
            if let Some(message) = self.conn().try_receive()? {
                return Poll::Ready(Ok(message));
            }
            if !self.net().turn() {
                break;
            }
        }
        // The waker is registered last: a message that was received above needs none.
        match self.conn().poll_receive(context)? {
            Some(message) => Poll::Ready(Ok(message)),
            None => Poll::Pending,
        }
    }

    fn poll_message_into(&self, target: &mut [u8], context: &mut Context<'_>) -> Poll<Result<usize>> {
        self.conn().leave_offers(true);
        for _ in 0..POLLS {
            if let Some(length) = self.conn().try_receive_into(target)? {
                return Poll::Ready(Ok(length));
            }
            if !self.net().turn() {
                break;
            }
        }
        if let Some(length) = self.conn().try_receive_into(target)? {
            return Poll::Ready(Ok(length));
        }
        self.conn().wait_for_message(context);
        Poll::Pending
    }

    fn stop_receiving_into(&self) {
        self.conn().leave_offers(false);
    }

    fn begin_send(&self, message: &[u8]) -> Result<Option<Ticket>> {
        self.conn().send(message)
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
