//! Making pages present ahead of their first use, which is a page fault each otherwise.
//!
//! Used for memory that memory domains allocate, and for memory of peers that is mapped. Built on `madvise` (Linux 5.14) and `mincore`. Neither
//! changes what the memory holds.

use std::ops::Range;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::sys::SystemError;
use crate::sys::pages::page_size;

/// Bytes of one system call, between which other threads of the process can map memory.
const AT_ONCE: usize = 16 << 20;

/// Asks the kernel for huge pages below this memory, where it has them for memory of its kind. Whole pages of the range count. What is present
/// already stays as it is.
pub fn prefer_huge_pages(address: NonNull<u8>, length: usize) {
    let pages = pages_of(address, length);
    let first = std::ptr::with_exposed_provenance_mut(pages.start);
    // SAFETY: the advice changes how memory is backed, and neither contents nor mappings.
    if let Err(errno) = unsafe { madvise(first, pages.len(), Advice::LinuxHugepage) } {
        crate::log::debug!("huge pages for {length} bytes at {address:p}: {errno}");
    }
}

/// Makes all pages that the range touches present and writable. Blocks for as long as the system takes to zero them: some tenths of a second
/// for a GiB.
///
/// # Errors
/// The kernel cannot do it ([`is_unknown`]: older than 5.14). A part of the range is not mapped or not writable; the system has no page left for it where
/// that is no reason to kill the process, as in a full tmpfs.
pub fn populate(address: NonNull<u8>, length: usize) -> Result<(), SystemError> {
    let pages = pages_of(address, length);
    let failure =
        |errno: Errno| SystemError::new(format!("make {length} bytes at {address:p} present"), errno);
    for start in pages.clone().step_by(AT_ONCE) {
        advise(start..pages.end.min(start + AT_ONCE), Advice::LinuxPopulateWrite).map_err(failure)?;
    }
    Ok(())
}

/// Whether the kernel is too old for [`populate`] and [`map_present`]: pages are made at their first access then.
pub fn is_unknown(error: &SystemError) -> bool {
    error.errno == libc::EINVAL
}

/// Maps the pages of a shared mapping that are in memory already, for example because another process has written them. Pages that are not
/// stay so: the process pays for no memory that nobody has used.
///
/// # Errors
/// As [`populate`].
pub fn map_present(address: NonNull<u8>, length: usize) -> Result<(), SystemError> {
    let pages = pages_of(address, length);
    let failure = |errno: Errno| SystemError::new(format!("map {length} bytes at {address:p}"), errno);
    let mut present = vec![0_u8; pages.len() / page_size()];
    let first = std::ptr::with_exposed_provenance_mut::<libc::c_void>(pages.start);
    // SAFETY: the vector has a byte for each page of the range; the call reads nothing else.
    if unsafe { libc::mincore(first, pages.len(), present.as_mut_ptr()) } != 0 {
        return Err(SystemError::last(format!("examine {length} bytes at {address:p}")));
    }
    let mut start = pages.start;
    for run in present.chunk_by(|one, next| one & 1 == next & 1) {
        let end = start + run.len() * page_size();
        if run[0] & 1 == 1 {
            advise(start..end, Advice::LinuxPopulateRead).map_err(failure)?;
        }
        start = end;
    }
    Ok(())
}

fn advise(pages: Range<usize>, advice: Advice) -> Result<(), Errno> {
    let first = std::ptr::with_exposed_provenance_mut(pages.start);
    loop {
        // SAFETY: pages become present as by an access of the kernel's; neither contents nor mappings change.
        match unsafe { madvise(first, pages.len(), advice) } {
            Err(Errno::INTR | Errno::AGAIN) => (),
            result => return result,
        }
    }
}

/// The addresses of all pages that the range touches.
fn pages_of(address: NonNull<u8>, length: usize) -> Range<usize> {
    let start = address.as_ptr().expose_provenance();
    let page = page_size();
    start / page * page..start.saturating_add(length).div_ceil(page) * page
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::memory::{Method, allocate};

    const PAGES: usize = 64;

    /// How many pages of the memory are present, as the kernel reports it.
    fn present(address: NonNull<u8>) -> usize {
        let mut present = [0_u8; PAGES];
        let first = address.as_ptr().cast();
        // SAFETY: the array has a byte for each page.
        assert_eq!(unsafe { libc::mincore(first, PAGES * page_size(), present.as_mut_ptr()) }, 0);
        present.iter().filter(|&&page| page & 1 == 1).count()
    }

    fn memory() -> crate::memory::Allocation {
        allocate(Method::Mmap, PAGES * page_size(), 1).unwrap()
    }

    #[test]
    fn pages_are_absent_until_they_are_populated_and_contents_stay() {
        let allocation = memory();
        let start = NonNull::new(allocation.as_ptr()).unwrap();
        assert_eq!(present(start), 0);
        // SAFETY: inside of the memory.
        let second = unsafe { start.add(page_size()) };
        // SAFETY: the memory is this test's alone.
        unsafe { second.write_volatile(7) };
        assert_eq!(present(start), 1);
        // SAFETY: inside of the memory.
        populate(unsafe { start.add(5) }, page_size()).unwrap();
        assert_eq!(present(start), 2, "the pages that the range touches and no others");
        populate(start, allocation.len()).unwrap();
        assert_eq!(present(start), PAGES);
        // SAFETY: as above.
        assert_eq!(unsafe { second.read_volatile() }, 7);
        populate(start, 0).unwrap();
    }

    #[test]
    fn what_nobody_has_used_is_not_mapped_and_what_is_there_is() {
        let file = rustix::fs::memfd_create("populate", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let length = PAGES * page_size();
        rustix::fs::ftruncate(&file, length as u64).unwrap();
        rustix::io::pwrite(&file, &[7; 3], 9 * page_size() as u64 - 1).unwrap();
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let flags = rustix::mm::MapFlags::SHARED;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, &file, 0) };
        let start = NonNull::new(start.unwrap().cast::<u8>()).unwrap();
        let resident = || {
            let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mut lines =
                smaps.lines().skip_while(|line| !line.starts_with(&format!("{:x}-", start.addr())));
            let line = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
            line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() << 10
        };
        assert_eq!(resident(), 0);
        map_present(start, length).unwrap();
        assert_eq!(resident(), 2 * page_size());
        assert_eq!(
            rustix::fs::fstat(&file).unwrap().st_blocks as usize * 512,
            2 * page_size(),
            "no page was made"
        );
        // SAFETY: this test's mapping, which is not used any more.
        unsafe { rustix::mm::munmap(start.as_ptr().cast(), length) }.unwrap();
    }

    #[test]
    fn memory_that_is_not_mapped_is_an_error_that_names_it() {
        let allocation = memory();
        let start = NonNull::new(allocation.as_ptr()).unwrap();
        drop(allocation);
        // Another thread may map the place again, but not all of the address space.
        for error in [populate(start, 1 << 46), map_present(start, 1 << 34)].map(Result::unwrap_err) {
            assert!(error.to_string().contains("bytes at 0x"), "{error}");
        }
    }
}
