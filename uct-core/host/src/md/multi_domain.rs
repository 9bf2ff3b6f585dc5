//! Memory that several memory domains register, each on first use, and the keys of these domains for peers.
//!
//! For programs with endpoints over several transports. Built on `memory` and `packed_keys`.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use super::{Memory, MemoryDomain, PackedKeys};
use crate::error::Refused;

/// Memory for endpoints of several memory domains: over `posix`, `tcp` and `rc_verbs`, say. For the thread that made it. Cheap to clone.
///
/// It begins with [`Memory`] of one domain, which has the bytes, and registers them with another domain when an operation or a key first
/// needs that. All domains grant the same [`Access`](crate::Access). Which domain is the first matters for speed: peers map memory that
/// a domain of shared memory has allocated, and only that.
///
/// A registration ends when this value, all its clones, and all that uses the memory of that domain (slices, operations
/// in flight) are gone. The first one, with the bytes, ends after all others. UCX's counterpart is `ucp_mem_map`.
///
/// ```
/// use uct_core::{Access, Context, MemoryKind, MultiDomainMemory, PackedKeys, Worker};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let worker = Worker::new(&Context::builder().build()?)?;
/// let (near, far) = (worker.open("self", "memory")?, worker.open("tcp", "lo")?);
/// let memory = near.memory_domain().allocate(4096, Access::ALL, MemoryKind::Host)?;
/// let memory = MultiDomainMemory::new(memory);
/// let packed = memory.packed_keys_for([near.memory_domain(), far.memory_domain()])?;
///
/// // The peer unpacks the key for the endpoint that it uses.
/// let keys = PackedKeys::parse(&packed)?;
/// let key = keys.unpack(near.memory_domain())?;
/// # let ep = near.connect(&near.address()?)?;
/// ep.put_short(b"from afar", memory.memory().address(), &key)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MultiDomainMemory {
    inner: Rc<Inner>,
}

struct Inner {
    first: Memory,
    /// The same bytes in other domains.
    others: RefCell<Vec<Memory>>,
}

impl MultiDomainMemory {
    /// Of memory that one domain has allocated or registered.
    pub fn new(memory: Memory) -> MultiDomainMemory {
        MultiDomainMemory { inner: Rc::new(Inner { first: memory, others: RefCell::default() }) }
    }

    /// The memory of the first domain: address, length and contents are those of all domains.
    pub fn memory(&self) -> &Memory {
        &self.inner.first
    }

    /// The memory of a domain, for operations of its endpoints. Registers it with the domain if that is not done yet: system
    /// calls, and more for a device that pins pages.
    ///
    /// # Errors
    /// The domain's refusal; `INVALID_PARAM` in a child of a fork.
    pub fn for_domain(&self, domain: &MemoryDomain) -> Result<Memory, Refused> {
        let first = self.memory();
        // The bytes are the parent's, whatever domain a child would register them with.
        first.domain().inner.check_fork("register memory")?;
        if let Some(memory) = self.registered().into_iter().find(|memory| memory.domain().is_same(domain)) {
            return Ok(memory);
        }
        let memory = first.register_also(domain)?;
        self.inner.others.borrow_mut().push(memory.clone());
        Ok(memory)
    }

    /// The domains that it is registered with, the first one first.
    pub fn domains(&self) -> Vec<MemoryDomain> {
        self.registered().iter().map(|memory| memory.domain().clone()).collect()
    }

    /// The keys of all domains that it is registered with, as bytes for [`PackedKeys::parse`] at a peer. A peer that has them may access
    /// the memory: pass them only over channels that you trust (docs/security.md).
    ///
    /// # Errors
    /// As [`MultiDomainMemory::packed_keys_for`].
    pub fn packed_keys(&self) -> Result<Vec<u8>, Refused> {
        PackedKeys::pack(&self.registered())
    }

    /// As [`MultiDomainMemory::packed_keys`], of these domains and no others; it is registered with each of them first. A domain may be named
    /// more than once.
    ///
    /// # Errors
    /// `INVALID_PARAM`: no domain, more than 32, two with one name (of different contexts), a key of more than 1 KiB, or a child of a fork.
    /// `UNSUPPORTED` by a domain without remote access. The refusal of a domain to register.
    pub fn packed_keys_for<'a>(
        &self,
        domains: impl IntoIterator<Item = &'a MemoryDomain>,
    ) -> Result<Vec<u8>, Refused> {
        let mut memories = Vec::<Memory>::new();
        for domain in domains {
            if memories.iter().all(|memory| !memory.domain().is_same(domain)) {
                memories.push(self.for_domain(domain)?);
            }
        }
        PackedKeys::pack(&memories)
    }

    /// The memory of each domain.
    fn registered(&self) -> Vec<Memory> {
        let Inner { first, others } = &*self.inner;
        std::iter::once(first).chain(&*others.borrow()).cloned().collect()
    }
}

impl fmt::Debug for MultiDomainMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registered = self.registered();
        let domains: Vec<&str> = registered.iter().map(|memory| memory.domain().name()).collect();
        f.debug_struct("MultiDomainMemory")
            .field("length", &self.memory().len())
            .field("domains", &domains)
            .finish()
    }
}
