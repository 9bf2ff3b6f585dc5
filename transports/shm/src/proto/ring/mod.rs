//! The message ring between two processes: one sender, one receiver, memory that neither trusts.
//!
//! For: the transports of this crate. Stands on `ucs::sync` and on memory that implements [`RingMemory`].
//!
//! A ring is an array of 64-byte slots. A message of up to [`INLINE_BYTES`] travels in its slot, so that it costs the
//! move of one cache line; a larger one lies in a block (small or bulk) that its slot names. Four ideas carry it
//! (and a [`Shuttle`] beside two of them short answers):
//!
//! - **Publication.** The first word of a slot holds the sequence number of the message that is in it. The sender
//!   writes it last, the receiver looks for the number that it expects next. Nothing else is polled.
//! - **Credit.** The receiver publishes how far it has come in batches, in a word of its own. The sender looks at that
//!   word after each message and finds it unchanged, in its own cache, nearly always.
//! - **Release.** Blocks may be given back in any order, so each pool has one word of toggles written by the receiver:
//!   a block is free when its toggle equals the sender's private one.
//! - **Doorbell.** A receiver does not poll rings that have been quiet: it marks them cold in the credit word, and the
//!   sender of a cold ring sets a bit in the receiver's [`Doorbell`]. Looking for news costs the same for one ring and for
//!   a thousand.
//!
//! Each side keeps what it knows privately and reads the other's words once, checks and uses them: a peer that writes
//! nonsense gets a [`Corrupt`] error on this ring and reaches nothing else.

mod barrier;
mod control;
mod copy;
mod doorbell;
mod hint;
mod layout;
mod memory;
mod receiver;
mod sender;
mod shuttle;

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod testing;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, loom))]
mod watched;

pub use barrier::register_heavy_barrier;
pub use control::{BODY_WORDS, Control, INLINE_BYTES, Place, SHUTTLE_BYTES, Short};
pub use copy::copy_small;
#[cfg(all(test, loom))]
use doorbell::DoorbellMemory;
pub use doorbell::{DOORBELL_BYTES, Doorbell, MappedDoorbell};
#[cfg(all(test, not(loom)))]
use layout::LayoutError;
pub use layout::{Geometry, Layout, Pool};
pub use memory::{MappedRing, RingMemory};
pub use receiver::{Body, Delivery, Message, Receiver, Watch, settle};
pub use sender::{Block, Refused, Sender, Sent};
pub use shuttle::{MappedShuttle, Shuttle};

/// The peer wrote something into shared memory that no correct peer writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// The receiver's credit is ahead of what was sent, or has gone backwards.
    #[error("the peer acknowledges message {head}, of which {tail} were sent")]
    Credit {
        /// What the peer's word says.
        head: u64,
        /// What was really sent.
        tail: u64,
    },
    /// An inline message longer than a slot.
    #[error("an inline message of {length} bytes, where {INLINE_BYTES} fit")]
    Inline {
        /// The length that the slot names.
        length: u32,
    },
    /// A message in a place that does not exist.
    #[error("a message in an unknown place (control word {control:#018x})")]
    Place {
        /// The control word.
        control: u64,
    },
    /// A block beyond the pool, or one that the receiver still holds.
    #[error("a message in block {index}, which is not the sender's to use")]
    Block {
        /// The block that the slot names.
        index: u32,
    },
    /// A message longer than its block.
    #[error("a message of {length} bytes in a block of {capacity}")]
    Length {
        /// The length that the slot names.
        length: u32,
        /// What the block holds.
        capacity: u32,
    },
}
