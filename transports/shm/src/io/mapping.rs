//! A mapping of shared memory that is unmapped when it is dropped.
//!
//! Used for all shared memory. Built on mmap and shmat.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};
use ucs::sys::SystemError;

/// Mapped memory. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    length: usize,
    origin: Origin,
}

#[derive(Debug, Clone, Copy)]
enum Origin {
    File,
    Sysv,
}

// SAFETY: the mapping is plain memory; the value is only its address. Its users know which accesses are permitted.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes of a file, for reading and, if `writable`, for writing.
    pub fn file(fd: BorrowedFd<'_>, length: usize, writable: bool) -> Result<Mapping, SystemError> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, fd, 0) }
            .map_err(|errno| SystemError::new(format!("map {length} bytes of shared memory"), errno))?;
        Ok(Mapping { base: non_null(base.cast()), length, origin: Origin::File })
    }

    /// Attaches a System V segment of at least `length` bytes.
    pub fn sysv(id: i32, length: usize) -> Result<Mapping, SystemError> {
        // SAFETY: as above: the kernel chooses the address.
        let base = unsafe { libc::shmat(id, ptr::null(), 0) };
        if base as isize == -1 {
            return Err(SystemError::last(format!("attach System V segment {id}")));
        }
        Ok(Mapping { base: non_null(base.cast()), length, origin: Origin::Sysv })
    }

    /// First byte; aligned to a page.
    #[inline(always)]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Gives the memory of whole pages of a segment back to the system, for all that map it. They are zeroed afterwards. File systems without
    /// holes keep it.
    pub fn give_back(&self, pages: Range<usize>) {
        assert!(pages.start <= pages.end && pages.end <= self.length);
        // SAFETY: inside the mapping (checked).
        let start = unsafe { self.base.add(pages.start) };
        // SAFETY: whole pages of a mapping that is shared memory, which any process that maps it may overwrite at any time; an error changes
        // nothing.
        let given = unsafe { rustix::mm::madvise(start.as_ptr().cast(), pages.len(), Advice::LinuxRemove) };
        if let Err(errno) = given {
            ucs::log::debug!("{}", SystemError::new("return unused memory of the rings", errno));
        }
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// The kernel never maps at 0 on its own.
fn non_null(base: *mut u8) -> NonNull<u8> {
    NonNull::new(base).expect("the kernel maps at addresses above 0")
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let base = self.base.as_ptr().cast();
        match self.origin {
            // SAFETY: mapped by `file` with this length; users with pointers into it have kept the mapping.
            Origin::File => drop(unsafe { rustix::mm::munmap(base, self.length) }),
            // SAFETY: attached by `sysv`; as above.
            Origin::Sysv => drop(unsafe { libc::shmdt(base) }),
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};

    use super::Mapping;

    #[test]
    fn memory_that_is_given_back_is_gone_for_all_and_its_neighbours_stay() {
        const PAGE: usize = 4096;
        let file = memfd_create("given back", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4 * PAGE as u64).unwrap();
        let [mapping, other] = [(); 2].map(|()| Mapping::file(file.as_fd(), 4 * PAGE, true).unwrap());
        let byte = |mapping: &Mapping, page: usize| {
            // SAFETY: inside the mapping.
            unsafe { mapping.base().add(page * PAGE) }
        };
        for page in 0..4 {
            // SAFETY: the mapping is this test's alone.
            unsafe { byte(&mapping, page).write_volatile(7) };
        }
        let blocks = || fstat(&file).unwrap().st_blocks as usize * 512;
        assert_eq!(blocks(), 4 * PAGE);
        mapping.give_back(PAGE..3 * PAGE);
        assert_eq!(blocks(), 2 * PAGE, "the system has it still");
        // SAFETY: as above.
        let found = [0, 1, 2, 3].map(|page| unsafe { byte(&other, page).read_volatile() });
        assert_eq!(found, [7, 0, 0, 7]);
        mapping.give_back(4 * PAGE..4 * PAGE);
    }

    #[test]
    #[should_panic(expected = "pages.end <= self.length")]
    fn nothing_behind_a_mapping_is_given_back() {
        let file = memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4096).unwrap();
        Mapping::file(file.as_fd(), 4096, true).unwrap().give_back(0..8192);
    }
}
