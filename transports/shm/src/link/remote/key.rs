//! Remote keys: packing, unpacking, and access to the memory of a key.
//!
//! Used by memory domains (pack, unpack, rkey_ptr) and endpoints (every operation on remote memory). Built on the registry and on
//! segments. A key of this process is bound to its memory at once, one of another process when an endpoint to that process
//! is used for the first time: the segment comes over the endpoint's socket, for the key. Nothing that a key names is opened.

use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use ucs::sync::fixed::{AtomicPtr, AtomicU64, Ordering};
use uct_plugin::memory::{Access, Accessor, PACKED_KEY, RemoteKey, Window};
use uct_plugin::{Error, Failure, MemoryAccess, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::lent::Lent;
use super::registry::{Allocated, Memh, live_word, registry};
use crate::io::{Mapping, Segment};
use crate::proto::key::Tail;
use crate::proto::kind::Kind;
use crate::proto::table::live_value;

/// Bytes of a packed key.
pub(crate) const PACKED_LENGTH: usize = PACKED_KEY + size_of::<Tail>();

/// What a peer must permit for its memory to be mapped writable.
const WRITES: MemoryAccess = MemoryAccess::REMOTE_PUT.union(MemoryAccess::REMOTE_ATOMIC);

/// Whether memory with these rights is written by peers.
pub(crate) fn is_written(access: MemoryAccess) -> bool {
    access.intersects(WRITES)
}

/// Writes the key of a registration.
pub(crate) fn pack(kind: Kind, memh: &Memh, buffer: &mut [u8]) -> Result {
    let buffer: &mut [u8; PACKED_LENGTH] = buffer.try_into().map_err(|_| Error::BUFFER_TOO_SMALL)?;
    let registry = registry().map_err(|failure| failure.status)?;
    let is_lent = memh.allocated.as_ref().is_some_and(|allocated| allocated.is_lent);
    let tail = Tail { kind: kind as u32, is_lent: is_lent.into() };
    registry.regions().pack(&memh.region, &mut buffer[..PACKED_KEY])?;
    buffer[PACKED_KEY..].copy_from_slice(tail.as_bytes());
    Ok(())
}

/// What no registration lives by: never written.
static NOT_HERE: AtomicU64 = AtomicU64::new(0);

fn not_here() -> *mut AtomicU64 {
    (&raw const NOT_HERE).cast_mut()
}

/// An unpacked key.
#[derive(Debug)]
pub(crate) struct Rkey {
    pub(crate) remote: RemoteKey,
    /// Points to a word that holds `value` while the registration lives; to [`NOT_HERE`] until the memory is mapped here.
    live: AtomicPtr<AtomicU64>,
    value: u64,
    /// Local address minus remote address, once `live` is set.
    shift: AtomicU64,
    /// What `live` and the memory lie in.
    held: OnceLock<Held>,
    tail: Tail,
}

/// What a key that is bound keeps mapped, so that no end of a registration takes memory away from under an operation.
#[derive(Debug)]
enum Held {
    /// What this process has allocated.
    Own { _segment: Arc<Segment> },
    /// Memory of this process that was not allocated: the end of its registration waits for accesses.
    Registered,
    /// A peer's segment and table.
    Peer { _segment: Arc<Lent>, _table: Arc<Mapping> },
}

/// What an endpoint knows of the process at its other end.
pub(crate) struct PeerView<'a> {
    /// Number of its table.
    pub(crate) identity: u64,
    /// Its table.
    pub(crate) table: &'a Arc<Mapping>,
}

/// How the memory of a key is reached.
#[derive(Debug)]
pub(crate) enum Reach<'a> {
    /// Here. No callback of the application's runs as long as this is there.
    Direct(Access<'a>),
    /// Through an endpoint.
    Remote,
}

impl Rkey {
    /// Takes a key from its bytes, which are untrusted.
    pub(crate) fn unpack(kind: Kind, buffer: &[u8]) -> Result<Rkey, Failure> {
        let wrong = |what: String| {
            let expected =
                format!("expected the {PACKED_LENGTH} bytes that a key of {} packs to", kind.name());
            Err(Failure::new(Error::INVALID_PARAM, format!("{what}; {expected}")))
        };
        let Some((remote, tail)) = buffer.split_at_checked(PACKED_KEY) else {
            return wrong(format!("a remote key of {} bytes", buffer.len()));
        };
        let Ok(tail) = Tail::read_from_bytes(tail) else {
            return wrong(format!("a remote key of {} bytes", buffer.len()));
        };
        let remote = RemoteKey::unpack(remote)?;
        if tail.kind != kind as u32 {
            return wrong("a remote key of another shared memory transport".to_owned());
        }
        let rkey = Rkey {
            live: AtomicPtr::new(not_here()),
            value: live_value(remote.key),
            shift: AtomicU64::new(0),
            held: OnceLock::new(),
            remote,
            tail,
        };
        rkey.bind_own()?;
        Ok(rkey)
    }

    /// The memory for the host's own accesses, once it is mapped here.
    pub(crate) fn window(&self) -> Result<Window<'_>> {
        if !self.is_here() {
            return Err(Error::NO_RESOURCE);
        }
        // SYNC: `is_here` saw what was stored last.
        let (live, shift) = (self.live.load(Ordering::Relaxed), self.shift.load(Ordering::Relaxed));
        // SAFETY: as in `is_live_here`.
        let live = unsafe { &*live };
        let RemoteKey { base, length, .. } = self.remote;
        // SAFETY: all of the region lies in memory that `held` keeps mapped, or in this process (`set_direct`), where it is
        // valid while the word shows that it is registered.
        Ok(unsafe { Window::new(base, length, shift, self.remote.access(), live, self.value) })
    }

    /// Checks an access of `length` bytes at `address` and finds the path to them.
    #[inline(always)]
    pub(crate) fn reach<'a>(
        &self,
        accessor: &'a Accessor,
        address: u64,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Reach<'a>> {
        self.remote.check(address, length, access)?;
        if !self.is_here() {
            return Ok(Reach::Remote);
        }
        let section = accessor.enter();
        if !self.is_live_here() {
            return Err(Error::INVALID_PARAM);
        }
        let start = self.local(address)?;
        // SAFETY: all of the region is mapped, checked, and live. What is mapped for the key or was allocated stays as long as the key; other
        // memory of this process as long as the section, for which the end of its registration waits behind the change of the word.
        Ok(Reach::Direct(unsafe { Access::new(section, start, length) }))
    }

    /// Whether the memory is mapped here.
    fn is_here(&self) -> bool {
        // SYNC: pairs with the Release in `set_direct`.
        self.live.load(Ordering::Acquire) != not_here()
    }

    /// Whether the memory is mapped here, and the registration lives.
    #[inline(always)]
    fn is_live_here(&self) -> bool {
        // SYNC: pairs with the Release in `set_direct`.
        let live = self.live.load(Ordering::Acquire);
        // SAFETY: the word lies in what `held` holds, or in the registry, which is there for ever, or it is `NOT_HERE`.
        let live = unsafe { &*live };
        // SYNC: pairs with the Release in `Registry::insert` and `Registry::remove`, of whichever process. The value is not
        // 0, so `NOT_HERE` never holds it.
        live.load(Ordering::Acquire) == self.value
    }

    /// The local address of memory that is mapped.
    fn local(&self, address: u64) -> Result<NonNull<u8>> {
        NonNull::new(address.wrapping_add(self.shift.load(Ordering::Relaxed)) as *mut u8)
            .ok_or(Error::INVALID_PARAM)
    }

    /// Binds the key. `shift` is such that all of the region lies in memory that `held` keeps, and the word does as well.
    fn set_direct(&self, shift: u64, live: &AtomicU64, held: Held) {
        let live = (&raw const *live).cast_mut();
        if self.held.set(held).is_ok() {
            self.shift.store(shift, Ordering::Relaxed);
            // SYNC: pairs with the Acquire in `is_live_here`.
            self.live.store(live, Ordering::Release);
        }
    }

    /// Whether there is a segment to ask for.
    pub(crate) fn has_segment(&self) -> bool {
        self.tail.is_lent == 1
    }

    /// Bytes that the key is to: of allocated memory all, so that its segment has no more.
    pub(crate) fn length(&self) -> u64 {
        self.remote.length
    }

    /// Key and secret, for asking for it.
    pub(crate) fn proof(&self) -> (u64, u64) {
        (self.remote.key, self.remote.secret)
    }

    /// Whether the registration lives, by the table of its process.
    pub(crate) fn is_live(&self, peer: &PeerView<'_>) -> bool {
        // SYNC: as in `reach`. Not `is_live_in`: the value is known.
        peer.identity == self.remote.identity
            && live_word(peer.table, self.remote.key).load(Ordering::Acquire) == self.value
    }

    /// The local address of remote memory that is mapped.
    pub(crate) fn pointer(&self, address: u64) -> Result<NonNull<u8>> {
        self.remote.check(address, 0, MemoryAccess::empty())?;
        if self.is_here() {
            return self.local(address);
        }
        Err(if self.has_segment() { Error::NO_RESOURCE } else { Error::UNSUPPORTED })
    }

    /// Binds the key to its segment, which it covers from the start, for the length of the key.
    pub(crate) fn bind(&self, peer: &PeerView<'_>, segment: Arc<Lent>) -> Result {
        let is_short = (segment.mapping.length() as u64) < self.remote.length;
        let is_closed = !segment.is_writable && is_written(self.remote.access());
        if peer.identity != self.remote.identity || is_short || is_closed {
            return Err(Error::INVALID_PARAM);
        }
        let base = segment.mapping.base().as_ptr() as u64;
        let live = live_word(peer.table, self.remote.key);
        let held = Held::Peer { _segment: segment, _table: Arc::clone(peer.table) };
        self.set_direct(base.wrapping_sub(self.remote.base), live, held);
        Ok(())
    }

    /// Binds a key of this process.
    fn bind_own(&self) -> Result<(), Failure> {
        let registry = registry()?;
        if self.remote.identity != registry.identity() {
            return Ok(());
        }
        let gone = || Failure::new(Error::INVALID_PARAM, "the memory of this key is no longer registered");
        let (key, secret) = self.proof();
        let region = registry.regions().find(key as u32, secret).map_err(|_| gone())?;
        region.check(self.remote.base, self.remote.length as usize, self.remote.access()).map_err(
            |error| {
                Failure::new(error, "the key reaches beyond the memory that is registered, or its rights")
            },
        )?;
        let held = match registry.allocated(key, secret) {
            Some(Allocated { segment, .. }) => Held::Own { _segment: segment },
            None => Held::Registered,
        };
        self.set_direct(0, live_word(&registry.table().mapping, key), held);
        Ok(())
    }

    /// An order without a meaning, for tables of keys.
    pub(crate) fn compare(&self, other: &Rkey) -> std::cmp::Ordering {
        self.remote.cmp(&other.remote)
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::io::Origin;
    use crate::proto::table::TABLE_BYTES;

    const SIZE: usize = 8192;

    /// The packed key of allocated memory, changed, and what it unpacks to.
    fn unpacked(change: impl FnOnce(&mut [u8; PACKED_LENGTH])) -> Result<Rkey, Failure> {
        let registry = registry().unwrap();
        let segment = Arc::new(Segment::new(&Origin::Memfd, SIZE, false).unwrap());
        let base = segment.mapping.base();
        let allocated = Allocated { segment, is_lent: true, is_written: true };
        // SAFETY: the registration keeps the segment.
        let memh = unsafe { registry.insert(base, SIZE, MemoryAccess::all(), Some(allocated)) }.unwrap();
        let mut packed = [0; PACKED_LENGTH];
        pack(Kind::Posix, &memh, &mut packed).unwrap();
        change(&mut packed);
        let rkey = Rkey::unpack(Kind::Posix, &packed);
        registry.remove(&memh);
        rkey
    }

    #[test]
    fn a_key_of_this_process_has_to_be_the_one_that_was_given() {
        unpacked(|_| {}).unwrap();
        let refused = unpacked(|key| key[31] ^= 1).unwrap_err();
        assert!(refused.reason.contains("no longer registered"), "{}", refused.reason);
        let refused = unpacked(|key| key[PACKED_KEY] ^= 1).unwrap_err();
        assert!(refused.reason.contains("another shared memory transport"), "{}", refused.reason);
    }

    /// The end of a registration takes nothing away from under an operation that has just looked.
    #[test]
    fn memory_that_was_allocated_stays_as_long_as_a_key_has_it() {
        let rkey = unpacked(|_| {}).unwrap();
        assert!(!rkey.is_live_here());
        let last = rkey.remote.base + SIZE as u64 - 1;
        // SAFETY: the key holds the segment.
        unsafe { rkey.local(last).unwrap().as_ptr().write_volatile(1) };
    }

    #[test]
    fn a_key_is_bound_to_the_memory_of_its_process_to_no_less_than_it_says_and_with_its_rights() {
        let registry = registry().unwrap();
        let table =
            Arc::new(Segment::memfd(TABLE_BYTES, false, rustix::fs::SealFlags::empty()).unwrap().mapping);
        let lent = |length, is_writable| {
            let mapping = Segment::new(&Origin::Memfd, length, false).unwrap().mapping;
            Arc::new(Lent::new(mapping, is_writable))
        };
        // As of another process.
        let rkey = Rkey {
            live: AtomicPtr::new(not_here()),
            shift: AtomicU64::new(0),
            held: OnceLock::new(),
            ..unpacked(|_| {}).unwrap()
        };
        let identity = rkey.remote.identity;
        assert_eq!(identity, registry.identity());
        let view = |identity| PeerView { identity, table: &table };
        assert_eq!(rkey.pointer(rkey.remote.base), Err(Error::NO_RESOURCE));
        assert_eq!(rkey.bind(&view(identity ^ 1), lent(SIZE, true)), Err(Error::INVALID_PARAM));
        assert_eq!(rkey.bind(&view(identity), lent(SIZE / 2, true)), Err(Error::INVALID_PARAM));
        assert_eq!(rkey.bind(&view(identity), lent(SIZE, false)), Err(Error::INVALID_PARAM));
        assert!(rkey.held.get().is_none(), "it was bound all the same");
        let accessor = Accessor::default();
        let reach = || {
            let reached = rkey.reach(&accessor, rkey.remote.base, 8, MemoryAccess::REMOTE_PUT);
            reached.map(|reach| matches!(reach, Reach::Direct(_)))
        };
        assert_eq!((reach(), rkey.window().err()), (Ok(false), Some(Error::NO_RESOURCE)));
        assert_eq!((rkey.has_segment(), rkey.length()), (true, SIZE as u64));
        assert!(!rkey.is_live(&view(identity)), "its table does not name it");
        live_word(&table, rkey.remote.key).store(rkey.value, Ordering::Release);
        assert!(rkey.is_live(&view(identity)) && !rkey.is_live(&view(identity ^ 1)));
        rkey.bind(&view(identity), lent(SIZE, true)).unwrap();
        assert!(rkey.pointer(rkey.remote.base).is_ok());
        assert_eq!((reach(), rkey.window().err()), (Ok(true), None));
        live_word(&table, rkey.remote.key).store(0, Ordering::Release);
        assert_eq!(reach(), Err(Error::INVALID_PARAM), "its registration has ended");
    }
}
