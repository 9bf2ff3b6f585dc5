//! The memory domain: a plugin's that registers nothing, with a table of regions beside it.

use uct_plugin::abi::{UctMd, UctMdOps};
use uct_plugin::memory::{KnownDomains, RegionDomain, Regions, RemoteKey};

/// A memory domain.
pub(crate) struct ComposedMd {
    ops: &'static UctMdOps,
    raw: *mut UctMd,
    regions: Regions,
}

/// The memory domains of this process that have interfaces.
pub(crate) static OWN: KnownDomains<ComposedMd> = KnownDomains::new();

// SAFETY: any thread may call the slots of a memory domain (`UctMdOps`), and the regions are `Send`.
unsafe impl Send for ComposedMd {}
// SAFETY: as above, several at once.
unsafe impl Sync for ComposedMd {}

impl ComposedMd {
    /// # Safety
    /// As [`crate::domain`].
    pub(crate) unsafe fn new(ops: &'static UctMdOps, raw: *mut UctMd) -> ComposedMd {
        ComposedMd { ops, raw, regions: Regions::default() }
    }

    /// The plugin's domain.
    pub(crate) fn plugin(&self) -> *mut UctMd {
        self.raw
    }
}

impl RegionDomain for ComposedMd {
    type Key = RemoteKey;

    fn regions(&self) -> &Regions {
        &self.regions
    }
}

impl Drop for ComposedMd {
    fn drop(&mut self) {
        if let Some(close) = self.ops.close {
            // SAFETY: the domain is open, nothing else closes it (`new`), and its interfaces, which hold this, are gone.
            unsafe { close(self.raw) };
        }
    }
}
