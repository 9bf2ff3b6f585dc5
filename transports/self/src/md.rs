//! The memory domain of `self`: all memory of the process, and keys that are checked all the same.

use std::cmp::Ordering;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock};

use ucs::Error;
use uct_plugin::abi::{UCT_MD_ALLOC, UCT_MD_NEED_RKEY, UCT_MD_REG, UCT_MD_RKEY_PTR};
use uct_plugin::memory::{PACKED_KEY, Region, Regions, Registration, RemoteKey, Window};
use uct_plugin::{Component, Failure, Md, MdAttr, MemoryAccess, Result, Settings, attr};

/// The component `self`.
pub(crate) struct SelfComponent;

/// The memory domain `self`.
pub(crate) struct SelfMd;

/// One table for the process, so that contexts of one process reach each other's memory.
static REGIONS: LazyLock<Regions> = LazyLock::new(Regions::default);

impl Component for SelfComponent {
    const NAME: &'static str = "self";
    type Md = SelfMd;

    fn memory_domains(_settings: &Settings<'_>) -> Result<Vec<String>, Failure> {
        Ok(vec!["self".to_owned()])
    }

    fn open(_name: &str, _settings: &Settings<'_>) -> Result<SelfMd, Failure> {
        Ok(SelfMd)
    }
}

impl Md for SelfMd {
    type Memh = Registration;
    type Rkey = Arc<Region>;

    fn attributes(&self) -> MdAttr {
        MdAttr {
            flags: UCT_MD_REG | UCT_MD_ALLOC | UCT_MD_NEED_RKEY | UCT_MD_RKEY_PTR,
            rkey_packed_size: PACKED_KEY,
            max_reg: u64::MAX,
            max_alloc: u64::MAX,
            ..attr::blank_md()
        }
    }

    fn register(
        &self,
        address: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Registration, Failure> {
        REGIONS.register(address, length, access)
    }

    fn deregister(&self, memh: Registration) -> Result {
        REGIONS.deregister(memh);
        Ok(())
    }

    fn allocate(
        &self,
        length: usize,
        access: MemoryAccess,
    ) -> Result<(NonNull<u8>, usize, Registration), Failure> {
        REGIONS.allocate(length, access)
    }

    fn free(&self, memh: Registration) -> Result {
        self.deregister(memh)
    }

    fn pack(&self, memh: &Registration, buffer: &mut [u8]) -> Result {
        REGIONS.pack(memh.region(), buffer)
    }

    fn unpack(&self, buffer: &[u8]) -> Result<Arc<Region>, Failure> {
        let key = RemoteKey::unpack(buffer)?;
        if key.identity != REGIONS.identity() {
            return Err(Failure::new(Error::INVALID_PARAM, "the key is of another process or transport"));
        }
        REGIONS
            .find(key.key)
            .map_err(|error| Failure::new(error, "the memory of this key is no longer registered"))
    }

    fn rkey_ptr(&self, rkey: &Arc<Region>, remote_address: u64) -> Result<NonNull<u8>> {
        rkey.check(remote_address, 0, MemoryAccess::empty())
    }

    fn window<'key>(&self, rkey: &'key Arc<Region>) -> Result<Window<'key>> {
        Ok(rkey.window())
    }

    fn compare(&self, left: &Arc<Region>, right: &Arc<Region>) -> Result<Ordering> {
        Ok(left.key().cmp(&right.key()))
    }
}
