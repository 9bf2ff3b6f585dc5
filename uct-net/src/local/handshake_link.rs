//! What carries the bytes of a handshake: a socket, or the first endpoint of a connection manager's connection.

use std::io::Result;
use std::net::SocketAddr;
#[cfg(feature = "tls")]
use std::os::fd::BorrowedFd;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

use ucs::admission::Source;
use ucs::sys::descriptors;
use ucs::sys::peer::{Credentials, peer_credentials};
use ucs::sys::process::credentials;
use uct_host::{Iface, IfaceAddress};

use super::bytes::{Bytes, Raw};
use super::channel::Channel;
use super::conn::Conn;
use super::lane::Lane;
use super::reactor::Watched;
use crate::proto::envelope::Token;

/// What carries the bytes.
pub(crate) enum HandshakeLink {
    /// And what the system has reported of the peer, which it does no more once the peer has reset the connection.
    Socket(Watched<Raw>, Origin),
    /// And the peer's address, by the connection manager.
    Channel(Box<Channel>, SocketAddr),
}

/// What the system reports of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// Its address.
    Address(SocketAddr),
    /// A process of this machine, at the other end of a Unix socket; `None` if the system does not report which.
    Process(Option<Credentials>),
}

impl Origin {
    /// The number of its process in this pid namespace, if the system reports it.
    pub(crate) fn pid(self) -> Option<u32> {
        match self {
            Origin::Process(Some(peer)) if peer.pid > 0 => Some(peer.pid),
            _ => None,
        }
    }

    /// What it shares limits with.
    pub(crate) fn source(self) -> Source {
        match self {
            Origin::Address(address) => Source::of(address.ip()),
            Origin::Process(Some(peer)) => Source::of_process(peer, credentials().effective_uid),
            Origin::Process(None) => Source::UNKNOWN,
        }
    }
}

/// What becomes a lane.
pub(crate) enum LaneSource {
    Socket(OwnedFd),
    Lane(Lane),
}

impl HandshakeLink {
    /// Over a socket that is connected to an address, or without one to a process of this machine.
    pub(crate) fn of_socket(socket: Watched<Raw>, peer: Option<SocketAddr>) -> HandshakeLink {
        let origin = match peer {
            Some(address) => Origin::Address(address),
            None => Origin::Process(peer_credentials(socket.get().as_fd()).ok()),
        };
        HandshakeLink::Socket(socket, origin)
    }

    /// The interface that it goes over already, and the peer's, where a connection manager has made it.
    pub(crate) fn ends(&self) -> Option<(&Iface, &IfaceAddress)> {
        match self {
            HandshakeLink::Socket(..) => None,
            HandshakeLink::Channel(channel, _) => Some(channel.ends()),
        }
    }

    /// What the system reports of the peer.
    pub(crate) fn origin(&self) -> Origin {
        match self {
            HandshakeLink::Channel(_, address) => Origin::Address(*address),
            HandshakeLink::Socket(_, origin) => *origin,
        }
    }

    /// Whether it has one of the last descriptors, of which so many are reserved.
    pub(crate) fn is_among_last(&self, reserved: u32) -> bool {
        match self {
            HandshakeLink::Socket(socket, _) => descriptors::is_among_last(socket.get(), reserved),
            HandshakeLink::Channel(..) => false,
        }
    }

    /// Whether an interface may take it over as a lane.
    pub(crate) fn suits(&self, iface: &Iface) -> bool {
        match self {
            HandshakeLink::Socket(..) => iface.adopts(),
            HandshakeLink::Channel(channel, _) => channel.ends().0.resource() == iface.resource(),
        }
    }

    /// The socket, if it is one.
    #[cfg(feature = "tls")]
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            HandshakeLink::Socket(socket, _) => Some(socket.get().as_fd()),
            HandshakeLink::Channel(..) => None,
        }
    }

    /// What becomes the lane of a connection, to the peer's token. No bytes are sent or received any more.
    pub(crate) fn hand_over(&self, conn: &Rc<Conn>, peer: Token) -> Result<LaneSource> {
        match self {
            HandshakeLink::Socket(socket, _) => {
                socket.get().as_fd().try_clone_to_owned().map(LaneSource::Socket)
            }
            HandshakeLink::Channel(channel, _) => match channel.hand_over(conn, peer) {
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
            HandshakeLink::Channel(channel, _) => channel.shut_down(),
        }
    }

    /// Tries `attempt` until it does not answer "would block", whenever there is something to read.
    pub(crate) fn poll_read<T>(
        &self,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut dyn Bytes) -> Result<T>,
    ) -> Poll<Result<T>> {
        match self {
            HandshakeLink::Socket(socket, _) => socket.poll_read(context, |mut raw| attempt(&mut raw)),
            HandshakeLink::Channel(channel, _) => channel.poll_read(context, |bytes| attempt(bytes)),
        }
    }

    /// As [`HandshakeLink::poll_read`], whenever there is room to write.
    pub(crate) fn poll_write<T>(
        &self,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut dyn Bytes) -> Result<T>,
    ) -> Poll<Result<T>> {
        match self {
            HandshakeLink::Socket(socket, _) => socket.poll_write(context, |mut raw| attempt(&mut raw)),
            HandshakeLink::Channel(channel, _) => channel.poll_write(context, |bytes| attempt(bytes)),
        }
    }
}
