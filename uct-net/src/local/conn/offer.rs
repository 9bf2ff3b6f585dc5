//! A large message that is offered: at its sender, and at its receiver.

use uct_host::{Completion, Memory, MemorySlice, RemoteKey};

use super::kept::Staging;
use crate::proto::shared::Shared;

/// How a message leaves.
pub(super) enum TransferMode {
    /// It was not looked at yet.
    Undecided,
    /// In parts.
    Parts,
    /// Offered, or about to be: its bytes are here, and the description is what the peer is sent.
    Offer { source: Source, description: Vec<u8>, is_sent: bool },
    /// The peer wants it in parts.
    Refused(Source),
}

/// The registered bytes of a message.
pub(super) enum Source {
    /// The message alone.
    Own(Memory),
    /// A part of the application's memory.
    Slice(MemorySlice),
    /// So many bytes of memory that the connection keeps.
    Kept(Staging, usize),
}

impl Source {
    /// The bytes, registered no longer than the application has them registered.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        match self {
            Source::Own(memory) => memory.into_bytes().unwrap_or_else(|memory| memory.to_vec()),
            Source::Slice(slice) => slice.to_vec(),
            Source::Kept(staging, length) => staging.memory.slice(..length).to_vec(),
        }
    }
}

/// A message that the peer offers.
pub(super) struct Offer {
    pub(super) place: Shared,
    /// What its description cost the sender.
    pub(super) cost: u32,
    pub(super) read: Option<Read>,
}

/// Reading it. The completion keeps the memory until the device is done with it.
pub(super) struct Read {
    pub(super) memory: Memory,
    pub(super) key: RemoteKey,
    pub(super) completion: Completion,
    pub(super) is_posted: bool,
}

impl Offer {
    pub(super) fn new(place: Shared, cost: u32) -> Offer {
        Offer { place, cost, read: None }
    }

    pub(super) fn length(&self) -> usize {
        self.place.length as usize
    }
}
