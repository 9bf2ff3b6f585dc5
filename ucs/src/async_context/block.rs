//! The lock that keeps handlers from running, and remembers that some were missed.
//!
//! Used by the asynchronous context, whose thread never waits for the application: it tries, and if the lock is
//! held it sets a flag, which the holder reads when it releases the lock. Built on `sync`; modelled with loom in `models`.
//!
//! Lock and note are bits of one atomic, so the holder's release and the thread's note cannot pass each
//! other: either the note is there when the holder tries to release, or the thread sees that the lock is free
//! and takes it itself.

use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, hint};

#[cfg(loom)]
mod models;
#[cfg(loom)]
pub(super) use models::thread_token;

const HELD: u32 = 1;
const MISSED: u32 = 2;
const WAITERS: u32 = 4;

/// Looks at a held lock before a thread sleeps: about a microsecond, the length of a short blocked section.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };

/// A recursive lock with a note.
pub(super) struct Block {
    state: AtomicU32,
    /// The token of the thread that holds the lock, 0 for none. Only that thread writes its own token here,
    /// so a thread that reads its token holds the lock; relaxed is enough.
    owner: AtomicUsize,
    /// How often the holder has entered. Touched by the holder only.
    depth: AtomicU32,
    parking: Mutex<()>,
    released: Condvar,
}

impl Block {
    pub(super) fn new() -> Block {
        Block {
            state: AtomicU32::new(0),
            owner: AtomicUsize::new(0),
            depth: AtomicU32::new(0),
            parking: Mutex::new(()),
            released: Condvar::new(),
        }
    }

    /// Takes the lock, waiting for another thread to leave it.
    #[inline]
    pub(super) fn enter(&self) {
        if !self.try_enter() {
            self.wait_and_enter();
        }
    }

    /// Takes the lock if it is free or this thread's already.
    #[inline]
    pub(super) fn try_enter(&self) -> bool {
        let token = thread_token();
        if self.owner.load(Ordering::Relaxed) == token {
            self.depth.store(self.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return true;
        }
        // SYNC: Acquire pairs with the Release in `leave`.
        let entered = self.state.fetch_or(HELD, Ordering::Acquire) & HELD == 0;
        if entered {
            self.take_ownership(token);
        }
        entered
    }

    /// Whether this thread holds the lock.
    #[inline]
    pub(super) fn is_entered_here(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == thread_token()
    }

    /// Leaves a note that something was put aside. Returns whether the lock was free, and hence whether the
    /// caller has to enter and leave it, so that the note is found.
    pub(super) fn note_missed(&self) -> bool {
        // SYNC: Release pairs with the Acquire in `leave` that takes the note: what was put aside is visible
        // there.
        self.state.fetch_or(MISSED, Ordering::Release) & HELD == 0
    }

    /// Gives up one `enter`. The last one runs `replay` for every note found, then releases the lock.
    /// Returns `false`, having done nothing, on a thread that does not hold the lock.
    #[inline]
    pub(super) fn leave(&self, mut replay: impl FnMut()) -> bool {
        let token = thread_token();
        if self.owner.load(Ordering::Relaxed) != token {
            return false;
        }
        let depth = self.depth.load(Ordering::Relaxed);
        if depth > 1 {
            self.depth.store(depth - 1, Ordering::Relaxed);
            return true;
        }
        loop {
            let state = self.state.load(Ordering::Relaxed);
            if state & MISSED != 0 {
                // SYNC: Acquire pairs with the Release in `note_missed`.
                self.state.fetch_and(!MISSED, Ordering::Acquire);
                replay();
                continue;
            }
            self.depth.store(0, Ordering::Relaxed);
            self.owner.store(0, Ordering::Relaxed);
            // SYNC: Release pairs with the Acquire in `try_enter` and `wait_and_enter`. It fails if a note or
            // a waiter has appeared since the load above.
            if self.state.compare_exchange(state, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
                if state & WAITERS != 0 {
                    self.wake_waiters();
                }
                return true;
            }
            self.take_ownership(token);
        }
    }

    fn take_ownership(&self, token: usize) {
        self.owner.store(token, Ordering::Relaxed);
        self.depth.store(1, Ordering::Relaxed);
    }

    #[cold]
    fn wait_and_enter(&self) {
        let is_entered = (0..SPINS).any(|_| {
            hint::spin_loop();
            // Looking before trying keeps the cache line shared.
            self.state.load(Ordering::Relaxed) & HELD == 0 && self.try_enter()
        });
        if !is_entered {
            self.sleep();
            self.take_ownership(thread_token());
        }
    }

    fn sleep(&self) {
        // Poison means nothing here: the mutex protects no data.
        let mut parked = self.parking.lock().unwrap_or_else(|poison| poison.into_inner());
        // Entering with WAITERS set makes the next `leave` wake the threads that still wait.
        // SYNC: Acquire pairs with the Release in `leave`.
        while self.state.fetch_or(HELD | WAITERS, Ordering::Acquire) & HELD != 0 {
            parked = self.released.wait(parked).unwrap_or_else(|poison| poison.into_inner());
        }
    }

    #[cold]
    fn wake_waiters(&self) {
        // A waiter sets its bit with the mutex held and gives the mutex up by waiting: with the mutex, it is
        // asleep.
        drop(self.parking.lock());
        self.released.notify_all();
    }
}

/// A number that no two living threads share; not 0.
#[cfg(not(loom))]
#[inline]
pub(super) fn thread_token() -> usize {
    thread_local! {
        static TOKEN: u8 = const { 0 };
    }
    TOKEN.with(|token| std::ptr::from_ref(token).addr())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_the_last_leave_replays_and_each_note_is_taken_once() {
        let block = Block::new();
        block.enter();
        block.enter();
        assert!(!block.note_missed(), "the lock is held");
        let mut replays = 0;
        assert!(block.leave(|| replays += 1));
        assert_eq!(replays, 0);
        assert!(block.is_entered_here());
        assert!(block.leave(|| replays += 1));
        assert_eq!(replays, 1);
        assert!(!block.is_entered_here());
        assert!(!block.leave(|| replays += 1), "left more often than entered");
        assert_eq!(replays, 1);
    }

    #[test]
    fn a_note_left_during_the_replay_is_replayed_too() {
        let block = Block::new();
        block.enter();
        block.note_missed();
        let mut replays = 0;
        block.leave(|| {
            replays += 1;
            if replays < 3 {
                block.note_missed();
            }
        });
        assert_eq!(replays, 3);
    }

    #[test]
    fn a_note_on_a_free_lock_asks_its_author_to_enter() {
        let block = Block::new();
        assert!(block.note_missed());
        let mut replays = 0;
        assert!(block.try_enter());
        block.leave(|| replays += 1);
        assert_eq!(replays, 1);
    }

    #[test]
    fn threads_exclude_each_other_whether_they_spin_or_sleep() {
        // The end of a yield comes while the others spin, that of a sleep when they sleep.
        let pauses: [fn(); 2] = [std::thread::yield_now, || std::thread::sleep(Duration::from_micros(50))];
        for pause in pauses {
            let block = Block::new();
            let count = AtomicU32::new(0);
            let count_up = || {
                for _ in 0..500 {
                    block.enter();
                    let seen = count.load(Ordering::Relaxed);
                    pause();
                    count.store(seen + 1, Ordering::Relaxed);
                    block.leave(|| ());
                }
            };
            std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(count_up))));
            assert_eq!(count.load(Ordering::Relaxed), 2000);
        }
    }
}
