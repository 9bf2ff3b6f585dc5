//! The further registrations of memory: with other domains, and of parts of it, each for a key that opens no more than that part.
//!
//! Held by [`Memory`], which ends them ahead of its own. Used by `multi_domain`, and by applications as [`Grant`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

use ucs::Result;
use uct_abi::UctMemh;

use super::super::MemoryDomain;
use super::{Memory, WeakMemory, end_registration, packed_key};
use crate::error::Refused;

/// See the module.
#[derive(Default)]
pub(crate) struct Registrations {
    /// The memory is for several domains ([`crate::MultiDomainMemory`]).
    is_for_all: Cell<bool>,
    /// Of all bytes, with other domains.
    domains: RefCell<Vec<Further>>,
    /// Of parts, by numbers.
    parts: RefCell<BTreeMap<u64, Further>>,
    next: Cell<u64>,
    /// One of them could not be ended.
    is_lost: Cell<bool>,
}

/// One registration. [`Further::end`] ends it; dropping it alone does not.
pub(crate) struct Further {
    md: MemoryDomain,
    memh: *mut UctMemh,
}

impl Further {
    /// A registration of the domain's that nothing else refers to.
    pub(crate) fn new(md: &MemoryDomain, memh: *mut UctMemh) -> Further {
        Further { md: md.clone(), memh }
    }

    /// Ends it; returns whether the bytes are free of it. In a child of a fork it is the parent's.
    fn end(self) -> bool {
        // SAFETY: `new` got a registration that this value alone has; memory that refers to it holds the first one, which ends it.
        self.md.inner.is_parents() || unsafe { end_registration(&self.md, self.memh, false) }
    }
}

impl Registrations {
    /// Ends all; returns whether none of them uses the bytes now.
    pub(crate) fn end(self) -> bool {
        let parts = self.parts.into_inner().into_values();
        let ended = parts.chain(self.domains.into_inner()).map(Further::end);
        // Each is ended, whatever the others return.
        ended.fold(!self.is_lost.get(), |all, ended| all & ended)
    }

    pub(crate) fn is_for_all(&self) -> bool {
        self.is_for_all.get()
    }

    pub(crate) fn set_for_all(&self) {
        self.is_for_all.set(true);
    }

    /// The domains that all bytes are registered with, besides the first one.
    pub(crate) fn domains(&self) -> Vec<MemoryDomain> {
        self.domains.borrow().iter().map(|further| further.md.clone()).collect()
    }

    /// The memory `first`, whose registrations these are, by its registration with another domain, which is made if need be.
    pub(crate) fn for_domain(&self, first: &Memory, domain: &MemoryDomain) -> Result<Memory, Refused> {
        let known = self.domains.borrow().iter().find(|it| it.md.is_same(domain)).map(|it| it.memh);
        let memh = match known {
            Some(memh) => memh,
            None => {
                let further = first.register_further(domain, 0, first.len())?;
                let memh = further.memh;
                self.domains.borrow_mut().push(further);
                memh
            }
        };
        Ok(first.by(domain, memh))
    }
}

/// A key to a part of memory, by a registration of its own: a peer that has it can access these bytes and no others, with the rights
/// of the memory, where the owner's side or its device carries out the accesses (`self`, `tcp`, `rc_verbs`, `ud_verbs`, and shared memory by
/// messages). `posix`, `sysv` and `cma`: docs/memory.md.
///
/// The key ends when this is dropped, or with the memory, which it does not keep.
pub struct Grant {
    memory: WeakMemory,
    number: u64,
    md: MemoryDomain,
    address: u64,
    length: usize,
    key: Vec<u8>,
}

impl Grant {
    /// `length` bytes at `offset` of the memory `first`, which are within it.
    pub(crate) fn new(
        first: &Memory,
        domain: &MemoryDomain,
        offset: usize,
        length: usize,
    ) -> Result<Grant, Refused> {
        let further = first.register_further(domain, offset, length)?;
        let registrations = first.further();
        let number = registrations.next.get();
        registrations.next.set(number + 1);
        let memh = further.memh;
        registrations.parts.borrow_mut().insert(number, further);
        let address = first.address() + offset as u64;
        let (memory, md, key) = (first.downgrade(), domain.clone(), Vec::new());
        let mut grant = Grant { memory, number, md, address, length, key };
        // SAFETY: the memory has the registration, and is the caller's.
        grant.key = unsafe { packed_key(domain, memh) }.map_err(|status| Refused {
            operation: "pack a key",
            subject: domain.name().to_owned(),
            status,
            reason: "the domain has no keys".to_owned(),
        })?;
        Ok(grant)
    }

    /// The key, for [`MemoryDomain::unpack`] at a peer.
    pub fn packed_key(&self) -> &[u8] {
        &self.key
    }

    /// The first address that it opens.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes it opens.
    #[expect(clippy::len_without_is_empty, reason = "a grant of no bytes is of no use")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the memory has ended, and with it the key.
    pub fn is_over(&self) -> bool {
        self.memory.upgrade().is_none()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let Some(memory) = self.memory.upgrade() else { return };
        let registrations = memory.further();
        let part = registrations.parts.borrow_mut().remove(&self.number);
        if part.is_some_and(|part| !part.end()) {
            registrations.is_lost.set(true);
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("md", &self.md.name()).field("length", &self.length).finish()
    }
}
