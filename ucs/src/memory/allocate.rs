//! Allocating memory in one of several ways, each of which may fail with a reason.
//!
//! Used by memory domains, which try the methods in the configured order. Built on the allocator, `mmap` and
//! `madvise`. Which order is right is the caller's business, as is registering what was allocated.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::sys::SystemError;
use crate::sys::pages::{self, TransparentHugePages};

/// How memory is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// The program's allocator.
    Heap,
    /// Pages of its own.
    Mmap,
    /// Pages of its own that the kernel is asked to make huge.
    TransparentHuge,
    /// Pages from the system's pool of huge pages.
    Huge,
}

impl Method {
    /// Every method.
    pub const ALL: [Method; 4] = [Method::Heap, Method::Mmap, Method::TransparentHuge, Method::Huge];

    /// The name in the configuration: "thp".
    pub const fn name(self) -> &'static str {
        match self {
            Method::Heap => "heap",
            Method::Mmap => "mmap",
            Method::TransparentHuge => "thp",
            Method::Huge => "huge",
        }
    }

    /// The method of a name.
    pub fn from_name(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.name() == name)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Memory that is freed on drop. Zero at first.
///
/// It is handed out as a pointer, because what uses it (devices, peers) does not follow Rust's rules of
/// sharing.
#[derive(Debug)]
pub struct Allocation {
    address: NonNull<u8>,
    length: usize,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Heap(Layout),
    /// Mapped from the allocation's address on, for this many bytes.
    Map(usize),
}

// SAFETY: an allocation owns its memory, and neither allocator nor kernel cares which thread frees it.
unsafe impl Send for Allocation {}
// SAFETY: a shared reference gives nothing away but address and length.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Where it begins.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Bytes that may be used; at least what was asked for.
    #[expect(clippy::len_without_is_empty, reason = "an allocation is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// How it was allocated, as far as freeing it goes.
    pub fn is_mapped(&self) -> bool {
        matches!(self.source, Source::Map(_))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        match self.source {
            Source::Heap(layout) => {
                // SAFETY: `heap` allocated it with this layout; it is freed once, here.
                unsafe { dealloc(self.address.as_ptr(), layout) };
            }
            Source::Map(length) => {
                // SAFETY: `Mapping` mapped these pages, and they are unmapped once, here.
                let answer = unsafe { munmap(self.address.as_ptr().cast(), length) };
                if let Err(error) = answer {
                    crate::log::error!(%error, length, "memory could not be unmapped");
                }
            }
        }
    }
}

/// Allocates at least `length` bytes, above zero, at a multiple of `alignment`, a power of two. Zeroed.
///
/// The two methods with huge pages round up to whole ones, and refuse where that would more than double the
/// length. Huge pages are taken from the pool now, so that using them cannot fail later.
pub fn allocate(method: Method, length: usize, alignment: usize) -> Result<Allocation, SystemError> {
    let failure = |errno| {
        SystemError::new(format!("allocate {length} bytes aligned to {alignment} as {method}"), errno)
    };
    if length == 0
        || !alignment.is_power_of_two()
        || length.checked_add(alignment).is_none_or(|sum| sum > isize::MAX as usize)
    {
        return Err(
            failure(Errno::INVAL).advise("the length has to be above 0, the alignment a power of two")
        );
    }
    match method {
        Method::Heap => heap(length, alignment).ok_or_else(|| failure(Errno::NOMEM)),
        Method::Mmap => {
            let length = length.next_multiple_of(pages::page_size());
            Mapping::aligned(length, alignment).map(Mapping::into_allocation).map_err(failure)
        }
        Method::TransparentHuge => transparent_huge(length, alignment, failure),
        Method::Huge => huge(length, alignment, failure),
    }
}

fn heap(length: usize, alignment: usize) -> Option<Allocation> {
    let layout = Layout::from_size_align(length, alignment).ok()?;
    // SAFETY: the layout's size is above zero, as `allocate` has checked.
    let address = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    Some(Allocation { address, length, source: Source::Heap(layout) })
}

fn transparent_huge(
    length: usize,
    alignment: usize,
    failure: impl Fn(Errno) -> SystemError,
) -> Result<Allocation, SystemError> {
    if pages::transparent_huge_pages() == TransparentHugePages::Never {
        let advice =
            "transparent huge pages are off: write madvise to /sys/kernel/mm/transparent_hugepage/enabled";
        return Err(failure(Errno::OPNOTSUPP).advise(advice));
    }
    let (page, length) = whole_huge_pages(length, &failure)?;
    let mapping = Mapping::aligned(length, alignment.max(page)).map_err(&failure)?;
    // SAFETY: the mapping is ours and unused; the advice changes how it is backed, not what it holds.
    unsafe { madvise(mapping.address.as_ptr().cast(), mapping.length, Advice::LinuxHugepage) }
        .map_err(&failure)?;
    Ok(mapping.into_allocation())
}

fn huge(
    length: usize,
    alignment: usize,
    failure: impl Fn(Errno) -> SystemError,
) -> Result<Allocation, SystemError> {
    let (page, length) = whole_huge_pages(length, &failure)?;
    if alignment > page {
        return Err(failure(Errno::INVAL).advise(format!("a huge page is aligned to {page} bytes only")));
    }
    let mapping = Mapping::new(length, MapFlags::HUGETLB | MapFlags::POPULATE).map_err(|errno| {
        let pools = pages::huge_pages();
        let free = pools.iter().find(|pool| pool.size == page).map_or(0, |pool| pool.free);
        let wanted = length / page;
        failure(errno).advise(format!(
            "{wanted} huge pages of {page} bytes are needed and {free} free: raise vm.nr_hugepages"
        ))
    })?;
    Ok(mapping.into_allocation())
}

/// The size of a huge page, and the length rounded up to whole ones.
fn whole_huge_pages(
    length: usize,
    failure: &impl Fn(Errno) -> SystemError,
) -> Result<(usize, usize), SystemError> {
    let Some(page) = pages::default_huge_page_size() else {
        return Err(failure(Errno::OPNOTSUPP).advise("this system has no huge pages"));
    };
    match length.checked_next_multiple_of(page) {
        Some(whole) if whole / 2 <= length => Ok((page, whole)),
        _ => Err(failure(Errno::INVAL)
            .advise(format!("it would fill less than half of a huge page of {page} bytes"))),
    }
}

/// Pages that are unmapped on drop.
struct Mapping {
    address: NonNull<u8>,
    length: usize,
}

impl Mapping {
    fn new(length: usize, flags: MapFlags) -> Result<Mapping, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
        let address =
            unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, flags | MapFlags::PRIVATE) }?;
        let address = NonNull::new(address.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { address, length })
    }

    /// A mapping of whole pages at a multiple of `alignment`: maps more and gives back what is before and
    /// after.
    fn aligned(length: usize, alignment: usize) -> Result<Mapping, Errno> {
        if alignment <= pages::page_size() {
            return Mapping::new(length, MapFlags::empty());
        }
        let total = length.checked_add(alignment).ok_or(Errno::NOMEM)?;
        let whole = Mapping::new(total, MapFlags::empty())?;
        let before = whole.address.align_offset(alignment);
        let (_, rest) = whole.split(before);
        let (wanted, _) = rest.split(length);
        Ok(wanted)
    }

    /// Cuts a mapping in two at a page boundary. A part of no length is harmless.
    fn split(self, at: usize) -> (Mapping, Mapping) {
        let whole = std::mem::ManuallyDrop::new(self);
        let at = at.min(whole.length);
        // SAFETY: `at` is at most the length of the mapping, so the pointer stays within or one past it.
        let second = unsafe { whole.address.add(at) };
        let first = Mapping { address: whole.address, length: at };
        (first, Mapping { address: second, length: whole.length - at })
    }

    fn into_allocation(self) -> Allocation {
        let mapping = std::mem::ManuallyDrop::new(self);
        Allocation { address: mapping.address, length: mapping.length, source: Source::Map(mapping.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.length != 0 {
            // SAFETY: the pages belong to this value, and there is no other reference to them.
            let _ = unsafe { munmap(self.address.as_ptr().cast(), self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allocates, checks what was promised and writes to all of it.
    fn works(method: Method, length: usize, alignment: usize) -> Result<(), SystemError> {
        let allocation = allocate(method, length, alignment)?;
        assert!(allocation.len() >= length);
        assert_eq!(allocation.as_ptr().addr() % alignment, 0);
        assert_eq!(allocation.is_mapped(), method != Method::Heap);
        // SAFETY: the allocation is this test's own, zeroed, and as long as it says.
        let bytes = unsafe { std::slice::from_raw_parts_mut(allocation.as_ptr(), allocation.len()) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes.fill(0xA5);
        Ok(())
    }

    #[test]
    fn heap_and_mmap_give_what_is_requested() {
        for method in [Method::Heap, Method::Mmap] {
            for (length, alignment) in [(1, 1), (4097, 64), (100_000, 4096), (10_000, 1 << 21)] {
                works(method, length, alignment).unwrap();
            }
        }
    }

    #[test]
    fn huge_pages_are_given_or_refused_with_a_reason() {
        for method in [Method::TransparentHuge, Method::Huge] {
            if let Err(error) = works(method, 3 << 20, 4096) {
                assert!(error.advice.is_some(), "{error}");
                eprintln!("as this system is set up: {error}");
            }
            let wasteful = allocate(method, 100, 1).unwrap_err();
            assert!(wasteful.advice.is_some(), "{wasteful}");
        }
    }

    #[test]
    fn mapped_memory_is_given_back() {
        let mapped = || -> u64 {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        };
        let before = mapped();
        for _ in 0..500 {
            drop(allocate(Method::Mmap, 1 << 20, 1 << 21).unwrap());
        }
        // 500 times 3 MiB would be 384,000 pages; other tests map and unmap meanwhile.
        assert!(mapped() < before + 100_000, "address space grew");
    }

    #[test]
    fn impossible_requests_are_errors_that_name_them() {
        for (length, alignment) in [(0, 8), (8, 0), (8, 3), (usize::MAX, 8), (isize::MAX as usize, 8)] {
            for method in Method::ALL {
                let error = allocate(method, length, alignment).unwrap_err();
                assert!(error.to_string().contains(&length.to_string()), "{error}");
                assert_eq!(error.errno, libc::EINVAL);
            }
        }
        let error = allocate(Method::Mmap, 1 << 60, 8).unwrap_err();
        assert_eq!(crate::Error::from(&error), crate::Error::NO_MEMORY);
    }

    #[test]
    fn names_lead_back_to_their_method() {
        assert!(Method::ALL.into_iter().all(|method| Method::from_name(method.name()) == Some(method)));
        assert_eq!(Method::from_name("md"), None);
    }
}
