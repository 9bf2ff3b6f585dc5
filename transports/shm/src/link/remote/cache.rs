//! Segments of peers that no key has: those that have arrived for a key which is not bound yet, and those that stay mapped for a while after
//! their last key is released. An application that unpacks a key for each request would otherwise map the same memory for each request.
//!
//! Used by channels, which hand segments to keys. Built on segments that peers have lent. All channels of an interface share one cache, and
//! with it the limits. The cache only holds segments. A channel finds its own by number and secret of the key, so memory of another peer, or
//! memory that gets the same number later, is never found in place of the one that a key is to.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use ucs::clock;
use ucs::sync::fixed::Ordering;

use super::lent::Lent;
use super::registry::is_live_in;
use crate::io::Mapping;

/// Shortest time between two searches for segments that are not needed.
const PACE: Duration = Duration::from_millis(1);
/// Shortest time for which a segment that has arrived waits for its key.
const AWAIT: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct SegmentCache {
    max_segments: usize,
    max_bytes: u64,
    /// The pages of segments that arrive are mapped ahead of their first use.
    pub(crate) populates: bool,
    entries: RefCell<Vec<Entry>>,
    /// When segments that are not needed were last searched for, in nanoseconds.
    trimmed: Cell<u64>,
}

#[derive(Debug)]
struct Entry {
    segment: Arc<Lent>,
    /// The table of the owner, mapped for the channel that the segment came over.
    table: Arc<Mapping>,
    key: u64,
}

impl Entry {
    fn bytes(&self) -> u64 {
        self.segment.mapping.length() as u64
    }

    fn used(&self) -> u64 {
        self.segment.place.used.load(Ordering::Relaxed)
    }

    fn is_kept(&self) -> bool {
        self.segment.place.is_kept.load(Ordering::Relaxed)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.segment.place.is_kept.store(false, Ordering::Relaxed);
    }
}

impl SegmentCache {
    /// An empty cache for so many segments and bytes.
    pub(crate) fn new(max_segments: usize, max_bytes: u64) -> SegmentCache {
        let populates = false;
        SegmentCache {
            max_segments,
            max_bytes,
            populates,
            entries: RefCell::default(),
            trimmed: Cell::new(0),
        }
    }

    /// The same; `populates`: segments that arrive are mapped ahead of their first use.
    pub(crate) fn populating(self, populates: bool) -> SegmentCache {
        SegmentCache { populates, ..self }
    }

    /// Holds a segment that has arrived until a key is bound to it, or until that takes too long.
    pub(crate) fn arrived(&self, segment: Arc<Lent>, table: &Arc<Mapping>, key: u64) {
        segment.place.used.store(clock::now(), Ordering::Relaxed);
        self.entries.borrow_mut().push(Entry { segment, table: Arc::clone(table), key });
    }

    /// Notes that a key is about to be bound to the segment, and keeps the segment if it is not larger than all that may be kept. Drops those
    /// that were not used for the longest time, beyond the limits.
    #[inline]
    pub(crate) fn used(&self, segment: &Arc<Lent>, table: &Arc<Mapping>, key: u64) {
        segment.place.used.store(clock::now(), Ordering::Relaxed);
        if !segment.place.is_kept.load(Ordering::Relaxed) {
            self.keep(segment, table, key);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep(&self, segment: &Arc<Lent>, table: &Arc<Mapping>, key: u64) {
        let mut entries = self.entries.borrow_mut();
        if let Some(index) = entries.iter().position(|entry| Arc::ptr_eq(&entry.segment, segment)) {
            entries.swap_remove(index);
        }
        let new = Entry { segment: Arc::clone(segment), table: Arc::clone(table), key };
        if self.max_segments == 0 || new.bytes() > self.max_bytes {
            return;
        }
        let kept = || entries.iter().filter(|entry| entry.is_kept());
        let (mut count, mut bytes) = (kept().count(), kept().map(Entry::bytes).sum::<u64>());
        bytes = bytes.saturating_add(new.bytes());
        while count >= self.max_segments || bytes > self.max_bytes {
            let kept = (0..entries.len()).filter(|&index| entries[index].is_kept());
            let Some(oldest) = kept.min_by_key(|&index| entries[index].used()) else { break };
            bytes -= entries.swap_remove(oldest).bytes();
            count -= 1;
        }
        segment.place.is_kept.store(true, Ordering::Relaxed);
        entries.push(new);
    }

    /// Drops segments that were not used for `idle`, and those whose registration has ended. Searches for them at most once in [`PACE`].
    pub(crate) fn trim(&self, idle: Duration) {
        let mut entries = self.entries.borrow_mut();
        if entries.is_empty() {
            return;
        }
        let now = clock::now();
        let is_past = |since: u64, limit: Duration| Duration::from_nanos(now.saturating_sub(since)) >= limit;
        if is_past(self.trimmed.get(), idle.min(PACE)) {
            self.trimmed.set(now);
            entries.retain(|entry| {
                let limit = if entry.is_kept() { idle } else { idle.max(AWAIT) };
                is_live_in(&entry.table, entry.key) && !is_past(entry.used(), limit)
            });
        }
    }

    /// Drops the segments that came over the channel for which this table is mapped.
    pub(crate) fn forget(&self, table: &Arc<Mapping>) {
        self.entries.borrow_mut().retain(|entry| !Arc::ptr_eq(&entry.table, table));
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.borrow().is_empty()
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::io::{Origin, Segment};
    use crate::link::remote::registry::live_word;
    use crate::proto::table::{TABLE_BYTES, live_value};
    use rustix::fs::SealFlags;

    const PAGE: usize = 4096;
    const LONG: Duration = Duration::from_secs(3600);

    /// The table of a peer in which these keys are live.
    fn table(keys: &[u64]) -> Arc<Mapping> {
        let table = Segment::memfd(TABLE_BYTES, false, SealFlags::empty()).unwrap().mapping;
        for key in keys {
            live_word(&table, *key).store(live_value(*key), Ordering::Release);
        }
        Arc::new(table)
    }

    /// Has a key bound to a fresh segment, and released again.
    fn bind(cache: &SegmentCache, pages: usize, table: &Arc<Mapping>, key: u64) -> Weak<Lent> {
        let mapping = Segment::new(&Origin::Memfd, pages * PAGE, false).unwrap().mapping;
        let segment = Arc::new(Lent::new(mapping, true));
        cache.used(&segment, table, key);
        // So that no two have the same time.
        std::thread::sleep(Duration::from_micros(10));
        Arc::downgrade(&segment)
    }

    fn is_mapped(segment: &Weak<Lent>) -> bool {
        segment.strong_count() > 0
    }

    #[test]
    fn of_too_many_segments_the_one_unused_for_the_longest_time_goes() {
        let (cache, table) = (SegmentCache::new(3, u64::MAX), table(&[1, 2, 3, 4, 5]));
        let all: Vec<Weak<Lent>> = (1..4).map(|key| bind(&cache, 1, &table, key)).collect();
        assert!(all.iter().all(is_mapped));
        cache.used(&all[0].upgrade().unwrap(), &table, 1);
        let fourth = bind(&cache, 1, &table, 4);
        assert_eq!(all.iter().map(is_mapped).collect::<Vec<bool>>(), [true, false, true]);
        assert!(is_mapped(&fourth));
        assert!(!is_mapped(&bind(&SegmentCache::new(0, u64::MAX), 1, &table, 5)), "it is switched off");
    }

    #[test]
    fn of_too_many_bytes_as_many_segments_go_as_have_to() {
        let (cache, table) = (SegmentCache::new(100, 8 * PAGE as u64), table(&[1, 2, 3, 4, 5]));
        let all: Vec<Weak<Lent>> =
            [(2, 1), (3, 2), (3, 3)].map(|(pages, key)| bind(&cache, pages, &table, key)).into();
        assert!(all.iter().all(is_mapped), "they have exactly as many bytes as there may be");
        let whole = SegmentCache::new(100, 8 * PAGE as u64);
        assert!(is_mapped(&bind(&whole, 8, &table, 1)) && !whole.is_empty(), "one may have them all");
        let large = bind(&cache, 9, &table, 4);
        assert!(!is_mapped(&large) && all.iter().all(is_mapped), "what never fits displaces nothing");
        let next = bind(&cache, 4, &table, 5);
        assert_eq!(all.iter().map(is_mapped).collect::<Vec<bool>>(), [false, false, true]);
        assert!(is_mapped(&next));
    }

    #[test]
    fn what_is_unused_or_not_registered_any_more_goes_and_what_is_neither_stays() {
        let (cache, table) = (SegmentCache::new(100, u64::MAX), table(&[1, 2]));
        let segments = [1, 2].map(|key| bind(&cache, 1, &table, key));
        cache.trim(LONG);
        assert!(segments.iter().all(is_mapped));
        live_word(&table, 1).store(0, Ordering::Release);
        std::thread::sleep(2 * PACE);
        cache.trim(LONG);
        assert_eq!(segments.each_ref().map(is_mapped), [false, true]);
        // Another registration has the entry of the table.
        live_word(&table, 2).store(live_value(2 + (1 << 32)), Ordering::Release);
        std::thread::sleep(2 * PACE);
        cache.trim(LONG);
        assert_eq!(segments.each_ref().map(is_mapped), [false, false]);
        live_word(&table, 2).store(live_value(2), Ordering::Release);
        let unused = bind(&cache, 1, &table, 2);
        std::thread::sleep(2 * PACE);
        cache.trim(2 * PACE);
        assert!(!is_mapped(&unused) && cache.is_empty());
    }

    #[test]
    fn what_has_arrived_waits_for_its_key_whatever_the_limits_and_not_for_ever() {
        let (cache, table) = (SegmentCache::new(0, 0), table(&[1, 2, 3]));
        let arrive = |key| {
            let mapping = Segment::new(&Origin::Memfd, PAGE, false).unwrap().mapping;
            let segment = Arc::new(Lent::new(mapping, true));
            cache.arrived(Arc::clone(&segment), &table, key);
            Arc::downgrade(&segment)
        };
        let [bound, ended, unused] = [1, 2, 3].map(arrive);
        live_word(&table, 2).store(0, Ordering::Release);
        cache.trim(Duration::ZERO);
        assert_eq!([&bound, &ended, &unused].map(is_mapped), [true, false, true]);
        cache.used(&bound.upgrade().unwrap(), &table, 1);
        assert_eq!([&bound, &unused].map(is_mapped), [false, true], "the limits apply to what a key had");
        std::thread::sleep(AWAIT);
        cache.trim(LONG);
        assert!(is_mapped(&unused));
        cache.trim(Duration::ZERO);
        assert!(cache.is_empty() && !is_mapped(&unused));
    }

    #[test]
    fn the_end_of_a_channel_drops_its_segments_and_no_others() {
        let (cache, tables) = (SegmentCache::new(100, u64::MAX), [table(&[1]), table(&[1])]);
        let segments = tables.each_ref().map(|table| bind(&cache, 1, table, 1));
        cache.forget(&tables[0]);
        assert_eq!(segments.each_ref().map(is_mapped), [false, true]);
    }
}
