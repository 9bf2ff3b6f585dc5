//! Memory of peers that lies in this process, and that the host therefore accesses without a call of the transport: words by
//! put, get and atomics.
//!
//! For: memory domains, which answer a [`Window`] for a key, and endpoints, whose [`Gate`] says when such accesses may go
//! ahead. All else, and all that a window does not cover, comes to the endpoint's methods.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use uct_abi::{UctGate, UctMd, UctWindow};

use super::MemoryAccess;
use crate::traits::Md;

/// Bytes of a word.
const WORD: u64 = size_of::<u64>() as u64;

/// What of a key's memory lies in this process, and for how long.
#[derive(Clone, Copy)]
pub struct Window<'key> {
    raw: UctWindow,
    live: PhantomData<&'key AtomicU64>,
}

impl<'key> Window<'key> {
    /// The window onto `length` bytes of remote memory at `base`, which lie `shift` higher in this process (it wraps around),
    /// for what is `granted`, while `live` holds `value`. Whole aligned words are accessible through it.
    ///
    /// # Safety
    /// As long as the key lives and `live` holds `value`, the bytes may be read and written here as granted.
    pub unsafe fn new(
        base: u64,
        length: u64,
        shift: u64,
        granted: MemoryAccess,
        live: &'key AtomicU64,
        value: u64,
    ) -> Window<'key> {
        let first = base.checked_next_multiple_of(WORD).unwrap_or(u64::MAX);
        let local = first.wrapping_add(shift);
        let words = if local.is_multiple_of(WORD) { length.saturating_sub(first - base) / WORD } else { 0 };
        let of = |access| if granted.contains(access) { words } else { 0 };
        let raw = UctWindow {
            size: size_of::<UctWindow>(),
            base: first,
            local: local as *mut u64,
            put_words: of(MemoryAccess::REMOTE_PUT),
            get_words: of(MemoryAccess::REMOTE_GET),
            atomic_words: of(MemoryAccess::REMOTE_ATOMIC),
            live: live.as_ptr(),
            value,
        };
        Window { raw, live: PhantomData }
    }

    /// The table for the host.
    pub(crate) fn as_raw(&self) -> &UctWindow {
        &self.raw
    }
}

/// Whether the host may access memory through windows on behalf of an endpoint. Closed at first.
#[derive(Debug)]
#[repr(transparent)]
pub struct Gate {
    /// Where the host expects [`UctGate::md`].
    md: Cell<*const UctMd>,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { md: Cell::new(ptr::null()) }
    }
}

impl Gate {
    /// Accesses to memory of this domain's keys may go ahead.
    pub fn open<M: Md>(&self, md: &Arc<M>) {
        self.md.set(Arc::as_ptr(md).cast());
    }

    /// They may not: the endpoint's methods are called instead.
    pub fn close(&self) {
        self.md.set(ptr::null());
    }

    /// The word that the host looks at.
    pub(crate) fn as_raw(&self) -> *const UctGate {
        ptr::from_ref(self).cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: MemoryAccess = MemoryAccess::all();

    fn window(base: u64, length: u64, shift: u64, granted: MemoryAccess) -> UctWindow {
        let live = AtomicU64::new(1);
        // SAFETY: nobody looks through it.
        unsafe { *Window::new(base, length, shift, granted, &live, 1).as_raw() }
    }

    #[test]
    fn a_window_has_the_whole_aligned_words_of_its_memory_and_no_other() {
        for base in 64..72 {
            for length in 0..40 {
                let window = window(base, length, 0, ALL);
                let expected: Vec<u64> =
                    (base..base + length).filter(|at| at % WORD == 0 && at + WORD <= base + length).collect();
                let found: Vec<u64> = (0..window.put_words).map(|word| window.base + word * WORD).collect();
                assert_eq!(found, expected, "{length} bytes at {base}");
            }
        }
        assert_eq!(window(u64::MAX - 3, 3, 0, ALL).put_words, 0);
        assert_eq!(window(64, 64, 4, ALL).atomic_words, 0, "words that are not aligned here");
    }

    #[test]
    fn a_window_grants_what_the_registration_does() {
        let words = |granted| {
            let window = window(64, 64, 0, granted);
            (window.put_words, window.get_words, window.atomic_words)
        };
        assert_eq!(words(MemoryAccess::REMOTE_PUT), (8, 0, 0));
        assert_eq!(words(MemoryAccess::REMOTE_GET), (0, 8, 0));
        assert_eq!(words(MemoryAccess::REMOTE_ATOMIC), (0, 0, 8));
        assert_eq!(words(MemoryAccess::empty()), (0, 0, 0));
    }
}
