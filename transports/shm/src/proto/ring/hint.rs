//! A hint to the processor, without which a ring runs at a fifth of its rate.
//!
//! Used by the sender. Built on inline assembly for x86-64 and aarch64; other processors are only slower.

/// Asks for the cache line `index + OFFSET` bytes behind `base` to be written soon. Any address will do.
///
/// Stores leave the processor in order, and between the stores of two messages there are always some to private memory.
/// Those keep it from fetching the lines of later messages ahead of time: 48 ns for each message instead of 8.
#[inline(always)]
pub(super) fn prefetch_for_write<const OFFSET: usize>(base: *const u8, index: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect that a program can see, and never faults.
    unsafe {
        std::arch::asm!(
            "prefetchw [{0} + {1} + {2}]",
            in(reg) base,
            in(reg) index,
            const OFFSET,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "prfm pstl1keep, [{0}, {1}]",
            in(reg) base,
            in(reg) index + OFFSET,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = (base, index);
}
