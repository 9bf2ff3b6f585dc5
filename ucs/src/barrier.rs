//! A store-load barrier whose cost falls on the side that needs it rarely.
//!
//! For protocols in which each of two sides stores and then loads what the other one stores, and where one of the two must see
//! the other's store. Built on membarrier(2). That takes a full barrier on both sides, 5 ns each time. `membarrier` lets the rare
//! side run the barrier on all processors on behalf of the frequent side, which pays nothing.

use crate::sync::atomic::Ordering;

/// Whose threads make the light barriers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// Those of this process.
    Threads,
    /// Those of all processes that have registered.
    Processes,
}

/// The frequent side: orders a store before it with a load behind it, as seen by a thread that calls [`heavy`] in between.
#[inline]
pub fn light() {
    // Neither loom nor Miri knows membarrier; a full barrier here has the same effect.
    if cfg!(any(loom, miri)) {
        full();
    }
    crate::sync::fixed::compiler_fence(Ordering::SeqCst);
}

/// Both sides in one, for where [`heavy`] does not reach the other side.
#[inline]
pub fn full() {
    crate::sync::atomic::fence(Ordering::SeqCst);
}

/// The rare side. Returns whether it has reached the others; where it has not, it was a full barrier of the caller alone, and the frequent
/// side must use [`full`].
#[inline]
pub fn heavy(among: Among) -> bool {
    full();
    #[cfg(not(any(loom, miri)))]
    {
        let reached = is_registered(among) && system::membarrier(among.command());
        full();
        reached
    }
    #[cfg(any(loom, miri))]
    {
        let _ = among;
        true
    }
}

/// Registers this process for heavy barriers; returns whether the kernel makes them.
///
/// Done once per process; the result is kept. The threads of a process that has not registered must not use the light barrier.
pub fn register(among: Among) -> bool {
    #[cfg(not(any(loom, miri)))]
    {
        *among.registered().get_or_init(|| system::membarrier(among.registration()))
    }
    #[cfg(any(loom, miri))]
    {
        let _ = among;
        true
    }
}

/// Whether [`register`] has succeeded in this process.
#[inline]
pub fn is_registered(among: Among) -> bool {
    #[cfg(not(any(loom, miri)))]
    {
        among.registered().get().copied().unwrap_or(false)
    }
    #[cfg(any(loom, miri))]
    {
        let _ = among;
        true
    }
}

#[cfg(not(any(loom, miri)))]
mod system {
    use std::sync::OnceLock;

    use super::Among;

    // Of linux/membarrier.h: `MEMBARRIER_CMD_` and these names.
    const GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
    const REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    impl Among {
        pub(super) fn command(self) -> libc::c_int {
            match self {
                Among::Threads => PRIVATE_EXPEDITED,
                Among::Processes => GLOBAL_EXPEDITED,
            }
        }

        pub(super) fn registration(self) -> libc::c_int {
            match self {
                Among::Threads => REGISTER_PRIVATE_EXPEDITED,
                Among::Processes => REGISTER_GLOBAL_EXPEDITED,
            }
        }

        /// The result of the registration, once it was made.
        pub(super) fn registered(self) -> &'static OnceLock<bool> {
            static THREADS: OnceLock<bool> = OnceLock::new();
            static PROCESSES: OnceLock<bool> = OnceLock::new();
            match self {
                Among::Threads => &THREADS,
                Among::Processes => &PROCESSES,
            }
        }
    }

    pub(super) fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: membarrier takes three integers and touches no memory of the caller.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}
