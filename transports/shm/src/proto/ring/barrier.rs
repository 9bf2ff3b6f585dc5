//! The barrier between a sender that publishes a message and a receiver that is about to sleep.
//!
//! Used by sender and receiver of a ring. Built on `ucs`'s barrier between processes. A sender publishes a message and then checks whether
//! the ring is idle. A receiver marks the ring idle and then polls once more. One of them must see the other's store.

pub(super) use ucs::barrier::full;
use ucs::barrier::{self, Among};

/// Sender's half: orders a store ahead of it with a load behind it, as seen by a process that calls [`heavy`].
/// `fenced`: the receiver has no heavy barrier, and the sender calls [`full`] afterwards.
#[inline(always)]
pub(super) fn light(fenced: bool) {
    // A sender with full barriers has no heavy barrier at its peer, so a model must not emulate one.
    if cfg!(any(loom, miri)) && fenced {
        return;
    }
    barrier::light();
}

/// Receiver's half. Where membarrier is missing this is a full barrier of the caller alone, and the sender must use
/// [`full`] (the `FENCE` flag of the ring asks it to).
#[inline]
pub(super) fn heavy() {
    barrier::heavy(Among::Processes);
}

/// Registers this process for other processes' heavy barriers; returns whether the kernel supports it.
pub fn register_heavy_barrier() -> bool {
    barrier::register(Among::Processes)
}
