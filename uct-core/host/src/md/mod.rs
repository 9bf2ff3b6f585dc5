//! Memory domains: what registers and allocates memory for the transports of one component; its memory and its keys.

mod access;
mod free_pieces;
mod mapping;
mod memory;
mod multi_domain;
mod packed_keys;
mod pool;
mod rkey;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use ucs::Result;
use ucs::memory::fork::{ForkGuard, Forked};
use uct_abi::{UctMd, UctMdOps};

use crate::attr::{MdAttr, blank_md};
use crate::config::AllocMethod;
use crate::error::Refused;
use crate::reason::Reason;

pub use access::Access;
pub use memory::{Grant, Memory, MemoryKind, MemorySlice};
pub use multi_domain::MultiDomainMemory;
pub use packed_keys::PackedKeys;
pub use pool::RegisteredPool;
pub use rkey::RemoteKey;
pub(crate) use rkey::{Gate, RkeyInner};

/// An open memory domain. Cheap to clone.
///
/// A child of a fork is refused all that changes it: registrations are the parent's. It opens one of its own with a new
/// worker.
#[derive(Clone)]
pub struct MemoryDomain {
    pub(crate) inner: Arc<MdInner>,
}

pub(crate) struct MdInner {
    pub(crate) ops: &'static UctMdOps,
    raw: *mut UctMd,
    /// The plugin's domain, if it registers nothing, and `raw` was put around it.
    inside: Option<*mut UctMd>,
    name: String,
    /// Bytes of a packed key.
    packed_key: usize,
    pub(crate) alloc_methods: Vec<AllocMethod>,
    /// The key `populate`.
    populates: bool,
    /// Registrations and what opened them are the parent's: a child that ended them would end the parent's.
    fork: ForkGuard,
}

// SAFETY: any thread may call the slots of a memory domain (`UctMdOps`).
unsafe impl Send for MdInner {}
// SAFETY: as above, several at once.
unsafe impl Sync for MdInner {}

impl MdInner {
    /// Of a domain that was just opened.
    pub(crate) fn new(
        ops: &'static UctMdOps,
        raw: *mut UctMd,
        name: String,
        (alloc_methods, populates): (Vec<AllocMethod>, bool),
    ) -> MdInner {
        let (ops, raw, inside) = if uct_compose::is_wanted(&query(ops, raw)) {
            // SAFETY: the domain was just opened, and the loader fills every slot.
            (uct_compose::tables().md, unsafe { uct_compose::domain(ops, raw) }, Some(raw))
        } else {
            (ops, raw, None)
        };
        let packed_key = query(ops, raw).rkey_packed_size;
        MdInner { ops, raw, inside, name, packed_key, alloc_methods, populates, fork: ForkGuard::new() }
    }

    pub(crate) fn raw(&self) -> *mut UctMd {
        self.raw
    }

    /// Bytes of a packed key.
    pub(crate) fn packed_key(&self) -> usize {
        self.packed_key
    }

    /// What the plugin's transports take for their domain.
    pub(crate) fn plugin_raw(&self) -> *mut UctMd {
        self.inside.unwrap_or(self.raw)
    }

    /// Whether operations on remote memory are composed for its interfaces.
    pub(crate) fn is_composed(&self) -> bool {
        self.inside.is_some()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether this is a child of the process that opened it.
    pub(crate) fn is_parents(&self) -> bool {
        self.fork.check().is_err()
    }

    /// Refuses calls in a child of a fork: the domain belongs to the parent.
    pub(crate) fn check_fork(&self, operation: &'static str) -> Result<(), Refused> {
        self.fork.check().map_err(|forked: Forked| Refused {
            operation,
            subject: self.name.clone(),
            status: ucs::Error::from(forked),
            reason: forked.to_string(),
        })
    }
}

impl Drop for MdInner {
    fn drop(&mut self) {
        if self.is_parents() {
            return;
        }
        let close = self.ops.close.expect("the loader fills every slot");
        // SAFETY: interfaces, memory and keys hold the domain, so none is left.
        unsafe { close(self.raw) };
    }
}

impl MemoryDomain {
    /// What the domain can do.
    pub fn attributes(&self) -> MdAttr {
        query(self.inner.ops, self.inner.raw)
    }

    /// Component and name: `tcp/tcp`.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Whether both are handles of one domain, whose registrations are each other's.
    pub fn is_same(&self, other: &MemoryDomain) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Allocates at least `length` zeroed bytes and registers them, by the first method of the key `alloc_prio` that
    /// works. The memory is freed when the last [`Memory`], slice or outstanding operation that refers to it is gone. Blocks while
    /// its pages are made present (key `populate`): some tenths of a second for a GiB.
    ///
    /// # Errors
    /// What each method returned; a kind other than the host's. `NO_MEMORY` for more than the machine or a control group has left, if pages are
    /// made present.
    pub fn allocate(&self, length: usize, access: Access, kind: MemoryKind) -> Result<Memory, Refused> {
        self.only_host(kind, "allocate memory")?;
        self.inner.check_fork("allocate memory")?;
        Memory::allocate(self, length, access, self.inner.populates)
    }

    /// As [`MemoryDomain::allocate`], and leaves it to the caller to make the pages present, for example outside of a lock:
    /// `ucs::memory::populate`, if the second value says so.
    ///
    /// # Errors
    /// As [`MemoryDomain::allocate`].
    pub fn allocate_absent(&self, length: usize, access: Access) -> Result<(Memory, bool), Refused> {
        self.inner.check_fork("allocate memory")?;
        Ok((Memory::allocate(self, length, access, false)?, self.inner.populates))
    }

    /// Registers memory that the caller hands over, and gives back with [`Memory::into_bytes`].
    ///
    /// # Errors
    /// The domain's refusal.
    pub fn register(&self, bytes: Vec<u8>, access: Access) -> Result<Memory, Refused> {
        self.try_register(bytes, access).map_err(|(refused, _bytes)| refused)
    }

    /// As [`MemoryDomain::register`]; a refusal gives the bytes back.
    ///
    /// # Errors
    /// The domain's refusal, and the bytes.
    pub fn try_register(&self, bytes: Vec<u8>, access: Access) -> Result<Memory, (Refused, Vec<u8>)> {
        match self.inner.check_fork("register memory") {
            Ok(()) => Memory::register(self, bytes, access),
            Err(refused) => Err((refused, bytes)),
        }
    }

    /// Registers memory that the caller keeps. It may be mapped for reading only, if peers may not write to it: then it is not
    /// [writable](Memory::is_writable). What the mappings permit is looked up in /proc at this call, which takes some microseconds. Where that
    /// is not there, nothing is checked.
    ///
    /// # Errors
    /// The domain's refusal; a kind other than the host's. `INVALID_PARAM` for memory that is not mapped or may not be read, and for
    /// memory that may only be read, if `access` lets peers put to it or change it by atomics.
    ///
    /// # Safety
    /// The `length` bytes at `address` stay valid for reads, and for writes unless they were mapped for reading only, until the last
    /// [`Memory`], slice or outstanding operation that refers to them is gone, and nothing holds a reference to them meanwhile: peers may
    /// write to them at any time. If the log warns then that they are lost, a peer writes to them still: they stay valid for ever.
    pub unsafe fn register_raw(
        &self,
        address: std::ptr::NonNull<u8>,
        length: usize,
        access: Access,
        kind: MemoryKind,
    ) -> Result<Memory, Refused> {
        self.only_host(kind, "register memory")?;
        self.inner.check_fork("register memory")?;
        // SAFETY: the caller's promise.
        unsafe { Memory::register_raw(self, address, length, access) }
    }

    /// As [`MemoryDomain::register_raw`], for peers to read. What the mappings permit is not looked up, which would take longer than the rest: for a
    /// protocol that registers memory for each message. The memory is not [writable](Memory::is_writable).
    ///
    /// # Errors
    /// The domain's refusal.
    ///
    /// # Safety
    /// The `length` bytes at `address` stay valid for reads until the last [`Memory`], slice or outstanding operation that refers to them is gone. They may
    /// be written meanwhile, and peers get whatever is there then; no reference promises that they do not change.
    pub unsafe fn register_readable(
        &self,
        address: std::ptr::NonNull<u8>,
        length: usize,
    ) -> Result<Memory, Refused> {
        self.inner.check_fork("register memory")?;
        // SAFETY: the caller's promise.
        unsafe { Memory::register_readable(self, address, length) }
    }

    /// Turns the bytes that a peer got from [`Memory::packed_key`] into a key.
    ///
    /// # Errors
    /// Bytes that are no key of this domain: `INVALID_PARAM` with a reason.
    pub fn unpack(&self, packed: &[u8]) -> Result<RemoteKey, Refused> {
        self.inner.check_fork("unpack a remote key")?;
        let mut raw = std::ptr::null_mut();
        let mut reason = Reason::new();
        let unpack = self.inner.ops.rkey_unpack.expect("the loader fills every slot");
        // SAFETY: the domain is open; the bytes are ours and valid for the call.
        let status =
            unsafe { unpack(self.inner.raw, packed.as_ptr(), packed.len(), &raw mut raw, reason.as_mut()) };
        reason.check(status, "unpack a remote key", || self.inner.name.clone())?;
        Ok(RemoteKey::new(self, raw))
    }

    fn only_host(&self, kind: MemoryKind, operation: &'static str) -> Result<(), Refused> {
        if kind == MemoryKind::Host {
            return Ok(());
        }
        Err(Refused {
            operation,
            subject: self.inner.name.clone(),
            status: ucs::Error::UNSUPPORTED,
            reason: format!("memory of kind {kind:?} is not supported; only host memory is"),
        })
    }
}

/// What an open domain can do.
fn query(ops: &UctMdOps, raw: *mut UctMd) -> MdAttr {
    let mut attr = blank_md();
    let query = ops.query.expect("the loader fills every slot");
    // SAFETY: the domain is open, and the table is ours and contains its size.
    let status = unsafe { query(raw, &raw mut attr) };
    if status == uct_abi::UCT_OK { attr } else { blank_md() }
}

impl fmt::Debug for MemoryDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryDomain").field(&self.inner.name()).finish()
    }
}
