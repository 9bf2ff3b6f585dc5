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
