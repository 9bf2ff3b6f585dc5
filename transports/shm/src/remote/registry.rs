//! The registrations of this process, and the table in which peers see which of them live.
//!
//! For: memory domains, and operations that peers ask for. Stands on the plugin's `Regions`, and on a memfd that is sealed
//! against writing by anybody but this process. One for the process, so that its contexts reach each other's memory.

use std::collections::{BTreeMap, HashMap};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rustix::fs::SealFlags;
use ucs::sync::fixed::{AtomicU64, Ordering};
use uct_plugin::memory::{Region, Regions};
use uct_plugin::{Error, Failure, MemoryAccess, Result};

use crate::cma::Beacon;
use crate::segment::{Mapping, Segment};

/// Registrations that may live at a time.
const ENTRIES: usize = 1 << 20;
/// Bytes of the table; pages are used when their entries are.
pub(crate) const TABLE_BYTES: usize = ENTRIES * size_of::<u64>();

/// All registrations of the process.
#[derive(Debug)]
pub(crate) struct Registry {
    process: u32,
    regions: Regions,
    table: Segment,
    beacon: Beacon,
    shared: Mutex<Shared>,
}

/// Segments by what lies in them.
#[derive(Debug, Default)]
struct Shared {
    /// By registration.
    by_key: HashMap<u64, Arc<Segment>>,
    /// Allocated ones by their first address, for registrations inside them.
    by_address: BTreeMap<u64, Arc<Segment>>,
}

/// A registration.
#[derive(Debug)]
pub(crate) struct Memh {
    pub(crate) region: Arc<Region>,
    pub(crate) base: NonNull<u8>,
    pub(crate) length: usize,
    /// The segment that holds it, if it was allocated for sharing, and where in it the registration starts.
    pub(crate) segment: Option<(Arc<Segment>, u64)>,
}

// SAFETY: `base` only tells an address.
unsafe impl Send for Memh {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memh {}

/// The registry of this process, made at the first call.
pub(crate) fn registry() -> Result<&'static Registry, Failure> {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    static MAKING: Mutex<()> = Mutex::new(());
    if REGISTRY.get().is_none() {
        let _making = MAKING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if REGISTRY.get().is_none() {
            let _ = REGISTRY.set(Registry::new()?);
        }
    }
    let registry = REGISTRY.get().expect("set just now");
    registry.refuse_child()?;
    Ok(registry)
}

impl Registry {
    fn new() -> Result<Registry, Failure> {
        let table = Segment::memfd(TABLE_BYTES, false, SealFlags::FUTURE_WRITE)
            .map_err(|error| Failure::new(Error::SHMEM_SEGMENT, error.to_string()))?;
        let regions = Regions::default();
        let beacon = Beacon::new(regions.identity());
        Ok(Registry { process: std::process::id(), regions, table, beacon, shared: Mutex::default() })
    }

    /// A child of a fork shares rings and segments with its parent, and both would write to them.
    fn refuse_child(&self) -> Result<(), Failure> {
        let now = std::process::id();
        if now == self.process {
            return Ok(());
        }
        Err(Failure::new(
            Error::UNSUPPORTED,
            format!(
                "process {now} is a fork of process {}, which has shared memory open; call exec in the child, or open \
                 shared memory only after the fork",
                self.process
            ),
        ))
    }

    /// The number that tells this process's table from all others.
    pub(crate) fn identity(&self) -> u64 {
        self.regions.identity()
    }

    /// The registrations themselves.
    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    /// What a peer's probe looks for.
    pub(crate) fn beacon(&self) -> &Beacon {
        &self.beacon
    }

    /// The table, for handing it to peers.
    pub(crate) fn table(&self) -> &Segment {
        &self.table
    }

    /// Adds a registration, with the segment if it was allocated.
    pub(crate) fn insert(
        &self,
        base: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
        segment: Option<Arc<Segment>>,
    ) -> Result<Memh, Failure> {
        self.refuse_child()?;
        let region = self.regions.insert(base, length, access)?;
        if region.key() as u32 as usize >= ENTRIES {
            self.regions.remove(&region);
            return Err(Failure::new(
                Error::EXCEEDS_LIMIT,
                format!("{ENTRIES} registrations are live in this process; deregister some"),
            ));
        }
        let mut shared = self.lock();
        if let Some(segment) = &segment {
            shared.by_address.insert(base.as_ptr() as u64, Arc::clone(segment));
        }
        let segment = shared.around(base.as_ptr() as u64, length as u64);
        if let Some((segment, _)) = &segment {
            shared.by_key.insert(region.key(), Arc::clone(segment));
        }
        drop(shared);
        // SYNC: pairs with the Acquire in `is_live`, here and in peers.
        live_word(&self.table.mapping, region.key()).store(live_value(region.key()), Ordering::Release);
        Ok(Memh { region, base, length, segment })
    }

    /// Ends a registration; its key is never valid again.
    pub(crate) fn remove(&self, memh: &Memh) {
        let key = memh.region.key();
        // SYNC: as in `insert`. An operation that has looked just before goes on: the owner sees to it that none does.
        live_word(&self.table.mapping, key).store(0, Ordering::Release);
        self.regions.remove(&memh.region);
        let mut shared = self.lock();
        shared.by_key.remove(&key);
        if memh.segment.as_ref().is_some_and(|(segment, _)| segment.mapping.length() == memh.length) {
            shared.by_address.remove(&(memh.base.as_ptr() as u64));
        }
    }

    /// The segment in which a registration lies; the key is untrusted.
    pub(crate) fn segment_of(&self, key: u64) -> Option<Arc<Segment>> {
        self.lock().by_key.get(&key).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Shared {
    /// The allocated segment in which a range lies, and where in it.
    fn around(&self, base: u64, length: u64) -> Option<(Arc<Segment>, u64)> {
        let (start, segment) = self.by_address.range(..=base).next_back()?;
        let offset = base - start;
        let room = segment.mapping.length() as u64;
        (offset <= room && length <= room - offset).then(|| (Arc::clone(segment), offset))
    }
}

/// The word of a table that tells whether the registration of `key` lives. Any key names a word: its index is cut to fit.
pub(super) fn live_word(table: &Mapping, key: u64) -> &AtomicU64 {
    debug_assert!(table.length() >= TABLE_BYTES);
    let index = key as u32 as usize % ENTRIES;
    // SAFETY: a table has ENTRIES words, and `index` is below that.
    let word = unsafe { table.base().cast::<AtomicU64>().add(index) };
    // SAFETY: mapped as long as the table is borrowed, aligned to 8, and only used as an atomic.
    unsafe { word.as_ref() }
}

/// What that word holds while it does: never 0, and a multiple of 2^32 (`Window::new`).
pub(super) fn live_value(key: u64) -> u64 {
    const GENERATION: u64 = 1 << 32;
    (key & !(GENERATION - 1)).wrapping_add(GENERATION).max(GENERATION)
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::segment::{Origin, Source};
    use std::os::fd::AsFd;

    #[test]
    fn a_key_lives_as_long_as_its_registration_and_never_again() {
        let registry = registry().unwrap();
        let mut memory = [0u8; 64];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        let memh = registry.insert(base, 64, MemoryAccess::REMOTE_GET, None).unwrap();
        let key = memh.region.key();
        let word = live_word(&registry.table().mapping, key);
        assert_eq!(word.load(Ordering::Acquire), live_value(key));
        registry.remove(&memh);
        assert_ne!(word.load(Ordering::Acquire), live_value(key));
        let next = registry.insert(base, 64, MemoryAccess::REMOTE_GET, None).unwrap();
        assert_ne!(next.region.key(), key);
        assert_ne!(word.load(Ordering::Acquire), live_value(key), "the old key lives again");
        registry.remove(&next);
    }

    #[test]
    fn nobody_else_may_write_to_the_table() {
        let Source::File(fd) = &registry().unwrap().table().source else { panic!("not a file") };
        assert!(Mapping::file(fd.as_fd(), TABLE_BYTES, true).is_err());
        assert!(Mapping::file(fd.as_fd(), TABLE_BYTES, false).is_ok());
    }

    #[test]
    fn a_range_inside_an_allocated_segment_is_known_to_be_there() {
        let registry = registry().unwrap();
        let segment = Arc::new(Segment::new(&Origin::Memfd, 8192, false).unwrap());
        let base = segment.mapping.base();
        let whole = registry.insert(base, 8192, MemoryAccess::all(), Some(Arc::clone(&segment))).unwrap();
        // SAFETY: inside the mapping.
        let inner = unsafe { base.add(100) };
        let part = registry.insert(inner, 8092, MemoryAccess::all(), None).unwrap();
        assert_eq!(part.segment.as_ref().map(|(_, offset)| *offset), Some(100));
        assert!(registry.segment_of(part.region.key()).is_some());
        let beyond = registry.insert(inner, 8093, MemoryAccess::all(), None).unwrap();
        assert!(beyond.segment.is_none());
        registry.remove(&part);
        registry.remove(&beyond);
        registry.remove(&whole);
        let orphan = registry.insert(inner, 10, MemoryAccess::all(), None).unwrap();
        assert!(orphan.segment.is_none(), "the segment is gone from the registry");
        registry.remove(&orphan);
    }
}
