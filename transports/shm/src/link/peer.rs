//! What a peer tells of itself, and the bells by which both sides wake each other.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::SealFlags;
use ucs::sys::SystemError;

use crate::io::{Mapping, Segment, Trust, accept};
use crate::proto::ring::{BELL_BYTES, Bell, MappedBell};
use crate::proto::table::TABLE_BYTES;
use crate::proto::wire::Side;

/// The peer, once it has told about itself.
pub(crate) struct Peer {
    pub(crate) side: Side,
    pub(crate) table: Arc<Mapping>,
    pub(crate) bell: Bell<MappedBell>,
    /// What the bell lies in.
    _bell_memory: Mapping,
}

/// Makes a bell: a page that all peers of an interface map.
pub(crate) fn new_bell() -> Result<(Bell<MappedBell>, Segment), SystemError> {
    let segment = Segment::memfd(BELL_BYTES, false, SealFlags::empty())?;
    // SAFETY: the mapping has the size, and the interface keeps it beside the bell.
    let bell = Bell::new(unsafe { MappedBell::new(segment.mapping.base()) });
    Ok((bell, segment))
}

impl Peer {
    /// Takes bell and table, whose descriptors came along.
    pub(crate) fn new(side: Side, fds: &[OwnedFd]) -> Result<Peer, String> {
        let [bell, table, ..] = fds else {
            return Err(format!("{} descriptors came along, where a bell and a table are needed", fds.len()));
        };
        let bell_memory =
            accept(bell.as_fd(), BELL_BYTES, true, Trust::SEALED).map_err(|error| error.to_string())?;
        let table =
            accept(table.as_fd(), TABLE_BYTES, false, Trust::SEALED).map_err(|error| error.to_string())?;
        // SAFETY: the mapping has the size and is kept beside the bell.
        let bell = Bell::new(unsafe { MappedBell::new(bell_memory.base()) });
        Ok(Peer { side, table: Arc::new(table), bell, _bell_memory: bell_memory })
    }
}
