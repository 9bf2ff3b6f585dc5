//! The memory domain of a device: registration for zero copy, and keys that the target checks by itself.
//!
//! Put, get and atomics are carried out by the target's processor. Built on `uct_ib::verbs`
//! for the device's registration and on `uct_plugin::memory` for the keys.

use std::cmp::Ordering;
use std::ptr::NonNull;
use std::sync::Arc;

use uct_ib::verbs::{Access, Mr, MrBuffer, Pd};
use uct_ib::{IbConfig, IbDevice, component};
use uct_plugin::memory::{KnownDomains, PACKED_KEY, Regions, RemoteKey};
use uct_plugin::{Component, Error, Failure, Md, MdAttr, MemoryAccess, Result, Settings};

use crate::config::UdConfig;
use crate::io::memory::{Memh, Memory};

/// The component `ud_verbs`.
pub(crate) struct UdComponent;

/// The memory domain of a device.
pub(crate) struct UdMd {
    pub(crate) device: IbDevice,
    pub(crate) pd: Arc<Pd>,
    pub(crate) regions: Regions,
}

/// The memory domains of this process that have interfaces.
pub(crate) static OWN: KnownDomains<UdMd> = KnownDomains::new();

impl Component for UdComponent {
    const NAME: &'static str = "ud_verbs";
    type Md = UdMd;

    fn memory_domains(settings: &Settings<'_>) -> Result<Vec<String>, Failure> {
        component::memory_domains(IbConfig::from_settings(settings)?.verbs()?)
    }

    fn open(name: &str, settings: &Settings<'_>) -> Result<UdMd, Failure> {
        let config = UdConfig::from_settings(settings)?;
        let (device, pd) =
            component::open(IbConfig::from_settings(settings)?.verbs()?, name, config.fork_init)?;
        Ok(UdMd { device, pd, regions: Regions::default() })
    }
}

impl UdMd {
    fn adopt(
        &self,
        base: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
        memory: Memory,
    ) -> Result<Memh, Failure> {
        // SAFETY: the memory is the buffer, which is freed behind `deregister`, or stays valid until then by the promise of `register`.
        let region = unsafe { self.regions.insert(base, length, access) }?;
        Ok(Memh { region, memory })
    }
}

impl Md for UdMd {
    type Memh = Memh;
    type Rkey = RemoteKey;

    fn attributes(&self) -> MdAttr {
        component::md_attributes(&self.device, PACKED_KEY)
    }

    unsafe fn register(
        &self,
        address: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Memh, Failure> {
        if (address.as_ptr() as u64).checked_add(length as u64).is_none() {
            return Err(Failure::new(
                Error::INVALID_PARAM,
                format!("{length} bytes at {address:p} wrap around the end of the address space"),
            ));
        }
        if length == 0 {
            return self.adopt(address, length, access, Memory::Empty);
        }
        // The device only reads the memory: peers reach it through the processor.
        // SAFETY: the caller keeps the memory valid until `deregister`.
        let mr = unsafe { Mr::register(&self.pd, address.as_ptr(), length, Access::LOCAL_READ) };
        self.adopt(address, length, access, Memory::Given(mr?))
    }

    fn deregister(&self, memh: Memh) -> Result {
        self.regions.remove(&memh.region);
        Ok(())
    }

    fn allocate(&self, length: usize, access: MemoryAccess) -> Result<(NonNull<u8>, usize, Memh), Failure> {
        let buffer = MrBuffer::new(&self.pd, length, Access::LOCAL_READ)?;
        let address = NonNull::new(buffer.as_ptr()).ok_or(Error::NO_MEMORY)?;
        let length = buffer.length();
        Ok((address, length, self.adopt(address, length, access, Memory::Allocated(buffer))?))
    }

    fn free(&self, memh: Memh) -> Result {
        self.deregister(memh)
    }

    fn advise(&self, _memh: &Memh, address: NonNull<u8>, length: usize, advice: u32) -> Result {
        uct_plugin::memory::advise(address, length, advice)
    }

    fn pack(&self, memh: &Memh, buffer: &mut [u8]) -> Result {
        self.regions.pack(&memh.region, buffer)
    }

    fn unpack(&self, buffer: &[u8]) -> Result<RemoteKey, Failure> {
        RemoteKey::unpack(buffer)
    }

    fn compare(&self, left: &RemoteKey, right: &RemoteKey) -> Result<Ordering> {
        Ok(left.cmp(right))
    }
}
