//! Memory domains that are nothing but a table of regions: any memory is registered by an entry, and allocated from the heap.
//!
//! Used by transports whose target side is software and needs nothing of the memory but its address. They say where the table is
//! and what a key is: a [`RemoteKey`], whose memory only the peer reaches, or an [`Arc<Region>`] of this process's own.

use std::cmp::Ordering;
use std::ptr::NonNull;
use std::sync::Arc;

use ucs::{Error, Result};
use uct_abi::{UCT_MD_ADVISE, UCT_MD_ALLOC, UCT_MD_NEED_RKEY, UCT_MD_REG, UCT_MD_RKEY_PTR};

use super::{MemoryAccess, PACKED_KEY, Region, Regions, Registration, RemoteKey, Window};
use crate::attr::{MdAttr, blank_md};
use crate::failure::Failure;
use crate::traits::Md;

/// A memory domain that is a table of regions; makes an [`Md`].
pub trait RegionDomain: Send + Sync + 'static {
    /// What a key is.
    type Key: RegionKey;

    /// The table.
    fn regions(&self) -> &Regions;
}

/// A key to a region of some process.
pub trait RegionKey: Sized + Send + Sync {
    /// Whether its memory is this process's.
    const IS_OWN: bool;

    /// Turns packed bytes, which are untrusted, into a key.
    ///
    /// # Errors
    /// They are none; the reason explains why.
    fn unpack(regions: &Regions, packed: &[u8]) -> Result<Self, Failure>;

    /// The region itself, where it is this process's.
    fn region(&self) -> Option<&Region>;

    /// An order without a meaning, for tables of keys.
    fn compare(&self, other: &Self) -> Ordering;
}

impl RegionKey for RemoteKey {
    const IS_OWN: bool = false;

    fn unpack(_regions: &Regions, packed: &[u8]) -> Result<RemoteKey, Failure> {
        RemoteKey::unpack(packed)
    }

    fn region(&self) -> Option<&Region> {
        None
    }

    fn compare(&self, other: &RemoteKey) -> Ordering {
        self.cmp(other)
    }
}

impl RegionKey for Arc<Region> {
    const IS_OWN: bool = true;

    fn unpack(regions: &Regions, packed: &[u8]) -> Result<Arc<Region>, Failure> {
        let key = RemoteKey::unpack(packed)?;
        if key.identity != regions.identity() {
            return Err(Failure::new(Error::INVALID_PARAM, "the key is of another process or transport"));
        }
        regions
            .find(key.key as u32, key.secret)
            .map_err(|error| Failure::new(error, "the memory of this key is no longer registered"))
    }

    fn region(&self) -> Option<&Region> {
        Some(self)
    }

    fn compare(&self, other: &Arc<Region>) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<D: RegionDomain> Md for D {
    type Memh = Registration;
    type Rkey = D::Key;

    fn attributes(&self) -> MdAttr {
        let pointer = if D::Key::IS_OWN { UCT_MD_RKEY_PTR } else { 0 };
        MdAttr {
            flags: UCT_MD_REG | UCT_MD_ALLOC | UCT_MD_NEED_RKEY | UCT_MD_ADVISE | pointer,
            rkey_packed_size: PACKED_KEY,
            max_reg: u64::MAX,
            max_alloc: u64::MAX,
            rkey_cost: 80e-9,
            ..blank_md()
        }
    }

    unsafe fn register(
        &self,
        address: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Registration, Failure> {
        // SAFETY: the caller's promise; `deregister` drops the registration.
        unsafe { self.regions().register(address, length, access) }
    }

    fn deregister(&self, memh: Registration) -> Result {
        self.regions().deregister(memh);
        Ok(())
    }

    fn allocate(
        &self,
        length: usize,
        access: MemoryAccess,
    ) -> Result<(NonNull<u8>, usize, Registration), Failure> {
        self.regions().allocate(length, access)
    }

    fn free(&self, memh: Registration) -> Result {
        self.deregister(memh)
    }

    fn advise(&self, _memh: &Registration, address: NonNull<u8>, length: usize, advice: u32) -> Result {
        super::advise(address, length, advice)
    }

    fn pack(&self, memh: &Registration, buffer: &mut [u8]) -> Result {
        self.regions().pack(memh.region(), buffer)
    }

    fn unpack(&self, buffer: &[u8]) -> Result<D::Key, Failure> {
        D::Key::unpack(self.regions(), buffer)
    }

    fn rkey_ptr(&self, rkey: &D::Key, remote_address: u64) -> Result<NonNull<u8>> {
        rkey.region().ok_or(Error::UNSUPPORTED)?.check(remote_address, 0, MemoryAccess::empty())
    }

    fn window<'key>(&self, rkey: &'key D::Key) -> Result<Window<'key>> {
        rkey.region().map(Region::window).ok_or(Error::UNSUPPORTED)
    }

    fn compare(&self, left: &D::Key, right: &D::Key) -> Result<Ordering> {
        Ok(left.compare(right))
    }
}
