//! The registrations of this process, and the table that shows peers which of them are live.
//!
//! Used by memory domains, and by operations that peers request. Built on the SDK's `Regions`, and on a memfd that is sealed against writes by
//! other processes. There is one registry for each process, so that its contexts can access each other's memory.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use rustix::fs::SealFlags;
use ucs::memory::fork::ForkGuard;
use ucs::sync::fixed::{AtomicU64, Ordering};
use uct_plugin::memory::{Region, Regions};
use uct_plugin::{Error, Failure, MemoryAccess, Result};

use super::announce::Announcements;
use crate::io::cma::Beacon;
use crate::io::{Mapping, Segment};
use crate::proto::table::{ENTRIES, TABLE_BYTES, entry, live_value};

/// All registrations of the process.
#[derive(Debug)]
pub(crate) struct Registry {
    process: u32,
    fork: ForkGuard,
    regions: Regions,
    table: Segment,
    beacon: Beacon,
    /// What was allocated, by the keys of its registrations.
    allocated: Mutex<HashMap<u64, Allocated>>,
    announcements: Announcements,
}

/// Memory that a domain has allocated: a segment of its own, all of which the registration covers.
#[derive(Debug, Clone)]
pub(crate) struct Allocated {
    pub(crate) segment: Arc<Segment>,
    /// A peer that shows the key gets the segment: it has a remote right, and what a peer must not write it cannot write.
    pub(crate) is_lent: bool,
    /// Peers may write to it.
    pub(crate) is_written: bool,
}

/// A registration.
#[derive(Debug)]
pub(crate) struct Memh {
    pub(crate) region: Arc<Region>,
    /// It has a remote right.
    is_remote: bool,
    /// What it lies in, if it was allocated.
    pub(crate) allocated: Option<Allocated>,
}

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
        let beacon = Beacon::new(regions.identity())
            .map_err(|error| Failure::new(Error::NO_MEMORY, error.to_string()))?;
        Ok(Registry {
            process: std::process::id(),
            fork: ForkGuard::new(),
            regions,
            table,
            beacon,
            allocated: Mutex::default(),
            announcements: Announcements::default(),
        })
    }

    /// A child of a fork shares rings and segments with its parent, and both would write to them.
    fn refuse_child(&self) -> Result<(), Failure> {
        if self.fork.check().is_ok() {
            return Ok(());
        }
        Err(Failure::new(
            Error::UNSUPPORTED,
            format!(
                "process {} is a fork of process {}, which has shared memory open; call exec in the child, or open \
                 shared memory only after the fork",
                std::process::id(),
                self.process
            ),
        ))
    }

    /// The number of this process's table, which no other table has.
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

    /// Adds a registration. Of memory that was allocated it covers all, and of a segment that is lent no peer gets more than
    /// `access` permits.
    ///
    /// # Safety
    /// The memory stays valid for reads and writes until [`Registry::remove`] has returned and [`Registry::wait_for_copies`] has returned true; no
    /// reference to it exists meanwhile. The registration keeps a segment that is in `allocated`.
    pub(crate) unsafe fn insert(
        &self,
        base: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
        allocated: Option<Allocated>,
    ) -> Result<Memh, Failure> {
        self.refuse_child()?;
        // SAFETY: the caller's promise.
        let region = unsafe { self.regions.insert(base, length, access) }?;
        if region.key() as u32 as usize >= ENTRIES {
            self.regions.remove(&region);
            return Err(Failure::new(
                Error::EXCEEDS_LIMIT,
                format!("{ENTRIES} registrations are live in this process; deregister some"),
            ));
        }
        if let Some(allocated) = &allocated {
            self.lock().insert(region.key(), allocated.clone());
        }
        let is_remote = !access.is_empty();
        if is_remote {
            // SYNC: pairs with the Acquire in `is_live`, here and in peers.
            live_word(&self.table.mapping, region.key()).store(live_value(region.key()), Ordering::Release);
        }
        Ok(Memh { region, is_remote, allocated })
    }

    /// Ends a registration; its key is never valid again. What was allocated stays mapped as long as keys in this process or
    /// another one hold it.
    pub(crate) fn remove(&self, memh: &Memh) {
        let key = memh.region.key();
        if memh.is_remote {
            // SYNC: as in `insert`.
            live_word(&self.table.mapping, key).store(0, Ordering::Release);
        }
        self.regions.remove(&memh.region);
        if memh.allocated.is_some() {
            self.lock().remove(&key);
        }
    }

    /// Waits until the kernel copies nothing for a peer from or to the memory of a removed registration. Returns false if `limit` has passed
    /// first; the memory must then not be used for anything else.
    pub(crate) fn wait_for_copies(&self, memh: &Memh, limit: Duration) -> bool {
        !memh.is_remote || self.announcements.wait_for_copies(memh.region.secret(), limit)
    }

    /// Where peers name what they have the kernel copy.
    pub(crate) fn announcements(&self) -> &Announcements {
        &self.announcements
    }

    /// What the memory of a live registration was allocated as; key and secret are untrusted.
    pub(crate) fn allocated(&self, key: u64, secret: u64) -> Option<Allocated> {
        let region = self.regions.find(key as u32, secret).ok()?;
        self.lock().get(&region.key()).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Allocated>> {
        self.allocated.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The word of a table that contains whether the registration of `key` is live.
pub(super) fn live_word(table: &Mapping, key: u64) -> &AtomicU64 {
    debug_assert!(table.length() >= TABLE_BYTES);
    // SAFETY: a table has ENTRIES words, and the entry is below that.
    let word = unsafe { table.base().cast::<AtomicU64>().add(entry(key)) };
    // SAFETY: mapped as long as the table is borrowed, aligned to 8, and only used as an atomic.
    unsafe { word.as_ref() }
}

/// Whether the registration of `key` is live, by the table of its process.
pub(super) fn is_live_in(table: &Mapping, key: u64) -> bool {
    // SYNC: pairs with the Release in `Registry::insert` and `Registry::remove`, of whichever process.
    live_word(table, key).load(Ordering::Acquire) == live_value(key)
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::io::{Origin, Source};
    use crate::link::remote::announce::Words;
    use std::os::fd::AsFd;

    #[test]
    fn a_key_lives_as_long_as_its_registration_and_never_again() {
        let registry = registry().unwrap();
        let mut memory = [0u8; 64];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the array outlives the registration, and nothing else uses it meanwhile.
        let memh = unsafe { registry.insert(base, 64, MemoryAccess::REMOTE_GET, None) }.unwrap();
        let key = memh.region.key();
        let word = live_word(&registry.table().mapping, key);
        assert_eq!(word.load(Ordering::Acquire), live_value(key));
        registry.remove(&memh);
        assert_ne!(word.load(Ordering::Acquire), live_value(key));
        // SAFETY: as above.
        let next = unsafe { registry.insert(base, 64, MemoryAccess::REMOTE_GET, None) }.unwrap();
        assert_ne!(next.region.key(), key);
        assert_ne!(word.load(Ordering::Acquire), live_value(key), "the old key lives again");
        registry.remove(&next);
    }

    #[test]
    fn no_other_process_may_write_to_the_table() {
        let Source::File(fd) = &registry().unwrap().table().source else { panic!("not a file") };
        assert!(Mapping::file(fd.as_fd(), TABLE_BYTES, true).is_err());
        assert!(Mapping::file(fd.as_fd(), TABLE_BYTES, false).is_ok());
    }

    #[test]
    fn memory_without_a_remote_right_is_not_in_the_table_and_a_key_proves_itself_by_64_bits() {
        let registry = registry().unwrap();
        let segment = || Arc::new(Segment::new(&Origin::Memfd, 8192, false).unwrap());
        let insert = |access, is_lent| {
            let segment = segment();
            let base = segment.mapping.base();
            let allocated = Allocated { segment, is_lent, is_written: is_lent };
            // SAFETY: the registration keeps the segment.
            unsafe { registry.insert(base, 8192, access, Some(allocated)) }.unwrap()
        };
        let private = insert(MemoryAccess::empty(), false);
        let key = private.region.key();
        assert_eq!(live_word(&registry.table().mapping, key).load(Ordering::Acquire), 0);
        registry.remove(&private);
        let shared = insert(MemoryAccess::all(), true);
        let key = shared.region.key();
        let secret = shared.region.secret();
        assert!(registry.allocated(key, secret).is_some_and(|allocated| allocated.is_lent));
        for bit in 0..64 {
            assert!(registry.allocated(key, secret ^ 1 << bit).is_none(), "bit {bit} does not count");
        }
        assert!(registry.allocated(key + 1, secret).is_none());
        let other = insert(MemoryAccess::all(), true);
        assert!(registry.allocated(other.region.key(), secret).is_none(), "two keys have one secret");
        registry.remove(&other);
        registry.remove(&shared);
        assert!(registry.allocated(key, secret).is_none(), "it outlives its registration");
    }

    /// A peer reads the table, so that it knows all keys; the secret only with the key itself.
    #[test]
    fn a_peer_that_has_only_the_table_does_not_hold_up_the_end_of_a_registration() {
        let registry = registry().unwrap();
        let mut memory = [0u8; 64];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the array outlives the registration, and nothing else uses it meanwhile.
        let memh = unsafe { registry.insert(base, 64, MemoryAccess::REMOTE_GET, None) }.unwrap();
        let (key, secret) = (memh.region.key(), memh.region.secret());
        let ring = Arc::new(Segment::new(&Origin::Memfd, 4096, false).unwrap().mapping);
        let words = Arc::new(Words::new(&ring, 128, 64));
        registry.announcements().add(&words);
        registry.remove(&memh);
        let named = words.announce(key).unwrap();
        assert!(
            registry.wait_for_copies(&memh, Duration::from_millis(50)),
            "named by what everybody can read"
        );
        drop(named);
        let named = words.announce(secret).unwrap();
        assert!(!registry.wait_for_copies(&memh, Duration::from_millis(50)), "a copy is in progress");
        drop(named);
        registry.announcements().close(&words, true);
    }

    /// As a transport in another domain may have it: memory of one registered with the other.
    #[test]
    fn a_registration_inside_allocated_memory_gives_nobody_the_rest_of_it() {
        let registry = registry().unwrap();
        let segment = Arc::new(Segment::new(&Origin::Memfd, 8192, false).unwrap());
        let base = segment.mapping.base();
        let allocated = Allocated { segment, is_lent: true, is_written: true };
        // SAFETY: the registration keeps the segment.
        let whole = unsafe { registry.insert(base, 8192, MemoryAccess::all(), Some(allocated)) }.unwrap();
        // SAFETY: inside the mapping.
        let inner = unsafe { base.add(100) };
        // SAFETY: inside the segment, which `whole` keeps longer.
        let part = unsafe { registry.insert(inner, 8, MemoryAccess::all(), None) }.unwrap();
        assert!(registry.allocated(part.region.key(), part.region.secret()).is_none());
        registry.remove(&part);
        registry.remove(&whole);
    }
}
