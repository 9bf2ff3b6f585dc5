//! Which registered memory of a process the kernel copies to or from at this moment, for a peer.
//!
//! Used by channels, by operations that the kernel carries out, and when a registration ends. Built on two words of each ring. The side that
//! sends on a ring names the registration in one of them before each copy, and then checks that it is live. The other side, which ends a
//! registration, waits until no peer names it. When it closes the ring it sets the other word, and no copy begins any more.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ucs::sync::fixed::{AtomicU64, Ordering, fence};

use crate::io::Mapping;
use crate::proto::table::name;

/// Rings that were closed while a copy was named in them. A peer that leaves a name behind again and again cannot make more of them.
const LEFT_BEHIND: usize = 64;
/// Time between two checks of a name. A copy of a page takes less.
const PAUSE: Duration = Duration::from_micros(20);

/// The two words of a ring.
#[derive(Debug)]
pub(crate) struct Words {
    named: NonNull<AtomicU64>,
    closed: NonNull<AtomicU64>,
    _memory: Arc<Mapping>,
}

// SAFETY: both words are atomics in memory that goes along.
unsafe impl Send for Words {}
// SAFETY: as for `Send`.
unsafe impl Sync for Words {}

impl Words {
    /// The words at these offsets.
    pub(crate) fn new(memory: &Arc<Mapping>, named: usize, closed: usize) -> Words {
        let word = |offset: usize| {
            assert!(offset.is_multiple_of(8) && offset + 8 <= memory.length(), "a word at {offset}");
            // SAFETY: inside the mapping, as just checked.
            unsafe { memory.base().add(offset).cast() }
        };
        Words { named: word(named), closed: word(closed), _memory: Arc::clone(memory) }
    }

    fn named(&self) -> &AtomicU64 {
        // SAFETY: `new` has checked the place, which stays mapped.
        unsafe { self.named.as_ref() }
    }

    fn closed(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.closed.as_ref() }
    }

    /// Names a registration of the peer, which cannot end once a later check has found it live; `None` if the peer has closed the ring.
    #[inline]
    pub(crate) fn announce(&self, secret: u64) -> Option<Announced<'_>> {
        self.named().store(name(secret), Ordering::Relaxed);
        // SYNC: pairs with the fence in `Announcements::wait_for_copies`: it sees the name, or we see that the registration has ended.
        fence(Ordering::SeqCst);
        let announced = Announced(self);
        (self.closed().load(Ordering::Relaxed) == 0).then_some(announced)
    }
}

/// A copy in progress. It ends when this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Announced<'a>(&'a Words);

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        // SYNC: pairs with the Acquire in `Words::is_about`: the copy is over.
        self.0.named().store(0, Ordering::Release);
    }
}

/// The words in which peers name registrations of this process.
#[derive(Debug, Default)]
pub(crate) struct Announcements(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    open: Vec<Arc<Words>>,
    /// Closed while something was named.
    left: Vec<Arc<Words>>,
}

impl Announcements {
    /// The end of a registration checks these words from now on.
    pub(crate) fn add(&self, words: &Arc<Words>) {
        self.lock().open.push(Arc::clone(words));
    }

    /// The ring is about to be closed. `is_gone` is whether the peer has closed it, or is dead.
    pub(crate) fn close(&self, words: &Arc<Words>, is_gone: bool) {
        words.closed().store(1, Ordering::Relaxed);
        // SYNC: as in `wait_for_copies`.
        fence(Ordering::SeqCst);
        let known = &mut *self.lock();
        known.open.retain(|other| !Arc::ptr_eq(other, words));
        known.left.retain(|words| words.named().load(Ordering::Acquire) != 0);
        if !is_gone && words.named().load(Ordering::Acquire) != 0 {
            if known.left.len() == LEFT_BEHIND {
                known.left.remove(0);
            }
            known.left.push(Arc::clone(words));
        }
    }

    /// Waits until no peer names a registration that has just ended, by its secret. Returns false if `limit` has passed first.
    pub(crate) fn wait_for_copies(&self, secret: u64, limit: Duration) -> bool {
        // SYNC: pairs with the fence in `Words::announce`.
        fence(Ordering::SeqCst);
        if !self.has(secret) {
            return true;
        }
        let start = Instant::now();
        while start.elapsed() < limit {
            std::thread::sleep(PAUSE);
            if !self.has(secret) {
                return true;
            }
        }
        false
    }

    fn has(&self, secret: u64) -> bool {
        let known = self.lock();
        // SYNC: pairs with the Release of `Announced`.
        known
            .open
            .iter()
            .chain(&known.left)
            .any(|words| words.named().load(Ordering::Acquire) == name(secret))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::io::{Origin, Segment};

    fn words() -> Arc<Words> {
        let memory = Arc::new(Segment::new(&Origin::Memfd, 4096, false).unwrap().mapping);
        Arc::new(Words::new(&memory, 128, 64))
    }

    #[test]
    fn an_end_waits_for_the_copy_that_names_its_registration_and_for_no_other() {
        let (words, all) = (words(), Announcements::default());
        all.add(&words);
        let limit = Duration::from_millis(50);
        let copy = words.announce(7).unwrap();
        assert!(all.wait_for_copies(8, limit));
        assert!(!all.wait_for_copies(7, limit), "nothing waits for a copy in progress");
        drop(copy);
        assert!(all.wait_for_copies(7, limit));
        let copy = words.announce(u64::MAX).unwrap();
        let ends = std::thread::scope(|scope| {
            let end = scope.spawn(|| all.wait_for_copies(u64::MAX, Duration::from_secs(20)));
            std::thread::sleep(limit);
            drop(copy);
            end.join().unwrap()
        });
        assert!(ends);
    }

    #[test]
    fn a_closed_ring_admits_no_copy_and_is_forgotten_when_its_last_one_is_over() {
        let (words, all) = (words(), Announcements::default());
        all.add(&words);
        let copy = words.announce(7).unwrap();
        all.close(&words, false);
        assert!(!all.wait_for_copies(7, Duration::ZERO), "the copy is forgotten");
        drop(copy);
        assert!(all.wait_for_copies(7, Duration::ZERO));
        assert!(words.announce(7).is_none());
        // A dead peer copies nothing, whatever it has left behind.
        let dead = self::words();
        all.add(&dead);
        std::mem::forget(dead.announce(9).unwrap());
        all.close(&dead, true);
        assert!(all.wait_for_copies(9, Duration::ZERO));
        assert!(all.lock().open.is_empty() && all.lock().left.is_empty());
        for key in 0..2 * LEFT_BEHIND as u64 {
            let words = self::words();
            all.add(&words);
            std::mem::forget(words.announce(key).unwrap());
            all.close(&words, false);
        }
        assert_eq!(all.lock().left.len(), LEFT_BEHIND);
    }
}
