//! Receives and messages: where they go, and how far they are.

use std::sync::Arc;

use uct_core::{Completion, Memory, RemoteKey};

use super::super::{Buffers, Errno};
use crate::matching::{Envelope, Landing, UnexpectedId};
use crate::wire::Offer;

/// What is kept of a posted receive.
#[derive(Clone)]
pub(super) struct Posted {
    pub(super) context: usize,
    pub(super) buffers: Buffers,
    pub(super) is_reported: bool,
}

/// Where a message goes: all of a receive's buffers, or a part of them.
pub(super) type Target = Landing<Posted>;

impl Target {
    /// All of a receive's buffers.
    pub(super) fn all(receive: Posted) -> Target {
        Landing { receive, part: None }
    }

    /// Of its first byte in the buffers.
    #[inline]
    pub(super) fn offset(&self) -> usize {
        self.part.map_or(0, |part| part.offset as usize)
    }

    /// Bytes that it may have.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.part.map_or(self.receive.buffers.len(), |part| part.length as usize)
    }
}

/// An unexpected message.
pub(super) enum Arrived {
    /// Its bytes, of which `missing` follow. `held` is credit of its sender's, who may wait for the end of the operation with the id in `delivery`.
    Bytes { bytes: Vec<u8>, missing: usize, held: u32, attempt: u32, delivery: Option<u32> },
    /// Its bytes are to be asked for.
    Request { id: u32, held: u32, attempt: u32, delivery: bool, offer: Option<Offer> },
}

/// A message that was announced.
pub(super) struct Announced {
    pub(super) envelope: Envelope,
    pub(super) is_tagged: bool,
    /// The sender's.
    pub(super) id: u32,
    pub(super) delivery: bool,
    pub(super) offer: Option<Offer>,
}

/// A message that is arriving in fragments.
pub(super) struct Arriving {
    pub(super) target: Target,
    pub(super) envelope: Envelope,
    pub(super) is_tagged: bool,
    /// The sender waits for the end of its operation with this id.
    pub(super) delivery: Option<u32>,
    pub(super) wanted: usize,
    pub(super) received: usize,
}

/// A message whose frames follow each other.
pub(super) struct Begun {
    pub(super) length: usize,
    pub(super) received: usize,
    pub(super) place: Place,
}

/// Where its bytes go.
pub(super) enum Place {
    Target(Box<Arriving>),
    /// It is unexpected.
    Kept {
        id: UnexpectedId,
        is_tagged: bool,
    },
    /// Nobody wants it. The sender may wait for the end of the operation with this id.
    Nowhere {
        delivery: Option<u32>,
    },
}

/// A message that can be read in its sender's memory, until a turn begins with it.
pub(super) struct Readable {
    pub(super) arriving: Arriving,
    /// The sender's.
    pub(super) id: u32,
    pub(super) offer: Offer,
}

/// A message that is being read.
pub(super) struct Reading {
    pub(super) peer: u32,
    pub(super) attempt: u32,
    pub(super) arriving: Arriving,
    pub(super) id: u32,
    pub(super) memory: Memory,
    pub(super) key: RemoteKey,
    pub(super) address: u64,
    pub(super) completion: Completion,
    pub(super) most: usize,
    /// Bytes up to which a read was begun.
    pub(super) posted: usize,
    /// The device has a read.
    pub(super) is_busy: bool,
    /// The peer has failed meanwhile.
    pub(super) failed: Option<(Errno, Arc<str>)>,
}

/// A frame whose bytes are received straight to where they go: at most one of each peer.
pub(super) struct Placed {
    pub(super) of: PlacedFrame,
    /// Where its payload begins.
    pub(super) start: usize,
}

/// What it has bytes of.
pub(super) enum PlacedFrame {
    /// A whole message.
    Message(Box<Arriving>),
    /// The message that has begun.
    Begun,
    /// A message that was asked for.
    Fragment(u32),
}

impl Placed {
    /// The message that ends with its peer's connection, if nothing else has it.
    pub(super) fn into_message(self) -> Option<Box<Arriving>> {
        match self.of {
            PlacedFrame::Message(arriving) => Some(arriving),
            PlacedFrame::Begun | PlacedFrame::Fragment(_) => None,
        }
    }
}
