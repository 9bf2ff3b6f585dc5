//! The other process of a case: the test program runs itself again, and both exchange bytes over a socket.
//!
//! For cases with two processes. Built on `setup`. The other process ends when this one does, and never outlives its
//! case.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use uct_host::{Capabilities, IfaceAddress};

use crate::pair::{LIMIT, Link, Side, recorder};
use crate::setup::Setup;

/// Names target, seed and case to the other process.
pub(crate) const VARIABLE: &str = "UCT_TEST_PEER";

/// Longest message between the two.
const LONGEST: usize = 1 << 20;

/// The socket to the other process.
pub struct Peer {
    socket: UnixStream,
    buffer: Vec<u8>,
}

impl Peer {
    /// Communicates over this socket.
    pub fn new(socket: UnixStream) -> Peer {
        socket.set_nonblocking(true).expect("a socket can be non-blocking");
        Peer { socket, buffer: Vec::new() }
    }

    /// In a process that was started with a socket as its standard input: the other end. This process is killed when
    /// its parent ends.
    pub fn of_standard_input() -> Peer {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("the socket is the standard input");
        Peer::new(UnixStream::from(socket))
    }

    /// Sends bytes.
    #[track_caller]
    pub fn send(&mut self, message: &[u8]) {
        assert!(message.len() <= LONGEST);
        let mut frame = (message.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(message);
        let mut rest = frame.as_slice();
        let start = Instant::now();
        while !rest.is_empty() {
            match self.socket.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock && start.elapsed() < LIMIT => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("the other process cannot be told: {error}"),
            }
        }
    }

    /// Bytes, if there are any.
    #[track_caller]
    pub fn poll(&mut self) -> Option<Vec<u8>> {
        let mut chunk = [0; 4096];
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<4>() {
                let length = u32::from_le_bytes(*length) as usize;
                assert!(length <= LONGEST, "the other process sent a frame of {length} bytes");
                if rest.len() >= length {
                    let message = rest[..length].to_vec();
                    self.buffer.drain(..4 + length);
                    return Some(message);
                }
            }
            match self.socket.read(&mut chunk) {
                Ok(0) => panic!("the other process ended"),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => panic!("the other process cannot be heard: {error}"),
            }
        }
    }

    /// Waits for bytes, and calls `progress` meanwhile.
    #[track_caller]
    pub fn receive(&mut self, what: &str, mut progress: impl FnMut() -> u32) -> Vec<u8> {
        let start = Instant::now();
        loop {
            if let Some(message) = self.poll() {
                return message;
            }
            assert!(
                start.elapsed() < LIMIT,
                "{what}: nothing from the other process within {} s",
                LIMIT.as_secs()
            );
            if progress() == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Tells the other process a word.
    #[track_caller]
    pub fn say(&mut self, word: &str) {
        self.send(word.as_bytes());
    }

    /// Waits for a word of the other process.
    #[track_caller]
    pub fn expect(&mut self, word: &str, side: &Side) {
        let heard = self.receive(word, || side.worker.progress());
        assert_eq!(String::from_utf8_lossy(&heard), word, "the other process says something else");
    }

    /// Connects to the interface of the other process, which does the same.
    #[track_caller]
    pub fn connect(&mut self, side: &Side) -> Link {
        let address = side.iface.address().unwrap_or_else(|error| panic!("no address: {error}"));
        self.send(&address.pack().unwrap_or_else(|error| panic!("{error}")));
        let packed = self.receive("the address", || side.worker.progress());
        let (address, _) = IfaceAddress::unpack(&packed).unwrap_or_else(|error| panic!("{error}"));
        let (failures, handler) = recorder();
        let words = |refused: uct_host::Refused| -> ! { panic!("{refused}") };
        if side.iface.capabilities().contains(Capabilities::CONNECT_TO_IFACE) {
            let ep = side.iface.connect_with(&address, handler).unwrap_or_else(|refused| words(refused));
            return Link::new(ep, failures);
        }
        let ep = side.iface.create_ep(handler).unwrap_or_else(|refused| words(refused));
        self.send(&ep.address().unwrap_or_else(|error| panic!("no endpoint address: {error}")));
        let ep_address = self.receive("the endpoint address", || side.worker.progress());
        ep.connect_to_ep(&address, &ep_address).unwrap_or_else(|refused| words(refused));
        Link::new(ep, failures)
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The other process, seen from the case. It is killed when this is dropped.
pub struct Process {
    child: Child,
    /// The socket to it.
    pub peer: Peer,
}

impl Process {
    /// Starts the other process of the case: its `peer` function.
    pub fn start(setup: &Setup) -> Process {
        Process::start_with(setup, &[])
    }

    /// As [`Process::start`], with more variables in its environment.
    pub fn start_with(setup: &Setup, variables: &[(&str, &str)]) -> Process {
        let (near, far) = UnixStream::pair().expect("a pair of sockets");
        let program = std::env::current_exe().expect("the path of this program");
        let task = format!("{}\n{}\n{}", setup.far_target(), setup.config.seed, setup.case.name);
        let child = Command::new(program)
            .env(VARIABLE, task)
            .envs(variables.iter().copied())
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("the other process does not start: {error}"));
        Process { child, peer: Peer::new(near) }
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the other process is there");
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("the other process can be waited for");
    }

    /// Waits until it ends by itself, well, and calls `progress` meanwhile.
    #[track_caller]
    pub fn finish(&mut self, progress: impl FnMut() -> u32) {
        self.finish_in(LIMIT, progress);
    }

    /// As [`Process::finish`], with more time and nothing to do.
    #[track_caller]
    pub fn finish_within(&mut self, limit: Duration) {
        self.finish_in(limit, || 0);
    }

    #[track_caller]
    fn finish_in(&mut self, limit: Duration, mut progress: impl FnMut() -> u32) {
        let start = Instant::now();
        loop {
            match self.child.try_wait().expect("the other process can be waited for") {
                Some(status) => {
                    assert!(status.success(), "the other process failed: {status}; what it printed is above");
                    return;
                }
                None if start.elapsed() > limit => panic!("the other process does not end"),
                None => {
                    progress();
                    std::thread::sleep(Duration::from_micros(500));
                }
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the other process: the socket, and the task.
pub(crate) fn as_peer() -> Option<(String, Peer)> {
    let task = std::env::var(VARIABLE).ok()?;
    Some((task, Peer::of_standard_input()))
}
