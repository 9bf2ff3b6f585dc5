//! One word whose bits say which rare work a busy loop has to do.
//!
//! Used by `Worker::progress`, which checks this word and nothing else before it calls the interfaces. Built on words that the kernel
//! wipes at a fork, so the same check detects that the process is a child.
//!
//! Each source of work has a bit. The source sets it when there is work, and clears it when the work is done. The word orders no other
//! memory: each source protects its work by a lock of its own.

use std::fmt;

use crate::memory::wiped::WipedWord;
use crate::sync::atomic::Ordering;

/// A source of pending work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WorkSource {
    /// The callback queue: more than the fast slots.
    Queue = 1 << 1,
    /// The asynchronous context: handlers that only progress runs.
    Async = 1 << 2,
    /// The owner of the loop.
    Owner = 1 << 3,
}

/// The word while no work is pending. It is not zero, which is what a fork leaves.
const EMPTY: u32 = 1;

/// Always set where a fork does not wipe the word: every check then takes the slow path.
const UNWIPED: u32 = 1 << 31;

/// The word. Cheap to clone; any thread.
#[derive(Clone)]
pub struct PendingWork {
    word: WipedWord,
}

impl PendingWork {
    /// A word without pending work.
    pub fn new() -> PendingWork {
        PendingWork { word: WipedWord::new(EMPTY, UNWIPED) }
    }

    /// Whether no work is pending and this process is the one that made the word: a load and a comparison.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // SYNC: the work itself is behind locks, so this orders nothing.
        self.word.get().load(Ordering::Relaxed) == EMPTY
    }

    /// Whether `source` alone has work, in the process that made the word. False also where a fork does not wipe the word.
    #[inline]
    pub fn is_only(&self, source: WorkSource) -> bool {
        // SYNC: as in `is_empty`.
        self.word.get().load(Ordering::Relaxed) == EMPTY | source as u32
    }

    /// Whether `source` has work.
    #[inline]
    pub fn has(&self, source: WorkSource) -> bool {
        // SYNC: as in `is_empty`.
        self.word.get().load(Ordering::Relaxed) & source as u32 != 0
    }

    /// Sets the bit of `source`.
    pub fn add(&self, source: WorkSource) {
        // SYNC: as in `is_empty`. A word that a fork has wiped is never empty.
        self.word.get().fetch_or(source as u32, Ordering::Relaxed);
    }

    /// Clears the bit of `source`.
    pub fn remove(&self, source: WorkSource) {
        // SYNC: as in `is_empty`.
        self.word.get().fetch_and(!(source as u32), Ordering::Relaxed);
    }
}

impl Default for PendingWork {
    fn default() -> PendingWork {
        PendingWork::new()
    }
}

impl fmt::Debug for PendingWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingWork").field("is_empty", &self.is_empty()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_empty_again_when_the_work_of_all_sources_is_done() {
        let work = PendingWork::new();
        assert!(work.is_empty());
        work.add(WorkSource::Queue);
        work.clone().add(WorkSource::Owner);
        work.remove(WorkSource::Queue);
        assert!(!work.is_empty() && !work.has(WorkSource::Queue) && work.has(WorkSource::Owner));
        work.remove(WorkSource::Owner);
        assert!(work.is_empty());
    }
}
