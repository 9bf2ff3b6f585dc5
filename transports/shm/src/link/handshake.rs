//! The handshake of two interfaces: hello and welcome over the socket.
//!
//! Used by interfaces. Built on channels and the wire format. The side that connects creates the rings. The side that accepts checks the
//! peer's process, its knowledge of the interface's key, and every number in the hello, before it maps anything.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use ucs::clock::Deadline;
use ucs::log::Limited;
use ucs::sys::SystemError;
use ucs::sys::process::credentials;
use uct_plugin::{Error, Failure, Result};
use zerocopy::IntoBytes;

use crate::io::socket::{self, Credentials, Line, Received, Target};
use crate::io::{Mapping, Origin, Segment, Source, Trust, accept, attach_sysv};
use crate::link::limits::Limits;
use crate::link::pair_layout::PairLayout;
use crate::link::place::{self, Whereabouts};
use crate::link::remote::registry;
use crate::proto::addr::{IfaceAddress, ProcessName};
use crate::proto::kind::Kind;
use crate::proto::ring::{Geometry, register_heavy_barrier};
use crate::proto::wire::{self, Control, Hello, MAX_CONTROL, Side, Welcome};

/// Largest ring segment that is mapped for a peer.
const MAX_RINGS: usize = 1 << 30;

/// The facts about an interface that it sends to peers, and the limits by which it checks them.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) kind: Kind,
    pub(crate) address: IfaceAddress,
    pub(crate) origin: Origin,
    /// Which segments of peers are accepted.
    pub(crate) trust: Trust,
    /// Message sizes that the blocks of a peer's rings must hold.
    pub(crate) limits: Limits,
    /// Whether processes of other users may connect.
    pub(crate) admits_others: bool,
    /// Lines about connections that are refused.
    pub(crate) refusals: Limited,
    /// The doorbell, to be handed to peers.
    pub(crate) doorbell: Segment,
}

/// A connection of this side in its handshake.
#[derive(Debug)]
pub(crate) struct Dial {
    targets: Vec<Target>,
    process: Option<ProcessName>,
    hello: Hello,
    /// What the rings lie in, if that is a file.
    memory: Option<OwnedFd>,
    /// Connected, and the hello is not sent yet.
    line: Option<Line>,
    /// Until when it is tried.
    pub(crate) deadline: Deadline,
}

/// State of an incoming connection.
pub(crate) enum HelloState {
    /// The hello has not arrived.
    Waiting,
    /// The connection has ended, or was refused.
    Over,
    /// The hello is valid; the rings are mapped.
    Peer(Box<Hello>, Vec<OwnedFd>, PairLayout, Mapping),
}

impl Identity {
    /// The facts about this side. The peer rings the doorbell for `number`.
    fn side(&self, number: u32) -> Result<Side, Failure> {
        let registry = registry()?;
        Ok(Side {
            iface: self.address.id,
            key: self.address.key,
            table: registry.identity(),
            beacon: registry.beacon().address(),
            doorbell_number: number,
            heavy_barrier: register_heavy_barrier().into(),
        })
    }

    /// The descriptors that every peer gets: doorbell and table.
    fn descriptors(&self) -> Result<[BorrowedFd<'_>; 2], Failure> {
        match (&self.doorbell.source, &registry()?.table().source) {
            (Source::File(doorbell), Source::File(table)) => Ok([doorbell.as_fd(), table.as_fd()]),
            _ => Err(Failure::new(Error::SHMEM_SEGMENT, "doorbell and table are not files")),
        }
    }

    /// Prepares to connect to a peer: makes rings and a hello.
    pub(crate) fn dial(
        &self,
        number: u32,
        peer: &Whereabouts,
        directory: Option<&Path>,
        timeout: Duration,
        shape: Geometry,
    ) -> Result<(Dial, PairLayout, Mapping), Failure> {
        let rings =
            PairLayout::new(shape, shape).map_err(|reason| Failure::new(Error::INVALID_PARAM, reason))?;
        let targets: Vec<Target> = [Some(peer.routes.0), peer.routes.1]
            .into_iter()
            .flatten()
            .filter_map(|route| place::target(peer.iface.id, route, directory))
            .collect::<Result<_, SystemError>>()
            .map_err(|error| Failure::new(Error::UNREACHABLE, error.to_string()))?;
        let Segment { mapping, source } = Segment::new(&self.origin, rings.size(), false)
            .map_err(|error| Failure::new(Error::SHMEM_SEGMENT, error.to_string()))?;
        let (sysv_segment, memory) = match source {
            Source::File(fd) => (-1, Some(fd)),
            Source::Sysv(id) => (id, None),
        };
        let hello = Hello {
            from: self.side(number)?,
            to_key: peer.iface.key,
            sysv_segment,
            kind: self.kind as u32,
            knows_process: 0,
            reserved: 0,
            forward: shape.into(),
            backward: shape.into(),
        };
        let deadline = Deadline::after(timeout);
        let dial = Dial { targets, process: peer.process, hello, memory, line: None, deadline };
        Ok((dial, rings, mapping))
    }

    /// Connects and sends the hello, without waiting for the welcome. `None`: the peer's queue is full; repeat it later.
    pub(crate) fn go_on(&self, dial: &mut Dial) -> Result<Option<Line>, Failure> {
        let unreachable = |reason: String| Failure::new(Error::UNREACHABLE, reason);
        let (socket, peer) = match dial.line.take() {
            Some(line) => line,
            None => match self.reach(dial).map_err(unreachable)? {
                Some(line) => line,
                None => return Ok(None),
            },
        };
        let [doorbell, table] = self.descriptors()?;
        let memory = dial.memory.as_ref().map(AsFd::as_fd);
        let descriptors: Vec<_> = [Some(doorbell), Some(table), memory].into_iter().flatten().collect();
        dial.hello.knows_process = (peer.pid != 0).into();
        let message = wire::control(Control::Hello, dial.hello.as_bytes());
        match socket::send(socket.as_fd(), &message, &descriptors) {
            // Closed already: the refusal can be read.
            Ok(()) | Err(Errno::PIPE) => Ok(Some((socket, peer))),
            // The system has no room for it, or for more descriptors in flight.
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => {
                dial.line = Some((socket, peer));
                Ok(None)
            }
            Err(errno) => Err(Failure::system("cannot send a hello to the peer", &errno.into())),
        }
    }

    /// Connects by the first name that leads to the peer.
    fn reach(&self, dial: &Dial) -> Result<Option<Line>, String> {
        let (mut refusal, mut is_full) = (None, false);
        for target in &dial.targets {
            match target.connect() {
                Ok(socket) => match self.admit(socket.as_fd(), dial.process) {
                    Ok(peer) => return Ok(Some((socket, peer))),
                    Err(reason) => refusal = refusal.or(Some(reason)),
                },
                // Another name can lead to another process, which is noticed only where the right one is known.
                Err(error) if error.errno == libc::EAGAIN && dial.process.is_none() => return Ok(None),
                Err(error) if error.errno == libc::EAGAIN => is_full = true,
                Err(error) => refusal = refusal.or(Some(error.to_string())),
            }
        }
        match refusal {
            Some(reason) if !is_full => Err(reason),
            _ => Ok(None),
        }
    }

    /// Receives the hello of an incoming connection. If it is refused, the reason is sent to the peer.
    pub(crate) fn receive_hello(&self, socket: BorrowedFd<'_>, peer: Credentials) -> HelloState {
        let mut buffer = [0; MAX_CONTROL];
        let (length, fds) = match socket::receive(socket, &mut buffer) {
            Received::Nothing => return HelloState::Waiting,
            Received::Closed => return HelloState::Over,
            Received::Message(length, fds) => (length, fds),
        };
        match self.check_hello(peer, &buffer[..length], &fds) {
            Ok((hello, rings, memory)) => HelloState::Peer(Box::new(hello), fds, rings, memory),
            Err(reason) => {
                self.refuse(socket, &reason);
                HelloState::Over
            }
        }
    }

    /// Sends a peer the reason why it is not accepted.
    pub(crate) fn refuse(&self, socket: BorrowedFd<'_>, reason: &str) {
        if let Some(left_out) = self.refusals.admit() {
            ucs::log::debug!("a connection is refused: {reason}{left_out}");
        }
        // Unread messages at the close of a socket would replace the refusal.
        socket::skip(socket);
        let words = &reason.as_bytes()[..reason.len().min(MAX_CONTROL / 2)];
        // A peer that does not read is refused, too.
        let _ = socket::send(socket, &wire::control(Control::Refusal, words), &[]);
    }

    fn check_hello(
        &self,
        peer: Credentials,
        message: &[u8],
        fds: &[OwnedFd],
    ) -> Result<(Hello, PairLayout, Mapping), String> {
        let (kind, body) = wire::parse_control(message)?;
        if kind != Control::Hello {
            return Err("the first message is not a hello".to_owned());
        }
        let hello: Hello = wire::body(body)?;
        if hello.to_key != self.address.key || hello.kind != self.kind as u32 {
            return Err("the key is not that of this interface".to_owned());
        }
        let rings = PairLayout::new(hello.forward.into(), hello.backward.into())?;
        self.check_blocks(&rings)?;
        if rings.size() > MAX_RINGS {
            return Err(format!("rings of {} bytes", rings.size()));
        }
        let memory = if self.kind == Kind::Sysv {
            attach_sysv(hello.sysv_segment, rings.size(), peer, self.trust)
        } else {
            let fd = fds.get(2).ok_or("the hello has no descriptor of the rings")?;
            accept(fd.as_fd(), rings.size(), true, self.trust)
        };
        Ok((hello, rings, memory.map_err(|error| error.to_string())?))
    }

    /// Whether all that this side sends fits into the ring towards the peer.
    fn check_blocks(&self, rings: &PairLayout) -> Result<(), String> {
        let (small, bulk) = rings.capacities();
        let check = |found: usize, needed: usize, key: &str| {
            if found >= needed {
                return Ok(());
            }
            Err(format!(
                "messages to the peer may have {found} bytes, where those of this side have up to {needed}; set {key} to one \
                 value in both"
            ))
        };
        check(bulk, self.limits.bulk, "UCT_SHM_SEG_SIZE")?;
        check(small.max(bulk), self.limits.short, "UCT_SHM_SMALL_SEG_SIZE")
    }

    /// Accepts: sends the welcome. `shares` as in [`Welcome`].
    pub(crate) fn welcome(&self, socket: BorrowedFd<'_>, number: u32, shares: u32) -> Result<(), Failure> {
        let welcome = Welcome { from: self.side(number)?, shares, reserved: 0 };
        socket::send(socket, &wire::control(Control::Welcome, welcome.as_bytes()), &self.descriptors()?)
            .map_err(|errno| Failure::system("cannot send a welcome to the peer", &errno.into()))
    }

    /// Whether the process at the other end may be talked to at all, and is `process` if that is known.
    /// Returns that process.
    pub(crate) fn admit(
        &self,
        socket: BorrowedFd<'_>,
        process: Option<ProcessName>,
    ) -> Result<Credentials, String> {
        let peer = socket::peer_credentials(socket).map_err(|error| error.to_string())?;
        let own = credentials().effective_uid;
        if !self.admits_others && peer.uid != own && peer.uid != 0 {
            return Err(format!(
                "the peer runs as user {}, this process as user {own}; set UCT_SHM_PEERS=any in both to allow that",
                peer.uid
            ));
        }
        match process {
            Some(process) if !process.is(peer.pid, peer.uid) => Err(format!(
                "the address is that of {process}, but {peer} listens there: the process of the address has most likely \
                 ended"
            )),
            _ => Ok(peer),
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::proto::addr::Route;
    use crate::proto::ring::Pool;

    const SHAPE: Geometry = Geometry {
        slots: 64,
        first: 16,
        small: Pool { count: 8, stride: 1024 },
        bulk: Pool { count: 4, stride: 65_536 },
    };

    fn identity() -> Identity {
        Identity {
            kind: Kind::Posix,
            address: IfaceAddress { id: 5, key: 6, uid: 0, pid: std::process::id() },
            origin: Origin::Memfd,
            trust: Trust::SEALED,
            limits: Limits { short: 2048, bulk: 32_768, remote: 32_000 },
            admits_others: false,
            refusals: Limited::default(),
            doorbell: Segment::new(&Origin::Memfd, 4096, false).unwrap(),
        }
    }

    /// The result of a hello to an identity. `change` makes the hello wrong, and `missing` bytes are missing from the rings.
    fn said(change: impl FnOnce(&mut Hello), missing: usize) -> Result<(), String> {
        let identity = identity();
        let mut hello = Hello {
            from: identity.side(1).unwrap(),
            to_key: 6,
            sysv_segment: -1,
            kind: Kind::Posix as u32,
            knows_process: 0,
            reserved: 0,
            forward: SHAPE.into(),
            backward: SHAPE.into(),
        };
        change(&mut hello);
        let peer = Credentials { pid: std::process::id(), uid: credentials().effective_uid };
        let rings = PairLayout::new(SHAPE, SHAPE).unwrap();
        let memory = Segment::new(&Origin::Memfd, rings.size() - missing, false).unwrap();
        let Source::File(memory) = memory.source else { panic!("a memfd is a file") };
        let [doorbell, table] = identity.descriptors().unwrap().map(|fd| fd.try_clone_to_owned().unwrap());
        let message = wire::control(Control::Hello, hello.as_bytes());
        identity.check_hello(peer, &message, &[doorbell, table, memory]).map(drop)
    }

    /// A process that may write to the directory can put another socket there and fill the queue of the right one.
    #[test]
    fn a_full_queue_leads_to_no_other_name_where_the_process_is_not_known() {
        let directory = tempfile::tempdir().unwrap();
        let path = |id| directory.path().join(socket::name(id) + ".sock");
        let id = u64::from(std::process::id()) << 8 | 77;
        let _right = socket::Listener::new(id, None, false).unwrap();
        let _wrong = socket::Listener::new(id + 1, Some(directory.path()), false).unwrap();
        std::fs::rename(path(id + 1), path(id)).unwrap();
        let target = place::target(id, Route::Abstract, None).unwrap().unwrap();
        let is_full = (0..10_000).any(|_| target.connect().is_err_and(|error| error.errno == libc::EAGAIN));
        assert!(is_full);
        let whereabouts = |process| Whereabouts {
            iface: IfaceAddress { id, key: 1, uid: 0, pid: 1 },
            routes: (Route::Abstract, Some(Route::Directory)),
            process,
        };
        let dialed = |process| {
            let timeout = Duration::from_secs(1);
            let place = Some(directory.path());
            let identity = identity();
            let (mut dial, ..) = identity.dial(1, &whereabouts(process), place, timeout, SHAPE).unwrap();
            identity.go_on(&mut dial).unwrap().is_some()
        };
        let own = ProcessName { pid: std::process::id(), uid: None };
        assert!(dialed(Some(own)), "where it is known, the other name serves");
        assert!(!dialed(None), "it leads to a process that may be any");
    }

    #[test]
    fn the_process_at_the_other_end_has_to_be_that_of_the_address_if_it_is_known() {
        let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
        let (kind, family) = (rustix::net::SocketType::SEQPACKET, rustix::net::AddressFamily::UNIX);
        let (socket, _peer) = rustix::net::socketpair(family, kind, flags, None).unwrap();
        let own = Credentials { pid: std::process::id(), uid: credentials().effective_uid };
        let admitted = |process| identity().admit(socket.as_fd(), process);
        let named = |pid, uid| Some(ProcessName { pid, uid });
        for right in [None, named(own.pid, None), named(own.pid, Some(own.uid))] {
            assert_eq!(admitted(right), Ok(own), "{right:?}");
        }
        for wrong in [named(own.pid + 1, None), named(own.pid, Some(own.uid + 1))] {
            let reason = admitted(wrong).unwrap_err();
            assert!(reason.contains("most likely ended"), "{reason}");
        }
    }

    #[test]
    fn a_reason_of_any_length_is_sent_to_a_peer_that_is_refused() {
        let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
        let (kind, family) = (rustix::net::SocketType::SEQPACKET, rustix::net::AddressFamily::UNIX);
        for (length, sent) in [(0, 0), (256, 256), (257, 256), (5000, 256)] {
            let (socket, peer) = rustix::net::socketpair(family, kind, flags, None).unwrap();
            identity().refuse(socket.as_fd(), &"x".repeat(length));
            let mut buffer = [0; MAX_CONTROL];
            let Received::Message(received, _) = socket::receive(peer.as_fd(), &mut buffer) else {
                panic!("nothing is sent")
            };
            let (kind, words) = wire::parse_control(&buffer[..received]).unwrap();
            assert_eq!((kind, words.len()), (Control::Refusal, sent));
        }
    }

    #[test]
    fn a_hello_is_checked_before_anything_of_it_is_mapped() {
        said(|_| {}, 0).unwrap();
        let refused = |words: &str, change: fn(&mut Hello)| {
            let reason = said(change, 0).unwrap_err();
            assert!(reason.contains(words), "{reason}; expected {words}");
        };
        refused("key", |hello| hello.to_key = 7);
        refused("key", |hello| hello.kind = Kind::Sysv as u32);
        refused("rings of", |hello| {
            let pool = Pool { count: 64, stride: 4 << 20 };
            hello.forward = Geometry { small: pool, bulk: pool, ..SHAPE }.into();
            hello.backward = hello.forward;
        });
        // The ring on which this side sends holds its largest message, and its largest short one.
        let backward = |small: u32, bulk: u32| {
            let pool = |stride| Pool { count: 1, stride };
            move |hello: &mut Hello| {
                hello.backward = Geometry { small: pool(small), bulk: pool(bulk), ..SHAPE }.into();
            }
        };
        for (small, bulk) in [(64, 64), (64, 32_704), (32_768, 32_704), (65_536, 64)] {
            let reason = said(backward(small, bulk), 0).unwrap_err();
            assert!(reason.contains("UCT_SHM_SEG_SIZE"), "{reason}");
        }
        said(backward(64, 32_768), 0).unwrap();
        let reason = said(|_| {}, 4096).unwrap_err();
        assert!(reason.contains("shorter than announced"), "{reason}");
    }
}
