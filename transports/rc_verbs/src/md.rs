//! The memory domain of a device: registration, and the keys that let peers use it.
//!
//! Built on `io::memory` and `link::rkey`.

use std::cmp::Ordering;
use std::ptr::NonNull;
use std::sync::Arc;

use uct_ib::verbs::Pd;
use uct_ib::{IbConfig, IbDevice, component};
use uct_plugin::{Component, Failure, Md, MdAttr, MemoryAccess, Result, Settings};

use crate::config::RcConfig;
use crate::io::memory::Memh;
use crate::link::rkey::{self, PACKED_KEY, Rkey};

/// The component `rc_verbs`.
pub(crate) struct RcComponent;

/// The memory domain of a device.
pub(crate) struct RcMd {
    pub(crate) device: IbDevice,
    pub(crate) pd: Arc<Pd>,
}

impl Component for RcComponent {
    const NAME: &'static str = "rc_verbs";
    type Md = RcMd;

    fn memory_domains(settings: &Settings<'_>) -> Result<Vec<String>, Failure> {
        component::memory_domains(IbConfig::from_settings(settings)?.verbs()?)
    }

    fn open(name: &str, settings: &Settings<'_>) -> Result<RcMd, Failure> {
        let config = RcConfig::from_settings(settings)?;
        let (device, pd) =
            component::open(IbConfig::from_settings(settings)?.verbs()?, name, config.fork_init)?;
        Ok(RcMd { device, pd })
    }
}

impl Md for RcMd {
    type Memh = Memh;
    type Rkey = Rkey;

    fn attributes(&self) -> MdAttr {
        component::md_attributes(&self.device, PACKED_KEY)
    }

    unsafe fn register(
        &self,
        address: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Memh, Failure> {
        // SAFETY: the caller keeps the memory valid until `deregister`.
        unsafe { Memh::register(&self.pd, address, length, access) }
    }

    fn allocate(&self, length: usize, access: MemoryAccess) -> Result<(NonNull<u8>, usize, Memh), Failure> {
        Memh::allocate(&self.pd, length, access)
    }

    fn advise(&self, _memh: &Memh, address: NonNull<u8>, length: usize, advice: u32) -> Result {
        uct_plugin::memory::advise(address, length, advice)
    }

    fn pack(&self, memh: &Memh, buffer: &mut [u8]) -> Result {
        rkey::pack(memh, buffer)
    }

    fn unpack(&self, buffer: &[u8]) -> Result<Rkey, Failure> {
        Rkey::unpack(buffer)
    }

    fn compare(&self, left: &Rkey, right: &Rkey) -> Result<Ordering> {
        Ok(left.cmp(right))
    }
}
