//! The memory domain of `tcp`: a table of registered regions, against which every access of a peer is checked.

use std::cmp::Ordering;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use uct_plugin::abi::{UCT_MD_ALLOC, UCT_MD_NEED_RKEY, UCT_MD_REG};
use uct_plugin::memory::{Allocation, PACKED_KEY, Region, Regions, RemoteKey};
use uct_plugin::{Component, Failure, Md, MdAttr, MemoryAccess, Result, Settings, attr};

/// The component `tcp`.
pub(crate) struct TcpComponent;

/// The memory domain `tcp`.
#[derive(Default)]
pub(crate) struct TcpMd {
    pub(crate) regions: Regions,
}

/// The memory domains of this process that have interfaces.
static OWN: Mutex<Vec<(u64, Weak<TcpMd>)>> = Mutex::new(Vec::new());

impl TcpMd {
    /// Makes the domain known to [`TcpMd::of_identity`].
    pub(crate) fn make_known(self: &Arc<Self>) {
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        own.retain(|(_, md)| md.strong_count() > 0);
        let identity = self.regions.identity();
        if !own.iter().any(|(other, _)| *other == identity) {
            own.push((identity, Arc::downgrade(self)));
        }
    }

    /// The domain of this process that a key belongs to.
    pub(crate) fn of_identity(identity: u64) -> Option<Arc<TcpMd>> {
        let own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        own.iter().find(|(other, _)| *other == identity)?.1.upgrade()
    }
}

/// A registration, with the memory if it was allocated.
pub(crate) struct Memh {
    region: Arc<Region>,
    _allocation: Option<Allocation>,
}

impl Component for TcpComponent {
    const NAME: &'static str = "tcp";
    type Md = TcpMd;

    fn memory_domains(_settings: &Settings<'_>) -> Result<Vec<String>, Failure> {
        Ok(vec!["tcp".to_owned()])
    }

    fn open(_name: &str, _settings: &Settings<'_>) -> Result<TcpMd, Failure> {
        Ok(TcpMd::default())
    }
}

impl Md for TcpMd {
    type Memh = Memh;
    type Rkey = RemoteKey;

    fn attributes(&self) -> MdAttr {
        MdAttr {
            flags: UCT_MD_REG | UCT_MD_ALLOC | UCT_MD_NEED_RKEY,
            rkey_packed_size: PACKED_KEY,
            max_reg: u64::MAX,
            max_alloc: u64::MAX,
            ..attr::blank_md()
        }
    }

    fn register(&self, address: NonNull<u8>, length: usize, access: MemoryAccess) -> Result<Memh, Failure> {
        Ok(Memh { region: self.regions.insert(address, length, access)?, _allocation: None })
    }

    fn deregister(&self, memh: Memh) -> Result {
        self.regions.remove(&memh.region);
        Ok(())
    }

    fn allocate(&self, length: usize, access: MemoryAccess) -> Result<(NonNull<u8>, usize, Memh), Failure> {
        let allocation = Allocation::new(length)?;
        let region = self.regions.insert(allocation.address(), allocation.length(), access)?;
        Ok((allocation.address(), allocation.length(), Memh { region, _allocation: Some(allocation) }))
    }

    fn free(&self, memh: Memh) -> Result {
        self.deregister(memh)
    }

    fn pack(&self, memh: &Memh, buffer: &mut [u8]) -> Result {
        self.regions.pack(&memh.region, buffer)
    }

    fn unpack(&self, buffer: &[u8]) -> Result<RemoteKey, Failure> {
        RemoteKey::unpack(buffer)
    }

    fn compare(&self, left: &RemoteKey, right: &RemoteKey) -> Result<Ordering> {
        Ok(left.compare(right))
    }
}
