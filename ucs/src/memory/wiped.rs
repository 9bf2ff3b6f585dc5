//! Words that are zero in a child of a fork.
//!
//! For: [`crate::attention`], which notices a fork by the same load that it does anyhow. Stands on `MADV_WIPEONFORK`.
//!
//! Words come from pages that are never unmapped, one cache line each, and go back to a list.

#[cfg(not(loom))]
pub(crate) use real::WipedWord;

#[cfg(not(loom))]
mod real {
    use std::ptr::NonNull;
    use std::sync::{Arc, Mutex, PoisonError};

    use crate::memory::fork::wiped_page;
    use crate::sync::fixed::{AtomicU32, Ordering};
    use crate::sys::pages;

    /// Bytes from one word to the next.
    const LINE: usize = 64;

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

    /// Words that nobody has.
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
        #[inline(always)]
        pub(crate) fn get(&self) -> &AtomicU32 {
            // SAFETY: the owner keeps it.
            unsafe { self.at.as_ref() }
        }
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            if let Owner::Page(word) = self {
                FREE.lock().unwrap_or_else(PoisonError::into_inner).push(word);
            }
        }
    }

    fn take() -> Option<&'static AtomicU32> {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            let page = wiped_page()?;
            for offset in (0..pages::page_size()).step_by(LINE) {
                // SAFETY: within the page.
                let word = unsafe { page.add(offset) };
                // SAFETY: the page is never unmapped, zeroed, aligned, and these words are all that is used of it.
                free.push(unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) });
            }
        }
        free.pop()
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
