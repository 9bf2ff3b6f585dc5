//! Registered memory of transports whose target side is software: a table of live regions, with keys that cannot be
//! mistaken for those of another process or of a region that is gone.
//!
//! Used by `self`, `tcp`, `ud_verbs` and all others that check remote accesses by hand. A key is 48 bytes: a magic number, the
//! permitted access, the identity of the table, the region's number in it (slot and generation), its secret, its first address and its
//! length. The secret is what proves that a peer was given the key.

pub mod access;
mod advice;
mod allocate;
pub mod direct;
mod domain;
mod known;
mod message_pool;
mod registration;
mod served;
mod window;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ptr::NonNull;
use std::sync::{Arc, RwLock};
use ucs::sync::fixed::{AtomicU64, Ordering as Memory};

use ucs::Error;
use ucs::sys::random::secret;
use uct_abi::{UCT_MD_ACCESS_REMOTE_ATOMIC, UCT_MD_ACCESS_REMOTE_GET, UCT_MD_ACCESS_REMOTE_PUT};

use crate::atomic::Atomic;
use crate::failure::Failure;

pub use access::{Access, Accessor};
pub use advice::advise;
pub use allocate::{Allocation, ZeroedChunks};
pub use domain::{RegionDomain, RegionKey};
pub use known::KnownDomains;
pub use message_pool::MessagePool;
pub use registration::Registration;
pub use served::Served;
pub(crate) use window::Host;
pub use window::{Gate, Window};

bitflags::bitflags! {
    /// What a peer may do with registered memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MemoryAccess: u32 {
        /// Put.
        const REMOTE_PUT = UCT_MD_ACCESS_REMOTE_PUT;
        /// Get.
        const REMOTE_GET = UCT_MD_ACCESS_REMOTE_GET;
        /// Atomics.
        const REMOTE_ATOMIC = UCT_MD_ACCESS_REMOTE_ATOMIC;
    }
}

/// Bytes of a packed key.
pub const PACKED_KEY: usize = 48;

/// Another one for each layout of the key.
const MAGIC: u32 = u32::from_le_bytes(*b"rke2");

/// All live regions of a memory domain. Any thread.
#[derive(Debug)]
pub struct Regions {
    identity: u64,
    slots: RwLock<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    regions: Vec<(u32, Option<Arc<Region>>)>,
    free: Vec<u32>,
}

/// One region, live or ended.
pub struct Region {
    base: u64,
    length: u64,
    granted: MemoryAccess,
    key: u64,
    secret: u64,
    /// [`UNREACHED`], then [`LIVE`], and 0 once the region is removed.
    live: AtomicU64,
}

/// What the word of a region holds that may be accessed ([`Window::new`]).
const LIVE: u64 = 1 << 32;
/// What it holds until the first access, or look-up for one: the end of a registration that nobody has reached waits for nobody.
const UNREACHED: u64 = 2 << 32;

/// An unpacked key: what a peer may reach and how the peer's table calls it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RemoteKey {
    /// Which table the key belongs to.
    pub identity: u64,
    /// Slot and generation in that table.
    pub key: u64,
    /// The secret of a key: 64 random bits, different for each registration.
    pub secret: u64,
    /// First address.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    access: u32,
}

impl Region {
    /// Begins an access to `length` bytes at `address`, if it is permitted. The registration cannot end before the access does.
    ///
    /// # Errors
    /// [`Error::OUT_OF_RANGE`] outside of the region; [`Error::INVALID_PARAM`] if it was not granted, or the region is removed.
    ///
    /// # Panics
    /// While another access of this accessor is in flight.
    #[inline(always)]
    pub fn access<'a>(
        &self,
        accessor: &'a Accessor,
        address: u64,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Access<'a>, Error> {
        let section = accessor.enter();
        let start = self.check(address, length, access)?;
        // SAFETY: the region is registered, so the memory is valid, and `remove` waits for the section.
        Ok(unsafe { Access::new(section, start, length) })
    }

    /// Carries out an atomic at `address`, if it is permitted; returns the old value.
    ///
    /// # Errors
    /// As [`Region::access`]; [`Error::INVALID_PARAM`] for an address that is not aligned.
    #[inline(always)]
    pub fn atomic(&self, accessor: &Accessor, atomic: Atomic, address: u64) -> Result<u64, Error> {
        atomic.check_alignment(address)?;
        self.access(accessor, address, atomic.width.bytes(), MemoryAccess::REMOTE_ATOMIC)?.atomic(atomic)
    }

    /// Checks that `length` bytes at `address` may be accessed so. Outside of an access the answer is old at once: the memory may be gone.
    ///
    /// # Errors
    /// As [`Region::access`].
    #[inline(always)]
    pub fn check(&self, address: u64, length: usize, access: MemoryAccess) -> Result<NonNull<u8>, Error> {
        let offset = address.wrapping_sub(self.base);
        let fits = offset <= self.length && length as u64 <= self.length - offset;
        if !fits || !self.granted.contains(access) || !(self.is_live() || self.reach()) {
            return Err(self.refusal(fits));
        }
        // SAFETY: the region began at an address that is not null, and this one is not below.
        Ok(unsafe { NonNull::new_unchecked(address as *mut u8) })
    }

    #[cold]
    #[inline(never)]
    fn refusal(&self, fits: bool) -> Error {
        if fits || self.has_ended() { Error::INVALID_PARAM } else { Error::OUT_OF_RANGE }
    }

    #[inline(always)]
    fn is_live(&self) -> bool {
        // SYNC: pairs with `Region::end`, which is ordered with the counters of accessors by `ucs`'s barriers.
        self.live.load(Memory::Acquire) == LIVE
    }

    /// Notes that it may be accessed from now on; false if it has ended.
    #[cold]
    #[inline(never)]
    fn reach(&self) -> bool {
        // SYNC: the last value in the order of this word decides: either `Region::end` finds `LIVE`, and waits for accesses, or this finds 0.
        match self.live.compare_exchange(UNREACHED, LIVE, Memory::AcqRel, Memory::Acquire) {
            Ok(_) => true,
            Err(seen) => seen == LIVE,
        }
    }

    fn has_ended(&self) -> bool {
        // SYNC: as in `is_live`.
        self.live.load(Memory::Acquire) == 0
    }

    /// Refuses every access from now on. Returns whether there may be any.
    fn end(&self) -> bool {
        // SYNC: pairs with the loads in `Region::is_live` and of the host, and with `reach`.
        self.live.swap(0, Memory::AcqRel) == LIVE
    }

    /// The region for the host's own accesses, for [`Md::window`](crate::Md::window) where keys are regions of this process.
    pub fn window(&self) -> Window<'_> {
        self.reach();
        // SAFETY: the memory is valid until it is deregistered, which is when `live` changes; and `remove` waits for accesses.
        unsafe { Window::new(self.base, self.length, 0, self.granted, &self.live, LIVE) }
    }

    /// Slot and generation of the region in its table.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// What proves that a peer was given the key.
    pub fn secret(&self) -> u64 {
        self.secret
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Region { base, length, granted, key, .. } = self;
        write!(f, "region {key:#x}: {length} bytes at {base:#x}, {granted:?}")
    }
}

impl Default for Regions {
    fn default() -> Regions {
        // A random number of the standard library's: two tables of any two processes differ.
        Regions { identity: RandomState::new().hash_one(std::process::id()), slots: RwLock::default() }
    }
}

impl Regions {
    /// Adds a region.
    ///
    /// # Errors
    /// It wraps around the end of the address space; the table is full; the system has no random numbers for its secret.
    ///
    /// # Safety
    /// The memory stays valid for reads and writes until [`Regions::remove`] has returned, and nothing holds a reference to it meanwhile.
    pub unsafe fn insert(
        &self,
        base: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Arc<Region>, Failure> {
        let base = base.as_ptr() as u64;
        let length = length as u64;
        let secret = secret().map_err(|error| Failure::new(Error::IO_ERROR, error.to_string()))?;
        if base.checked_add(length).is_none() {
            return Err(Failure::new(
                Error::INVALID_PARAM,
                format!("{length} bytes at {base:#x} wrap around the end of the address space"),
            ));
        }
        let mut slots = self.slots.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let index = match slots.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(slots.regions.len())
                    .map_err(|_| Failure::new(Error::EXCEEDS_LIMIT, "more than 2^32 registrations"))?;
                slots.regions.push((0, None));
                index
            }
        };
        let slot = &mut slots.regions[index as usize];
        let key = u64::from(slot.0) << 32 | u64::from(index);
        let region =
            Arc::new(Region { base, length, granted: access, key, secret, live: AtomicU64::new(UNREACHED) });
        slot.1 = Some(Arc::clone(&region));
        Ok(region)
    }

    /// Removes a region; its key is never valid again. Waits for accesses in flight, in any thread: afterwards the memory is its
    /// owner's alone.
    pub fn remove(&self, region: &Region) {
        let is_accessed = region.end();
        self.forget(region);
        if is_accessed {
            access::wait_for_all();
        }
    }

    fn forget(&self, region: &Region) {
        let mut slots = self.slots.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let index = region.key as u32;
        let slot = &mut slots.regions[index as usize];
        slot.0 = slot.0.wrapping_add(1);
        slot.1 = None;
        slots.free.push(index);
    }

    /// Finds a live region, to be accessed, by its slot and its secret, which are untrusted.
    pub fn find(&self, slot: u32, secret: u64) -> Result<Arc<Region>, Error> {
        let slots = self.slots.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        match slots.regions.get(slot as usize) {
            // One comparison of all bits: its time does not depend on them.
            Some((_, Some(region))) if region.secret == secret && (region.is_live() || region.reach()) => {
                Ok(Arc::clone(region))
            }
            _ => Err(Error::INVALID_PARAM),
        }
    }

    /// Begins an access for a peer: its parameters are untrusted. As [`Region::access`].
    ///
    /// # Errors
    /// As [`Region::access`]; [`Error::INVALID_PARAM`] if there is no such region.
    pub fn access<'a>(
        &self,
        accessor: &'a Accessor,
        (slot, secret): (u32, u64),
        address: u64,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Access<'a>, Error> {
        self.find(slot, secret)?.access(accessor, address, length, access)
    }

    /// The number that identifies this table.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Live regions.
    pub fn len(&self) -> usize {
        let slots = self.slots.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        slots.regions.len() - slots.free.len()
    }

    /// Whether there is no live region.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the key of a region: [`PACKED_KEY`] bytes.
    pub fn pack(&self, region: &Region, buffer: &mut [u8]) -> Result<(), Error> {
        let buffer: &mut [u8; PACKED_KEY] = buffer.try_into().map_err(|_| Error::BUFFER_TOO_SMALL)?;
        buffer[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        let access = if region.has_ended() { MemoryAccess::empty() } else { region.granted };
        buffer[4..8].copy_from_slice(&access.bits().to_le_bytes());
        buffer[8..16].copy_from_slice(&self.identity.to_le_bytes());
        buffer[16..24].copy_from_slice(&region.key.to_le_bytes());
        buffer[24..32].copy_from_slice(&region.secret.to_le_bytes());
        buffer[32..40].copy_from_slice(&region.base.to_le_bytes());
        buffer[40..48].copy_from_slice(&region.length.to_le_bytes());
        Ok(())
    }
}

impl RemoteKey {
    /// Reads a packed key, which is untrusted.
    pub fn unpack(packed: &[u8]) -> Result<RemoteKey, Failure> {
        let wrong = |what: &str| Err(Failure::new(Error::INVALID_PARAM, what));
        let Ok(packed) = <&[u8; PACKED_KEY]>::try_from(packed) else {
            return wrong(&format!("a remote key of {} bytes; expected {PACKED_KEY}", packed.len()));
        };
        let word = |at: usize| u64::from_le_bytes(packed[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(packed[at..at + 4].try_into().expect("four bytes"));
        if half(0) != MAGIC {
            return wrong("these bytes are no remote key of this library, or one of another transport");
        }
        let (identity, key, secret, base, length) = (word(8), word(16), word(24), word(32), word(40));
        let key = RemoteKey { identity, key, secret, base, length, access: half(4) };
        if key.base.checked_add(key.length).is_none() {
            return wrong("a remote key that wraps around the end of the address space");
        }
        Ok(key)
    }

    /// What [`Regions::find`] takes.
    pub fn place(&self) -> (u32, u64) {
        (self.key as u32, self.secret)
    }

    /// What the key permits.
    #[inline(always)]
    pub fn access(&self) -> MemoryAccess {
        MemoryAccess::from_bits_truncate(self.access)
    }

    /// Whether the key permits an access.
    #[inline(always)]
    pub fn permits(&self, access: MemoryAccess) -> bool {
        self.access & access.bits() == access.bits()
    }

    /// Checks an access on the initiator's side, ahead of any traffic.
    #[inline(always)]
    pub fn check(&self, address: u64, length: usize, access: MemoryAccess) -> Result<(), Error> {
        let offset = address.wrapping_sub(self.base);
        if offset > self.length || length as u64 > self.length - offset {
            Err(Error::OUT_OF_RANGE)
        } else if !self.permits(access) {
            Err(Error::INVALID_PARAM)
        } else {
            Ok(())
        }
    }
}

impl fmt::Debug for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemoteKey { identity, key, base, length, access, .. } = self;
        write!(f, "key {key:#x} of {identity:#x}: {length} bytes at {base:#x}, access {access:#x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(regions: &Regions, memory: &mut [u8]) -> Arc<Region> {
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: it lives to the end of the test, as in the other ones.
        unsafe { regions.insert(base, memory.len(), MemoryAccess::all()) }.unwrap()
    }

    #[test]
    fn one_byte_outside_is_refused_on_either_side() {
        let regions = Regions::default();
        let mut memory = [0; 64];
        let region = region(&regions, &mut memory);
        let base = memory.as_ptr() as u64;
        let mut packed = [0; PACKED_KEY];
        regions.pack(&region, &mut packed).unwrap();
        let remote = RemoteKey::unpack(&packed).unwrap();
        let accessor = Accessor::default();
        for (address, length, fits) in [
            (base, 64, true),
            (base + 63, 1, true),
            (base + 64, 0, true),
            (base + 64, 1, false),
            (base, 65, false),
            (base - 1, 1, false),
            (base + 1, usize::MAX, false),
        ] {
            let here = regions.access(&accessor, remote.place(), address, length, MemoryAccess::REMOTE_PUT);
            assert_eq!(here.is_ok(), fits);
            assert_eq!(remote.check(address, length, MemoryAccess::REMOTE_PUT).is_ok(), fits);
        }
    }

    #[test]
    fn the_key_of_a_removed_region_stays_invalid_when_its_slot_is_used_again() {
        let regions = Regions::default();
        let mut memory = [0; 64];
        let base = memory.as_ptr() as u64;
        let first = region(&regions, &mut memory);
        regions.remove(&first);
        let second = region(&regions, &mut memory);
        assert_ne!(first.key(), second.key());
        assert_ne!(first.secret(), second.secret());
        assert_eq!(first.key() as u32, second.key() as u32, "the same slot");
        assert_eq!(regions.find(0, first.secret()).err(), Some(Error::INVALID_PARAM));
        assert_eq!(first.check(base, 1, MemoryAccess::REMOTE_GET), Err(Error::INVALID_PARAM));
        assert!(regions.find(0, second.secret()).is_ok());
        assert_eq!(regions.len(), 1);
    }

    #[test]
    fn a_key_with_one_wrong_bit_in_its_secret_finds_nothing() {
        let regions = Regions::default();
        let mut memory = [0; 64];
        let region = region(&regions, &mut memory);
        for bit in 0..u64::BITS {
            assert!(regions.find(0, region.secret() ^ 1 << bit).is_err(), "bit {bit}");
        }
        assert!(regions.find(1, region.secret()).is_err());
        assert!(regions.find(0, region.secret()).is_ok());
        assert!(!format!("{region:?}").contains(&format!("{:x}", region.secret())));
    }

    #[test]
    fn access_that_was_not_granted_is_refused() {
        let regions = Regions::default();
        let mut memory = [0; 8];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: as above.
        let region = unsafe { regions.insert(base, 8, MemoryAccess::REMOTE_GET) }.unwrap();
        let address = base.as_ptr() as u64;
        assert!(region.check(address, 8, MemoryAccess::REMOTE_GET).is_ok());
        assert_eq!(region.check(address, 8, MemoryAccess::REMOTE_PUT), Err(Error::INVALID_PARAM));
    }

    #[test]
    fn bytes_that_are_no_key_are_refused_with_a_reason() {
        assert!(RemoteKey::unpack(&[0; 3]).unwrap_err().reason.contains("3 bytes"));
        assert!(
            RemoteKey::unpack(&[7; PACKED_KEY]).unwrap_err().reason.contains("no remote key of this library")
        );
    }

    #[test]
    fn what_wraps_around_the_end_of_the_address_space_is_no_region_and_no_key() {
        let regions = Regions::default();
        let mut memory = [0; 64];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: it is refused.
        let refused = unsafe { regions.insert(base, usize::MAX, MemoryAccess::all()) }.unwrap_err();
        assert!(refused.reason.contains("wrap around"), "{}", refused.reason);
        assert!(regions.is_empty());
        let region = region(&regions, &mut memory);
        let mut packed = [0; PACKED_KEY];
        regions.pack(&region, &mut packed).unwrap();
        packed[32..40].copy_from_slice(&(u64::MAX - 62).to_le_bytes());
        let refused = RemoteKey::unpack(&packed).unwrap_err();
        assert!(refused.reason.contains("wraps around"), "{}", refused.reason);
    }
}
