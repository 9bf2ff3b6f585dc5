//! Telling the kernel how memory is about to be used.
//!
//! Used by memory domains. Built on `madvise`. Advice changes when pages are read in, and never what they hold.

use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::sys::SystemError;
use crate::sys::pages::page_size;

/// How a range of memory is about to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// As any other memory.
    Normal,
    /// Soon: what was swapped out is read in ahead.
    Soon,
}

/// Advises about all pages that the range touches. Does not block; a range of no bytes is nothing.
///
/// # Errors
/// A part of the range is not mapped.
pub fn advise(address: NonNull<u8>, length: usize, about: Use) -> Result<(), SystemError> {
    let before = address.as_ptr().addr() % page_size();
    let first = address.as_ptr().wrapping_sub(before);
    let advice = match about {
        Use::Normal => Advice::Normal,
        Use::Soon => Advice::WillNeed,
    };
    // SAFETY: neither advice changes contents or mappings, so it does not matter whose memory it is.
    match unsafe { madvise(first.cast(), before + length, advice) } {
        // A kernel without swap has nothing to read in.
        Ok(()) | Err(Errno::BADF) => Ok(()),
        Err(errno) => Err(SystemError::new(format!("advise about {length} bytes at {address:p}"), errno)),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::memory::{Method, allocate};

    #[test]
    fn advice_about_any_part_of_memory_is_taken_and_changes_nothing() {
        let mut bytes = vec![7_u8; 3 * page_size() + 5];
        let start = NonNull::from(bytes.as_mut_slice()).cast::<u8>();
        for (offset, length) in [(0, bytes.len()), (1, 1), (page_size() - 1, 2), (5, 0)] {
            for about in [Use::Normal, Use::Soon] {
                // SAFETY: the offset is inside of the vector.
                advise(unsafe { start.add(offset) }, length, about).unwrap();
            }
        }
        assert!(bytes.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn advice_about_memory_that_is_not_mapped_is_an_error_that_names_it() {
        let allocation = allocate(Method::Mmap, page_size(), 1).unwrap();
        let start = NonNull::new(allocation.as_ptr()).unwrap();
        drop(allocation);
        // Another thread may map the place again, but not all of the address space.
        let error = advise(start, 1 << 46, Use::Soon).unwrap_err();
        assert!(error.to_string().contains("bytes at 0x"), "{error}");
    }
}
