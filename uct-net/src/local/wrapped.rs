//! A lane inside TLS: what the transport writes to its end of a pair of Unix sockets leaves encrypted over the handshake's socket, and
//! what comes there is decrypted and written to the pair.
//!
//! Built on the session of the handshake, and polled like a future by `pumps`. Nothing is read from one side that the other one
//! does not take: so both sides wait for each other as they do over a plain socket, and memory is bounded.

use std::cell::Cell;
use std::io::{BufRead, Error as IoError, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use ucs::Error as Status;

use super::accepted::Place;
use super::bytes::Raw;
use super::conn::Conn;
use super::peer_loss::PeerLoss;
use super::reactor::{Reactor, Sleep, Watched};
use super::session::{Session, words};
use crate::error::{Error, Stage};
use crate::proto::frame::is_frame;
use crate::proto::handshake::GAVE_WAY;

/// Bytes that are taken from a socket at once, and so those that wait in each direction while the other side takes none.
const CHUNK: usize = 64 << 10;
/// What TLS adds to them: a head, a tag and more for each record of 16 KiB, and its own messages.
const OVERHEAD: usize = 4 << 10;
/// Bytes that one lane moves before it is another one's turn.
const TURN: usize = 4 * CHUNK;

/// The bytes of a lane on their way.
pub(crate) struct Wrapped {
    tls: rustls::Connection,
    /// Leads to the peer.
    outer: Watched<Raw>,
    /// Leads to the transport, until nothing comes for it any more.
    inner: Watched<Raw>,
    conn: Weak<Conn>,
    /// A caller's lane counts until its descriptors are given back.
    _place: Option<Rc<Place>>,
    /// What has come from the peer, and TLS has not taken yet.
    received: Chunk,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Something has come from the peer.
    has_begun: bool,
    /// Time limit of the end, once one side has ended or this side's connection is gone: for the rest that was sent, and the peer's own end.
    close_timeout: Duration,
    /// Its rest, once the end has begun.
    closing: Option<Sleep>,
    reactor: Rc<Reactor>,
}

/// Memory that lanes have in turn. A lane keeps one only while something is in it.
#[derive(Default)]
pub(crate) struct Spare {
    incoming: Cell<Vec<u8>>,
    outgoing: Cell<Vec<u8>>,
}

/// Bytes that are taken from the front.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// How far this side's data are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outgoing {
    Open,
    /// The transport has closed its end; the rest leaves, and that it is all.
    Last,
    /// Nothing leaves any more.
    Ended,
}

/// How far the peer's data are.
enum Incoming {
    Open,
    /// What was decrypted is still for the transport. Nothing follows it, for this reason.
    Broken(IoError),
    /// The transport has all; what comes is dropped until the peer has hung up.
    Ended,
    HungUp,
}

/// The socket ended, and the peer has not ended TLS.
#[derive(Debug, thiserror::Error)]
#[error(
    "the connection ended without close_notify of TLS: the peer's process is gone, or a host on the path has cut it"
)]
struct Cut;

/// A frame of the handshake in place of the lane's first bytes: there is only one that may come.
#[derive(Debug, thiserror::Error)]
#[error("the peer refused this side before the lane was open: {GAVE_WAY}")]
struct GivenUp;

/// More cannot be encrypted.
#[derive(Debug, thiserror::Error)]
#[error(
    "the keys of TLS have encrypted as much as they may, and this version of TLS makes no new ones: use TLS 1.3"
)]
struct UsedUp;

impl Wrapped {
    /// Goes on with a session over its socket. Returns the transport's end as well.
    pub(crate) fn new(
        reactor: &Rc<Reactor>,
        (socket, session): (OwnedFd, Session),
        (peer_loss, close_timeout): (&PeerLoss, Duration),
        conn: &Rc<Conn>,
    ) -> std::io::Result<(Wrapped, OwnedFd)> {
        let outer = Socket::from(socket);
        peer_loss.set(&outer)?;
        let (inner, transports) = Socket::pair(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
        let watch = |socket| reactor.watch(Raw(socket)).map_err(|error| IoError::other(error.to_string()));
        let mut tls = session.into_tls();
        tls.set_buffer_limit(Some(CHUNK + OVERHEAD));
        let wrapped = Wrapped {
            tls,
            outer: watch(outer)?,
            inner: watch(inner)?,
            conn: Rc::downgrade(conn),
            _place: conn.place(),
            received: Chunk::default(),
            outgoing: Outgoing::Open,
            incoming: Incoming::Open,
            has_begun: false,
            close_timeout,
            closing: None,
            reactor: Rc::clone(reactor),
        };
        Ok((wrapped, transports.into()))
    }

    /// Moves what can be moved, up to a limit, and has the waker woken when there is more. Ready when the lane is over.
    pub(crate) fn poll(&mut self, spare: &Spare, context: &mut Context<'_>) -> Poll<()> {
        if self.outer.check_fork().is_err() {
            return Poll::Ready(());
        }
        let mut left = TURN;
        loop {
            let moved = self.send(spare, context) + self.receive(spare, context);
            if moved == 0 {
                break;
            }
            left = left.saturating_sub(moved);
            if left == 0 {
                context.waker().wake_by_ref();
                break;
            }
        }
        if self.is_over() {
            return Poll::Ready(());
        }
        let is_ending = self.outgoing != Outgoing::Open
            || matches!(self.incoming, Incoming::Ended | Incoming::HungUp)
            || self.is_left();
        if is_ending {
            let (reactor, time) = (&self.reactor, self.close_timeout);
            let limit = self.closing.get_or_insert_with(|| reactor.sleep(time));
            ready!(limit.poll_due(context));
            if self.outgoing == Outgoing::Open {
                self.tls.send_close_notify();
                self.outgoing = Outgoing::Last;
            }
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Whether the connection is gone. The transport keeps its end for the peer's endpoint, so it is not the first to end.
    fn is_left(&self) -> bool {
        self.conn.upgrade().is_none_or(|conn| conn.is_forgotten())
    }

    /// Whether nothing is left that has not been handed to the system.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outgoing == Outgoing::Ended || !self.tls.wants_write()
    }

    fn is_over(&self) -> bool {
        self.outgoing == Outgoing::Ended && matches!(self.incoming, Incoming::HungUp)
    }

    /// From the transport to the peer. Returns how many bytes moved.
    fn send(&mut self, spare: &Spare, context: &mut Context<'_>) -> usize {
        let mut moved = 0;
        while moved < TURN && self.outgoing != Outgoing::Ended {
            // What is encrypted leaves first, so no more of it than one chunk waits.
            if self.tls.wants_write() {
                let tls = &mut self.tls;
                match self.outer.poll_write(context, |mut raw| tls.write_tls(&mut raw)) {
                    Poll::Pending => return moved,
                    Poll::Ready(Ok(count @ 1..)) => moved += count,
                    // The receiving side finds the reason.
                    Poll::Ready(_) => self.outgoing = Outgoing::Ended,
                }
                continue;
            }
            if self.outgoing == Outgoing::Last {
                let _ = self.outer.get().0.shutdown(Shutdown::Write);
                self.outgoing = Outgoing::Ended;
                return moved + 1;
            }
            let mut chunk = take(&spare.outgoing);
            let read = self.inner.poll_read(context, |mut raw| raw.read(&mut chunk));
            match read {
                Poll::Pending => {}
                Poll::Ready(Ok(count @ 1..)) => {
                    moved += count;
                    if self.tls.writer().write_all(&chunk[..count]).is_err() {
                        // Where there is room, only a session without new keys refuses.
                        self.incoming = Incoming::Broken(IoError::other(UsedUp));
                        self.outgoing = Outgoing::Last;
                    }
                }
                Poll::Ready(_) => {
                    self.tls.send_close_notify();
                    self.outgoing = Outgoing::Last;
                    moved += 1;
                }
            }
            spare.outgoing.set(chunk);
            if read.is_pending() {
                return moved;
            }
        }
        moved
    }

    /// From the peer to the transport. Returns how many bytes moved.
    fn receive(&mut self, spare: &Spare, context: &mut Context<'_>) -> usize {
        let mut moved = 0;
        while moved < TURN {
            match self.hand_over(context) {
                Poll::Pending => break,
                Poll::Ready(count) => moved += count,
            }
            match self.incoming {
                Incoming::Open => {}
                Incoming::Broken(_) => {
                    self.break_off();
                    moved += 1;
                    continue;
                }
                Incoming::Ended => {}
                Incoming::HungUp => break,
            }
            if self.received.is_empty() {
                if self.received.bytes.is_empty() {
                    self.received.bytes = take(&spare.incoming);
                }
                let chunk = &mut self.received;
                match self.outer.poll_read(context, |mut raw| raw.read(&mut chunk.bytes)) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(count @ 1..)) => {
                        (chunk.start, chunk.end) = (0, count);
                        moved += count;
                    }
                    Poll::Ready(end) => {
                        moved += 1;
                        self.incoming = match (&self.incoming, end) {
                            (Incoming::Open, Ok(_)) => Incoming::Broken(IoError::other(Cut)),
                            (Incoming::Open, Err(error)) => Incoming::Broken(error),
                            _ => Incoming::HungUp,
                        };
                        continue;
                    }
                }
            }
            if matches!(self.incoming, Incoming::Ended) {
                self.received.clear();
                continue;
            }
            let taken = self.tls.read_tls(&mut self.received);
            let processed = taken.and_then(|_| self.tls.process_new_packets().map_err(IoError::other));
            if let Err(error) = processed {
                self.received.clear();
                self.incoming = Incoming::Broken(error);
            }
        }
        if self.received.is_empty() && !self.received.bytes.is_empty() {
            spare.incoming.set(std::mem::take(&mut self.received.bytes));
        }
        moved
    }

    /// Hands what is decrypted to the transport. Pending if that does not take it.
    fn hand_over(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        let mut moved = 0;
        loop {
            let mut reader = self.tls.reader();
            match reader.fill_buf() {
                // The peer has ended TLS.
                Ok([]) => {
                    if matches!(self.incoming, Incoming::Open) {
                        let _ = self.inner.get().0.shutdown(Shutdown::Write);
                        self.incoming = Incoming::Ended;
                        moved += 1;
                    }
                    return Poll::Ready(moved);
                }
                Ok(bytes) if !std::mem::replace(&mut self.has_begun, true) && is_frame(bytes) => {
                    self.incoming = Incoming::Broken(IoError::other(GivenUp));
                    return Poll::Ready(moved);
                }
                Ok(bytes) => {
                    let length = bytes.len();
                    let written = match self.incoming {
                        Incoming::Ended | Incoming::HungUp => length,
                        // A transport that has closed its end takes nothing any more.
                        _ => ready!(self.inner.poll_write(context, |mut raw| raw.write(bytes)))
                            .unwrap_or(length),
                    };
                    reader.consume(written);
                    moved += written;
                }
                Err(_nothing) => return Poll::Ready(moved),
            }
        }
    }

    /// The transport has what came before: it fails, for this reason.
    fn break_off(&mut self) {
        let Incoming::Broken(error) = std::mem::replace(&mut self.incoming, Incoming::Ended) else { return };
        let is_of_tls =
            error.get_ref().is_some_and(|cause| cause.is::<rustls::Error>() || cause.is::<UsedUp>());
        if !is_of_tls {
            // The socket itself has ended.
            self.incoming = Incoming::HungUp;
        }
        if let Some(conn) = self.conn.upgrade() {
            conn.note_broken_lane(reason(conn.peer(), &error));
        }
        let _ = self.inner.get().0.shutdown(Shutdown::Both);
        // An alert for the peer, perhaps: nothing else of this side is for it.
        if self.outgoing == Outgoing::Open {
            self.outgoing = Outgoing::Last;
        }
    }
}

/// Hands what is left to the system, without waiting: the transport's last bytes, and the end.
impl Drop for Wrapped {
    fn drop(&mut self) {
        if self.outgoing != Outgoing::Ended && self.outer.check_fork().is_ok() {
            // The reactor has not reported yet what the transport has written last.
            self.inner.try_again();
            self.outer.try_again();
            let mut context = Context::from_waker(Waker::noop());
            self.send(&Spare::default(), &mut context);
        }
    }
}

impl Chunk {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }
}

impl Read for Chunk {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = (&self.bytes[self.start..self.end]).read(buffer)?;
        self.start += count;
        Ok(count)
    }
}

/// Memory of a chunk: what is there, or new.
fn take(spare: &Cell<Vec<u8>>) -> Vec<u8> {
    let chunk = spare.take();
    if chunk.is_empty() { vec![0; CHUNK] } else { chunk }
}

/// The error of a lane that has failed, with its reason.
fn reason(peer: &str, error: &IoError) -> Error {
    let failed = |status, reason: String| Error::new(Stage::Connected, peer, status, reason);
    match words(error) {
        Some((reason, "")) => failed(Status::CONNECTION_RESET, reason),
        Some((reason, hint)) => failed(Status::CONNECTION_RESET, reason).hint(hint),
        None if error.kind() == ErrorKind::Other => failed(Status::CONNECTION_RESET, error.to_string()),
        None if error.kind() == ErrorKind::TimedOut => {
            failed(Status::ENDPOINT_TIMEOUT, format!("the peer's machine does not reply: {error}"))
        }
        None => failed(Status::CONNECTION_RESET, format!("the connection was cut: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_read_from_the_front_and_memory_is_used_again() {
        let spare = Spare::default();
        let mut chunk = Chunk { bytes: take(&spare.incoming), start: 0, end: 5 };
        assert_eq!(chunk.bytes.len(), CHUNK);
        chunk.bytes[..5].copy_from_slice(b"12345");
        let mut buffer = [0; 3];
        assert_eq!((chunk.read(&mut buffer).expect("bytes"), &buffer), (3, b"123"));
        assert!(!chunk.is_empty());
        assert_eq!((chunk.read(&mut buffer).expect("bytes"), &buffer[..2]), (2, &b"45"[..]));
        assert!(chunk.is_empty());
        assert_eq!(chunk.read(&mut buffer).expect("none"), 0);
        chunk.bytes[0] = 9;
        spare.incoming.set(chunk.bytes);
        assert_eq!(take(&spare.incoming)[0], 9, "it is the same memory");
    }
}
