//! The message ring between two processes: one sender, one receiver, memory that neither trusts.
//!
//! Used by `link`. Built on `ucs::sync` and on memory that implements [`RingMemory`].
//!
//! A ring is an array of 64-byte slots. A message of up to [`INLINE_BYTES`] travels in its slot, which costs the transfer of one cache
//! line. A larger message is written to a block (small or bulk) that its slot names. A [`TurnLine`] carries replies in addition to
//! two rings. The protocol has five parts:
//!
//! - **Publication.** The first word of a slot contains the sequence number of the message in the slot. The sender writes it last. The
//!   receiver polls for the next sequence number, and polls nothing else.
//! - **Growth.** With little traffic only the first slots are used. The control word of a message contains where the next message is: in the first
//!   slot, or in the next one. The sender alone decides to use all slots, and to return to the first ones ([`Sender::trim`]).
//! - **Credit.** The receiver publishes its position in batches, in a word of its own. The sender reads that word after each message.
//!   The word is nearly always unchanged and in the sender's cache.
//! - **Release.** Blocks may be returned in any order, so each pool has one word of toggles that the receiver writes. A block is free
//!   when its toggle equals the sender's private one.
//! - **Doorbell.** A receiver does not poll idle rings. It marks them in the credit word, and the sender on an idle ring sets a bit in the
//!   receiver's [`Doorbell`]. Polling costs the same for one ring and for a thousand.
//!
//! Each side keeps its state privately. It reads a word of the other side once, checks it, and then uses it. A peer that writes invalid
//! values causes a [`Corrupt`] error on this ring and affects nothing else.

mod barrier;
mod control;
mod copy;
mod doorbell;
mod hint;
mod layout;
mod memory;
mod receiver;
mod sender;
mod turn_line;

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod testing;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, loom))]
mod watched;

pub use barrier::register_heavy_barrier;
pub use control::{BODY_WORDS, Control, INLINE_BYTES, Place, Short, TURN_LINE_BYTES};
#[cfg(all(test, loom))]
use doorbell::DoorbellMemory;
pub use doorbell::{DOORBELL_BYTES, Doorbell, MappedDoorbell};
#[cfg(all(test, not(loom)))]
use layout::LayoutError;
pub use layout::{FIRST_BYTES, FIRST_SLOTS, Geometry, Layout, Pool};
pub use memory::{MappedRing, RingMemory};
pub use receiver::{Body, Delivery, Message, Receiver, Watch, publish_idle};
pub use sender::{Block, Refused, Sender, Sent, Trim};
pub use turn_line::{MappedTurnLine, TurnLine};

/// The peer wrote something into shared memory that no correct peer writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// The receiver's credit is ahead of what was sent, or has gone backwards.
    #[error("the peer acknowledges message {head}, of which {tail} were sent")]
    Credit {
        /// The position in the peer's word.
        head: u64,
        /// The position of the sender.
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
