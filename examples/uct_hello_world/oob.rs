//! The out-of-band connection: over TCP the two sides exchange what they have, agree, and tell each other how it
//! ended. Frames are a kind (1 byte), a length (4 bytes, little-endian) and so many bytes.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::{Failure, say};

/// Largest frame that is accepted.
const LIMIT: usize = 64 << 20;
/// What a connection begins with: the name and the version of this protocol.
const HELLO: &[u8; 8] = b"UCTHELO1";

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// All interfaces of one side.
    Addresses = 1,
    /// Which of them the client chose, and how it will send.
    Choice = 2,
    /// The address of an endpoint; empty where none is needed.
    Endpoint = 3,
    /// The string as the server received it.
    Received = 4,
    /// Both are done.
    Done = 5,
    /// One side gives up; a human-readable reason.
    Failed = 6,
}

/// The connection.
pub(crate) struct Oob {
    stream: TcpStream,
    deadline: Instant,
}

impl Oob {
    /// Connects to the server; tries again while there is no listener yet, for a moment.
    pub(crate) fn connect(name: &str, options: &Options, deadline: Instant) -> Result<Oob, Failure> {
        let port = options.server_port;
        let wanted =
            |address: &SocketAddr| address.is_ipv6() == options.ipv6 || name.parse::<IpAddr>().is_ok();
        let address = (name, port)
            .to_socket_addrs()
            .map_err(|error| format!("server {name:?}: {error}; expected a host name or an address"))?
            .find(wanted)
            .ok_or_else(|| {
                let (family, other) = if options.ipv6 { ("IPv6", "without -6") } else { ("IPv4", "with -6") };
                format!("server {name:?} has no {family} address; try {other}")
            })?;
        let patience = deadline.min(Instant::now() + Duration::from_secs(2));
        let stream = loop {
            let left = patience.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => break stream,
                Err(error)
                    if Instant::now() < patience && error.kind() == std::io::ErrorKind::ConnectionRefused =>
                {
                    thread::sleep(Duration::from_millis(50));
                }
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    return Err(format!(
                        "no server at {address}: {error}; start one with: uct_hello_world -p {port}"
                    )
                    .into());
                }
                Err(error) => return Err(format!("cannot connect to {address}: {error}").into()),
            }
        };
        Oob::greet(stream, deadline)
    }

    /// Waits for a client.
    pub(crate) fn accept(options: &Options, deadline: Instant) -> Result<Oob, Failure> {
        let any: IpAddr =
            if options.ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let address = SocketAddr::new(any, options.server_port);
        let listener = TcpListener::bind(address)
            .map_err(|error| format!("cannot listen on {address}: {error}{}", what_to_do(&error)))?;
        listener.set_nonblocking(true)?;
        // With `-p 0` the system has chosen one.
        say(&format!("Waiting for connection on port {}...\n", listener.local_addr()?.port()))?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Oob::greet(stream, deadline);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline {
                        return Err(format!(
                            "no client came within {} s; start one with -n, or wait longer with --timeout",
                            options.timeout
                        )
                        .into());
                    }
                    thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(format!("cannot accept a client on {address}: {error}").into()),
            }
        }
    }

    fn greet(stream: TcpStream, deadline: Instant) -> Result<Oob, Failure> {
        stream.set_nodelay(true)?;
        let mut oob = Oob { stream, deadline };
        oob.write(HELLO)?;
        let mut greeting = [0; HELLO.len()];
        oob.read(&mut greeting)?;
        if greeting != *HELLO {
            let peer = oob.stream.peer_addr()?;
            let found = greeting.escape_ascii();
            let expected = HELLO.escape_ascii();
            return Err(format!(
                "{peer} is no uct_hello_world of this version: it says \"{found}\", expected \"{expected}\""
            )
            .into());
        }
        Ok(oob)
    }

    /// Sends a frame.
    pub(crate) fn send(&mut self, kind: Kind, body: &[u8]) -> Result<(), Failure> {
        let mut frame = vec![kind as u8];
        frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
        frame.extend_from_slice(body);
        self.write(&frame)
    }

    /// Receives a frame of a kind. A peer that gave up instead makes its reason the error.
    pub(crate) fn receive(&mut self, kind: Kind) -> Result<Vec<u8>, Failure> {
        let mut head = [0; 5];
        self.read(&mut head)?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > LIMIT {
            return Err(format!(
                "the peer announces a frame of {length} bytes, at most {LIMIT} are accepted"
            )
            .into());
        }
        let mut body = vec![0; length];
        self.read(&mut body)?;
        if head[0] == Kind::Failed as u8 {
            return Err(format!("the peer gave up: {}", String::from_utf8_lossy(&body)).into());
        }
        if head[0] != kind as u8 {
            return Err(format!("the peer sent a frame of kind {}, expected {kind:?}", head[0]).into());
        }
        Ok(body)
    }

    /// Whether there is something to receive. Does not block.
    pub(crate) fn is_readable(&self) -> Result<bool, Failure> {
        self.stream.set_nonblocking(true)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        Ok(!matches!(peeked, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock))
    }

    /// Tells the peer why this side gives up, as far as it still listens, and passes the reason on.
    pub(crate) fn give_up(&mut self, failure: Failure) -> Failure {
        let _ = self.send(Kind::Failed, failure.to_string().as_bytes());
        failure
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<(), Failure> {
        let mut filled = 0;
        while filled < buffer.len() {
            self.stream.set_read_timeout(Some(self.left()?))?;
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => {
                    return Err(
                        "the peer closed the connection for exchanging addresses; see its own message".into(),
                    );
                }
                Ok(count) => filled += count,
                Err(error) if is_timeout(&error) => {}
                Err(error) => {
                    return Err(format!("the connection for exchanging addresses broke: {error}").into());
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream
            .write_all(bytes)
            .map_err(|error| format!("the connection for exchanging addresses broke: {error}").into())
    }

    fn left(&self) -> Result<Duration, Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err("the peer did not answer in time; allow more with --timeout".into());
        }
        Ok(left)
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut | std::io::ErrorKind::Interrupted
    )
}

/// What helps where a port cannot be had.
fn what_to_do(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{AddrInUse, PermissionDenied};
    if matches!(error.kind(), AddrInUse | PermissionDenied) { "; choose another port with -p" } else { "" }
}
