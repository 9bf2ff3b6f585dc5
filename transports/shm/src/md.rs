//! Components and memory domains: one of each for `posix`, `sysv` and `cma`, which differ in where segments come from.
//!
//! Used by the host. Built on the registry, segments and remote keys.

use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::SealFlags;
use ucs::units::Ternary;
use uct_plugin::abi::{UCT_MD_ADVISE, UCT_MD_ALLOC, UCT_MD_NEED_RKEY, UCT_MD_REG, UCT_MD_RKEY_PTR};
use uct_plugin::memory::Window;
use uct_plugin::{Component, Error, Failure, Md, MdAttr, MemoryAccess, Result, Settings, attr};

use crate::config::{Peers, PosixConfig, Segments, ShmConfig, SysvConfig};
use crate::io::{Origin, Segment, Trust};
use crate::link::remote::{self, Allocated, Memh, PACKED_LENGTH, Rkey, is_written, registry};
use crate::proto::kind::Kind;

/// A type for each [`Kind`], for the traits of the plugin.
pub(crate) trait Flavor: 'static {
    const KIND: Kind;
}

/// `posix`.
pub(crate) struct Posix;
/// `sysv`.
pub(crate) struct Sysv;
/// `cma`.
pub(crate) struct Cma;

impl Flavor for Posix {
    const KIND: Kind = Kind::Posix;
}
impl Flavor for Sysv {
    const KIND: Kind = Kind::Sysv;
}
impl Flavor for Cma {
    const KIND: Kind = Kind::Cma;
}

/// Where the segments of a transport come from.
fn origin(kind: Kind, settings: &Settings<'_>) -> Result<Origin, Failure> {
    let posix = PosixConfig::from_settings(settings)?;
    Ok(match kind {
        Kind::Sysv => Origin::Sysv { public: ShmConfig::from_settings(settings)?.peers == Peers::Any },
        _ if posix.segments == Segments::Dir => Origin::Directory(posix.dir),
        _ => Origin::Memfd,
    })
}

/// A component.
pub(crate) struct ShmComponent<F>(PhantomData<F>);

/// A memory domain.
#[derive(Debug)]
pub(crate) struct ShmMd {
    pub(crate) kind: Kind,
    pub(crate) origin: Origin,
    huge: Ternary,
    /// How long the end of a registration waits for copies that peers have begun.
    copy_timeout: Duration,
}

impl<F: Flavor> Component for ShmComponent<F> {
    const NAME: &'static str = F::KIND.name();
    type Md = ShmMd;

    fn memory_domains(_settings: &Settings<'_>) -> Result<Vec<String>, Failure> {
        Ok(vec![F::KIND.name().to_owned()])
    }

    fn open(_name: &str, settings: &Settings<'_>) -> Result<ShmMd, Failure> {
        registry()?;
        let huge = match F::KIND {
            Kind::Sysv => SysvConfig::from_settings(settings)?.hugetlb_mode,
            _ => PosixConfig::from_settings(settings)?.hugetlb_mode,
        };
        let copy_timeout = ShmConfig::from_settings(settings)?.copy_timeout.to_duration();
        Ok(ShmMd { kind: F::KIND, origin: origin(F::KIND, settings)?, huge, copy_timeout })
    }
}

impl ShmMd {
    /// Which segments of peers are accepted: the same kinds as this domain's own.
    pub(crate) fn trust(&self) -> Trust {
        Trust::new(&self.origin, self.huge != Ternary::No)
    }

    /// A segment for `length` bytes with these rights, on huge pages if configured and possible.
    ///
    /// What peers only read is sealed against their writing, so it takes memory that can be; what no peer may reach at all has
    /// no number by which it could be found.
    fn segment(&self, length: usize, access: MemoryAccess) -> Result<Segment, Failure> {
        let make = |huge| match &self.origin {
            Origin::Memfd if !is_written(access) => Segment::memfd(length, huge, SealFlags::FUTURE_WRITE),
            Origin::Sysv { .. } if access.is_empty() => Segment::memfd(length, huge, SealFlags::FUTURE_WRITE),
            origin => Segment::new(origin, length, huge),
        };
        let segment = match self.huge {
            Ternary::Yes => make(true),
            Ternary::Try | Ternary::Auto => make(true).or_else(|error| {
                ucs::log::debug!("{length} bytes of shared memory get small pages: no huge ones: {error}");
                make(false)
            }),
            Ternary::No => make(false),
        };
        segment.map_err(|error| Failure::new(Error::NO_MEMORY, error.to_string()))
    }

    /// Whether the segments of memory with these rights are lent to peers that show a key.
    fn lends(&self, access: MemoryAccess) -> bool {
        is_written(access) || !access.is_empty() && self.origin == Origin::Memfd
    }
}

impl Md for ShmMd {
    type Memh = Memh;
    type Rkey = Rkey;

    fn attributes(&self) -> MdAttr {
        MdAttr {
            flags: UCT_MD_REG | UCT_MD_ALLOC | UCT_MD_NEED_RKEY | UCT_MD_ADVISE | UCT_MD_RKEY_PTR,
            rkey_packed_size: PACKED_LENGTH,
            max_reg: u64::MAX,
            max_alloc: 1 << 47,
            rkey_cost: 170e-9,
            // A message and its reply over the socket, mapping and unmapping; and the page faults.
            rkey_map_cost: 20e-6,
            rkey_map_growth: 400e-12,
            ..attr::blank_md()
        }
    }

    unsafe fn register(
        &self,
        address: NonNull<u8>,
        length: usize,
        access: MemoryAccess,
    ) -> Result<Memh, Failure> {
        // SAFETY: the caller's promise.
        unsafe { registry()?.insert(address, length, access, None) }
    }

    fn deregister(&self, memh: Memh) -> Result {
        let registry = registry().map_err(|failure| failure.status)?;
        registry.remove(&memh);
        if registry.wait_for_copies(&memh, self.copy_timeout) {
            return Ok(());
        }
        // Memory that was allocated here stays mapped; other memory must be kept by its owner.
        std::mem::forget(memh.allocated);
        Err(Error::BUSY)
    }

    fn allocate(&self, length: usize, access: MemoryAccess) -> Result<(NonNull<u8>, usize, Memh), Failure> {
        let pages = length.max(1).checked_next_multiple_of(ucs::sys::pages::page_size());
        let Some(pages) = pages.filter(|pages| *pages <= 1 << 47) else {
            return Err(Failure::new(Error::NO_MEMORY, format!("{length} bytes are more than there can be")));
        };
        let segment = Arc::new(self.segment(pages, access)?);
        let (base, length) = (segment.mapping.base(), segment.mapping.length());
        let (is_lent, is_written) = (self.lends(access), is_written(access));
        let allocated = Allocated { segment, is_lent, is_written };
        // SAFETY: the registration keeps the segment, and no reference into it exists.
        let memh = unsafe { registry()?.insert(base, length, access, Some(allocated)) }?;
        Ok((base, length, memh))
    }

    fn free(&self, memh: Memh) -> Result {
        self.deregister(memh)
    }

    fn advise(&self, memh: &Memh, address: NonNull<u8>, length: usize, advice: u32) -> Result {
        memh.region.check(address.as_ptr() as u64, length, MemoryAccess::empty())?;
        uct_plugin::memory::advise(address, length, advice)
    }

    fn pack(&self, memh: &Memh, buffer: &mut [u8]) -> Result {
        remote::pack(self.kind, memh, buffer)
    }

    fn unpack(&self, buffer: &[u8]) -> Result<Rkey, Failure> {
        Rkey::unpack(self.kind, buffer)
    }

    fn rkey_ptr(&self, rkey: &Rkey, remote_address: u64) -> Result<NonNull<u8>> {
        rkey.pointer(remote_address)
    }

    fn window<'key>(&self, rkey: &'key Rkey) -> Result<Window<'key>> {
        rkey.window()
    }

    fn compare(&self, left: &Rkey, right: &Rkey) -> Result<Ordering> {
        Ok(left.compare(right))
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::io::{Mapping, Source};
    use uct_plugin::abi::{UCT_ADVICE_NORMAL, UCT_ADVICE_WILLNEED};

    /// Whether the kernel reads ahead of accesses to this mapping, as it says itself.
    fn is_read_ahead(mapping: &Mapping) -> bool {
        let first = format!("{:x}-", mapping.base().addr());
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| !line.starts_with(&first));
        let flags = lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        !flags.split(' ').any(|flag| flag == "rr")
    }

    fn domain(kind: Kind, origin: Origin) -> ShmMd {
        ShmMd { kind, origin, huge: Ternary::No, copy_timeout: Duration::from_millis(20) }
    }

    #[test]
    fn advice_about_memory_of_the_domain_reaches_the_kernel_and_any_other_is_refused() {
        let md = domain(Kind::Posix, Origin::Memfd);
        let (base, length, memh) = md.allocate(8192, MemoryAccess::all()).unwrap();
        let mapping = &memh.allocated.as_ref().unwrap().segment.mapping;
        // SAFETY: the advice changes neither contents nor mappings.
        assert_eq!(unsafe { libc::madvise(base.as_ptr().cast(), length, libc::MADV_RANDOM) }, 0);
        assert!(!is_read_ahead(mapping));
        assert_eq!(md.advise(&memh, base, length + 1, UCT_ADVICE_NORMAL), Err(Error::OUT_OF_RANGE));
        assert_eq!(md.advise(&memh, base, length, UCT_ADVICE_WILLNEED + 1), Err(Error::UNSUPPORTED));
        assert_eq!(md.advise(&memh, base, length, UCT_ADVICE_WILLNEED), Ok(()));
        assert!(!is_read_ahead(mapping));
        assert_eq!(md.advise(&memh, base, length, UCT_ADVICE_NORMAL), Ok(()));
        assert!(is_read_ahead(mapping), "the kernel was not told");
        md.free(memh).unwrap();
    }

    #[test]
    fn as_many_bytes_are_allocated_as_there_can_be_in_whole_pages() {
        let md = domain(Kind::Posix, Origin::Memfd);
        let page = ucs::sys::pages::page_size();
        for (asked, expected) in [(0, page), (1, page), (page, page), (page + 1, 2 * page)] {
            let (_, length, memh) = md.allocate(asked, MemoryAccess::all()).unwrap();
            let mapped = memh.allocated.as_ref().unwrap().segment.mapping.length();
            assert_eq!((length, mapped), (expected, expected), "{asked} bytes");
            md.free(memh).unwrap();
        }
        let most = md.attributes().max_alloc as usize;
        assert_eq!(most, 1 << 47);
        // The system has no room for so many either.
        for (asked, is_refused_here) in [(most, false), (most + 1, true), (usize::MAX, true)] {
            let failure = md.allocate(asked, MemoryAccess::all()).unwrap_err();
            assert_eq!(failure.status, Error::NO_MEMORY);
            let words = "more than there can be";
            assert_eq!(failure.reason.contains(words), is_refused_here, "{asked}: {}", failure.reason);
        }
    }

    /// The host chooses among paths by these.
    #[test]
    fn a_domain_reports_what_it_can_do_and_what_its_keys_cost() {
        let found = domain(Kind::Posix, Origin::Memfd).attributes();
        let flags = [UCT_MD_REG, UCT_MD_ALLOC, UCT_MD_NEED_RKEY, UCT_MD_ADVISE, UCT_MD_RKEY_PTR];
        assert_eq!(found.flags, flags.into_iter().fold(0, |all, flag| all | flag));
        assert_eq!((found.rkey_packed_size, found.max_reg), (PACKED_LENGTH, u64::MAX));
        // Nanoseconds for a key, for its first use, and for each MiB of it.
        let costs = [found.rkey_cost, found.rkey_map_cost, found.rkey_map_growth * 1e6];
        assert_eq!(costs.map(|cost| (cost * 1e9).round() as u64), [170, 20_000, 400_000]);
    }

    #[test]
    fn huge_pages_of_peers_are_accepted_where_they_are_used_here() {
        for (huge, expected) in [(Ternary::No, false), (Ternary::Try, true), (Ternary::Yes, true)] {
            let md = ShmMd { huge, ..domain(Kind::Posix, Origin::Memfd) };
            assert_eq!(md.trust(), Trust { huge: expected, ..Trust::SEALED });
        }
    }

    #[test]
    fn memory_is_lent_where_no_peer_gets_more_than_its_rights() {
        let (get, put) = (MemoryAccess::REMOTE_GET, MemoryAccess::REMOTE_PUT);
        let sysv = Origin::Sysv { public: false };
        for (kind, origin, of_get) in [(Kind::Posix, Origin::Memfd, true), (Kind::Sysv, sysv, false)] {
            let md = domain(kind, origin);
            let rights = [(MemoryAccess::empty(), false), (get, of_get), (put, true), (get | put, true)];
            for (access, expected) in rights {
                let (.., memh) = md.allocate(4096, access).unwrap();
                assert_eq!(memh.allocated.as_ref().unwrap().is_lent, expected, "{kind:?}, {access:?}");
                md.free(memh).unwrap();
            }
        }
    }

    #[test]
    fn memory_that_is_copied_for_a_peer_stays_where_it_is_and_its_end_is_an_error() {
        let (md, registry) = (domain(Kind::Posix, Origin::Memfd), registry().unwrap());
        let ring = Arc::new(Segment::new(&Origin::Memfd, 4096, false).unwrap().mapping);
        let words = Arc::new(remote::Words::new(&ring, 128, 64));
        registry.announcements().add(&words);
        let (base, length, memh) = md.allocate(8192, MemoryAccess::all()).unwrap();
        let proof = (memh.region.key(), memh.region.secret());
        assert!(registry.allocated(proof.0, proof.1).is_some());
        let copy = words.announce(proof.1).unwrap();
        assert_eq!(md.free(memh), Err(Error::BUSY));
        assert!(registry.allocated(proof.0, proof.1).is_none(), "the registration has not ended");
        // SAFETY: inside the memory.
        let last = unsafe { base.add(length - 1) };
        // SAFETY: the memory stays mapped, as the copy may still access it, and nothing else uses it.
        unsafe { last.write_volatile(7) };
        drop(copy);
        let (.., memh) = md.allocate(8192, MemoryAccess::all()).unwrap();
        assert_eq!(md.free(memh), Ok(()));
        registry.announcements().close(&words, true);
    }

    #[test]
    fn keys_lead_to_the_memory_that_they_were_packed_for_and_have_an_order() {
        let md = domain(Kind::Posix, Origin::Memfd);
        let memory = [(); 2].map(|()| md.allocate(8192, MemoryAccess::all()).unwrap());
        let keys = memory.each_ref().map(|(_, _, memh)| {
            let mut packed = [0; PACKED_LENGTH];
            assert_eq!(md.pack(memh, &mut packed[1..]), Err(Error::BUFFER_TOO_SMALL));
            md.pack(memh, &mut packed).unwrap();
            md.unpack(&packed).unwrap()
        });
        for ((base, length, _), key) in memory.iter().zip(&keys) {
            let address = base.as_ptr() as u64;
            assert_eq!(md.rkey_ptr(key, address), Ok(*base));
            assert_eq!(md.rkey_ptr(key, address + *length as u64 + 1), Err(Error::OUT_OF_RANGE));
            assert_eq!(md.compare(key, key), Ok(Ordering::Equal));
        }
        let [there, back] =
            [[0, 1], [1, 0]].map(|[left, right]| md.compare(&keys[left], &keys[right]).unwrap());
        assert_ne!(there, Ordering::Equal);
        assert_eq!(back, there.reverse());
        memory.into_iter().for_each(|(_, _, memh)| md.free(memh).unwrap());
    }

    /// Allocates memory with these rights, and tells whether a peer that gets its descriptor can map it for reading and for writing; `None`
    /// where a descriptor is not how peers get at it.
    fn what_a_peer_can_map(kind: Kind, origin: &Origin, access: MemoryAccess) -> Option<[bool; 2]> {
        let timeout = Duration::from_secs(1);
        let md = ShmMd { kind, origin: origin.clone(), huge: Ternary::No, copy_timeout: timeout };
        let (base, length, memh) = md.allocate(8192, access).unwrap();
        // SAFETY: it is mapped, and nobody else uses it.
        unsafe { base.write_volatile(7) };
        let segment = &memh.allocated.as_ref().unwrap().segment;
        let mapped = match &segment.source {
            Source::Sysv(_) => None,
            Source::File(fd) => {
                Some([false, true].map(|writable| Mapping::file(fd.as_fd(), length, writable).is_ok()))
            }
        };
        md.free(memh).unwrap();
        mapped
    }

    #[test]
    fn the_kernel_lets_no_peer_write_to_memory_without_a_right_to_write() {
        let (get, put) = (MemoryAccess::REMOTE_GET, MemoryAccess::REMOTE_PUT);
        for access in [get, MemoryAccess::empty()] {
            let mapped = what_a_peer_can_map(Kind::Posix, &Origin::Memfd, access);
            assert_eq!(mapped, Some([true, false]), "{access:?}");
        }
        for access in [put, MemoryAccess::REMOTE_ATOMIC, get | put] {
            let mapped = what_a_peer_can_map(Kind::Posix, &Origin::Memfd, access);
            assert_eq!(mapped, Some([true, true]), "{access:?}");
        }
        let sysv = Origin::Sysv { public: false };
        assert_eq!(what_a_peer_can_map(Kind::Sysv, &sysv, MemoryAccess::empty()), Some([true, false]));
        assert_eq!(what_a_peer_can_map(Kind::Sysv, &sysv, get | put), None);
    }
}
