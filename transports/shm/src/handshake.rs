//! How two interfaces meet: hello and welcome over the socket.
//!
//! For: interfaces. Stands on channels and the wire. Who connects brings the rings; who accepts checks who it is, that it
//! knows the interface's key, and every number that it names, before it maps anything.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use ucs::sys::process::credentials;
use uct_plugin::{Error, Failure, Result};
use zerocopy::IntoBytes;

use crate::addr::{IfaceAddress, Route};
use crate::channel::Rings;
use crate::config::Peers;
use crate::md::Kind;
use crate::remote::registry;
use crate::ring::{Geometry, register_heavy_barrier};
use crate::segment::socket::{self, Received};
use crate::segment::{Mapping, Origin, Segment, Source, accept, attach_sysv};
use crate::wire::{self, Control, Hello, MAX_CONTROL, Side, Welcome};

/// Largest ring segment that is mapped for a peer.
const MAX_RINGS: usize = 1 << 30;

/// What an interface tells of itself, and checks its peers against.
#[derive(Debug)]
pub(crate) struct Party {
    pub(crate) kind: Kind,
    pub(crate) address: IfaceAddress,
    pub(crate) origin: Origin,
    pub(crate) peers: Peers,
    /// The bell, to be handed to peers.
    pub(crate) bell: Segment,
}

/// What came of an incoming connection so far.
pub(crate) enum Greeting {
    /// The hello has not come.
    Waiting,
    /// It is over.
    Over,
    /// A peer with rings.
    Peer(Box<Hello>, Vec<OwnedFd>, Rings, Mapping),
}

impl Party {
    /// This side, for whom the peer rings with `number`.
    fn side(&self, number: u32) -> Result<Side, Failure> {
        let registry = registry()?;
        Ok(Side {
            iface: self.address.id,
            key: self.address.key,
            table: registry.identity(),
            beacon: registry.beacon().address(),
            bell_number: number,
            heavy_barrier: register_heavy_barrier().into(),
        })
    }

    /// The descriptors that every peer gets: bell and table.
    fn descriptors(&self) -> Result<[BorrowedFd<'_>; 2], Failure> {
        match (&self.bell.source, &registry()?.table().source) {
            (Source::File(bell), Source::File(table)) => Ok([bell.as_fd(), table.as_fd()]),
            _ => Err(Failure::new(Error::SHMEM_SEGMENT, "bell and table are not files")),
        }
    }

    /// Connects to a peer: makes rings and says hello. Does not wait for the welcome.
    pub(crate) fn connect(
        &self,
        number: u32,
        to: &IfaceAddress,
        route: Route,
        directory: Option<&Path>,
        shape: impl Fn(u32) -> Geometry,
    ) -> Result<(OwnedFd, Rings, Mapping), Failure> {
        let (forward, backward) = (shape(to.headroom), shape(self.address.headroom));
        let rings =
            Rings::new(forward, backward).map_err(|reason| Failure::new(Error::INVALID_PARAM, reason))?;
        let connected = match (route, directory) {
            (Route::Directory, Some(directory)) => socket::connect_in(directory, to.id),
            _ => socket::connect_abstract(to.id),
        };
        let socket = connected.map_err(|error| Failure::new(Error::UNREACHABLE, error.to_string()))?;
        self.admit(socket.as_fd()).map_err(|reason| Failure::new(Error::UNREACHABLE, reason))?;
        let memory = Segment::new(&self.origin, rings.size(), false)
            .map_err(|error| Failure::new(Error::SHMEM_SEGMENT, error.to_string()))?;
        let [bell, table] = self.descriptors()?;
        let (sysv_segment, descriptors) = match &memory.source {
            Source::File(fd) => (-1, vec![bell, table, fd.as_fd()]),
            Source::Sysv(id) => (*id, vec![bell, table]),
        };
        let hello = Hello {
            from: self.side(number)?,
            to_key: to.key,
            sysv_segment,
            kind: self.kind as u32,
            forward: forward.into(),
            backward: backward.into(),
        };
        socket::send(socket.as_fd(), &wire::control(Control::Hello, hello.as_bytes()), &descriptors)
            .map_err(|errno| Failure::system("cannot say hello to the peer", &errno.into()))?;
        Ok((socket, rings, memory.mapping))
    }

    /// Looks for the hello of an incoming connection. Words of refusal go to the peer.
    pub(crate) fn greet(&self, socket: BorrowedFd<'_>) -> Greeting {
        let mut buffer = [0; MAX_CONTROL];
        let (length, fds) = match socket::receive(socket, &mut buffer) {
            Received::Nothing => return Greeting::Waiting,
            Received::Closed => return Greeting::Over,
            Received::Message(length, fds) => (length, fds),
        };
        match self.check_hello(socket, &buffer[..length], &fds) {
            Ok((hello, rings, memory)) => Greeting::Peer(Box::new(hello), fds, rings, memory),
            Err(reason) => {
                tracing::debug!("a connection is refused: {reason}");
                self.refuse(socket, &reason);
                Greeting::Over
            }
        }
    }

    /// Tells a peer why it is not accepted.
    pub(crate) fn refuse(&self, socket: BorrowedFd<'_>, reason: &str) {
        let words = &reason.as_bytes()[..reason.len().min(MAX_CONTROL / 2)];
        // A peer that does not listen is refused all the same.
        let _ = socket::send(socket, &wire::control(Control::Refusal, words), &[]);
    }

    fn check_hello(
        &self,
        socket: BorrowedFd<'_>,
        message: &[u8],
        fds: &[OwnedFd],
    ) -> Result<(Hello, Rings, Mapping), String> {
        self.admit(socket)?;
        let (kind, body) = wire::parse_control(message)?;
        if kind != Control::Hello {
            return Err("the first message is no hello".to_owned());
        }
        let hello: Hello = wire::body(body)?;
        if hello.to_key != self.address.key || hello.kind != self.kind as u32 {
            return Err("the key is not that of this interface".to_owned());
        }
        let rings = Rings::new(hello.forward.into(), hello.backward.into())?;
        if Geometry::from(hello.forward).headroom < self.address.headroom {
            return Err("the ring leaves too little room ahead of messages".to_owned());
        }
        if rings.size() > MAX_RINGS {
            return Err(format!("rings of {} bytes", rings.size()));
        }
        let memory = if self.kind == Kind::Sysv {
            attach_sysv(hello.sysv_segment, rings.size())
        } else {
            let fd = fds.get(2).ok_or("no descriptor of the rings came along")?;
            accept(fd.as_fd(), rings.size(), true, self.trusts_files())
        };
        Ok((hello, rings, memory.map_err(|error| error.to_string())?))
    }

    /// Accepts: tells the peer what it needs to know. `shares` as in [`Welcome`].
    pub(crate) fn welcome(&self, socket: BorrowedFd<'_>, number: u32, shares: u32) -> Result<(), Failure> {
        let welcome = Welcome { from: self.side(number)?, shares, reserved: 0 };
        socket::send(socket, &wire::control(Control::Welcome, welcome.as_bytes()), &self.descriptors()?)
            .map_err(|errno| Failure::system("cannot welcome the peer", &errno.into()))
    }

    /// Whether segments of peers may be files that could shrink.
    pub(crate) fn trusts_files(&self) -> bool {
        matches!(self.origin, Origin::Directory(_))
    }

    /// Whether the process at the other end may be talked to at all.
    fn admit(&self, socket: BorrowedFd<'_>) -> Result<(), String> {
        let peer = socket::peer_credentials(socket).map_err(|error| error.to_string())?;
        let own = credentials().effective_uid;
        if self.peers == Peers::Any || peer.uid == own || peer.uid == 0 {
            return Ok(());
        }
        Err(format!(
            "the peer runs as user {}, this process as user {own}; set UCT_SHM_PEERS=any in both to allow that",
            peer.uid
        ))
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::ring::Pool;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    const SHAPE: Geometry = Geometry {
        slots: 64,
        small: Pool { count: 8, stride: 1024 },
        bulk: Pool { count: 4, stride: 65_536 },
        headroom: 64,
    };

    /// A party, and what became of a hello to it that `change` made wrong, with so many bytes for the rings.
    fn said(change: impl FnOnce(&mut Hello), missing: usize) -> Result<(), String> {
        let party = Party {
            kind: Kind::Posix,
            address: IfaceAddress { id: 5, key: 6, headroom: 64, reserved: 0 },
            origin: Origin::Memfd,
            peers: Peers::User,
            bell: Segment::new(&Origin::Memfd, 4096, false).unwrap(),
        };
        let mut hello = Hello {
            from: party.side(1).unwrap(),
            to_key: 6,
            sysv_segment: -1,
            kind: Kind::Posix as u32,
            forward: SHAPE.into(),
            backward: SHAPE.into(),
        };
        change(&mut hello);
        let (near, _far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let rings = Rings::new(SHAPE, SHAPE).unwrap();
        let memory = Segment::new(&Origin::Memfd, rings.size() - missing, false).unwrap();
        let Source::File(memory) = memory.source else { panic!("a memfd is a file") };
        let [bell, table] = party.descriptors().unwrap().map(|fd| fd.try_clone_to_owned().unwrap());
        let message = wire::control(Control::Hello, hello.as_bytes());
        party.check_hello(near.as_fd(), &message, &[bell, table, memory]).map(drop)
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
        refused("too little room", |hello| hello.forward = Geometry { headroom: 63, ..SHAPE }.into());
        refused("rings of", |hello| {
            let pool = Pool { count: 64, stride: 4 << 20 };
            hello.forward = Geometry { small: pool, bulk: pool, ..SHAPE }.into();
            hello.backward = hello.forward;
        });
        let reason = said(|_| {}, 4096).unwrap_err();
        assert!(reason.contains("shorter than announced"), "{reason}");
    }
}
