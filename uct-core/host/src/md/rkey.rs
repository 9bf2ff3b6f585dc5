//! Remote keys, and the windows through which the host accesses the part of their memory that is mapped in this process.
//!
//! For put, get and atomics of endpoints. Most keys have no window: the transport carries out their operations. A window serves
//! aligned words, which most short operations are, and slices without a call of the transport; all the checks
//! of such a call are made here.

use std::cell::{Cell, UnsafeCell};
use std::cmp::Ordering;
use std::fmt;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;
use ucs::sync::fixed::{AtomicU32, AtomicU64};

use ucs::memory::accesses::access_while_live;
use ucs::memory::move_small;
use ucs::{Error, Result, Status};
use uct_abi::{UCT_ERR_NO_RESOURCE, UCT_OK, UctGate, UctRkey, UctWindow};

use super::{MdInner, MemoryDomain};

/// Whether the host may access memory through windows on behalf of an endpoint, and whether it does at the moment. The transport
/// opens and closes it, and the end of a registration waits for an access.
pub(crate) struct Gate {
    raw: UnsafeCell<UctGate>,
    /// Odd while an access is in flight. This thread writes, others read.
    accesses: AtomicU64,
    /// The endpoint's memory domain, which the endpoint holds; none once the gate is revoked.
    domain: Cell<*const MdInner>,
}

impl Gate {
    /// The gate of an endpoint of this memory domain. Closed.
    pub(crate) fn new(md: &MemoryDomain) -> Gate {
        Gate {
            raw: UnsafeCell::new(UctGate { is_open: 0 }),
            accesses: AtomicU64::new(0),
            domain: Cell::new(Arc::as_ptr(&md.inner)),
        }
    }

    /// For the transport.
    pub(crate) fn as_raw(&self) -> *mut UctGate {
        self.raw.get()
    }

    /// For the transport.
    pub(crate) fn accesses(&self) -> *mut u64 {
        self.accesses.as_ptr()
    }

    /// Closes it for good, whatever the transport sets.
    pub(crate) fn revoke(&self) {
        self.domain.set(ptr::null());
    }

    #[inline]
    fn is_open(&self) -> bool {
        // SAFETY: the gate belongs to this thread, and no reference into the cell is ever held.
        unsafe { (*self.raw.get()).is_open != 0 }
    }
}

/// Base-two logarithm of the bytes of a word.
const WORD_SHIFT: u32 = size_of::<u64>().trailing_zeros();

/// The part of a key's memory that is mapped in this process.
#[derive(Clone)]
struct Window {
    words: Cell<Words>,
    /// The transport may have a window for the key later.
    may_come: Cell<bool>,
}

/// A [`UctWindow`] that was taken.
#[derive(Clone, Copy)]
struct Words {
    base: u64,
    local: NonNull<u64>,
    put: u64,
    get: u64,
    atomic: u64,
    live: NonNull<u64>,
    /// What `live` holds while the registration lives.
    value: u64,
    /// The key's memory domain, which the key holds.
    domain: *const MdInner,
}

impl Words {
    const NONE: Words = Words {
        base: 0,
        local: NonNull::dangling(),
        put: 0,
        get: 0,
        atomic: 0,
        live: NonNull::dangling(),
        value: 0,
        domain: ptr::null(),
    };

    /// Has `access` access them, if the gate is open to it and their registration lives.
    ///
    /// # Safety
    /// There are words, not [`Words::NONE`].
    #[inline(always)]
    unsafe fn access<T>(&self, gate: &Gate, access: impl FnOnce() -> T) -> Option<T> {
        if gate.domain.get() != self.domain || !gate.is_open() {
            return None;
        }
        // SAFETY: there is a window, whose word lives as long as the key (`UctWindow`).
        let live = unsafe { AtomicU64::from_ptr(self.live.as_ptr()) };
        // Its owner waits for the access to end, if the memory is not valid as long as the key (`UctEpParams::accesses`).
        access_while_live(&gate.accesses, live, self.value, access)
    }
}

impl Window {
    fn new() -> Window {
        Window { words: Cell::new(Words::NONE), may_come: Cell::new(false) }
    }

    /// Has `access` access the word at `address`, if it is one of the first `count`, aligned, its registration lives, and the gate is open
    /// to it.
    #[inline]
    fn word<T>(
        &self,
        gate: &Gate,
        address: u64,
        count: u64,
        access: impl FnOnce(&AtomicU64) -> T,
    ) -> Option<T> {
        let words = self.words.get();
        // The base is aligned. Low bits of an address that is not become high ones, beyond any number of words.
        let index = address.wrapping_sub(words.base).rotate_right(WORD_SHIFT);
        if index >= count {
            return None;
        }
        let access = || {
            // SAFETY: the index is below the number of words that are mapped from there on (`UctWindow`).
            let word = unsafe { words.local.add(index as usize) };
            // SAFETY: so it is valid until the access ends, aligned, and may be accessed as the number of words asks.
            access(unsafe { AtomicU64::from_ptr(word.as_ptr()) })
        };
        // SAFETY: there are words.
        unsafe { words.access(gate, access) }
    }

    /// As [`Window::word`], for `length` bytes that lie anywhere in the first `count` words. `access` gets a pointer to the first byte; all of them
    /// are valid until it returns. It does not panic.
    #[inline]
    fn bytes(
        &self,
        gate: &Gate,
        (address, length): (u64, usize),
        count: u64,
        access: impl FnOnce(*mut u8),
    ) -> Option<()> {
        let words = self.words.get();
        let (offset, end) = (address.wrapping_sub(words.base), count << WORD_SHIFT);
        // Below the end, not at it: a key without a window has no words, at address 0.
        let is_inside = offset < end && length as u64 <= end - offset;
        if !is_inside {
            return None;
        }
        let access = || {
            // SAFETY: the offset is inside the words that are mapped from there on (`UctWindow`).
            access(unsafe { words.local.as_ptr().byte_add(offset as usize) }.cast());
        };
        // SAFETY: there are words.
        unsafe { words.access(gate, access) }
    }
}

/// A key to a peer's memory, for all endpoints of one memory domain. Cheap to clone.
#[derive(Clone)]
pub struct RemoteKey {
    /// Cached here: one load less for each access.
    window: Window,
    inner: Rc<RkeyInner>,
}

/// What the clones of a key share. It holds the key.
pub(crate) struct RkeyInner {
    md: MemoryDomain,
    raw: *mut UctRkey,
}

impl RemoteKey {
    pub(crate) fn new(md: &MemoryDomain, raw: *mut UctRkey) -> RemoteKey {
        let key = RemoteKey { window: Window::new(), inner: Rc::new(RkeyInner { md: md.clone(), raw }) };
        key.look_for_window();
        key
    }

    /// Has `access` write the word at `address` at once, on behalf of the endpoint with this gate; `None` where the transport is to be
    /// called, for any reason. `access` does not panic.
    #[inline]
    pub(crate) fn put_word<T>(
        &self,
        gate: &Gate,
        address: u64,
        access: impl FnOnce(&AtomicU64) -> T,
    ) -> Option<T> {
        self.window.word(gate, address, self.window.words.get().put, access)
    }

    /// As [`RemoteKey::put_word`], for get.
    #[inline]
    pub(crate) fn get_word<T>(
        &self,
        gate: &Gate,
        address: u64,
        access: impl FnOnce(&AtomicU64) -> T,
    ) -> Option<T> {
        self.window.word(gate, address, self.window.words.get().get, access)
    }

    /// Writes the data at `address` at once, as [`RemoteKey::put_word`].
    #[inline]
    pub(crate) fn put_bytes(&self, gate: &Gate, address: u64, data: &[u8]) -> Option<()> {
        let (from, length) = (data.as_ptr(), data.len());
        self.window.bytes(gate, (address, length), self.window.words.get().put, |to| {
            // SAFETY: so many bytes may be written (`Window::bytes`).
            unsafe { move_small(to, from, length) }
        })
    }

    /// Fills the buffer from `address` on at once, as [`RemoteKey::get_word`].
    #[inline]
    pub(crate) fn get_bytes(&self, gate: &Gate, address: u64, buffer: &mut [u8]) -> Option<()> {
        let (to, length) = (buffer.as_mut_ptr(), buffer.len());
        self.window.bytes(gate, (address, length), self.window.words.get().get, |from| {
            // SAFETY: so many bytes may be read (`Window::bytes`).
            unsafe { move_small(to, from, length) }
        })
    }

    /// Writes bytes of this process at `address` at once, as [`RemoteKey::put_bytes`].
    ///
    /// # Safety
    /// `from` is readable for `length` bytes. Others may write to them meanwhile.
    #[inline]
    pub(crate) unsafe fn put_raw(
        &self,
        gate: &Gate,
        address: u64,
        from: *const u8,
        length: usize,
    ) -> Option<()> {
        self.window.bytes(gate, (address, length), self.window.words.get().put, |to| {
            // SAFETY: so many bytes may be written (`Window::bytes`), and the caller's promise.
            unsafe { move_small(to, from, length) }
        })
    }

    /// Fills bytes of this process from `address` on at once, as [`RemoteKey::get_bytes`].
    ///
    /// # Safety
    /// `to` is writable for `length` bytes. Others may access them meanwhile.
    #[inline]
    pub(crate) unsafe fn get_raw(&self, gate: &Gate, address: u64, to: *mut u8, length: usize) -> Option<()> {
        self.window.bytes(gate, (address, length), self.window.words.get().get, |from| {
            // SAFETY: so many bytes may be read (`Window::bytes`), and the caller's promise.
            unsafe { move_small(to, from, length) }
        })
    }

    /// As [`RemoteKey::put_word`], for atomics.
    #[inline]
    pub(crate) fn atomic_word<T>(
        &self,
        gate: &Gate,
        address: u64,
        access: impl FnOnce(&AtomicU64) -> T,
    ) -> Option<T> {
        self.window.word(gate, address, self.window.words.get().atomic, access)
    }

    /// As [`RemoteKey::atomic_word`], for four bytes.
    #[inline]
    pub(crate) fn atomic_half<T>(
        &self,
        gate: &Gate,
        address: u64,
        access: impl FnOnce(&AtomicU32) -> T,
    ) -> Option<T> {
        let second = address & size_of::<u32>() as u64;
        self.atomic_word(gate, address ^ second, |word| {
            // SAFETY: one of the two halves of a word.
            let half = unsafe { word.as_ptr().cast::<u32>().byte_add(second as usize) };
            // SAFETY: as the word, of which it is a part.
            access(unsafe { AtomicU32::from_ptr(half) })
        })
    }

    /// Asks again for a window that did not exist yet. Called by operations that go to the transport.
    #[inline]
    pub(crate) fn look_again(&self) {
        if self.window.may_come.get() {
            self.look_for_window();
        }
    }

    #[cold]
    #[inline(never)]
    fn look_for_window(&self) {
        let inner = &*self.inner;
        let mut table = UctWindow {
            size: size_of::<UctWindow>(),
            base: 0,
            local: ptr::null_mut(),
            put_words: 0,
            get_words: 0,
            atomic_words: 0,
            live: ptr::null(),
            value: 0,
        };
        let slot = inner.md.inner.ops.rkey_window.expect("the loader fills every slot");
        // SAFETY: domain and key are live, and the table is ours and contains its size.
        let status = unsafe { slot(inner.md.inner.raw(), inner.raw, &raw mut table) };
        self.window.may_come.set(status == UCT_ERR_NO_RESOURCE);
        let (local, live) = (NonNull::new(table.local), NonNull::new(table.live.cast_mut()));
        if let (UCT_OK, Some(local), Some(live)) = (status, local, live) {
            let UctWindow { base, put_words: put, get_words: get, atomic_words: atomic, value, .. } = table;
            let domain = Arc::as_ptr(&inner.md.inner);
            self.window.words.set(Words { base, local, put, get, atomic, live, value, domain });
        }
    }

    /// What operations hold while they use the key.
    #[inline]
    pub(crate) fn shared(&self) -> &Rc<RkeyInner> {
        &self.inner
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut UctRkey {
        self.inner.raw
    }

    /// The memory domain that unpacked it.
    #[inline]
    pub fn domain(&self) -> &MemoryDomain {
        &self.inner.md
    }

    /// The local address of remote memory, where the transport reaches it directly.
    ///
    /// Nothing waits for accesses through it: the caller ensures that the memory is registered as long as it is accessed. It may be
    /// written by others at the same time.
    ///
    /// # Errors
    /// [`Error::UNSUPPORTED`] where it does not; [`Error::NO_RESOURCE`] where it will behind a first operation with the key; the
    /// error of the check where address or key is wrong.
    pub fn local_ptr(&self, remote_address: u64) -> Result<NonNull<u8>> {
        let md = &self.inner.md;
        let mut local = ptr::null_mut();
        let slot = md.inner.ops.rkey_ptr.expect("the loader fills every slot");
        // SAFETY: domain and key are live, and the place of the answer is ours.
        let status = unsafe { slot(md.inner.raw(), self.inner.raw, remote_address, &raw mut local) };
        Status::from_raw(status).into_result()?;
        NonNull::new(local.cast()).ok_or(Error::INVALID_PARAM)
    }

    /// An order without a meaning, for tables of keys.
    ///
    /// # Errors
    /// [`Error::UNSUPPORTED`] where the transport has none, [`Error::INVALID_PARAM`] for keys of different domains.
    pub fn compare(&self, other: &RemoteKey) -> Result<Ordering> {
        let md = &self.inner.md;
        if !std::sync::Arc::ptr_eq(&md.inner, &other.inner.md.inner) {
            return Err(Error::INVALID_PARAM);
        }
        let mut result = 0;
        let slot = md.inner.ops.rkey_compare.expect("the loader fills every slot");
        // SAFETY: domain and keys are live, and the place of the answer is ours.
        let status = unsafe { slot(md.inner.raw(), self.inner.raw, other.inner.raw, &raw mut result) };
        Status::from_raw(status).into_result()?;
        Ok(result.cmp(&0))
    }
}

impl Drop for RkeyInner {
    fn drop(&mut self) {
        let release = self.md.inner.ops.rkey_release.expect("the loader fills every slot");
        // SAFETY: outstanding operations hold the key alive, so nothing uses it any more.
        unsafe { release(self.md.inner.raw(), self.raw) };
    }
}

impl fmt::Debug for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteKey").field(&self.inner.md.name()).finish()
    }
}
