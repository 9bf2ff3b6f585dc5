//! The bytes of a handshake over the first endpoint of a connection manager's connection, in place of a socket.
//!
//! They are messages of a separate connection, whose window and longest message bound what a peer can send. Built on `conn`.

use std::cell::{Cell, RefCell};
use std::io::{Error as IoError, ErrorKind, Read, Result, Write};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};

use uct_host::{Iface, IfaceAddress};

use super::conn::{Conn, Ticket};
use super::lane::Lane;
use super::message::Message;
use super::net::NetHandle;
use crate::proto::envelope::{Kind, Token};

/// Window and longest message of that connection, in bytes. Longer frames are sent in pieces.
pub(crate) const LIMITS: (u32, usize) = (64 << 10, PIECE);
const PIECE: usize = 4096;

/// The connection that fails when the endpoint or the connection manager's connection fails.
pub(crate) type FailureTarget = Rc<RefCell<Weak<Conn>>>;

/// The bytes of one handshake.
pub(crate) struct Channel {
    net: NetHandle,
    conn: Rc<Conn>,
    target: FailureTarget,
    iface: Iface,
    peer: IfaceAddress,
    /// What arrived, and how much of it was read.
    unread: RefCell<Option<(Message, usize)>>,
    /// What was written and has not left.
    unsent: Cell<Option<Ticket>>,
    is_handed_over: Cell<bool>,
}

impl Channel {
    /// Over the lane of a connection of [`LIMITS`] that was made for it, from an interface to one of the peer's.
    pub(crate) fn new(
        net: NetHandle,
        conn: Rc<Conn>,
        target: FailureTarget,
        (iface, peer): (Iface, IfaceAddress),
    ) -> Channel {
        Channel {
            net,
            conn,
            target,
            iface,
            peer,
            unread: RefCell::new(None),
            unsent: Cell::new(None),
            is_handed_over: Cell::new(false),
        }
    }

    /// The interface that it goes over, and the peer's.
    pub(crate) fn ends(&self) -> (&Iface, &IfaceAddress) {
        (&self.iface, &self.peer)
    }

    /// The lane for a connection of the application: the same endpoint, to another token. No bytes are sent or received any more.
    pub(crate) fn hand_over(&self, conn: &Rc<Conn>, peer: Token) -> Option<Lane> {
        let lane = self.conn.lane()?.to(peer);
        self.is_handed_over.set(true);
        self.target.replace(Rc::downgrade(conn));
        self.net.remove(self.conn.token());
        Some(lane)
    }

    /// Sends no more than what was written.
    pub(crate) fn shut_down(&self) {
        self.conn.end(false);
    }

    /// As `Watched::poll_read`.
    pub(crate) fn poll_read<T>(
        &self,
        context: &Context<'_>,
        attempt: impl FnMut(&mut &Channel) -> Result<T>,
    ) -> Poll<Result<T>> {
        self.poll(attempt, || {
            // A failure is for the next attempt.
            if let Ok(received) = self.conn.poll_receive(context) {
                let Some(message) = received else { return Poll::Pending };
                self.unread.replace(Some((message, 0)));
            }
            Poll::Ready(())
        })
    }

    /// As `Watched::poll_write`.
    pub(crate) fn poll_write<T>(
        &self,
        context: &Context<'_>,
        attempt: impl FnMut(&mut &Channel) -> Result<T>,
    ) -> Poll<Result<T>> {
        self.poll(attempt, || match self.unsent.get() {
            // A failure is for the next attempt.
            Some(ticket) => self.conn.poll_left(ticket, context).map(|_| ()),
            None => Poll::Pending,
        })
    }

    /// Tries `attempt` until it does not answer "would block", each time that `wait` is ready.
    fn poll<T>(
        &self,
        mut attempt: impl FnMut(&mut &Channel) -> Result<T>,
        mut wait: impl FnMut() -> Poll<()>,
    ) -> Poll<Result<T>> {
        loop {
            match attempt(&mut &*self) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(wait()),
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

impl Read for &Channel {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut unread = self.unread.borrow_mut();
        loop {
            if let Some((message, start)) = &mut *unread {
                let rest = &message[*start..];
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                *start += count;
                if *start == message.len() {
                    *unread = None;
                }
                if count > 0 || buffer.is_empty() {
                    return Ok(count);
                }
            }
            match self.conn.try_receive() {
                Ok(Some(message)) => *unread = Some((message, 0)),
                Ok(None) => return Err(ErrorKind::WouldBlock.into()),
                Err(error) if error.is_closed_by_peer() => return Ok(0),
                Err(error) => return Err(IoError::other(error)),
            }
        }
    }
}

impl Write for &Channel {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.flush()?;
        let piece = &bytes[..bytes.len().min(PIECE)];
        self.unsent.set(Some(self.conn.queue(Kind::Last, piece.to_vec()).map_err(IoError::other)?));
        Ok(piece.len())
    }

    fn flush(&mut self) -> Result<()> {
        let Some(ticket) = self.unsent.get() else { return Ok(()) };
        if !self.conn.has_left(ticket).map_err(IoError::other)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.unsent.set(None);
        Ok(())
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.is_handed_over.get() && self.net.check_fork().is_ok() {
            self.conn.end(true);
            self.net.let_linger(Rc::clone(&self.conn), true);
        }
    }
}
