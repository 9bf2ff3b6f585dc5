//! Remote keys: what a peer packs, and how far it lets us reach.
//!
//! For: memory domains (pack, unpack, rkey_ptr) and endpoints (every operation on remote memory). Stands on the registry and
//! on segments. A key is bound to memory as early as possible: in this process at once; in one whose descriptors the
//! system shows (same user, same pid namespace), or whose System V segments it does, at unpack; else when an endpoint to
//! that process is used for the first time.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use ucs::sync::fixed::{AtomicPtr, AtomicU64, Ordering};
use ucs::sys::namespace::Namespaces;
use uct_plugin::memory::{PACKED_KEY, RemoteKey, Window};
use uct_plugin::{Error, Failure, MemoryAccess, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::registry::{Memh, TABLE_BYTES, live_value, live_word, registry};
use crate::md::Kind;
use crate::segment::{Mapping, Source, accept, attach_sysv};

/// How to find the memory of a key, as it travels behind the key itself: 48 bytes in the machine's byte order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
struct Place {
    /// Which transport, as [`Kind`].
    kind: u32,
    /// Process number, in `namespace`.
    pid: u32,
    /// The segment: descriptor or System V number; -1 without one.
    segment: i32,
    /// The table's descriptor.
    table: i32,
    segment_length: u64,
    /// Where in the segment the region starts.
    segment_offset: u64,
    segment_inode: u64,
    table_inode: u64,
    /// Inode of the pid namespace, or, for System V, of the ipc namespace.
    namespace: u64,
}

/// Bytes of a packed key.
pub(crate) const PACKED_LENGTH: usize = PACKED_KEY + size_of::<Place>();

/// Writes the key of a registration.
pub(crate) fn pack(kind: Kind, memh: &Memh, buffer: &mut [u8]) -> Result {
    let buffer: &mut [u8; PACKED_LENGTH] = buffer.try_into().map_err(|_| Error::BUFFER_TOO_SMALL)?;
    let registry = registry().map_err(|failure| failure.status)?;
    let namespaces = Namespaces::own();
    let locate = |source: &Source| match source {
        Source::File(fd) => (fd.as_raw_fd(), rustix::fs::fstat(fd).map_or(0, |stat| stat.st_ino)),
        Source::Sysv(id) => (*id, 0),
    };
    let (table, table_inode) = locate(&registry.table().source);
    let (segment, segment_inode) =
        memh.segment.as_ref().map_or((-1, 0), |(segment, _)| locate(&segment.source));
    let place = Place {
        kind: kind as u32,
        pid: std::process::id(),
        segment,
        table,
        segment_length: memh.segment.as_ref().map_or(0, |(segment, _)| segment.mapping.length() as u64),
        segment_offset: memh.segment.as_ref().map_or(0, |(_, offset)| *offset),
        segment_inode,
        table_inode,
        namespace: if kind == Kind::Sysv { namespaces.ipc } else { namespaces.pid },
    };
    registry.regions().pack(&memh.region, &mut buffer[..PACKED_KEY])?;
    buffer[PACKED_KEY..].copy_from_slice(place.as_bytes());
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
    /// What `live` and the memory lie in: segment and table; `None` for this process's own.
    held: OnceLock<Option<(Arc<Mapping>, Arc<Mapping>)>>,
    kind: Kind,
    place: Place,
    /// The segment without the table, for `rkey_ptr`.
    segment: OnceLock<Arc<Mapping>>,
}

/// What an endpoint knows of the process at its other end.
pub(crate) struct PeerView<'a> {
    /// Number of its table.
    pub(crate) identity: u64,
    /// Its table.
    pub(crate) table: &'a Arc<Mapping>,
}

/// How the memory of a key is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Here.
    Direct(NonNull<u8>),
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
        let Some((remote, place)) = buffer.split_at_checked(PACKED_KEY) else {
            return wrong(format!("a remote key of {} bytes", buffer.len()));
        };
        let Ok(place) = Place::read_from_bytes(place) else {
            return wrong(format!("a remote key of {} bytes", buffer.len()));
        };
        let remote = RemoteKey::unpack(remote)?;
        if place.kind != kind as u32 {
            return wrong("a remote key of another shared memory transport".to_owned());
        }
        let end = place.segment_offset.checked_add(remote.length);
        if place.segment >= 0 && end.is_none_or(|end| end > place.segment_length) {
            return wrong("a remote key that contradicts itself".to_owned());
        }
        let rkey = Rkey {
            live: AtomicPtr::new(not_here()),
            value: live_value(remote.key),
            shift: AtomicU64::new(0),
            held: OnceLock::new(),
            remote,
            kind,
            place,
            segment: OnceLock::new(),
        };
        rkey.bind_early()?;
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
        // valid while it is registered, which the word tells.
        Ok(unsafe { Window::new(base, length, shift, self.remote.access(), live, self.value) })
    }

    /// Checks an access of `length` bytes at `address` and finds the way to them.
    pub(crate) fn reach(&self, address: u64, length: usize, access: MemoryAccess) -> Result<Reach> {
        self.remote.check(address, length, access)?;
        if !self.is_here() {
            return Ok(Reach::Remote);
        }
        if !self.is_live_here() {
            return Err(Error::INVALID_PARAM);
        }
        self.local(address).map(Reach::Direct)
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

    /// Binds the key: `held` holds the memory and the word, unless they are the process's own. `shift` is such that all of the
    /// region lies in memory that is mapped.
    fn set_direct(&self, shift: u64, live: &AtomicU64, held: Option<(Arc<Mapping>, Arc<Mapping>)>) {
        let live = (&raw const *live).cast_mut();
        if self.held.set(held).is_ok() {
            self.shift.store(shift, Ordering::Relaxed);
            // SYNC: pairs with the Acquire in `is_live_here`.
            self.live.store(live, Ordering::Release);
        }
    }

    /// Whether there is a segment to map.
    pub(crate) fn has_segment(&self) -> bool {
        self.place.segment >= 0
    }

    /// Whether the registration lives, by the table of its process.
    pub(crate) fn is_live(&self, peer: &PeerView<'_>) -> bool {
        // SYNC: as in `reach`.
        peer.identity == self.remote.identity
            && live_word(peer.table, self.remote.key).load(Ordering::Acquire) == self.value
    }

    /// The local address of remote memory that is mapped.
    pub(crate) fn pointer(&self, address: u64) -> Result<NonNull<u8>> {
        self.remote.check(address, 0, MemoryAccess::empty())?;
        if self.is_here() {
            return self.local(address);
        }
        let segment = self.segment.get().ok_or(Error::UNSUPPORTED)?;
        let offset = self.place.segment_offset + (address - self.remote.base);
        // SAFETY: `unpack` has checked that the region lies in the segment, and `check` that the address does in the region.
        Ok(unsafe { segment.base().add(offset as usize) })
    }

    /// Binds the key to its segment.
    pub(crate) fn bind(&self, peer: &PeerView<'_>, segment: Arc<Mapping>) -> Result {
        if peer.identity != self.remote.identity || (segment.length() as u64) < self.place.segment_length {
            return Err(Error::INVALID_PARAM);
        }
        let base = segment.base().as_ptr() as u64 + self.place.segment_offset;
        let live = live_word(peer.table, self.remote.key);
        let held = Some((segment, Arc::clone(peer.table)));
        self.set_direct(base.wrapping_sub(self.remote.base), live, held);
        Ok(())
    }

    /// The segment, if it was attached, or can be without asking anybody.
    pub(crate) fn attach(&self) -> Option<Arc<Mapping>> {
        if let Some(segment) = self.segment.get() {
            return Some(Arc::clone(segment));
        }
        if !self.has_segment() {
            return None;
        }
        let length = usize::try_from(self.place.segment_length).ok()?;
        let segment = match self.kind {
            Kind::Sysv if Namespaces::own().ipc == self.place.namespace => {
                Arc::new(attach_sysv(self.place.segment, length).ok()?)
            }
            Kind::Sysv => return None,
            _ => self.open_in_proc(self.place.segment, self.place.segment_inode, length, true)?,
        };
        Some(Arc::clone(self.segment.get_or_init(|| segment)))
    }

    /// Binds the key without the peer's help where that is possible.
    fn bind_early(&self) -> Result<(), Failure> {
        let gone = || Failure::new(Error::INVALID_PARAM, "the memory of this key is no longer registered");
        let registry = registry()?;
        if self.remote.identity == registry.identity() {
            let live = live_word(&registry.table().mapping, self.remote.key);
            let region = registry.regions().find(self.remote.key).map_err(|_| gone())?;
            region.check(self.remote.base, self.remote.length as usize, MemoryAccess::empty()).map_err(
                |error| Failure::new(error, "the key reaches beyond the memory that is registered"),
            )?;
            self.set_direct(0, live, None);
            return Ok(());
        }
        let Some(segment) = self.attach() else { return Ok(()) };
        let table = self.open_in_proc(self.place.table, self.place.table_inode, TABLE_BYTES, false);
        let Some(table) = table else { return Ok(()) };
        let peer = PeerView { identity: self.remote.identity, table: &table };
        if !self.is_live(&peer) {
            return Err(gone());
        }
        self.bind(&peer, segment).map_err(Failure::from)
    }

    /// Opens a descriptor of the peer through /proc, if it is there and is the file that the key means.
    fn open_in_proc(&self, fd: i32, inode: u64, length: usize, writable: bool) -> Option<Arc<Mapping>> {
        // For System V the namespace in the key is the ipc one; a wrong process has another inode there.
        let visible = self.kind == Kind::Sysv || Namespaces::own().pid == self.place.namespace;
        if !visible || fd < 0 {
            return None;
        }
        let path = format!("/proc/{}/fd/{fd}", self.place.pid);
        // Looked at first: opening another program's pipe or device could have effects.
        if std::fs::metadata(&path).ok()?.ino() != inode {
            return None;
        }
        let file = OpenOptions::new().read(true).write(writable).open(path).ok()?;
        if file.metadata().ok()?.ino() != inode {
            return None;
        }
        accept(file.as_fd(), length, writable, false).ok().map(Arc::new)
    }

    /// An order without a meaning, for tables of keys.
    pub(crate) fn compare(&self, other: &Rkey) -> std::cmp::Ordering {
        self.remote.cmp(&other.remote)
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::segment::{Origin, Segment};

    const SIZE: usize = 8192;

    /// The packed key of allocated memory, changed, and what it unpacks to.
    fn unpacked(change: impl FnOnce(&mut Place)) -> Result<Rkey, Failure> {
        let registry = registry().unwrap();
        let segment = Arc::new(Segment::new(&Origin::Memfd, SIZE, false).unwrap());
        let base = segment.mapping.base();
        let memh = registry.insert(base, SIZE, MemoryAccess::all(), Some(segment)).unwrap();
        let mut packed = [0; PACKED_LENGTH];
        pack(Kind::Posix, &memh, &mut packed).unwrap();
        let mut place = Place::read_from_bytes(&packed[PACKED_KEY..]).unwrap();
        change(&mut place);
        packed[PACKED_KEY..].copy_from_slice(place.as_bytes());
        let rkey = Rkey::unpack(Kind::Posix, &packed);
        registry.remove(&memh);
        rkey
    }

    #[test]
    fn a_key_whose_region_is_not_inside_of_its_segment_is_refused() {
        unpacked(|_| {}).unwrap();
        for change in [
            |place: &mut Place| place.segment_length -= 1,
            |place: &mut Place| place.segment_offset += 1,
            |place: &mut Place| place.segment_offset = u64::MAX,
        ] {
            let refused = unpacked(change).unwrap_err();
            assert!(refused.reason.contains("contradicts itself"), "{}", refused.reason);
        }
    }

    #[test]
    fn a_key_is_bound_to_the_memory_of_its_process_and_to_no_less_than_it_says() {
        let registry = registry().unwrap();
        let table =
            Arc::new(Segment::memfd(TABLE_BYTES, false, rustix::fs::SealFlags::empty()).unwrap().mapping);
        let mapping = |length| Arc::new(Segment::new(&Origin::Memfd, length, false).unwrap().mapping);
        // As of another process, whose descriptors this one does not see.
        let rkey = Rkey {
            live: AtomicPtr::new(not_here()),
            shift: AtomicU64::new(0),
            held: OnceLock::new(),
            segment: OnceLock::new(),
            ..unpacked(|_| {}).unwrap()
        };
        let identity = rkey.remote.identity;
        assert_eq!(identity, registry.identity());
        let view = |identity| PeerView { identity, table: &table };
        assert_eq!(rkey.bind(&view(identity ^ 1), mapping(SIZE)), Err(Error::INVALID_PARAM));
        assert_eq!(rkey.bind(&view(identity), mapping(SIZE / 2)), Err(Error::INVALID_PARAM));
        assert!(rkey.held.get().is_none(), "it was bound all the same");
        rkey.bind(&view(identity), mapping(SIZE)).unwrap();
        assert!(rkey.held.get().is_some());
    }
}
