//! One word that tells a busy loop whether anything rare is to be done.
//!
//! Used by `Worker::progress`, which looks at it and nothing else before it calls what is always called. Built on
//! words that the kernel wipes: a child of a fork finds the word wiped, so that the look notices forks, too.
//!
//! Each thing that may ask has a bit. Whoever has it asked for sets it, whoever has done it clears it; the word orders
//! nothing else, so what is to be done lies behind a lock of its own.

use std::fmt;

use crate::memory::wiped::WipedWord;
use crate::sync::atomic::Ordering;

/// What may ask for attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Asking {
    /// The callback queue: more than the fast slots.
    Queue = 1 << 1,
    /// The asynchronous context: handlers that nobody but progress runs.
    Async = 1 << 2,
    /// The owner of the loop.
    Owner = 1 << 3,
}

/// What the word is while nobody asks: not zero, which is what a fork leaves.
const CALM: u32 = 1;

/// Set for ever where a fork does not wipe the word: then every look is a careful one.
const UNWIPED: u32 = 1 << 31;

/// The word. Cheap to clone; any thread.
#[derive(Clone)]
pub struct Attention {
    word: WipedWord,
}

impl Attention {
    /// A word that nobody asks through.
    pub fn new() -> Attention {
        Attention { word: WipedWord::new(CALM, UNWIPED) }
    }

    /// Whether nothing is asked for and this process is the one that made the word: a load and a comparison.
    #[inline]
    pub fn is_calm(&self) -> bool {
        // SYNC: what is asked for lies behind locks, so this orders nothing.
        self.word.get().load(Ordering::Relaxed) == CALM
    }

    /// Whether nobody but `who` asks, in the process that made the word. False also where a fork does not wipe the word.
    #[inline]
    pub fn is_only_asked(&self, who: Asking) -> bool {
        // SYNC: as in `is_calm`.
        self.word.get().load(Ordering::Relaxed) == CALM | who as u32
    }

    /// Whether `who` asks.
    #[inline]
    pub fn is_asked(&self, who: Asking) -> bool {
        // SYNC: as in `is_calm`.
        self.word.get().load(Ordering::Relaxed) & who as u32 != 0
    }

    /// Asks.
    pub fn ask(&self, who: Asking) {
        // SYNC: as in `is_calm`. A word that a fork has wiped stays one that is not calm.
        self.word.get().fetch_or(who as u32, Ordering::Relaxed);
    }

    /// Asks no longer.
    pub fn settle(&self, who: Asking) {
        // SYNC: as in `is_calm`.
        self.word.get().fetch_and(!(who as u32), Ordering::Relaxed);
    }
}

impl Default for Attention {
    fn default() -> Attention {
        Attention::new()
    }
}

impl fmt::Debug for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attention").field("is_calm", &self.is_calm()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_calm_again_when_all_that_asked_are_settled() {
        let attention = Attention::new();
        assert!(attention.is_calm());
        attention.ask(Asking::Queue);
        attention.clone().ask(Asking::Owner);
        attention.settle(Asking::Queue);
        assert!(
            !attention.is_calm() && !attention.is_asked(Asking::Queue) && attention.is_asked(Asking::Owner)
        );
        attention.settle(Asking::Owner);
        assert!(attention.is_calm());
    }
}
