//! A store-load barrier whose cost falls on the side that is about to sleep.
//!
//! For: sender and receiver of a ring. Stands on membarrier(2). A sender publishes a message and then asks whether the
//! receiver has stopped looking; a receiver says that it stops looking and then looks once more. One of them must see
//! the other's store, which takes a full barrier on both sides: 5 ns for every message. `membarrier` lets the receiver
//! run that barrier on all processors for them, so a sender pays nothing.

use ucs::sync::atomic::Ordering;

/// Sender's half: orders a store ahead of it with a load behind it, as seen by a process that calls [`heavy`].
/// `fenced` says that the receiver has no heavy barrier and the sender follows up with [`full`].
#[inline(always)]
pub(super) fn light(fenced: bool) {
    // Neither loom nor Miri knows membarrier; a full barrier here has the same effect. For a sender that makes full
    // barriers of its own there is no heavy one to stand for, so a model must do without.
    if cfg!(any(loom, miri)) && !fenced {
        full();
    }
    ucs::sync::fixed::compiler_fence(Ordering::SeqCst);
}

/// Both halves in one, for where [`heavy`] cannot be relied on.
#[inline]
pub(super) fn full() {
    ucs::sync::atomic::fence(Ordering::SeqCst);
}

/// Receiver's half. Where membarrier is missing this is a full barrier of the caller alone, and the sender must use
/// [`full`] (the `FENCE` flag of the ring asks it to).
#[inline]
pub(super) fn heavy() {
    full();
    #[cfg(not(any(loom, miri)))]
    if heavy_barrier_available() {
        system::membarrier(system::GLOBAL_EXPEDITED);
        full();
    }
}

/// Registers this process for other processes' heavy barriers; answers whether the kernel does it.
///
/// Made once per process, the answer is kept. A process that has not registered must not use the light barrier.
pub fn register_heavy_barrier() -> bool {
    #[cfg(not(any(loom, miri)))]
    {
        *system::REGISTERED.get_or_init(|| system::membarrier(system::REGISTER_GLOBAL_EXPEDITED))
    }
    #[cfg(any(loom, miri))]
    {
        true
    }
}

/// Whether [`register_heavy_barrier`] has succeeded in this process.
pub fn heavy_barrier_available() -> bool {
    #[cfg(not(any(loom, miri)))]
    {
        system::REGISTERED.get().copied().unwrap_or(false)
    }
    #[cfg(any(loom, miri))]
    {
        true
    }
}

#[cfg(not(any(loom, miri)))]
mod system {
    use std::sync::OnceLock;

    /// `MEMBARRIER_CMD_GLOBAL_EXPEDITED` of linux/membarrier.h.
    pub const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
    /// `MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED`.
    pub const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

    /// The answer of the registration, once it was made.
    pub static REGISTERED: OnceLock<bool> = OnceLock::new();

    pub fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: membarrier takes three integers and touches no memory of the caller.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}
