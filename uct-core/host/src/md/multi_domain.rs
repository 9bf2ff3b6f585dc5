//! Memory that several memory domains register, each on first use, and the keys of these domains for peers.
//!
//! For programs with endpoints over several transports. Built on `memory` and `packed_keys`.

#![forbid(unsafe_code)]

use std::fmt;

use ucs::Error;

use super::{Memory, MemoryDomain, MemorySlice, PackedKeys};
use crate::error::Refused;

/// Memory for endpoints of several memory domains: over `posix`, `tcp` and `rc_verbs`, say. For the thread that made it. Cheap to clone.
///
/// It begins with [`Memory`] of one domain, which has the bytes, and registers them with another domain when an operation or a key first
/// needs that. All domains grant the same [`Access`](crate::Access). Which domain is the first matters for speed: peers map memory that
/// a domain of shared memory has allocated, and only that.
///
/// From then on every handle of the memory is one of several domains ([`Memory::multi_domain`]). The registrations end when all handles, slices and
/// operations in flight of all domains are gone; the first one, with the bytes, ends after all others. UCX's counterpart is `ucp_mem_map`.
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
    first: Memory,
}

impl MultiDomainMemory {
    /// Of memory that one domain has allocated or registered.
    pub fn new(memory: Memory) -> MultiDomainMemory {
        let first = memory.first().clone();
        first.further().set_for_all();
        MultiDomainMemory { first }
    }

    /// The memory of the first domain: address, length and contents are those of all domains.
    pub fn memory(&self) -> &Memory {
        &self.first
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
        if first.domain().is_same(domain) {
            return Ok(first.clone());
        }
        domain.inner.check_fork("register memory")?;
        first.further().for_domain(first, domain)
    }

    /// The domains that it is registered with, the first one first.
    pub fn domains(&self) -> Vec<MemoryDomain> {
        let first = self.memory();
        std::iter::once(first.domain().clone()).chain(first.further().domains()).collect()
    }

    /// The keys of all domains that it is registered with, as bytes for [`PackedKeys::parse`] at a peer. A peer that has them may access
    /// the memory: pass them only over channels that you trust (docs/security.md).
    ///
    /// # Errors
    /// As [`MultiDomainMemory::packed_keys_for`].
    pub fn packed_keys(&self) -> Result<Vec<u8>, Refused> {
        self.memory().domain().inner.check_fork("pack a key")?;
        self.packed_keys_for(&self.domains())
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
}

impl Memory {
    /// Whether it is memory for several domains: somebody has made it a [`MultiDomainMemory`].
    pub fn multi_domain(&self) -> Option<MultiDomainMemory> {
        let first = self.first();
        first.is_for_all().then(|| MultiDomainMemory { first: first.clone() })
    }

    /// The memory for operations of another domain's endpoints. Itself, if it is of that domain; memory for several domains is
    /// registered on first use ([`MultiDomainMemory::for_domain`]).
    ///
    /// # Errors
    /// `INVALID_PARAM` for memory of one other domain. The domain's refusal to register it.
    pub fn for_domain(&self, domain: &MemoryDomain) -> Result<Memory, Refused> {
        if self.domain().is_same(domain) {
            return Ok(self.clone());
        }
        match self.multi_domain() {
            Some(memory) => memory.for_domain(domain),
            None => Err(Refused {
                operation: "use memory",
                subject: domain.name().to_owned(),
                status: Error::INVALID_PARAM,
                reason: format!("the memory is registered with {} alone", self.domain().name()),
            }),
        }
    }
}

impl MemorySlice {
    /// The same bytes for operations of another domain's endpoints, as [`Memory::for_domain`].
    ///
    /// # Errors
    /// As [`Memory::for_domain`].
    pub fn for_domain(&self, domain: &MemoryDomain) -> Result<MemorySlice, Refused> {
        Ok(self.in_memory(self.memory.for_domain(domain)?))
    }
}

impl fmt::Debug for MultiDomainMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domains = self.domains();
        let domains: Vec<&str> = domains.iter().map(MemoryDomain::name).collect();
        f.debug_struct("MultiDomainMemory")
            .field("length", &self.memory().len())
            .field("domains", &domains)
            .finish()
    }
}
