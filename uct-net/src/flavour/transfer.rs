//! What a transfer is to move, of either flavour.

use std::fmt;

use super::Flavour;
use crate::error::Result;
use crate::transfer::{Blocks, Direction};

/// A connection of either flavour, as transfers use it.
pub trait Transfers: Flavour + Sized {
    /// Registered memory of this side.
    type Memory: Clone;
    /// Memory that the peer has shared.
    type RemoteMemory: Clone;
    /// A transfer that has started.
    type Transfer;

    /// Starts a transfer.
    fn start_transfer(&self, plan: Plan<Self>) -> Result<Self::Transfer>;
}

/// A transfer of blocks that has not started: `get_blocks` or `put_blocks` of a connection, further parts, a notification, then
/// [`NewTransfer::start`].
#[must_use = "nothing moves before `start`"]
pub struct NewTransfer<'a, C: Transfers> {
    connection: &'a C,
    plan: Plan<C>,
}

/// What a transfer is to move.
pub struct Plan<C: Transfers> {
    pub(crate) direction: Direction,
    pub(crate) parts: Vec<(C::Memory, C::RemoteMemory, Blocks)>,
    pub(crate) notice: Option<Vec<u8>>,
}

impl<'a, C: Transfers> NewTransfer<'a, C> {
    pub(crate) fn new(connection: &'a C, direction: Direction) -> NewTransfer<'a, C> {
        NewTransfer { connection, plan: Plan { direction, parts: Vec::new(), notice: None } }
    }

    /// Adds blocks, between other memory or the same. Their numbers follow those of the blocks so far.
    pub fn and(mut self, local: &C::Memory, remote: &C::RemoteMemory, blocks: &Blocks) -> NewTransfer<'a, C> {
        self.plan.parts.push((local.clone(), remote.clone(), blocks.clone()));
        self
    }

    /// Has the peer get `data`, at most 1024 bytes, from its connection's `notified`: once, when all blocks have moved, or never. What was put is
    /// visible to the peer then; what it shared for a get may be changed again. Takes credit as a message does.
    pub fn notify(mut self, data: &[u8]) -> NewTransfer<'a, C> {
        self.plan.notice = Some(data.to_vec());
        self
    }

    /// Starts it. Does not block, and does not wait for blocks to move; progress moves them, a few at a time between what else the
    /// connection and other connections do.
    ///
    /// # Errors
    /// `OUT_OF_RANGE` if a block is not part of its local or remote memory, `INVALID_PARAM` for memory that a get cannot write to or of another
    /// `Net`, for more than 16,777,216 blocks, or for a notification of more than 1024 bytes. The connection has failed or is closed.
    pub fn start(self) -> Result<C::Transfer> {
        self.connection.start_transfer(self.plan)
    }
}

impl<C: Transfers> fmt::Debug for NewTransfer<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks: usize = self.plan.parts.iter().map(|(_, _, blocks)| blocks.len()).sum();
        f.debug_struct("NewTransfer")
            .field("direction", &self.plan.direction)
            .field("blocks", &blocks)
            .finish_non_exhaustive()
    }
}
