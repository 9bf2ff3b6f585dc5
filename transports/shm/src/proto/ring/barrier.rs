//! The barrier between a sender that publishes a message and a receiver that is about to sleep.
//!
//! For: sender and receiver of a ring. Stands on `ucs`'s barrier between processes. A sender publishes a message and then asks whether
//! the receiver has stopped looking; a receiver says that it stops looking and then looks once more. One of them must see the
//! other's store.

pub(super) use ucs::barrier::full;
use ucs::barrier::{self, Among};

/// Sender's half: orders a store ahead of it with a load behind it, as seen by a process that calls [`heavy`].
/// `fenced` says that the receiver has no heavy barrier and the sender follows up with [`full`].
#[inline(always)]
pub(super) fn light(fenced: bool) {
    // For a sender that makes full barriers of its own there is no heavy one to stand for, so a model must do without.
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

/// Registers this process for other processes' heavy barriers; answers whether the kernel does it.
pub fn register_heavy_barrier() -> bool {
    barrier::register(Among::Processes)
}
