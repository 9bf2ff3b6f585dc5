//! What carries the bytes of a handshake: a socket, or the first endpoint of a connection manager's connection.

use std::io::Result;
#[cfg(feature = "tls")]
use std::os::fd::BorrowedFd;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use uct_core::{Iface, IfaceAddress};

use super::bytes::{Bytes, Raw};
use super::channel::Channel;
use super::conn::Conn;
use super::lane::Lane;
use super::reactor::Watched;
use crate::proto::envelope::Token;

/// What carries the bytes.
pub(crate) enum HandshakeLink {
    /// A socket, and whether it is one of a network.
    Socket(Watched<Raw>, bool),
    Channel(Channel),
}

/// What becomes a lane.
pub(crate) enum LaneSource {
    Socket(OwnedFd),
    Lane(Lane),
}

impl HandshakeLink {
    /// The interface that it goes over already, and the peer's, where a connection manager has made it.
    pub(crate) fn ends(&self) -> Option<(&Iface, &IfaceAddress)> {
        match self {
            HandshakeLink::Socket(..) => None,
            HandshakeLink::Channel(channel) => Some(channel.ends()),
        }
    }

    /// Whether an interface may take it over as a lane.
    pub(crate) fn suits(&self, iface: &Iface) -> bool {
        match self {
            HandshakeLink::Socket(_, is_network) => *is_network && iface.adopts(),
            HandshakeLink::Channel(channel) => channel.ends().0.resource() == iface.resource(),
        }
    }

    /// The socket, if it is one.
    #[cfg(feature = "tls")]
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            HandshakeLink::Socket(socket, _) => Some(socket.get().as_fd()),
            HandshakeLink::Channel(_) => None,
        }
    }

    /// What becomes the lane of a connection, to the peer's token. No bytes are sent or received any more.
    pub(crate) fn hand_over(&self, conn: &Rc<Conn>, peer: Token) -> Result<LaneSource> {
        match self {
            HandshakeLink::Socket(socket, _) => {
                socket.get().as_fd().try_clone_to_owned().map(LaneSource::Socket)
            }
            HandshakeLink::Channel(channel) => match channel.hand_over(conn, peer) {
                Some(lane) => Ok(LaneSource::Lane(lane)),
                None => Err(std::io::ErrorKind::NotConnected.into()),
            },
        }
    }

    /// Sends no more.
    pub(crate) fn shut_down(&self) {
        match self {
            HandshakeLink::Socket(socket, _) if socket.check_fork().is_err() => {}
            HandshakeLink::Socket(socket, _) => drop(socket.get().0.shutdown(std::net::Shutdown::Write)),
            HandshakeLink::Channel(channel) => channel.shut_down(),
        }
    }

    /// Tries `attempt` until it does not answer "would block", whenever there is something to read.
    pub(crate) fn poll_read<T>(
        &self,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut dyn Bytes) -> Result<T>,
    ) -> Poll<Result<T>> {
        match self {
            HandshakeLink::Socket(socket, _) => socket.poll_read(context, |raw| attempt(&mut &raw.0)),
            HandshakeLink::Channel(channel) => channel.poll_read(context, |bytes| attempt(bytes)),
        }
    }

    /// As [`HandshakeLink::poll_read`], whenever there is room to write.
    pub(crate) fn poll_write<T>(
        &self,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut dyn Bytes) -> Result<T>,
    ) -> Poll<Result<T>> {
        match self {
            HandshakeLink::Socket(socket, _) => socket.poll_write(context, |raw| attempt(&mut &raw.0)),
            HandshakeLink::Channel(channel) => channel.poll_write(context, |bytes| attempt(bytes)),
        }
    }
}
