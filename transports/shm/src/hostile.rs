//! A hostile peer, for tests.
//!
//! Used by tests. Built on the wire format and on segments. It uses the same formats as a correct peer and follows none of the protocol's
//! rules. The caller chooses what it shares and sends.

use std::cell::{OnceCell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::SealFlags;
use ucs::sys::SystemError;
use ucs::sys::process::credentials;
use zerocopy::IntoBytes;

use crate::io::socket::{self, Listener, Received};
use crate::io::{Mapping, Origin, Segment, Source};
use crate::link::channel::Channel;
use crate::link::pair_layout::PairLayout;
use crate::link::place;
use crate::link::remote::SegmentCache;
use crate::link::work::PendingWork;
use crate::proto::addr::{DeviceAddress, IfaceAddress, Route};
use crate::proto::kind::Kind;
use crate::proto::ring::{DOORBELL_BYTES, Geometry, Pool};
use crate::proto::table::TABLE_BYTES;
use crate::proto::wire::{self, Control, Hello, Side, Welcome};

/// Shape of the rings that it offers: what an interface that is not configured accepts.
const SHAPE: Geometry = Geometry {
    slots: 64,
    first: 16,
    small: Pool { count: 8, stride: 4096 },
    bulk: Pool { count: 4, stride: 65_536 },
};

/// Offset of the kind in a message over the socket.
const KIND_AT: usize = 8;

/// What came over the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Nothing yet.
    Nothing,
    /// The other side has closed.
    Closed,
    /// It accepts; the number of the channel whose ping-pong line is to be shared, and one more, or 0.
    Welcome(u32),
    /// It does not accept, for this reason.
    Refusal(String),
    /// Anything else.
    Other(Vec<u8>),
}

/// A connection to an interface, and what is shared with it.
pub struct Intruder {
    socket: OwnedFd,
    shared: Rc<Shared>,
    /// What the other side has handed over and lets be written.
    taken: RefCell<Vec<Mapping>>,
    channel: OnceCell<Option<Channel>>,
}

/// A listener that is no interface.
#[derive(Debug)]
pub struct Lair {
    listener: Listener,
    device: DeviceAddress,
    iface: IfaceAddress,
}

#[derive(Debug)]
struct Shared {
    doorbell: Segment,
    table: Segment,
    rings: Segment,
}

/// The bytes of an interface's address with another key in them.
pub fn with_key(address: &[u8], key: u64) -> Vec<u8> {
    let mut address = IfaceAddress::parse(address).expect("an address of shared memory");
    address.key = key;
    address.as_bytes().to_vec()
}

/// The bytes of an interface's address that names this process instead.
pub fn with_own_process(address: &[u8]) -> Vec<u8> {
    let mut address = IfaceAddress::parse(address).expect("an address of shared memory");
    (address.uid, address.pid) = own_process();
    address.as_bytes().to_vec()
}

/// The bytes of an interface's address that names the process of another user with the same number.
pub fn with_other_user(address: &[u8]) -> Vec<u8> {
    let mut address = IfaceAddress::parse(address).expect("an address of shared memory");
    address.uid ^= 1;
    address.as_bytes().to_vec()
}

fn own_process() -> (u32, u32) {
    (credentials().effective_uid, std::process::id())
}

/// A connection to the interface at `to`, and nothing else.
///
/// # Errors
/// The system's error, as text.
pub fn knock(to: &[u8], directory: Option<&Path>) -> Result<OwnedFd, String> {
    let to = IfaceAddress::parse(to)?;
    let route = if directory.is_some() { Route::Directory } else { Route::Abstract };
    let target = place::target(to.id, route, directory).expect("a directory where one is needed");
    target.and_then(|target| target.connect()).map_err(|error| error.to_string())
}

impl Intruder {
    /// Connects to the interface at `to`, the bytes of its address, by its name in `directory` or by the abstract one.
    ///
    /// # Errors
    /// The system's error, as text.
    pub fn connect(to: &[u8], directory: Option<&Path>) -> Result<Intruder, String> {
        Intruder::new(knock(to, directory)?)
    }

    fn new(socket: OwnedFd) -> Result<Intruder, String> {
        let words = |error: SystemError| error.to_string();
        let size = PairLayout::new(SHAPE, SHAPE)?.size();
        let shared = Shared {
            doorbell: Segment::memfd(DOORBELL_BYTES, false, SealFlags::empty()).map_err(words)?,
            table: Segment::memfd(TABLE_BYTES, false, SealFlags::empty()).map_err(words)?,
            rings: Segment::new(&Origin::Memfd, size, false).map_err(words)?,
        };
        Ok(Intruder { socket, shared: Rc::new(shared), taken: RefCell::default(), channel: OnceCell::new() })
    }

    /// Connects once more, with the same memory to be shared.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn again(&self, to: &[u8], directory: Option<&Path>) -> Result<Intruder, String> {
        let socket = knock(to, directory)?;
        Ok(Intruder {
            socket,
            shared: Rc::clone(&self.shared),
            taken: RefCell::default(),
            channel: OnceCell::new(),
        })
    }

    /// The bytes of a hello that claims to come from the interface at `from`, with its rings in this System V segment, or in none.
    pub fn hello(from: &[u8], to: &[u8], sysv_segment: Option<i32>) -> Vec<u8> {
        Intruder::narrow_hello(from, to, sysv_segment, (SHAPE.small.stride, SHAPE.bulk.stride))
    }

    /// The same, with other strides of the small and bulk blocks in which the other side is to send.
    pub fn narrow_hello(from: &[u8], to: &[u8], sysv_segment: Option<i32>, strides: (u32, u32)) -> Vec<u8> {
        let (small, bulk) =
            (Pool { stride: strides.0, ..SHAPE.small }, Pool { stride: strides.1, ..SHAPE.bulk });
        let backward = Geometry { small, bulk, ..SHAPE };
        let parse = |address| IfaceAddress::parse(address).expect("an address of shared memory");
        let (from, to) = (parse(from), parse(to));
        let hello = Hello {
            from: Side {
                iface: from.id,
                key: from.key,
                table: 1,
                beacon: 0,
                doorbell_number: 0,
                heavy_barrier: 0,
            },
            to_key: to.key,
            sysv_segment: sysv_segment.unwrap_or(-1),
            kind: if sysv_segment.is_some() { Kind::Sysv } else { Kind::Posix } as u32,
            knows_process: 1,
            reserved: 0,
            forward: SHAPE.into(),
            backward: backward.into(),
        };
        wire::control(Control::Hello, hello.as_bytes())
    }

    /// The descriptors that belong to a hello.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        [&self.shared.doorbell, &self.shared.table, &self.shared.rings]
            .into_iter()
            .filter_map(|segment| match &segment.source {
                Source::File(fd) => Some(fd.as_fd()),
                Source::Sysv(_) => None,
            })
            .collect()
    }

    /// Sends any bytes. Returns whether they were sent.
    pub fn say(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        socket::send(self.socket.as_fd(), message, descriptors).is_ok()
    }

    /// What has come meanwhile.
    pub fn hear(&self) -> Heard {
        let mut buffer = [0; wire::MAX_CONTROL];
        let (length, descriptors) = match socket::receive(self.socket.as_fd(), &mut buffer) {
            Received::Nothing => return Heard::Nothing,
            Received::Closed => return Heard::Closed,
            Received::Message(length, descriptors) => (length, descriptors),
        };
        for descriptor in descriptors {
            let size = rustix::fs::fstat(&descriptor).map_or(0, |found| found.st_size as usize);
            self.taken.borrow_mut().extend(Mapping::file(descriptor.as_fd(), size, true));
        }
        match wire::parse_control(&buffer[..length]) {
            Ok((Control::Welcome, body)) => match wire::body::<Welcome>(body) {
                Ok(welcome) => Heard::Welcome(welcome.shares),
                Err(_) => Heard::Other(body.to_vec()),
            },
            Ok((Control::Refusal, words)) => Heard::Refusal(String::from_utf8_lossy(words).into_owned()),
            _ => Heard::Other(buffer[..length].to_vec()),
        }
    }

    /// Sends a message through the ring that it has offered, with any tag. Returns whether there was room.
    pub fn send(&self, tag: u8, bytes: &[u8]) -> bool {
        let Some(channel) = self.channel.get_or_init(|| self.ring()) else { return false };
        let fill = |target: *mut u8| {
            // SAFETY: a message has room for the bytes with which it was reserved.
            unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        };
        channel.send(tag, bytes.len(), fill).is_ok()
    }

    /// An end of the rings that it has offered.
    fn ring(&self) -> Option<Channel> {
        let Source::File(rings) = &self.shared.rings.source else { return None };
        let memory = Mapping::file(rings.as_fd(), self.shared.rings.mapping.length(), true).ok()?;
        let to = IfaceAddress { id: 1, key: 1, uid: 0, pid: 1 };
        Some(Channel::connecting(
            0,
            &to,
            &PairLayout::new(SHAPE, SHAPE).ok()?,
            memory,
            (PendingWork::default(), Rc::new(SegmentCache::new(0, 0))),
        ))
    }

    /// Overwrites a word of what is shared, the first pages more often than the rest. `choose` returns a number below the one
    /// that it is given.
    pub fn scribble(&self, choose: &mut dyn FnMut(usize) -> usize, value: u64) {
        let taken = self.taken.borrow();
        let own = [&self.shared.doorbell.mapping, &self.shared.table.mapping, &self.shared.rings.mapping];
        let all: Vec<&Mapping> = own.into_iter().chain(taken.iter()).collect();
        let memory = all[choose(all.len())];
        let words = memory.length() / size_of::<u64>();
        if words == 0 {
            return;
        }
        let near = words.min(2048);
        let at = if choose(4) == 0 { choose(words) } else { choose(near) };
        // SAFETY: inside the mapping.
        let word = unsafe { memory.base().cast::<u64>().add(at) };
        // SAFETY: mapped for writing, and aligned; nothing of this process relies on what is there.
        unsafe { word.write_volatile(value) };
    }
}

/// The bytes of any message over the socket; `kind` of a hello is 1, a welcome 2, a refusal 3, a wake-up 4, a request for a segment 5,
/// the reply to it 6.
pub fn message(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut message = wire::control(Control::Wake, body);
    message[KIND_AT..KIND_AT + 4].copy_from_slice(&kind.to_ne_bytes());
    message
}

impl Lair {
    /// Listens.
    ///
    /// # Errors
    /// The system's error, as text.
    pub fn open(id: u64, is_sysv: bool) -> Result<Lair, String> {
        let listener = Listener::new(id, None, true).map_err(|error| error.to_string())?;
        let (uid, pid) = own_process();
        let iface = IfaceAddress { id, key: id, uid, pid };
        Ok(Lair {
            listener,
            device: place::device_address(if is_sysv { Kind::Sysv } else { Kind::Posix }, None),
            iface,
        })
    }

    /// The bytes of its addresses: of device and interface.
    pub fn address(&self) -> (Vec<u8>, Vec<u8>) {
        (self.device.as_bytes().to_vec(), self.iface.as_bytes().to_vec())
    }

    /// The next process that connects.
    pub fn next(&self) -> Option<Intruder> {
        let socket = self.listener.sockets().find_map(|socket| socket::accept(socket).ok().flatten())?;
        Intruder::new(socket).ok()
    }

    /// The bytes of a welcome.
    pub fn welcome(&self, shares: u32) -> Vec<u8> {
        let from = Side {
            iface: self.iface.id,
            key: self.iface.key,
            table: 1,
            beacon: 0,
            doorbell_number: 0,
            heavy_barrier: 0,
        };
        wire::control(Control::Welcome, Welcome { from, shares, reserved: 0 }.as_bytes())
    }
}
