//! Registered memory, and parts of it for operations.
//!
//! A peer may read and write registered memory at any time, so no reference to its bytes is handed out: contents are
//! copied in and out. Whatever refers to the memory keeps it alive, outstanding operations included.

mod further;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::ptr::{self, NonNull};
use std::rc::Rc;

use ucs::memory::allocate::{Allocation, Method, allocate};
use ucs::memory::{move_small, populate};
use ucs::sys::memory::room;
use ucs::sys::pages::{self, page_size};
use ucs::{Error, Result, Status};
use uct_abi::{UCT_ADVICE_NORMAL, UCT_ADVICE_WILLNEED, UCT_MD_ALLOC, UCT_MD_REG, UctIov, UctMemh};

use super::access::Access;
use super::free_pieces::Place;
use super::{MemoryDomain, mapping};
use crate::config::AllocMethod;
use crate::error::Refused;
use crate::reason::Reason;

use further::{Further, Registrations};

pub use further::Grant;
pub use ucs::memory::MemoryKind;

/// Bytes from which on an allocation looks at what the system has left, which takes some system calls.
const ROOM_MATTERS: usize = 1 << 20;
/// Bytes that [`Memory::fill`] writes at once: as many as [`move_small`] moves without a call.
const FILL_STEP: usize = 64;

/// Refuses what would have the system kill this process, or another one, when the pages are made.
fn has_room(length: usize, refused: Refused) -> Result<Refused, Refused> {
    // The pools of huge pages are apart from all other memory.
    let in_pools = || pages::huge_pages().iter().map(|pool| pool.free * pool.size as u64).sum::<u64>();
    match room() {
        Some(room) if room.bytes < length as u64 && in_pools() < length as u64 => Err(Refused {
            reason: format!(
                "{length} bytes: {room}; with populate = no pages are made at their first access"
            ),
            ..refused
        }),
        _ => Ok(refused),
    }
}

/// Registered memory. Cheap to clone; the memory is deregistered, and freed, when the last clone, slice or outstanding
/// operation is gone. That waits for accesses of peers in flight, in other threads or in the device. In a child of a fork it is left alone: the registration is the parent's.
#[derive(Clone)]
pub struct Memory {
    inner: Rc<MemoryInner>,
}

struct MemoryInner {
    md: MemoryDomain,
    memh: *mut UctMemh,
    address: NonNull<u8>,
    length: usize,
    access: Access,
    /// Whether the program may write to it: not, if the caller's mapping was read-only when it was registered.
    is_writable: bool,
    ownership: Ownership,
    /// Its other registrations, of memory for several domains and of memory that peers have keys to parts of.
    further: OnceCell<Box<Registrations>>,
}

enum Ownership {
    /// The domain allocated it.
    Domain,
    /// The host allocated it; freed after it was deregistered.
    Host(#[allow(dead_code, reason = "only ever dropped")] Allocation),
    /// A vector that was handed over, taken apart: capacity.
    Vector { capacity: usize },
    /// The caller's.
    Caller,
    /// Part of a pool's chunk, which is registered as a whole.
    Piece { _chunk: Memory, _place: Place },
    /// Memory of another domain, which has a registration with this one too.
    Other { first: Memory },
}

impl Memory {
    /// `populates`: all pages are present when it returns.
    pub(crate) fn allocate(
        md: &MemoryDomain,
        length: usize,
        access: Access,
        populates: bool,
    ) -> Result<Memory, Refused> {
        let mut refused = Refused {
            operation: "allocate memory",
            subject: md.name().to_owned(),
            status: Error::NO_MEMORY,
            reason: "alloc_prio names no method".to_owned(),
        };
        if md.attributes().flags & (UCT_MD_ALLOC | UCT_MD_REG) == 0 {
            let reason = "the memory domain neither allocates nor registers memory".to_owned();
            return Err(Refused { status: Error::UNSUPPORTED, reason, ..refused });
        }
        if md.inner.populates && length >= ROOM_MATTERS {
            refused = has_room(length, refused)?;
        }
        let mut reasons = Vec::new();
        for method in &md.inner.alloc_methods {
            let allocated = match method {
                AllocMethod::Md => Memory::allocate_by_md(md, length, access),
                AllocMethod::Host(method) => Memory::allocate_by_host(md, *method, length, access),
            };
            match allocated.and_then(|memory| if populates { memory.populated() } else { Ok(memory) }) {
                Ok(memory) => return Ok(memory),
                Err(error) => {
                    refused.status = error.status;
                    reasons.push(error.reason);
                }
            }
        }
        if !reasons.is_empty() {
            refused.reason = format!("{length} bytes: {}", reasons.join("; "));
        }
        Err(refused)
    }

    fn allocate_by_host(
        md: &MemoryDomain,
        method: Method,
        length: usize,
        access: Access,
    ) -> Result<Memory, Refused> {
        let allocation = allocate(method, length.max(1), page_size()).map_err(|error| Refused {
            operation: "allocate memory",
            subject: md.name().to_owned(),
            status: Error::from(&error),
            reason: error.to_string(),
        })?;
        let address = NonNull::new(allocation.as_ptr()).unwrap_or(NonNull::dangling());
        let usable = allocation.len();
        // SAFETY: the allocation is moved into the memory below, which ends the registration ahead of freeing it.
        let memh = unsafe { Memory::registered(md, address, usable, access) }?;
        Ok(Memory::of(md, memh, (address, usable, access), Ownership::Host(allocation)))
    }

    fn allocate_by_md(md: &MemoryDomain, length: usize, access: Access) -> Result<Memory, Refused> {
        let mut usable = length;
        let mut address = ptr::null_mut();
        let mut memh = ptr::null_mut();
        let mut reason = Reason::new();
        let alloc = md.inner.ops.mem_alloc.expect("the loader fills every slot");
        // SAFETY: the domain is open, and the places of the answers are ours.
        let status = unsafe {
            alloc(
                md.inner.raw(),
                &raw mut usable,
                access.bits(),
                &raw mut address,
                &raw mut memh,
                reason.as_mut(),
            )
        };
        reason.check(status, "allocate memory", || md.name().to_owned())?;
        let address = NonNull::new(address.cast()).unwrap_or(NonNull::dangling());
        if md.inner.populates && pages::default_huge_page_size().is_some_and(|page| length >= page) {
            populate::prefer_huge_pages(address, length);
        }
        Ok(Memory::of(md, memh, (address, usable.max(length), access), Ownership::Domain))
    }

    /// With all pages present. A kernel that cannot do that makes them at their first access.
    fn populated(self) -> Result<Memory, Refused> {
        match populate::populate(self.inner.address, self.inner.length) {
            Ok(()) => Ok(self),
            Err(error) if populate::is_unknown(&error) => {
                ucs::log::debug!("{error}");
                Ok(self)
            }
            Err(error) => Err(Refused {
                operation: "allocate memory",
                subject: self.inner.md.name().to_owned(),
                status: Error::NO_MEMORY,
                reason: error.to_string(),
            }),
        }
    }

    /// With the bytes in the error.
    pub(crate) fn register(
        md: &MemoryDomain,
        bytes: Vec<u8>,
        access: Access,
    ) -> Result<Memory, (Refused, Vec<u8>)> {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        let address = NonNull::from(bytes.as_mut_slice()).cast();
        let (length, capacity) = (bytes.len(), bytes.capacity());
        let ownership = Ownership::Vector { capacity };
        // SAFETY: the vector's bytes are valid until they are put together again, by `into_bytes` or by drop.
        match unsafe { Memory::registered(md, address, length, access) } {
            Ok(memh) => Ok(Memory::of(md, memh, (address, length, access), ownership)),
            Err(refused) => Err((refused, std::mem::ManuallyDrop::into_inner(bytes))),
        }
    }

    /// # Safety
    /// As [`MemoryDomain::register_raw`].
    pub(crate) unsafe fn register_raw(
        md: &MemoryDomain,
        address: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<Memory, Refused> {
        let is_writable = mapping::check(md, address, length, access)?;
        // SAFETY: the caller's promise.
        let memh = unsafe { Memory::registered(md, address, length, access) }?;
        let memory = Memory::of(md, memh, (address, length, access), Ownership::Caller);
        Ok(if is_writable { memory } else { memory.read_only() })
    }

    /// # Safety
    /// As [`MemoryDomain::register_readable`].
    pub(crate) unsafe fn register_readable(
        md: &MemoryDomain,
        address: NonNull<u8>,
        length: usize,
    ) -> Result<Memory, Refused> {
        let access = Access::REMOTE_GET;
        // SAFETY: the caller's promise: the access lets nobody write.
        let memh = unsafe { Memory::registered(md, address, length, access) }?;
        Ok(Memory::of(md, memh, (address, length, access), Ownership::Caller).read_only())
    }

    /// A further registration, with this domain, of the `length` bytes at `offset`. It is ended ahead of this memory.
    pub(super) fn register_further(
        &self,
        md: &MemoryDomain,
        offset: usize,
        length: usize,
    ) -> Result<Further, Refused> {
        // SAFETY: this memory ends its further registrations ahead of its own (`end`), and nothing holds a reference to the bytes.
        let memh = unsafe { Memory::registered(md, self.at(offset, length), length, self.access()) }?;
        Ok(Further::new(md, memh))
    }

    /// The same bytes by a further registration with another domain, which they keep.
    pub(super) fn by(&self, md: &MemoryDomain, memh: *mut UctMemh) -> Memory {
        let MemoryInner { address, length, access, .. } = *self.inner;
        let memory =
            Memory::of(md, memh, (address, length, access), Ownership::Other { first: self.clone() });
        if self.is_writable() { memory } else { memory.read_only() }
    }

    /// The further registrations, for which there is a place from now on.
    pub(super) fn further(&self) -> &Registrations {
        self.inner.further.get_or_init(Box::default)
    }

    /// Whether somebody has made it memory for several domains.
    pub(super) fn is_for_all(&self) -> bool {
        self.inner.further.get().is_some_and(|further| further.is_for_all())
    }

    /// The memory that has the bytes.
    pub(super) fn first(&self) -> &Memory {
        match &self.inner.ownership {
            Ownership::Other { first } => first,
            _ => self,
        }
    }

    /// As which memory further registrations refer to this one, without keeping it.
    pub(super) fn downgrade(&self) -> WeakMemory {
        WeakMemory(Rc::downgrade(&self.inner))
    }

    unsafe fn registered(
        md: &MemoryDomain,
        address: NonNull<u8>,
        length: usize,
        access: Access,
    ) -> Result<*mut UctMemh, Refused> {
        if address.as_ptr().addr().checked_add(length).is_none() {
            return Err(Refused {
                operation: "register memory",
                subject: md.name().to_owned(),
                status: Error::INVALID_PARAM,
                reason: format!("{length} bytes at {address:p} wrap around the end of the address space"),
            });
        }
        let mut memh = ptr::null_mut();
        let mut reason = Reason::new();
        let register = md.inner.ops.mem_reg.expect("the loader fills every slot");
        // SAFETY: the domain is open; that the memory stays valid is the caller's promise.
        let status = unsafe {
            register(
                md.inner.raw(),
                address.as_ptr().cast(),
                length,
                access.bits(),
                &raw mut memh,
                reason.as_mut(),
            )
        };
        reason.check(status, "register memory", || md.name().to_owned())?;
        Ok(memh)
    }

    fn of(
        md: &MemoryDomain,
        memh: *mut UctMemh,
        (address, length, access): (NonNull<u8>, usize, Access),
        ownership: Ownership,
    ) -> Memory {
        let md = md.clone();
        let inner = MemoryInner {
            md,
            memh,
            address,
            length,
            access,
            is_writable: true,
            ownership,
            further: OnceCell::new(),
        };
        Memory { inner: Rc::new(inner) }
    }

    /// The same, not to be written to. Of one that has just been made.
    fn read_only(mut self) -> Memory {
        if let Some(inner) = Rc::get_mut(&mut self.inner) {
            inner.is_writable = false;
        }
        self
    }

    /// `length` bytes of a chunk at `offset`, which are within it, for as long as `place` is taken.
    pub(super) fn piece(chunk: &Memory, offset: usize, length: usize, place: Place) -> Memory {
        let MemoryInner { md, memh, access, .. } = &*chunk.inner;
        Memory::of(
            md,
            *memh,
            (chunk.at(offset, length), length, *access),
            Ownership::Piece { _chunk: chunk.clone(), _place: place },
        )
    }

    /// The first address, which peers use in put, get and atomics.
    pub fn address(&self) -> u64 {
        self.inner.address.as_ptr() as u64
    }

    /// First byte. The memory is valid as long as this value is; peers may change it at any time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.address.as_ptr()
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.inner.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.inner.length == 0
    }

    /// What peers may do with it.
    pub fn access(&self) -> Access {
        self.inner.access
    }

    /// Whether the program may write to it, and read remote memory into it. Not, if its mapping was read-only when
    /// [`MemoryDomain::register_raw`] registered it.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.inner.is_writable
    }

    /// The memory domain it is registered with.
    pub fn domain(&self) -> &MemoryDomain {
        &self.inner.md
    }

    /// Whether anything else holds it: a clone, a slice, an operation in flight.
    pub fn is_shared(&self) -> bool {
        Rc::strong_count(&self.inner) > 1
    }

    /// Copies `source` to the bytes from `offset` on.
    ///
    /// # Panics
    /// If the range ends beyond the memory, or it is not [writable](Memory::is_writable).
    pub fn write(&self, offset: usize, source: &[u8]) {
        let target = self.writable_at(offset, source.len());
        // SAFETY: `at` checked the bounds; the memory is nobody's reference (`MemoryDomain::register_raw`).
        unsafe { move_small(target.as_ptr(), source.as_ptr(), source.len()) };
    }

    /// Copies the bytes from `offset` on to `target`.
    ///
    /// # Panics
    /// If the range ends beyond the memory.
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        let source = self.at(offset, target.len());
        // SAFETY: as in `write`.
        unsafe { move_small(target.as_mut_ptr(), source.as_ptr(), target.len()) };
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes);
        bytes
    }

    /// Sets the `length` bytes from `offset` on to `value`.
    ///
    /// # Panics
    /// If the range ends beyond the memory, or it is not [writable](Memory::is_writable).
    pub fn fill(&self, offset: usize, length: usize, value: u8) {
        // All of it is within the memory, or nothing is written.
        self.at(offset, length);
        let piece = [value; FILL_STEP];
        for done in (0..length).step_by(FILL_STEP) {
            self.write(offset + done, &piece[..FILL_STEP.min(length - done)]);
        }
    }

    /// Reads the 8 bytes at `offset` atomically, as a number in native byte order.
    ///
    /// # Panics
    /// If they lie beyond the memory, or their address is not a multiple of 8.
    pub fn load_u64(&self, offset: usize) -> u64 {
        let source = self.at(offset, size_of::<u64>()).cast::<u64>();
        assert!(source.is_aligned(), "an atomic load at {source:p} is not aligned");
        // SAFETY: in bounds and aligned.
        let cell = unsafe { ucs::sync::fixed::AtomicU64::from_ptr(source.as_ptr()) };
        // SYNC: pairs with whatever a peer's put or atomic releases.
        cell.load(ucs::sync::fixed::Ordering::Acquire)
    }

    fn at(&self, offset: usize, length: usize) -> NonNull<u8> {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{length} bytes at {offset} are outside of a memory of {} bytes",
            self.len()
        );
        // SAFETY: within the memory, as just checked.
        unsafe { self.inner.address.add(offset) }
    }

    /// The first of `length` bytes from `offset` on, if all of them are part of it.
    #[inline]
    pub(crate) fn range(&self, offset: usize, length: usize) -> Option<*mut u8> {
        let is_inside = offset <= self.len() && length <= self.len() - offset;
        is_inside.then(|| self.as_ptr().wrapping_add(offset))
    }

    /// The transport's handle of its registration.
    #[inline]
    pub(crate) fn memh(&self) -> *mut UctMemh {
        self.inner.memh
    }

    fn writable_at(&self, offset: usize, length: usize) -> NonNull<u8> {
        assert!(self.is_writable(), "memory was registered from a read-only mapping, and is written to");
        self.at(offset, length)
    }

    /// A part of it, for an operation.
    ///
    /// # Panics
    /// If the range ends beyond the memory, or before it starts.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> MemorySlice {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len(),
        };
        assert!(
            start <= end && end <= self.len(),
            "{start}..{end} is outside of a memory of {} bytes",
            self.len()
        );
        MemorySlice { memory: self.clone(), offset: start, length: end - start, stride: 0, count: 1 }
    }

    /// The key of the memory, for [`MemoryDomain::unpack`] at a peer. A peer that has it may access the memory: pass it only over channels that
    /// you trust (docs/security.md).
    ///
    /// # Errors
    /// [`Error::UNSUPPORTED`] where the transport has no remote access; [`Error::INVALID_PARAM`] in a child of a fork.
    pub fn packed_key(&self) -> Result<Vec<u8>> {
        // SAFETY: the registration is live.
        unsafe { packed_key(&self.inner.md, self.inner.memh) }
    }

    /// Advises the system that a part will be used soon (`true`) or is back to normal.
    ///
    /// # Errors
    /// [`Error::UNSUPPORTED`] where the domain cannot, [`Error::OUT_OF_RANGE`] outside, [`Error::INVALID_PARAM`] in a
    /// child of a fork.
    pub fn advise(&self, offset: usize, length: usize, will_need: bool) -> Result {
        if offset.checked_add(length).is_none_or(|end| end > self.len()) {
            return Err(Error::OUT_OF_RANGE);
        }
        let md = &self.inner.md;
        if md.inner.is_parents() {
            return Err(Error::INVALID_PARAM);
        }
        let advise = md.inner.ops.mem_advise.expect("the loader fills every slot");
        let advice = if will_need { UCT_ADVICE_WILLNEED } else { UCT_ADVICE_NORMAL };
        let start = self.at(offset, length).as_ptr().cast();
        // SAFETY: the registration is live and the part is within it.
        Status::from_raw(unsafe { advise(md.inner.raw(), self.inner.memh, start, length, advice) })
            .into_result()
    }

    /// Ends the registration of memory that was handed over with [`MemoryDomain::register`], and gives it back. Waits for accesses of
    /// peers that are in flight, a copy or a system call each. If one does not end in time, what is given back is a copy.
    ///
    /// # Errors
    /// The memory itself, if something else holds it (an outstanding operation, a slice, a clone), if it is not a
    /// vector's, or in a child of a fork.
    pub fn into_bytes(self) -> Result<Vec<u8>, Memory> {
        if self.inner.md.inner.is_parents() {
            return Err(self);
        }
        let Ownership::Vector { capacity } = self.inner.ownership else { return Err(self) };
        let mut inner = Rc::try_unwrap(self.inner).map_err(|inner| Memory { inner })?;
        let is_free = inner.end();
        // The drop below finds memory that is the caller's, and leaves it alone.
        inner.ownership = Ownership::Caller;
        inner.memh = ptr::null_mut();
        if !is_free {
            let mut copy = vec![0; inner.length];
            // SAFETY: the vector's bytes are there for ever: nobody puts them together again.
            unsafe { copy.as_mut_ptr().copy_from(inner.address.as_ptr(), inner.length) };
            return Ok(copy);
        }
        // SAFETY: the parts are those of the vector that was taken apart in `register`, now used by nobody.
        Ok(unsafe { Vec::from_raw_parts(inner.address.as_ptr(), inner.length, capacity) })
    }
}

impl MemoryInner {
    /// Ends the registration; returns whether nothing else uses the memory now.
    fn end(&mut self) -> bool {
        if self.further.take().is_some_and(|further| !further.end()) {
            return false;
        }
        if self.memh.is_null() {
            return true;
        }
        let is_domains = match self.ownership {
            Ownership::Domain => true,
            // The registration is the chunk's, or the first memory's.
            Ownership::Piece { .. } | Ownership::Other { .. } => return true,
            Ownership::Host(_) | Ownership::Vector { .. } | Ownership::Caller => false,
        };
        // SAFETY: nothing refers to the memory any more, since whatever does holds it alive.
        unsafe { end_registration(&self.md, self.memh, is_domains) }
    }
}

/// Ends a registration, and frees its memory if the domain has allocated it. Returns whether nothing uses the memory by it now.
///
/// # Safety
/// The registration is one of the domain's, and nothing refers to it.
pub(super) unsafe fn end_registration(md: &MemoryDomain, memh: *mut UctMemh, is_domains: bool) -> bool {
    let ops = md.inner.ops;
    let end = if is_domains { ops.mem_free } else { ops.mem_dereg }.expect("the loader fills every slot");
    // SAFETY: the caller's promise.
    let status = unsafe { end(md.inner.raw(), memh) };
    let result = Status::from_raw(status).into_result();
    if let Err(error) = result {
        ucs::log::error!(md = md.name(), "memory could not be deregistered, and is not freed: {error}");
    }
    result.is_ok()
}

/// The key of a registration.
///
/// # Safety
/// It is a live one of the domain's.
pub(super) unsafe fn packed_key(md: &MemoryDomain, memh: *mut UctMemh) -> Result<Vec<u8>> {
    if md.inner.is_parents() {
        return Err(Error::INVALID_PARAM);
    }
    let mut packed = vec![0; md.inner.packed_key()];
    let pack = md.inner.ops.mkey_pack.expect("the loader fills every slot");
    // SAFETY: the registration is live, and the buffer has the size that the attributes name.
    let status = unsafe { pack(md.inner.raw(), memh, packed.as_mut_ptr()) };
    Status::from_raw(status).into_result()?;
    Ok(packed)
}

/// Memory that is not kept.
#[derive(Clone)]
pub(super) struct WeakMemory(std::rc::Weak<MemoryInner>);

impl WeakMemory {
    /// The memory, if it has not ended.
    pub(super) fn upgrade(&self) -> Option<Memory> {
        self.0.upgrade().map(|inner| Memory { inner })
    }
}

impl Drop for MemoryInner {
    fn drop(&mut self) {
        if self.md.inner.is_parents() {
            // The registration is the parent's, and a child may not even have the pages (`MADV_DONTFORK`).
            std::mem::forget(std::mem::replace(&mut self.ownership, Ownership::Caller));
            return;
        }
        if !self.end() {
            // Peers may still access it.
            std::mem::forget(std::mem::replace(&mut self.ownership, Ownership::Caller));
        }
        if let Ownership::Vector { capacity } = self.ownership {
            // SAFETY: the parts are those of the vector that was taken apart in `register`.
            drop(unsafe { Vec::from_raw_parts(self.address.as_ptr(), self.length, capacity) });
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("md", &self.inner.md.name())
            .field("length", &self.inner.length)
            .finish()
    }
}

/// A part of registered memory: contiguous, or `count` blocks that lie `stride` bytes apart. It keeps the memory alive.
#[derive(Clone, Debug)]
pub struct MemorySlice {
    pub(crate) memory: Memory,
    offset: usize,
    length: usize,
    stride: usize,
    count: u32,
}

impl From<&Memory> for MemorySlice {
    /// All of it.
    fn from(memory: &Memory) -> MemorySlice {
        memory.slice(..)
    }
}

impl From<&MemorySlice> for MemorySlice {
    fn from(slice: &MemorySlice) -> MemorySlice {
        slice.clone()
    }
}

impl MemorySlice {
    /// Turns the slice into `count` blocks of `length` bytes each, `stride` bytes from one start to the next, all
    /// within it.
    ///
    /// # Panics
    /// If the last block ends beyond the slice, or blocks overlap.
    #[must_use]
    pub fn strided(self, length: usize, stride: usize, count: u32) -> MemorySlice {
        let end = (count as usize)
            .checked_sub(1)
            .map_or(Some(0), |last| last.checked_mul(stride).and_then(|start| start.checked_add(length)));
        assert!(
            end.is_some_and(|end| end <= self.length),
            "{count} blocks of {length} bytes, {stride} apart, do not fit"
        );
        assert!(count <= 1 || stride >= length, "blocks of {length} bytes overlap at a stride of {stride}");
        MemorySlice { length, stride, count, ..self }
    }

    /// The sum of the bytes of all blocks.
    pub fn len(&self) -> usize {
        self.length * self.count as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory that it is a part of.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether it is all of its memory, as one piece.
    pub fn is_whole(&self) -> bool {
        self.count == 1 && self.length == self.memory.len()
    }

    /// The same bytes in the memory of another domain.
    pub(super) fn in_memory(&self, memory: Memory) -> MemorySlice {
        MemorySlice { memory, ..*self }
    }

    /// Lets a peer of this domain access this part and no other bytes, by a key of its own: see [`Grant`].
    ///
    /// # Errors
    /// `INVALID_PARAM` for blocks that are strided, and in a child of a fork. The domain's refusal to register it.
    pub fn grant(&self, domain: &MemoryDomain) -> Result<Grant, Refused> {
        let refused = |reason: &str| Refused {
            operation: "share a part of memory",
            subject: domain.name().to_owned(),
            status: Error::INVALID_PARAM,
            reason: reason.to_owned(),
        };
        if self.count != 1 {
            return Err(refused("a key is to contiguous bytes, and the blocks are strided"));
        }
        domain.inner.check_fork("share a part of memory")?;
        Grant::new(self.memory.first(), domain, self.offset, self.length)
    }

    /// Where it begins, as the address that a peer uses with the memory's key; `None` unless it is contiguous.
    pub fn address(&self) -> Option<u64> {
        (self.count == 1).then(|| self.memory.address() + self.offset as u64)
    }

    /// A copy of its bytes, block behind block.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        let blocks = (0..self.count as usize).map(|block| self.offset + block * self.stride);
        for (start, target) in blocks.zip(bytes.chunks_mut(self.length.max(1))) {
            self.memory.read(start, target);
        }
        bytes
    }

    pub(crate) fn iov(&self) -> UctIov {
        UctIov {
            buffer: self.memory.as_ptr().wrapping_add(self.offset).cast(),
            length: self.length,
            memh: self.memory.inner.memh,
            stride: self.stride,
            count: self.count,
        }
    }
}
