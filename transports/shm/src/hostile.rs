//! A peer that says what it likes, for tests of what comes of it.
//!
//! For: tests. Stands on the wire and on segments. It knows the wire as well as a peer does and keeps to none of its rules; what it
//! shares and sends is the caller's choice.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::SealFlags;
use ucs::sys::SystemError;
use zerocopy::IntoBytes;

use crate::addr::IfaceAddress;
use crate::channel::Rings;
use crate::md::Kind;
use crate::remote::TABLE_BYTES;
use crate::ring::{BELL_BYTES, Geometry, Pool};
use crate::segment::socket::{self, Received, Route, Target};
use crate::segment::{Mapping, Origin, Segment, Source};
use crate::wire::{self, Control, Hello, Side, Welcome};

/// Shape of the rings that it offers.
const SHAPE: Geometry = Geometry {
    slots: 64,
    small: Pool { count: 8, stride: 4096 },
    bulk: Pool { count: 4, stride: 65_536 },
    headroom: 64,
};

/// What came over the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Nothing yet.
    Nothing,
    /// The other side has closed.
    Closed,
    /// It accepts; the number of the channel whose shuttle is to be shared, and one more, or 0.
    Welcome(u32),
    /// It does not accept, for this reason.
    Refusal(String),
    /// Anything else.
    Other(Vec<u8>),
}

/// A connection to an interface, and what is shared with it.
#[derive(Debug)]
pub struct Intruder {
    socket: OwnedFd,
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bell: Segment,
    table: Segment,
    rings: Segment,
}

/// The bytes of an interface's address with another key in them.
pub fn with_key(address: &[u8], key: u64) -> Vec<u8> {
    let mut address = IfaceAddress::parse(address).expect("an address of shared memory");
    address.key = key;
    address.as_bytes().to_vec()
}

/// A connection to the interface at `to`, and nothing else.
///
/// # Errors
/// What the system says, in words.
pub fn knock(to: &[u8], directory: Option<&Path>) -> Result<OwnedFd, String> {
    let to = IfaceAddress::parse(to)?;
    let route = if directory.is_some() { Route::Directory } else { Route::Abstract };
    let target = Target::new(to.id, route, directory).expect("a directory where one is needed");
    target.and_then(|target| target.connect()).map_err(|error| error.to_string())
}

impl Intruder {
    /// Connects to the interface at `to`, the bytes of its address, by its name in `directory` or by the abstract one.
    ///
    /// # Errors
    /// What the system says, in words.
    pub fn connect(to: &[u8], directory: Option<&Path>) -> Result<Intruder, String> {
        let words = |error: SystemError| error.to_string();
        let size = Rings::new(SHAPE, SHAPE)?.size();
        let shared = Shared {
            bell: Segment::memfd(BELL_BYTES, false, SealFlags::empty()).map_err(words)?,
            table: Segment::memfd(TABLE_BYTES, false, SealFlags::empty()).map_err(words)?,
            rings: Segment::new(&Origin::Memfd, size, false).map_err(words)?,
        };
        Ok(Intruder { socket: knock(to, directory)?, shared: Rc::new(shared) })
    }

    /// Connects once more, with the same memory to be shared.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn again(&self, to: &[u8], directory: Option<&Path>) -> Result<Intruder, String> {
        Ok(Intruder { socket: knock(to, directory)?, shared: Rc::clone(&self.shared) })
    }

    /// The bytes of a hello that says it comes from the interface at `from`.
    pub fn hello(from: &[u8], to: &[u8]) -> Vec<u8> {
        let parse = |address| IfaceAddress::parse(address).expect("an address of shared memory");
        let (from, to) = (parse(from), parse(to));
        let hello = Hello {
            from: Side {
                iface: from.id,
                key: from.key,
                table: 1,
                beacon: 0,
                bell_number: 0,
                heavy_barrier: 0,
            },
            to_key: to.key,
            sysv_segment: -1,
            kind: Kind::Posix as u32,
            knows_process: 1,
            reserved: 0,
            forward: SHAPE.into(),
            backward: SHAPE.into(),
        };
        wire::control(Control::Hello, hello.as_bytes())
    }

    /// The descriptors that belong to a hello.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        [&self.shared.bell, &self.shared.table, &self.shared.rings]
            .into_iter()
            .filter_map(|segment| match &segment.source {
                Source::File(fd) => Some(fd.as_fd()),
                Source::Sysv(_) => None,
            })
            .collect()
    }

    /// Says anything; answers whether it left.
    pub fn say(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        socket::send(self.socket.as_fd(), message, descriptors).is_ok()
    }

    /// What has come meanwhile.
    pub fn hear(&self) -> Heard {
        let mut buffer = [0; wire::MAX_CONTROL];
        let length = match socket::receive(self.socket.as_fd(), &mut buffer) {
            Received::Nothing => return Heard::Nothing,
            Received::Closed => return Heard::Closed,
            Received::Message(length, _) => length,
        };
        match wire::parse_control(&buffer[..length]) {
            Ok((Control::Welcome, body)) => match wire::body::<Welcome>(body) {
                Ok(welcome) => Heard::Welcome(welcome.shares),
                Err(_) => Heard::Other(body.to_vec()),
            },
            Ok((Control::Refusal, words)) => Heard::Refusal(String::from_utf8_lossy(words).into_owned()),
            _ => Heard::Other(buffer[..length].to_vec()),
        }
    }

    /// All memory that is shared with the other side.
    pub fn shared(&self) -> [&Mapping; 3] {
        [&self.shared.bell.mapping, &self.shared.table.mapping, &self.shared.rings.mapping]
    }
}
