//! The out-of-band connection: over it the two sides agree on what to measure, synchronise, and tell each other
//! how it ended. Built on a socket; used by the set-up and the waiting loops.
//!
//! A connection begins with a handshake of 8 bytes. Frames follow: kind (1 byte), length (4 bytes, little-endian), body.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use uct_tools_common::Failure;

/// Largest body that is accepted, in bytes.
const LIMIT: usize = 16 << 20;
const GREETING: &[u8; 8] = b"UCTPERF1";
const HEADER: usize = 5;
/// Time for which a client retries while there is no listener.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// Time limit for the handshake of a client.
const GREETING_PATIENCE: Duration = Duration::from_secs(5);

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// All interfaces of one side.
    Addresses = 1,
    /// What the client wants to measure.
    Plan = 2,
    /// The address of an endpoint; empty where none is needed.
    Endpoint = 3,
    /// Memory that the peer may access.
    Memory = 4,
    /// This side is ready for the next case.
    Ready = 5,
    /// The server's figures of a case.
    Report = 6,
    /// The client is still at it.
    Alive = 7,
    /// All is done.
    Done = 8,
    /// One side gives up; a human-readable reason.
    Failed = 9,
}

/// The connection. Receiving never blocks: [`Oob::take`] returns what has arrived.
pub(crate) struct Oob {
    stream: Stream,
    patience: Duration,
    incoming: Vec<u8>,
    frames: VecDeque<(u8, Vec<u8>)>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Oob {
    /// Connects to the server; tries again while there is no listener yet, for a moment.
    pub(crate) fn connect(host: &str, port: u16, patience: Duration) -> Result<Oob, Failure> {
        let addresses: Vec<SocketAddr> = (host, port)
            .to_socket_addrs()
            .map_err(|error| format!("server {host:?}: {error}; expected a host name or an address"))?
            .collect();
        let until = Instant::now() + CONNECT_PATIENCE.min(patience);
        let mut last = format!("{host:?} has no address");
        loop {
            for address in &addresses {
                let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                match TcpStream::connect_timeout(address, left) {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        let mut oob = Oob::new(Stream::Tcp(stream), patience)?;
                        oob.greet()?;
                        return Ok(oob);
                    }
                    Err(error) => last = format!("{address}: {error}"),
                }
            }
            if Instant::now() >= until {
                let advice = format!("start one there with: uct_perftest -p {port}");
                return Err(format!("no server at {last}; {advice}").into());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for a client. Other connections are closed.
    pub(crate) fn accept(port: u16, patience: Duration) -> Result<Oob, Failure> {
        let listener = listen(port)?;
        listener.set_nonblocking(true)?;
        let until = Instant::now() + patience;
        loop {
            match listener.accept() {
                Ok((stream, peer)) => match Oob::welcome(stream, patience) {
                    Ok(oob) => return Ok(oob),
                    Err(failure) => tracing::warn!("{peer} is no client: {failure}"),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() >= until {
                        let waited = patience.as_secs_f64();
                        return Err(format!(
                            "no client came within {waited} s; start one with: uct_perftest -p {port} HOST, or wait \
                             longer with --timeout"
                        )
                        .into());
                    }
                    thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(format!("cannot accept a client on port {port}: {error}").into()),
            }
        }
    }

    /// Two ends within this process.
    pub(crate) fn pair(patience: Duration) -> Result<(Oob, Oob), Failure> {
        let (left, right) = UnixStream::pair()?;
        Ok((Oob::new(Stream::Unix(left), patience)?, Oob::new(Stream::Unix(right), patience)?))
    }

    fn welcome(stream: TcpStream, patience: Duration) -> Result<Oob, Failure> {
        stream.set_nodelay(true)?;
        let mut oob = Oob::new(Stream::Tcp(stream), patience)?;
        oob.greet()?;
        Ok(oob)
    }

    fn new(stream: Stream, patience: Duration) -> Result<Oob, Failure> {
        stream.set_nonblocking()?;
        Ok(Oob { stream, patience, incoming: Vec::new(), frames: VecDeque::new() })
    }

    fn greet(&mut self) -> Result<(), Failure> {
        self.write(GREETING)?;
        let until = Instant::now() + GREETING_PATIENCE.min(self.patience);
        let mut greeting = [0; GREETING.len()];
        let mut filled = 0;
        while filled < greeting.len() {
            match self.stream.read(&mut greeting[filled..]) {
                Ok(0) => return Err("it closed the connection ahead of a greeting".into()),
                Ok(count) => filled += count,
                Err(error) if is_idle(&error) && Instant::now() < until => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) if is_idle(&error) => return Err("it says nothing".into()),
                Err(error) => return Err(error.into()),
            }
        }
        if greeting != *GREETING {
            let (found, expected) = (greeting.escape_ascii(), GREETING.escape_ascii());
            return Err(format!(
                "it is no uct_perftest of this version: it says {found:?}, expected {expected:?}"
            )
            .into());
        }
        Ok(())
    }

    /// Sends a frame. Waits while the peer does not read.
    pub(crate) fn send(&mut self, kind: Kind, body: &[u8]) -> Result<(), Failure> {
        let mut frame = vec![kind as u8];
        frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
        frame.extend_from_slice(body);
        self.write(&frame)
    }

    /// Sends a frame with a value.
    pub(crate) fn send_value(&mut self, kind: Kind, value: &impl Serialize) -> Result<(), Failure> {
        self.send(kind, &serde_json::to_vec(value)?)
    }

    /// The next frame if it has arrived; an error if it is of another kind, if the peer gave up, or if it is gone.
    pub(crate) fn take(&mut self, kind: Kind) -> Result<Option<Vec<u8>>, Failure> {
        let gone = self.fill();
        while let Some((found, body)) = self.frames.pop_front() {
            if found == Kind::Failed as u8 {
                return Err(format!("the peer gave up: {}", String::from_utf8_lossy(&body)).into());
            }
            if found == kind as u8 {
                return Ok(Some(body));
            }
            if found != Kind::Alive as u8 {
                return Err(format!("the peer sent a frame of kind {found}, expected {kind:?}").into());
            }
        }
        gone.map(|()| None)
    }

    /// Checks for a sign of life while something else is going on; returns whether there was one.
    pub(crate) fn look(&mut self) -> Result<bool, Failure> {
        let gone = self.fill();
        let before = self.frames.len();
        self.frames.retain(|(kind, _)| *kind != Kind::Alive as u8);
        if let Some(failure) = self.reason() {
            return Err(failure);
        }
        if self.frames.is_empty() {
            gone?;
        }
        Ok(self.frames.len() < before)
    }

    /// Why the peer gave up, if it did.
    pub(crate) fn given_up(&mut self) -> Option<Failure> {
        let _ = self.fill();
        self.reason()
    }

    fn reason(&self) -> Option<Failure> {
        let (_, body) = self.frames.iter().find(|(kind, _)| *kind == Kind::Failed as u8)?;
        Some(format!("the peer gave up: {}", String::from_utf8_lossy(body)).into())
    }

    /// Waits for a frame of a kind, with `turn` called over and over meanwhile.
    pub(crate) fn receive(
        &mut self,
        kind: Kind,
        mut turn: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Vec<u8>, Failure> {
        let start = Instant::now();
        loop {
            if let Some(body) = self.take(kind)? {
                return Ok(body);
            }
            turn()?;
            let waited = start.elapsed();
            if waited > self.patience {
                return Err(format!(
                    "the peer did not answer within {} s; allow more with --timeout",
                    self.patience.as_secs_f64()
                )
                .into());
            }
            // At first the peer is about to reply; later another process may need this processor.
            if waited < Duration::from_millis(2) {
                thread::yield_now();
            } else {
                thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// As [`Oob::receive`], for a frame with a value.
    pub(crate) fn receive_value<T: DeserializeOwned>(
        &mut self,
        kind: Kind,
        turn: impl FnMut() -> Result<(), Failure>,
    ) -> Result<T, Failure> {
        let body = self.receive(kind, turn)?;
        serde_json::from_slice(&body)
            .map_err(|error| format!("the peer's frame {kind:?} makes no sense: {error}").into())
    }

    /// Tells the peer why this side gives up, as far as it still listens, and passes the reason on.
    pub(crate) fn give_up(&mut self, failure: Failure) -> Failure {
        let _ = self.send(Kind::Failed, failure.to_string().as_bytes());
        failure
    }

    /// Reads what there is into `frames`.
    fn fill(&mut self) -> Result<(), Failure> {
        let mut buffer = [0; 4096];
        let end = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break Err("the peer is gone; see its own message".into()),
                Ok(count) => self.incoming.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(broken(&error)),
            }
        };
        let mut start = 0;
        while let Some(&[kind, a, b, c, d]) = self.incoming[start..].first_chunk::<HEADER>() {
            let length = u32::from_le_bytes([a, b, c, d]) as usize;
            if length > LIMIT {
                return Err(format!(
                    "the peer announces a frame of {length} bytes, at most {LIMIT} are accepted"
                )
                .into());
            }
            let Some(body) = self.incoming[start + HEADER..].get(..length) else { break };
            self.frames.push_back((kind, body.to_vec()));
            start += HEADER + length;
        }
        self.incoming.drain(..start);
        end
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        let until = Instant::now() + self.patience;
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_idle(&error) && Instant::now() < until => {
                    thread::sleep(Duration::from_micros(100));
                }
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(())
    }
}

fn broken(error: &io::Error) -> Failure {
    format!("the connection to the peer broke: {error}; see the peer's own message").into()
}

fn is_idle(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Listens for IPv6 and IPv4, or for IPv4 alone where there is no IPv6.
fn listen(port: u16) -> Result<TcpListener, Failure> {
    let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let mut outcome = TcpListener::bind((any[0], port));
    if outcome.as_ref().is_err_and(|error| error.kind() != ErrorKind::AddrInUse) {
        outcome = TcpListener::bind((any[1], port));
    }
    outcome.map_err(|error| {
        format!("cannot listen on port {port}: {error}; choose another one with -p on both sides").into()
    })
}

impl Stream {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn frames_arrive_in_order_and_signs_of_life_are_not_among_them() {
        let (mut left, mut right) = Oob::pair(PATIENCE).unwrap();
        assert!(right.take(Kind::Ready).unwrap().is_none());
        left.send(Kind::Alive, &[]).unwrap();
        left.send(Kind::Ready, b"one").unwrap();
        left.send(Kind::Ready, b"two").unwrap();
        assert!(right.look().unwrap());
        assert!(!right.look().unwrap());
        assert_eq!(right.take(Kind::Ready).unwrap().unwrap(), b"one");
        assert_eq!(right.receive(Kind::Ready, || Ok(())).unwrap(), b"two");
        assert!(right.take(Kind::Ready).unwrap().is_none());
    }

    #[test]
    fn a_peer_that_gives_up_goes_away_or_is_out_of_step_is_an_error() {
        let (mut left, mut right) = Oob::pair(PATIENCE).unwrap();
        left.give_up("no more".into());
        assert!(right.look().unwrap_err().to_string().contains("no more"));
        assert!(right.take(Kind::Ready).unwrap_err().to_string().contains("no more"));
        left.send(Kind::Done, &[]).unwrap();
        drop(left);
        assert!(right.take(Kind::Ready).unwrap_err().to_string().contains("expected Ready"));
        assert!(right.take(Kind::Ready).unwrap_err().to_string().contains("gone"));
    }

    #[test]
    fn an_absurd_length_is_refused() {
        let (mut left, mut right) = Oob::pair(PATIENCE).unwrap();
        left.write(&[Kind::Ready as u8, 255, 255, 255, 255]).unwrap();
        assert!(right.take(Kind::Ready).unwrap_err().to_string().contains("at most"));
    }
}
