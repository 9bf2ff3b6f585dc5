//! The facts that a peer sends in its hello or welcome, and the doorbells of both sides.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::SealFlags;
use ucs::sys::SystemError;

use crate::io::{Mapping, Segment, Trust, accept};
use crate::proto::ring::{DOORBELL_BYTES, Doorbell, MappedDoorbell};
use crate::proto::table::TABLE_BYTES;
use crate::proto::wire::Side;

/// The peer, once its hello or welcome has arrived.
pub(crate) struct Peer {
    pub(crate) side: Side,
    pub(crate) table: Arc<Mapping>,
    pub(crate) doorbell: Doorbell<MappedDoorbell>,
    /// The memory of the doorbell.
    _doorbell_memory: Mapping,
}

/// Creates a doorbell: a page that all peers of an interface map.
pub(crate) fn new_doorbell() -> Result<(Doorbell<MappedDoorbell>, Segment), SystemError> {
    let segment = Segment::memfd(DOORBELL_BYTES, false, SealFlags::empty())?;
    // SAFETY: the mapping has the size, and the interface keeps it beside the doorbell.
    let doorbell = Doorbell::new(unsafe { MappedDoorbell::new(segment.mapping.base()) });
    Ok((doorbell, segment))
}

impl Peer {
    /// Maps doorbell and table, whose descriptors came with the message.
    pub(crate) fn new(side: Side, fds: &[OwnedFd]) -> Result<Peer, String> {
        let [doorbell, table, ..] = fds else {
            return Err(format!(
                "{} descriptors arrived, expected those of a doorbell and a table",
                fds.len()
            ));
        };
        let doorbell_memory = accept(doorbell.as_fd(), DOORBELL_BYTES, true, Trust::SEALED)
            .map_err(|error| error.to_string())?;
        let table =
            accept(table.as_fd(), TABLE_BYTES, false, Trust::SEALED).map_err(|error| error.to_string())?;
        // SAFETY: the mapping has the size and is kept beside the doorbell.
        let doorbell = Doorbell::new(unsafe { MappedDoorbell::new(doorbell_memory.base()) });
        Ok(Peer { side, table: Arc::new(table), doorbell, _doorbell_memory: doorbell_memory })
    }
}
