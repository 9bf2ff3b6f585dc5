//! The handshake's socket: frames over TCP or a Unix socket, without blocking.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use super::reactor::{Reactor, Underway, Watched};
use crate::error::{Error, Result, Stage};
use crate::proto::frame::{HEADER, check_magic, parse_header};
use crate::proto::handshake::Frame;

/// How long a caller waits for room in the queue of a Unix listener before it calls again.
const FULL_QUEUE: Duration = Duration::from_millis(5);

/// Where a listener is, or is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Ip(SocketAddr),
    Unix(PathBuf),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Ip(address) => write!(f, "{address}"),
            Place::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Place {
    /// A socket for it that does not block.
    fn socket(&self) -> std::io::Result<(Socket, SockAddr)> {
        let (domain, address) = match self {
            Place::Ip(address) => (Domain::for_address(*address), SockAddr::from(*address)),
            Place::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
        };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        if let Place::Ip(address) = self
            && address.ip().is_loopback()
        {
            // It may become a lane: loopback has no congestion, and an algorithm that paces would cost most of the bandwidth.
            let _ = socket.set_tcp_congestion(b"reno");
        }
        Ok((socket, address))
    }
}

/// A socket of the standard library's, of whatever family.
#[derive(Debug)]
pub(crate) struct Raw(Socket);

impl AsFd for Raw {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A socket that frames go over.
pub(crate) struct FrameSocket {
    socket: Watched<Raw>,
    /// For errors.
    peer: String,
    is_network: bool,
    _underway: Underway,
}

/// A socket that is called.
pub(crate) struct ListeningSocket {
    socket: Watched<Raw>,
    place: Place,
}

impl ListeningSocket {
    pub(crate) fn bind(reactor: &Rc<Reactor>, place: &Place, backlog: i32) -> Result<ListeningSocket> {
        let failed = |error: std::io::Error| {
            let hint = match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    Some("another program listens there; choose another port or path")
                }
                std::io::ErrorKind::AddrNotAvailable => Some("no interface of this machine has that address"),
                std::io::ErrorKind::PermissionDenied => {
                    Some("ports below 1024 and foreign directories need privileges")
                }
                _ => None,
            };
            let failure = Error::new(Stage::Listen, place.to_string(), status_of(&error), error.to_string());
            match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        };
        let (socket, address) = place.socket().map_err(failed)?;
        if let Place::Ip(_) = place {
            socket.set_reuse_address(true).map_err(failed)?;
        }
        socket.bind(&address).map_err(failed)?;
        socket.listen(backlog).map_err(failed)?;
        let place = match socket.local_addr().ok().and_then(|address| address.as_socket()) {
            Some(address) => Place::Ip(address),
            None => place.clone(),
        };
        let socket =
            reactor.watch(Raw(socket)).map_err(|error| failed(std::io::Error::other(error.to_string())))?;
        Ok(ListeningSocket { socket, place })
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The next caller.
    pub(crate) fn poll_accept(
        &self,
        reactor: &Rc<Reactor>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<FrameSocket>> {
        self.socket.poll_read(context, |raw| raw.0.accept()).map(|accepted| {
            let failed = |reason: String| {
                Error::new(Stage::Listen, self.place.to_string(), ucs::Error::IO_ERROR, reason)
            };
            let (socket, address) = accepted.map_err(|error| failed(error.to_string()))?;
            socket.set_nonblocking(true).map_err(|error| failed(error.to_string()))?;
            let peer = match address.as_socket() {
                Some(address) => address.to_string(),
                None => format!("a program at {}", self.place),
            };
            FrameSocket::new(reactor, socket, peer).map_err(|error| failed(error.to_string()))
        })
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        if let Place::Unix(path) = &self.place {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl FrameSocket {
    fn new(
        reactor: &Rc<Reactor>,
        socket: Socket,
        peer: String,
    ) -> Result<FrameSocket, ucs::sys::SystemError> {
        // A Unix socket has nothing to delay.
        let is_network = socket.set_tcp_nodelay(true).is_ok();
        let _underway = reactor.begin_handshake();
        Ok(FrameSocket { socket: reactor.watch(Raw(socket))?, peer, is_network, _underway })
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// Whether an interface whose connections are sockets may take it over.
    pub(crate) fn is_network(&self) -> bool {
        self.is_network
    }

    /// The socket for an interface. No frame is sent or received any more.
    pub(crate) fn hand_over(&self) -> std::io::Result<OwnedFd> {
        self.socket.get().as_fd().try_clone_to_owned()
    }

    /// Calls a listener.
    pub(crate) async fn dial(reactor: &Rc<Reactor>, place: &Place) -> Result<FrameSocket> {
        let failed = |error: std::io::Error| dial_failed(place, &error);
        let (socket, address) = place.socket().map_err(failed)?;
        loop {
            match socket.connect(&address) {
                Ok(()) => break,
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => break,
                // The queue of a Unix listener is full, and nothing tells when it has room.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    reactor.sleep(FULL_QUEUE).await;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let socket = FrameSocket::new(reactor, socket, place.to_string())
            .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
        let connected = std::future::poll_fn(|context| {
            socket.socket.poll_write(context, |raw| match raw.0.take_error()? {
                Some(error) => Err(error),
                None => match raw.0.peer_addr() {
                    Ok(_) => Ok(()),
                    Err(error) if error.kind() == std::io::ErrorKind::NotConnected => {
                        Err(std::io::ErrorKind::WouldBlock.into())
                    }
                    Err(error) => Err(error),
                },
            })
        });
        connected.await.map_err(failed)?;
        Ok(socket)
    }

    /// Sends a frame.
    pub(crate) async fn send(&self, frame: &Frame) -> Result {
        let bytes =
            frame.to_bytes().map_err(|error| self.failed(ucs::Error::INVALID_PARAM, error.to_string()))?;
        let mut sent = 0;
        std::future::poll_fn(|context| {
            self.socket.poll_write(context, |raw| {
                while sent < bytes.len() {
                    sent += (&raw.0).write(&bytes[sent..])?;
                }
                Ok(())
            })
        })
        .await
        .map_err(|error| self.failed(ucs::Error::CONNECTION_RESET, format!("the peer is gone: {error}")))
    }

    /// Receives a frame.
    pub(crate) async fn receive(&self) -> Result<Frame> {
        let bad = |error: crate::proto::frame::BadFrame| self.failed(ucs::Error::IO_ERROR, error.0);
        let mut header = [0; HEADER];
        let (magic, rest) = header.split_at_mut(4);
        self.read(magic).await?;
        check_magic([magic[0], magic[1], magic[2], magic[3]]).map_err(bad)?;
        self.read(rest).await?;
        let (what, length) = parse_header(&header).map_err(bad)?;
        let mut body = Vec::new();
        let mut chunk = [0; 4096];
        // Memory is taken for what arrives, not for what is announced.
        while body.len() < length {
            let wanted = (length - body.len()).min(chunk.len());
            self.read(&mut chunk[..wanted]).await?;
            body.extend_from_slice(&chunk[..wanted]);
        }
        Frame::parse(what, &body).map_err(bad)
    }

    async fn read(&self, buffer: &mut [u8]) -> Result {
        let mut filled = 0;
        let outcome = std::future::poll_fn(|context| {
            self.socket.poll_read(context, |raw| {
                while filled < buffer.len() {
                    match (&raw.0).read(&mut buffer[filled..])? {
                        0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                        count => filled += count,
                    }
                }
                Ok(())
            })
        })
        .await;
        outcome.map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                self.failed(ucs::Error::CONNECTION_RESET, "the peer hung up".to_owned())
            }
            _ => self.failed(ucs::Error::CONNECTION_RESET, format!("the peer is gone: {error}")),
        })
    }

    pub(crate) fn failed(&self, status: ucs::Error, reason: String) -> Error {
        Error::new(Stage::Handshake, &*self.peer, status, reason)
    }
}

fn dial_failed(place: &Place, error: &std::io::Error) -> Error {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, NotFound};
    let hint = match error.kind() {
        ConnectionRefused => "nobody listens there: start the server first, and check the port",
        NotFound => "there is no such path: start the server first",
        NetworkUnreachable | HostUnreachable => "no route leads there: check the address and the network",
        _ => "",
    };
    let failure = Error::new(Stage::Dial, place.to_string(), status_of(error), error.to_string());
    if hint.is_empty() { failure } else { failure.hint(hint) }
}

fn status_of(error: &std::io::Error) -> ucs::Error {
    error.raw_os_error().map_or(ucs::Error::IO_ERROR, ucs::Error::from_errno)
}
