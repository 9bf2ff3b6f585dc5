//! Another process of an example, and frames of bytes to and from it.
//!
//! For `connect`, and the programs. Built on sockets of the standard library. A frame is its length (4 bytes,
//! little-endian) and that many bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use uct_core::Worker;

/// Whatever ends an example early, as the line that it prints.
pub type Failure = Box<dyn std::error::Error>;

/// How long an example waits for anything.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Longest frame that is accepted.
const LONGEST: usize = 1 << 20;

/// The last argument of a process that another one started.
const STARTED: &str = "started-by-the-example";

/// The other process.
pub struct Peer {
    stream: Box<dyn Stream>,
    /// What was received and not yet asked for.
    received: Vec<u8>,
    /// The process, if this one started it.
    child: Option<Child>,
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Runs `first` in this process and `second` in another one.
pub fn two_processes(
    first: fn(&mut Peer) -> Result<(), Failure>,
    second: fn(&mut Peer) -> Result<(), Failure>,
) -> ExitCode {
    with_peers(1, |peers| first(&mut peers[0]), second)
}

/// Runs `first` in this process, and `other` in `count` others.
pub fn with_peers(
    count: usize,
    first: impl FnOnce(&mut [Peer]) -> Result<(), Failure>,
    other: fn(&mut Peer) -> Result<(), Failure>,
) -> ExitCode {
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::stderr).init();
    let is_started = std::env::args().next_back().as_deref() == Some(STARTED);
    let outcome = if is_started {
        Peer::who_started_this().and_then(|mut peer| other(&mut peer))
    } else {
        start_and_run(count, first)
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn start_and_run(
    count: usize,
    first: impl FnOnce(&mut [Peer]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut peers = (0..count).map(|_| Peer::start()).collect::<Result<Vec<_>, _>>()?;
    first(&mut peers)?;
    peers.into_iter().try_for_each(Peer::finish)
}

impl Peer {
    /// Waits for a process to call on this port (0: any), which is printed.
    ///
    /// # Errors
    /// The port is in use, or no peer connected within [`LIMIT`].
    pub fn listen(port: u16) -> Result<Peer, Failure> {
        let listener = TcpListener::bind(("0.0.0.0", port))
            .map_err(|error| format!("cannot listen on port {port}: {error}; choose another one"))?;
        listener.set_nonblocking(true)?;
        println!("waiting on port {}", listener.local_addr()?.port());
        let deadline = Instant::now() + LIMIT;
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Peer::over(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(format!("nobody called on port {port}: {error}").into()),
            }
        }
    }

    /// Calls a process that listens.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn call(host: &str, port: u16) -> Result<Peer, Failure> {
        let stream = TcpStream::connect((host, port)).map_err(|error| {
            format!("nobody listens on {host}, port {port}: {error}; start the other side first")
        })?;
        Peer::over(stream)
    }

    fn over(stream: TcpStream) -> Result<Peer, Failure> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Peer { stream: Box::new(stream), received: Vec::new(), child: None })
    }

    fn start() -> Result<Peer, Failure> {
        let (own, theirs) = UnixStream::pair()?;
        own.set_nonblocking(true)?;
        let child = Command::new(std::env::current_exe()?)
            .args(std::env::args().skip(1))
            .arg(STARTED)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        Ok(Peer { stream: Box::new(own), received: Vec::new(), child: Some(child) })
    }

    fn who_started_this() -> Result<Peer, Failure> {
        let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        stream.set_nonblocking(true)?;
        Ok(Peer { stream: Box::new(stream), received: Vec::new(), child: None })
    }

    /// Whether this process started the other one.
    pub fn is_started_here(&self) -> bool {
        self.child.is_some()
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The other process has ended, or does not listen.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut frame = (bytes.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(bytes);
        self.stream
            .write_all(&frame)
            .map_err(|error| format!("cannot send to the other process: {error}").into())
    }

    /// Receives a frame, and drives the worker meanwhile: a peer may be waiting for something of ours.
    ///
    /// # Errors
    /// The other process has ended, or said nothing within [`LIMIT`].
    pub fn receive(&mut self, worker: &Worker) -> Result<Vec<u8>, Failure> {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(frame) = self.next_frame()? {
                return Ok(frame);
            }
            if worker.progress() == 0 {
                std::thread::yield_now();
            }
            if Instant::now() > deadline {
                return Err(format!("the other process said nothing for {} s", LIMIT.as_secs()).into());
            }
        }
    }

    fn next_frame(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        if let Some((length, rest)) = self.received.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > LONGEST {
                return Err(format!(
                    "a frame of {length} bytes was announced, at most {LONGEST} are accepted"
                )
                .into());
            }
            if rest.len() >= length {
                let frame = rest[..length].to_vec();
                self.received.drain(..4 + length);
                return Ok(Some(frame));
            }
        }
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err("the other process has ended; see its message".into()),
            Ok(count) => self.received.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(format!("cannot receive from the other process: {error}").into()),
        }
        Ok(None)
    }

    fn finish(mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + LIMIT;
        let Some(child) = &mut self.child else { return Ok(()) };
        while Instant::now() < deadline {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the other process failed: {status}").into()),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        Err("the other process did not end".into())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child
            && !matches!(child.try_wait(), Ok(Some(_)))
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
