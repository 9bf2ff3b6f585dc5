//! What an operation is blocked on.

use crate::proto::ring::Place;

/// What an operation is blocked on. It can be repeated when that is available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockedOn {
    /// A slot of the ring.
    Slot,
    /// A block of a pool.
    Block(Place),
    /// A response to one of the largest possible number of outstanding operations.
    Window,
    /// The response to a short get.
    Response,
    /// The operations ahead of a fence.
    Fence,
    /// The peer's side of the connection.
    Welcome,
    /// The segment of a remote key.
    Segment(u64),
    /// Nothing: the channel is broken, and progress is about to report that to its endpoints.
    BrokenChannel,
}
