//! Memory of the peer, as this side refers to it.

use ucs::Error as Status;
use uct_host::RemoteKey;

use crate::error::{Error, Stage};

/// The error of an access of which all is right that this side knows: `INVALID_PARAM` of a transport, or of the peer.
pub(crate) fn invalid_key(peer: &str) -> Error {
    let reason = "the peer has freed the memory or taken back the key, has not shared it, or does not permit this access";
    let remedy = "the peer has to share the memory until this side is done with it";
    Error::new(Stage::Connected, peer, Status::INVALID_PARAM, reason).hint(remedy)
}

/// Memory that the peer has shared: its length, and the key to access it. For the connection that has received it, and any other to the same
/// process over the same transport.
#[derive(Clone, Debug)]
pub struct RemoteMemory {
    address: u64,
    length: u64,
    key: RemoteKey,
}

impl RemoteMemory {
    pub(super) fn new(address: u64, length: u64, key: RemoteKey) -> RemoteMemory {
        RemoteMemory { address, length, key }
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The address of its first byte at the peer, and its key, for operations of [`endpoint`](super::Connection::endpoint), which do not check bounds on this side.
    pub fn raw(&self) -> (u64, &RemoteKey) {
        (self.address, &self.key)
    }

    /// The address of its first byte, at the peer.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn key(&self) -> &RemoteKey {
        &self.key
    }

    /// The address of `length` bytes from `offset` on, if they are part of it.
    pub(super) fn at(&self, offset: u64, length: usize) -> Option<u64> {
        let end = offset.checked_add(length as u64)?;
        (end <= self.length).then(|| self.address + offset)
    }
}
