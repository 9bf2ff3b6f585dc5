//! The handshake's socket: frames over TCP or a Unix socket, or over what a connection manager has connected, without blocking.

#[cfg(feature = "tls")]
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
#[cfg(feature = "tls")]
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};
use ucs::memory::fork::Forked;
use ucs::sys::socket as net;
use uct_host::{Iface, IfaceAddress};

use super::bytes::{Bytes, Raw, watch};
use super::channel::Channel;
use super::conn::Conn;
use super::handshake_link::{HandshakeLink, LaneSource, Origin};
use super::path::{self, Name};
use super::reactor::{Reactor, Underway, Watched};
#[cfg(feature = "tls")]
use super::session::{self, Session};
#[cfg(feature = "tls")]
use crate::TlsPeer;
use crate::error::{Error, Result, Stage};
use crate::proto::envelope::Token;
use crate::proto::frame::{BadFrame, HEADER, check_magic, is_tls, parse_header};
#[cfg(feature = "tls")]
use crate::proto::handshake::Frame;
use crate::proto::handshake::RawFrame;

/// What a caller with TLS meets at a listener without.
const NO_TLS: &str = "the peer begins TLS, which this side does not use: set tls on both sides or on neither";
/// Bytes that are read at once.
const CHUNK: usize = 4096;
/// Bytes of a peer that is refused, at most, before it is hung up on.
const MOST_DISCARDED: usize = 256 << 10;

/// The remedy where an address of a family cannot be used at all.
const NO_FAMILY: &str = "the kernel has no sockets of this family, or a sandbox forbids them (RestrictAddressFamilies): use another one";

/// How long a caller waits for room in the queue of a Unix listener before it calls again.
const FULL_QUEUE: Duration = Duration::from_millis(5);

/// Where a listener is, or is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Ip(SocketAddr),
    /// A path; an abstract name begins with a zero byte.
    Unix(PathBuf),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Ip(address) => write!(f, "{address}"),
            Place::Unix(path) => match path.to_string_lossy().strip_prefix('\0') {
                Some(name) => write!(f, "unix:@{name}"),
                None => write!(f, "unix:{}", path.display()),
            },
        }
    }
}

impl Place {
    /// `None` for a path.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Place::Ip(address) => Some(address.port()),
            Place::Unix(_) => None,
        }
    }

    /// Whether an address of this machine is of the same family.
    pub(crate) fn is_of_family(&self, source: SocketAddr) -> bool {
        match self {
            Place::Ip(address) => address.is_ipv4() == source.is_ipv4(),
            Place::Unix(_) => false,
        }
    }

    /// Whether it is every address of this machine, those of IPv4 as well.
    fn is_everywhere(&self) -> bool {
        matches!(self, Place::Ip(address) if address.is_ipv6() && address.ip().is_unspecified())
    }

    /// Every IPv4 address of this machine, if this is every address.
    fn all_of_ipv4(&self) -> Option<Place> {
        let port = self.port().filter(|_| self.is_everywhere())?;
        Some(Place::Ip(SocketAddr::from(([0, 0, 0, 0], port))))
    }

    /// A socket that is bound to it, and its name in the file system if it has one.
    fn bound(&self) -> std::io::Result<(Socket, Option<Name>)> {
        let (socket, address) = self.socket()?;
        if let Place::Unix(path) = self
            && path::is_in_file_system(path)
        {
            let name = Name::bind(&socket, path)?;
            return Ok((socket, Some(name)));
        }
        if let Place::Ip(_) = self {
            socket.set_reuse_address(true)?;
        }
        if self.is_everywhere() {
            // Whatever net.ipv6.bindv6only says.
            socket.set_only_v6(false)?;
        }
        socket.bind(&address)?;
        Ok((socket, None))
    }

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

/// What frames go over.
pub(crate) struct FrameSocket {
    link: HandshakeLink,
    /// For errors.
    peer: String,
    #[cfg(feature = "tls")]
    session: RefCell<Option<Session>>,
    /// This side has begun TLS, which is not complete: a frame would be understood by nobody.
    #[cfg(feature = "tls")]
    is_securing: Cell<bool>,
    /// The session was handed over: a frame would be in clear.
    #[cfg(feature = "tls")]
    is_over: Cell<bool>,
    _underway: Underway,
}

/// A socket that is called.
pub(crate) struct ListeningSocket {
    /// Removed ahead of the end of the socket: nobody takes it over meanwhile.
    _name: Option<Name>,
    socket: Watched<Raw>,
    place: Place,
}

impl ListeningSocket {
    pub(crate) fn bind(reactor: &Rc<Reactor>, place: &Place, backlog: i32) -> Result<ListeningSocket> {
        let failed = |error: std::io::Error| {
            let hint = match error.kind() {
                // Otherwise the reason has the remedy.
                std::io::ErrorKind::AddrInUse if error.raw_os_error().is_some() => {
                    Some("another program listens there; choose another port or path")
                }
                std::io::ErrorKind::NotFound => Some("make the directory first, or choose another path"),
                _ if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Some(NO_FAMILY),
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
        let (socket, name) = match place.bound() {
            Err(error) if net::is_for_want_of_ipv6(&error) => match place.all_of_ipv4() {
                Some(place) => {
                    ucs::log::debug!("no IPv6 here ({error}): listening at {place}");
                    place.bound()
                }
                None => Err(error),
            },
            bound => bound,
        }
        .map_err(failed)?;
        socket.listen(backlog).map_err(failed)?;
        let place = match socket.local_addr().ok().and_then(|address| address.as_socket()) {
            Some(address) => Place::Ip(address),
            None => place.clone(),
        };
        let socket =
            reactor.watch(Raw(socket)).map_err(|error| failed(std::io::Error::other(error.to_string())))?;
        Ok(ListeningSocket { _name: name, socket, place })
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The next caller.
    pub(crate) fn poll_accept(
        &self,
        reactor: &Rc<Reactor>,
        context: &mut Context<'_>,
    ) -> Poll<Result<FrameSocket>> {
        self.socket.poll_read(context, |raw| raw.0.accept()).map(|accepted| {
            let failed = |reason: String| {
                Error::new(Stage::Listen, self.place.to_string(), ucs::Error::IO_ERROR, reason)
            };
            let (socket, address) = accepted.map_err(|error| failed(error.to_string()))?;
            socket.set_nonblocking(true).map_err(|error| failed(error.to_string()))?;
            let address = address.as_socket();
            let peer = match address {
                Some(address) => address.to_string(),
                None => format!("a program at {}", self.place),
            };
            let socket = watch(reactor, socket).map_err(|error| failed(error.to_string()))?;
            Ok(FrameSocket::over(reactor, HandshakeLink::of_socket(socket, address), peer))
        })
    }
}

impl FrameSocket {
    /// Over what a connection manager has connected to a peer at `address`.
    pub(crate) fn of_channel(
        reactor: &Rc<Reactor>,
        channel: Channel,
        peer: String,
        address: SocketAddr,
    ) -> FrameSocket {
        FrameSocket::over(reactor, HandshakeLink::Channel(Box::new(channel), address), peer)
    }

    fn over(reactor: &Rc<Reactor>, link: HandshakeLink, peer: String) -> FrameSocket {
        FrameSocket {
            link,
            peer,
            #[cfg(feature = "tls")]
            session: RefCell::new(None),
            #[cfg(feature = "tls")]
            is_securing: Cell::new(false),
            #[cfg(feature = "tls")]
            is_over: Cell::new(false),
            _underway: reactor.begin_handshake(),
        }
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    /// See [`HandshakeLink::ends`].
    pub(crate) fn ends(&self) -> Option<(&Iface, &IfaceAddress)> {
        self.link.ends()
    }

    /// See [`HandshakeLink::origin`].
    pub(crate) fn origin(&self) -> Origin {
        self.link.origin()
    }

    /// See [`HandshakeLink::is_among_last`].
    pub(crate) fn is_among_last(&self, reserved: u32) -> bool {
        self.link.is_among_last(reserved)
    }

    /// Whether the peer has proved by TLS who it is.
    pub(crate) fn is_certified(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.session.borrow().as_ref().is_some_and(|session| !session.peer().certificates.is_empty());
        #[cfg(not(feature = "tls"))]
        false
    }

    /// What both sides of TLS know and nobody else does, if frames go inside it.
    #[cfg(feature = "tls")]
    pub(crate) fn binding(&self) -> Result<Option<[u8; 32]>> {
        let binding = self.session.borrow().as_ref().map(Session::binding).transpose();
        binding.map_err(|error| {
            self.failed(ucs::Error::IO_ERROR, format!("TLS has no key for this side: {error}"))
        })
    }

    /// Whether a peer may be sent frames: not while TLS is being set up.
    pub(crate) fn takes_frames(&self) -> bool {
        #[cfg(feature = "tls")]
        return !self.is_securing.get();
        #[cfg(not(feature = "tls"))]
        true
    }

    /// See [`HandshakeLink::suits`].
    pub(crate) fn suits(&self, iface: &Iface) -> bool {
        self.link.suits(iface)
    }

    /// See [`HandshakeLink::hand_over`]. No frame is sent or received any more.
    pub(crate) fn hand_over(&self, conn: &Rc<Conn>, peer: Token) -> std::io::Result<LaneSource> {
        self.link.hand_over(conn, peer)
    }

    /// The socket for a lane inside TLS, and the session so far; `None` if there is no socket or no session. No frame is sent or received
    /// any more.
    #[cfg(feature = "tls")]
    pub(crate) fn hand_over_secured(&self) -> Option<std::io::Result<(OwnedFd, Session)>> {
        let socket = self.link.socket()?;
        let session = self.session.take()?;
        self.is_over.set(true);
        Some(socket.try_clone_to_owned().map(|socket| (socket, session)))
    }

    /// Calls a listener, from an address of this machine if one is given.
    pub(crate) async fn dial(
        reactor: &Rc<Reactor>,
        place: &Place,
        source: Option<SocketAddr>,
    ) -> Result<FrameSocket> {
        let failed = |error: std::io::Error| dial_failed(place, &error);
        let (socket, address) = place.socket().map_err(failed)?;
        if let Some(source) = source {
            socket.bind(&source.into()).map_err(|error| source_refused(place, source, &error))?;
        }
        loop {
            match socket.connect(&address) {
                Ok(()) => break,
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => break,
                // The queue of a Unix listener is full, and no event reports when it has room.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    reactor.sleep(FULL_QUEUE).await;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let _underway = reactor.begin_handshake();
        let socket =
            watch(reactor, socket).map_err(|error| failed(std::io::Error::other(error.to_string())))?;
        let connected = std::future::poll_fn(|context| {
            socket.poll_write(context, |raw| match raw.0.take_error()? {
                Some(error) => Err(error),
                None => match raw.0.peer_addr() {
                    Ok(address) => Ok(address.as_socket()),
                    Err(error) if error.kind() == std::io::ErrorKind::NotConnected => {
                        Err(std::io::ErrorKind::WouldBlock.into())
                    }
                    Err(error) => Err(error),
                },
            })
        });
        let peer = connected.await.map_err(failed)?;
        Ok(FrameSocket::over(reactor, HandshakeLink::of_socket(socket, peer), place.to_string()))
    }

    /// Sends the bytes of a frame.
    pub(crate) async fn send(&self, bytes: &[u8]) -> Result {
        let mut sent = 0;
        std::future::poll_fn(|context| {
            self.link.poll_write(context, |link| {
                while sent < bytes.len() {
                    sent += self.write_some(link, &bytes[sent..])?;
                }
                self.flush(link)
            })
        })
        .await
        .map_err(|error| self.lost(&error))
    }

    /// Receives a frame.
    pub(crate) async fn receive(&self) -> Result<RawFrame> {
        let mut magic = [0; 4];
        self.read(&mut magic).await?;
        if is_tls(magic) {
            return Err(self.failed(ucs::Error::UNSUPPORTED, NO_TLS.to_owned()));
        }
        check_magic(magic)
            .map_err(|error| self.bad(error).hint("check the port: a program without uct-net uses it"))?;
        self.receive_behind(&magic).await
    }

    fn bad(&self, error: BadFrame) -> Error {
        let status = if error.is_newer { ucs::Error::UNSUPPORTED } else { ucs::Error::IO_ERROR };
        self.failed(status, error.reason)
    }

    /// Receives the rest of a frame, of which these bytes have come.
    async fn receive_behind(&self, first: &[u8]) -> Result<RawFrame> {
        let mut header = [0; HEADER];
        let (begun, rest) = header.split_at_mut(first.len());
        begun.copy_from_slice(first);
        self.read(rest).await?;
        let (what, length) = parse_header(&header).map_err(|error| self.bad(error))?;
        let mut body = Vec::new();
        // Memory is taken for what arrives, not for what is announced.
        while body.len() < length {
            let filled = body.len();
            body.resize(length.min(filled + CHUNK), 0);
            self.read(&mut body[filled..]).await?;
        }
        Ok(RawFrame { what, body })
    }

    async fn read(&self, buffer: &mut [u8]) -> Result {
        let mut filled = 0;
        let outcome = std::future::poll_fn(|context| {
            self.link.poll_read(context, |link| {
                while filled < buffer.len() {
                    match self.read_some(link, &mut buffer[filled..])? {
                        0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                        count => filled += count,
                    }
                }
                Ok(())
            })
        })
        .await;
        outcome.map_err(|error| self.lost(&error))
    }

    fn read_some(&self, link: &mut dyn Bytes, buffer: &mut [u8]) -> std::io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut *self.session.borrow_mut() {
            return session.read(link, buffer);
        }
        #[cfg(feature = "tls")]
        self.check()?;
        link.read(buffer)
    }

    fn write_some(&self, link: &mut dyn Bytes, bytes: &[u8]) -> std::io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut *self.session.borrow_mut() {
            return session.write(link, bytes);
        }
        #[cfg(feature = "tls")]
        self.check()?;
        link.write(bytes)
    }

    /// Refuses frames over a socket whose session was handed over.
    #[cfg(feature = "tls")]
    fn check(&self) -> std::io::Result<()> {
        if self.is_over.get() { Err(std::io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }

    /// Sends what is encrypted or written and has not left.
    fn flush(&self, link: &mut dyn Bytes) -> std::io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(session) = &mut *self.session.borrow_mut() {
            session.flush(link)?;
        }
        link.flush()
    }

    /// Sends and receives inside TLS from now on, once both sides have proved what they have to.
    #[cfg(feature = "tls")]
    pub(crate) async fn secure(&self, session: Session) -> Result<TlsPeer> {
        let session = RefCell::new(session);
        let outcome = std::future::poll_fn(|context| {
            let mut session = session.borrow_mut();
            loop {
                if session.wants_write() {
                    self.is_securing.set(true);
                }
                std::task::ready!(self.link.poll_write(context, |link| session.flush(link)))?;
                if !session.is_handshaking() {
                    return Poll::Ready(Ok(session.peer()));
                }
                std::task::ready!(self.link.poll_read(context, |link| session.advance(link)))?;
            }
        });
        match outcome.await {
            Ok(peer) => {
                self.is_securing.set(false);
                *self.session.borrow_mut() = Some(session.into_inner());
                Ok(peer)
            }
            Err(error) => {
                let is_caller = session.borrow().is_client();
                let refusal = if is_caller { self.refused_in_clear(&error).await } else { None };
                Err(refusal.unwrap_or_else(|| self.lost(&error)))
            }
        }
    }

    /// What a listener says that refuses this side before it has begun TLS. Nothing proves who has said it.
    #[cfg(feature = "tls")]
    async fn refused_in_clear(&self, error: &std::io::Error) -> Option<Error> {
        let RawFrame { what, body } = self.receive_behind(session::no_tls(error)?).await.ok()?;
        let Ok(Frame::Refused { reason }) = Frame::parse(what, &body) else { return None };
        let reason =
            format!("the peer rejected the connection ahead of TLS, without a proof of who it is: {reason}");
        Some(self.failed(ucs::Error::REJECTED, reason))
    }

    /// Ends its direction, and waits until the peer has hung up: a socket that is closed with unread bytes may lose what was sent last.
    pub(crate) async fn part(&self) {
        self.link.shut_down();
        let (mut chunk, mut left) = (vec![0; CHUNK], MOST_DISCARDED);
        let mut discard = |link: &mut dyn Bytes| loop {
            match link.read(&mut chunk)? {
                count @ 1.. if count < left => left -= count,
                _ => return Ok(()),
            }
        };
        // However it ends, it is over.
        let _ = std::future::poll_fn(|context| self.link.poll_read(context, &mut discard)).await;
    }

    /// What an error of the socket means.
    fn lost(&self, error: &std::io::Error) -> Error {
        #[cfg(feature = "tls")]
        if let Some((reason, hint)) = session::words(error) {
            let status =
                if session::is_foreign(error) { ucs::Error::UNSUPPORTED } else { ucs::Error::REJECTED };
            let failure = self.failed(status, reason);
            return if hint.is_empty() { failure } else { failure.hint(hint) };
        }
        if let Some(forked) = error.get_ref().and_then(|cause| cause.downcast_ref::<Forked>()) {
            return Error::forked(Stage::Handshake, &*self.peer, *forked);
        }
        // One of a connection manager's connection.
        if let Some(failure) = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) {
            return self.failed(failure.status, failure.reason.clone());
        }
        let reason = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "the peer hung up".to_owned(),
            _ => format!("the peer is gone: {error}"),
        };
        self.failed(ucs::Error::CONNECTION_RESET, reason)
    }

    pub(crate) fn failed(&self, status: ucs::Error, reason: String) -> Error {
        Error::new(Stage::Handshake, &*self.peer, status, reason)
    }
}

fn source_refused(place: &Place, source: SocketAddr, error: &std::io::Error) -> Error {
    let reason = format!("it cannot be called from {source}: {error}");
    Error::new(Stage::Dial, place.to_string(), status_of(error), reason)
        .hint("give an address that `ip addr` shows, with port 0")
}

fn dial_failed(place: &Place, error: &std::io::Error) -> Error {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, NotFound};
    let hint = match error.kind() {
        ConnectionRefused => "no program listens there: start the server first, and check the port",
        NotFound => "there is no such path: start the server first",
        NetworkUnreachable | HostUnreachable => "no route leads there: check the address and the network",
        _ if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => NO_FAMILY,
        _ => "",
    };
    let failure = Error::new(Stage::Dial, place.to_string(), status_of(error), error.to_string());
    if hint.is_empty() { failure } else { failure.hint(hint) }
}

fn status_of(error: &std::io::Error) -> ucs::Error {
    if error.kind() == std::io::ErrorKind::AddrInUse {
        return ucs::Error::BUSY;
    }
    error.raw_os_error().map_or(ucs::Error::IO_ERROR, ucs::Error::from_errno)
}
