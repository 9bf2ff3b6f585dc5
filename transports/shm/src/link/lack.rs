//! What an operation lacked.

use crate::proto::ring::Place;

/// What an operation lacked; it can be tried again when that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// A slot of the ring.
    Slot,
    /// A block of a pool.
    Block(Place),
    /// An answer to one of many outstanding operations.
    Window,
    /// The answer to a short get.
    Answer,
    /// The operations ahead of a fence.
    Fence,
    /// The peer's side of the connection.
    Welcome,
    /// The segment of a remote key.
    Segment(u64),
    /// The ring is broken; its endpoints are about to be told.
    Whole,
}
