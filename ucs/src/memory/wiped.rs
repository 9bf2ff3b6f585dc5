//! Words that are zero in a child of a fork.
//!
//! Used by [`crate::pending_work`], which notices a fork by the same load that it does anyhow. Built on `MADV_WIPEONFORK`.
//!
//! Words come from pages that are never unmapped, one cache line each, and go back to a list. A child that was forked while
//! another thread had the list finds it locked for ever, and does without.

#[cfg(not(loom))]
pub(crate) use real::WipedWord;

#[cfg(not(loom))]
mod real {
    use std::ptr::NonNull;
    use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
    use std::thread;

    use crate::memory::fork::wiped_page;
    use crate::sync::fixed::{AtomicU32, Ordering};
    use crate::sys::pages;

    /// Bytes from one word to the next.
    const LINE: usize = 64;

    /// Attempts to read the list until it is taken for locked for ever.
    const ATTEMPTS: u32 = 10_000;

    /// A word. Cheap to clone; any thread.
    #[derive(Clone)]
    pub(crate) struct WipedWord {
        at: NonNull<AtomicU32>,
        // Held so that the word outlives every clone.
        _owner: Arc<Owner>,
    }

    // SAFETY: the word is an atomic that lives as long as its owner, which is shared.
    unsafe impl Send for WipedWord {}
    // SAFETY: as above.
    unsafe impl Sync for WipedWord {}

    /// Where the word comes from, and goes back to.
    enum Owner {
        Page(&'static AtomicU32),
        /// The kernel wipes no pages.
        Heap(Box<AtomicU32>),
    }

    /// Words that are not in use.
    static FREE: Mutex<Vec<&'static AtomicU32>> = Mutex::new(Vec::new());

    impl WipedWord {
        /// A word with this value. `unwiped` is set in it for ever where the kernel cannot wipe.
        pub(crate) fn new(value: u32, unwiped: u32) -> WipedWord {
            let owner = match take() {
                Some(word) => {
                    word.store(value, Ordering::Relaxed);
                    Owner::Page(word)
                }
                None => Owner::Heap(Box::new(AtomicU32::new(value | unwiped))),
            };
            let owner = Arc::new(owner);
            let at = match &*owner {
                Owner::Page(word) => NonNull::from(*word),
                Owner::Heap(word) => NonNull::from(&**word),
            };
            WipedWord { at, _owner: owner }
        }

        /// The word itself.
        #[inline]
        pub(crate) fn get(&self) -> &AtomicU32 {
            // SAFETY: the owner keeps it.
            unsafe { self.at.as_ref() }
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            if let Owner::Page(word) = self {
                // Without the list the word is lost, with 64 bytes.
                if let Some(mut free) = free_list() {
                    free.push(word);
                }
            }
        }
    }

    /// The list, unless it stays locked: it is held for a few instructions, or by a thread that this process does not have.
    fn free_list() -> Option<MutexGuard<'static, Vec<&'static AtomicU32>>> {
        for _ in 0..ATTEMPTS {
            match FREE.try_lock() {
                Ok(free) => return Some(free),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
        None
    }

    fn take() -> Option<&'static AtomicU32> {
        let Some(mut free) = free_list() else { return words_of_a_page()?.next() };
        if free.is_empty() {
            free.extend(words_of_a_page()?);
        }
        free.pop()
    }

    fn words_of_a_page() -> Option<impl Iterator<Item = &'static AtomicU32>> {
        let page = wiped_page()?;
        Some((0..pages::page_size()).step_by(LINE).map(move |offset| {
            // SAFETY: within the page.
            let word = unsafe { page.add(offset) };
            // SAFETY: the page is never unmapped, zeroed, aligned, and these words are all that is used of it.
            unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
        }))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_list_that_stays_locked_is_done_without() {
            let held = FREE.lock().unwrap();
            let word = WipedWord::new(7, 1 << 31);
            assert_eq!(word.get().load(Ordering::Relaxed) & !(1 << 31), 7);
            drop(word);
            drop(held);
        }
    }
}

/// A word that nothing wipes: a model does not fork.
#[cfg(loom)]
#[derive(Clone)]
pub(crate) struct WipedWord {
    word: crate::sync::Arc<crate::sync::atomic::AtomicU32>,
}

#[cfg(loom)]
impl WipedWord {
    pub(crate) fn new(value: u32, _unwiped: u32) -> WipedWord {
        WipedWord { word: crate::sync::Arc::new(crate::sync::atomic::AtomicU32::new(value)) }
    }

    pub(crate) fn get(&self) -> &crate::sync::atomic::AtomicU32 {
        &self.word
    }
}
