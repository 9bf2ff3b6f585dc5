//! Registered memory.
//!
//! For memory domains and buffer pools. Built on a protection domain.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use ucs::memory::populate::prefer_huge_pages;

use super::abi::*;
use super::{Context, Pd, errno};
use crate::error::IbError;

/// Bytes that have to be registrable: no pool of buffers starts with less.
const LEAST_MEMORY: usize = 256 << 10;

/// What a registered region may be used for. The local side may always read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access(i32);

impl Access {
    /// Received data and results of reads and atomics may be written to it.
    pub const LOCAL_WRITE: Self = Self(IBV_ACCESS_LOCAL_WRITE);
    /// Peers may write to it. Needs local write.
    pub const REMOTE_WRITE: Self = Self(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    /// Peers may read it.
    pub const REMOTE_READ: Self = Self(IBV_ACCESS_REMOTE_READ);
    /// Peers may change it by atomics. Needs local write.
    pub const REMOTE_ATOMIC: Self = Self(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    /// Only the local side reads it.
    pub const LOCAL_READ: Self = Self(0);

    /// Both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The verbs' `IBV_ACCESS_*`.
    pub const fn bits(self) -> i32 {
        self.0
    }
}

impl Pd {
    /// Makes a domain, and registers a little memory in it for a moment: where nothing can be registered, the domain is of
    /// no use, and this is where its user learns why.
    ///
    /// # Errors
    /// The failed verb; [`IbError::Memlock`] if the limit on locked memory is too low for a few buffers.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, IbError> {
        let pd = Self::allocate(context)?;
        MrBuffer::new(&pd, LEAST_MEMORY, Access::LOCAL_WRITE)?;
        Ok(pd)
    }
}

/// A registered region. It does not own the memory; see [`MrBuffer`] for one that does.
pub struct Mr {
    pd: Arc<Pd>,
    raw: *mut ibv_mr,
}

// SAFETY: libibverbs may be called from any thread; see `Context`.
unsafe impl Send for Mr {}
// SAFETY: as for Send; the keys do not change.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers `length` bytes at `address`: the pages are pinned until the region is dropped.
    ///
    /// # Safety
    /// The memory stays mapped until the region is dropped. With an access that lets the device or peers write, nobody
    /// holds a Rust reference to the bytes while they may.
    ///
    /// # Errors
    /// [`IbError::Memlock`] if the limit on locked memory is the likely cause, otherwise the failed verb.
    pub unsafe fn register(
        pd: &Arc<Pd>,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Self, IbError> {
        let context = pd.context();
        // SAFETY: the domain lives; the caller promises that the memory stays mapped.
        let raw =
            unsafe { (context.table().reg_mr)(pd.as_ptr(), address.cast::<c_void>(), length, access.bits()) };
        if raw.is_null() {
            let detail = format!("{length} bytes at {address:p}, access {:#x}", access.bits());
            return Err(IbError::verb("ibv_reg_mr", context.device_name(), errno(), length, detail));
        }
        Ok(Self { pd: pd.clone(), raw })
    }

    fn raw(&self) -> &ibv_mr {
        // SAFETY: the region lives as long as `self`, and the library does not change it.
        unsafe { &*self.raw }
    }

    /// The domain it is in.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The key for local use in scatter lists.
    pub fn lkey(&self) -> u32 {
        self.raw().lkey
    }

    /// The key that lets peers use the region, as far as its access goes.
    pub fn rkey(&self) -> u32 {
        self.raw().rkey
    }

    /// Where the region begins.
    pub fn address(&self) -> *mut u8 {
        self.raw().addr.cast()
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.raw().length
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: deregistered once, here.
        let failed = unsafe { (self.pd.context().table().dereg_mr)(self.raw) };
        if failed != 0 {
            ucs::log::warn!(device = self.pd.context().device_name(), errno = failed, "ibv_dereg_mr failed");
        }
    }
}

/// Page-aligned, zeroed memory that is registered for as long as it lives.
pub struct MrBuffer {
    // First, so that the registration ends before the memory is unmapped.
    mr: Mr,
    memory: Pages,
}

/// Bytes of a mapping from which on huge pages are asked for: one of them, on most systems.
const HUGE_FROM: usize = 2 << 20;

/// A mapping of its own: whole pages out of the allocator's heap would leave gaps there that nothing else fits into.
struct Pages {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is owned, and is only reached through raw pointers.
unsafe impl Send for Pages {}
// SAFETY: as for Send.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `length` zeroed bytes, a number of whole pages above zero.
    fn new(length: usize) -> Option<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: without `FIXED`, a new mapping touches no memory that is in use.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, protection, MapFlags::PRIVATE) };
        let start = NonNull::new(start.ok()?.cast())?;
        if length >= HUGE_FROM {
            // Ahead of the registration, which makes them.
            prefer_huge_pages(start, length);
        }
        Some(Self { start, length })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped with this length in `Pages::new`, unmapped once, here.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

impl MrBuffer {
    /// Allocates `length` bytes (at least one page, rounded up to pages) and registers them.
    ///
    /// # Errors
    /// As [`Mr::register`]; the failed allocation counts as `ENOMEM` of it.
    pub fn new(pd: &Arc<Pd>, length: usize, access: Access) -> Result<Self, IbError> {
        let page = rustix::param::page_size();
        let no_memory = || {
            IbError::verb(
                "allocation",
                pd.context().device_name(),
                libc::ENOMEM,
                0,
                format!("{length} bytes"),
            )
        };
        let rounded = length.max(1).checked_next_multiple_of(page).ok_or_else(no_memory)?;
        let memory = Pages::new(rounded).ok_or_else(no_memory)?;
        // SAFETY: `memory` is unmapped after `mr` (field order), and is reached through raw pointers only.
        let mr = unsafe { Mr::register(pd, memory.start.as_ptr(), rounded, access) }?;
        Ok(Self { mr, memory })
    }

    /// The registration.
    pub fn mr(&self) -> &Mr {
        &self.mr
    }

    /// Where the memory begins. Reading and writing through it is the caller's affair: the device may do so too.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.start.as_ptr()
    }

    /// Usable bytes: the length asked for, rounded up to pages.
    pub fn length(&self) -> usize {
        self.memory.length
    }
}
