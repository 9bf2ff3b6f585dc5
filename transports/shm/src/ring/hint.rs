//! Two hints to the compiler and the processor without which a ring runs at a fifth of its rate.
//!
//! For: sender and receiver. Stands on inline assembly, where there is one for the processor; elsewhere nothing is lost
//! but speed.

/// Asks for the cache line of `address` to be written soon. Any address will do.
///
/// Stores leave the processor in order, and between the stores of two messages there are always some to private memory.
/// Those keep it from fetching the lines of later messages ahead of time: 48 ns for each message instead of 8.
#[inline(always)]
pub(super) fn prefetch_for_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch has no effect that a program can see, and never faults.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// The same number, of which the compiler does not know that it is related to anything.
///
/// It knows that the number in a slot equals the receiver's `head + 1`, and would take the new `head` from there. The
/// address of the next slot would then depend on the cache line of this one, and the processor could not fetch lines in
/// parallel.
#[inline(always)]
pub(super) fn unrelated(number: u32) -> u32 {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        let mut number = u64::from(number);
        // SAFETY: no instruction at all.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
        }
        number as u32
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    number
}
