//! A registration, with the device and with the domain's table of regions.
//!
//! Built on `uct_ib::verbs` and `uct_plugin::memory`.

use std::sync::Arc;

use uct_ib::verbs::{Mr, MrBuffer};
use uct_plugin::memory::Region;
use uct_plugin::{MemoryAccess, Result};

/// A registration.
pub(crate) struct Memh {
    pub(crate) region: Arc<Region>,
    pub(crate) memory: Memory,
}

/// What the device knows of it.
pub(crate) enum Memory {
    /// No bytes: the device knows of none.
    Empty,
    Given(Mr),
    Allocated(MrBuffer),
}

impl Memh {
    /// The local key for these bytes.
    ///
    /// # Errors
    /// They are not all registered.
    #[inline]
    pub(crate) fn lkey(&self, address: u64, length: usize) -> Result<u32> {
        self.region.check(address, length, MemoryAccess::empty())?;
        Ok(match &self.memory {
            Memory::Empty => 0,
            Memory::Given(mr) => mr.lkey(),
            Memory::Allocated(buffer) => buffer.mr().lkey(),
        })
    }
}
