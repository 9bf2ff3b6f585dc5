//! Transfers: sets of blocks that move between registered memory of both sides, with one end and one notification.
//!
//! Which blocks ([`Blocks`]), and what became of them ([`Receipt`], [`Moved`]), are the same in both flavours. The engine that moves them is
//! `local::conn::moves`; when it may notify the peer is decided by `proto::course`.

mod blocks;
mod outcome;

pub(crate) use blocks::Direction;
pub use blocks::{BadBlocks, Block, Blocks, Stride};
pub(crate) use outcome::mark;
pub use outcome::{Moved, Receipt};
