//! What the mappings of a range of this process's memory permit.
//!
//! Used by registration of memory that the application has mapped. Built on /proc/self/maps: a query of the kernel for each mapping from
//! Linux 6.11 on (below 1 µs, since the file stays open), the text of all mappings before. The answer is that of the moment: mappings may
//! change afterwards.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, RawFd};

use super::fork;
use crate::sync::fixed::{AtomicU64, Ordering};
use crate::sys::SystemError;

const MAPS: &str = "/proc/self/maps";

/// How far a range may be accessed, from its start on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permitted {
    /// The first address that may not be read, or the end of the range.
    pub readable_to: usize,
    /// The first address that may not be written, or the end of the range.
    pub writable_to: usize,
}

/// One mapping, or neighbours that were asked for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    start: usize,
    end: usize,
    is_readable: bool,
    is_writable: bool,
}

/// What the mappings permit in `range`, which has at least one byte. Does not access it.
///
/// # Errors
/// It cannot be known: there is no /proc, or it is not shown to this process.
pub fn permitted(range: Range<usize>) -> Result<Permitted, SystemError> {
    if let Some(maps) = kept()
        && let Ok(permitted) = permitted_by(range.clone(), |address| queried(maps, address))
    {
        return Ok(permitted);
    }
    permitted_with(queried, range)
}

/// The file of this process, which stays open: opening it takes ten times as long as a query. If the program has closed it, queries of what has
/// its number now are refused.
fn kept() -> Option<BorrowedFd<'static>> {
    /// The number of the file, and above it that of the process's generation plus one: a child of a fork opens its own.
    static KEPT: AtomicU64 = AtomicU64::new(0);
    let generation = (fork::generation() + 1) << 32;
    // SYNC: the word is all that threads share here.
    let mut kept = KEPT.load(Ordering::Relaxed);
    if kept & !u64::from(u32::MAX) != generation {
        let opened = File::open(MAPS).ok()?.into_raw_fd();
        let mine = generation | opened as u64;
        match KEPT.compare_exchange(kept, mine, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => kept = mine,
            Err(other) => {
                // SAFETY: it was opened here, and nothing else has the number.
                drop(unsafe { File::from_raw_fd(opened) });
                kept = other;
            }
        }
    }
    // SAFETY: a file that this process does not close.
    Some(unsafe { BorrowedFd::borrow_raw(kept as u32 as RawFd) })
}

/// By this query, or by the text where the kernel does not have it, or a sandbox refuses it.
fn permitted_with(
    query: impl Fn(BorrowedFd<'_>, usize) -> std::io::Result<Option<Mapping>>,
    range: Range<usize>,
) -> Result<Permitted, SystemError> {
    let system = |error| SystemError::new(format!("read {MAPS}"), error);
    let maps = File::open(MAPS).map_err(system)?;
    permitted_by(range.clone(), |address| query(maps.as_fd(), address)).or_else(|_refused| {
        let mut lines = BufReader::new(&maps).lines();
        permitted_by(range, |address| listed(&mut lines, address)).map_err(system)
    })
}

/// `next` returns the mapping with an address, or the first one behind it. It is asked for ascending addresses.
fn permitted_by(
    range: Range<usize>,
    mut next: impl FnMut(usize) -> std::io::Result<Option<Mapping>>,
) -> std::io::Result<Permitted> {
    let mut permitted = Permitted { readable_to: range.start, writable_to: range.start };
    let mut at = range.start;
    while at < range.end {
        let Some(mapping) = next(at)?.filter(|mapping| mapping.start <= at && at < mapping.end) else {
            break;
        };
        let end = mapping.end.min(range.end);
        if mapping.is_readable && permitted.readable_to == at {
            permitted.readable_to = end;
        }
        if mapping.is_writable && permitted.writable_to == at {
            permitted.writable_to = end;
        }
        if permitted.readable_to < end && permitted.writable_to < end {
            break;
        }
        at = end;
    }
    Ok(permitted)
}

/// The kernel's `struct procmap_query`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    mapping_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// `PROCMAP_QUERY`: `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: libc::Ioctl =
    (3 << 30 | size_of::<Query>() << 16 | (b'f' as usize) << 8 | 17) as libc::Ioctl;
const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const COVERING_OR_NEXT: u64 = 16;
const _: () = assert!(size_of::<Query>() == 104);

/// One mapping, from the kernel.
fn queried(maps: BorrowedFd<'_>, address: usize) -> std::io::Result<Option<Mapping>> {
    let mut query = Query {
        size: size_of::<Query>() as u64,
        flags: COVERING_OR_NEXT,
        address: address as u64,
        ..Query::default()
    };
    // SAFETY: the kernel reads and writes the structure, which has the size that it names; without a buffer for names it writes nothing else.
    let status = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    if status != 0 {
        let error = std::io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ENOENT) { Ok(None) } else { Err(error) };
    }
    Ok(Some(Mapping {
        start: query.start as usize,
        end: query.end as usize,
        is_readable: query.mapping_flags & READABLE != 0,
        is_writable: query.mapping_flags & WRITABLE != 0,
    }))
}

/// One mapping, from the lines that are left: `7f0000000000-7f0000001000 rw-p …`.
fn listed(
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
    address: usize,
) -> std::io::Result<Option<Mapping>> {
    for line in lines {
        if let Some(mapping) = parse(&line?)
            && mapping.end > address
        {
            return Ok(Some(mapping));
        }
    }
    Ok(None)
}

fn parse(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: number(start)?,
        end: number(end)?,
        is_readable: rest.starts_with('r'),
        is_writable: rest.as_bytes().get(1) == Some(&b'w'),
    })
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::ptr::null_mut;

    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    use super::*;
    use crate::sys::pages::page_size;

    /// Pages side by side, each with a protection of its own.
    struct Pages {
        start: usize,
        length: usize,
    }

    const ALL: MprotectFlags = MprotectFlags::READ.union(MprotectFlags::WRITE);
    const READ: MprotectFlags = MprotectFlags::READ;
    const NOTHING: MprotectFlags = MprotectFlags::empty();

    impl Pages {
        fn new(pages: &[MprotectFlags]) -> Pages {
            let length = pages.len() * page_size();
            // SAFETY: a new mapping at a place of the kernel's choice.
            let start =
                unsafe { mmap_anonymous(null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE) }.unwrap();
            for (number, protection) in pages.iter().enumerate() {
                let page = start.wrapping_byte_add(number * page_size());
                // SAFETY: a page of the new mapping, to which nothing refers.
                unsafe { mprotect(page, page_size(), *protection) }.unwrap();
            }
            Pages { start: start.addr(), length }
        }

        /// In bytes from the start on, as both sources say.
        fn permitted(&self, range: Range<usize>) -> (usize, usize) {
            let absolute = self.start + range.start..self.start + range.end;
            let answer = permitted(absolute.clone()).unwrap();
            let mut lines = BufReader::new(File::open(MAPS).unwrap()).lines();
            assert_eq!(permitted_by(absolute, |address| listed(&mut lines, address)).unwrap(), answer);
            (answer.readable_to - self.start, answer.writable_to - self.start)
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: the mapping of this value, without which nothing is left of it.
            let _ = unsafe { munmap(self.start as *mut _, self.length) };
        }
    }

    #[test]
    fn a_range_may_be_accessed_as_far_as_all_its_mappings_permit() {
        let page = page_size();
        let pages = Pages::new(&[ALL, ALL, READ, ALL, NOTHING, ALL]);
        assert_eq!(pages.permitted(0..2 * page), (2 * page, 2 * page));
        assert_eq!(pages.permitted(1..2), (2, 2));
        assert_eq!(pages.permitted(5..3 * page), (3 * page, 2 * page));
        assert_eq!(pages.permitted(5..3 * page + 1), (3 * page + 1, 2 * page));
        assert_eq!(pages.permitted(2 * page + 7..2 * page + 9), (2 * page + 9, 2 * page + 7));
        assert_eq!(pages.permitted(0..6 * page), (4 * page, 2 * page));
        assert_eq!(pages.permitted(4 * page..5 * page), (4 * page, 4 * page));
        assert_eq!(pages.permitted(5 * page..6 * page), (6 * page, 6 * page));
    }

    #[test]
    fn the_text_is_read_where_the_query_is_refused() {
        let page = page_size();
        let pages = Pages::new(&[ALL, READ]);
        for refusal in [libc::ENOTTY, libc::EPERM, libc::ENOSYS, libc::EINVAL] {
            let refuse = |_: BorrowedFd<'_>, _| Err(std::io::Error::from_raw_os_error(refusal));
            let permitted = permitted_with(refuse, pages.start..pages.start + 2 * page).unwrap();
            assert_eq!(permitted.readable_to - pages.start, 2 * page);
            assert_eq!(permitted.writable_to - pages.start, page);
        }
    }

    #[test]
    fn nothing_is_permitted_where_nothing_is_mapped() {
        let lines = ["1000-3000 rw-p 00", "4000-5000 r--s 00", "5000-6000 -w-p 00"];
        let permitted = |range| {
            let mut lines = lines.iter().map(|line| Ok((*line).to_owned()));
            let permitted = permitted_by(range, |address| listed(&mut lines, address)).unwrap();
            (permitted.readable_to, permitted.writable_to)
        };
        assert_eq!(permitted(0x1000..0x5000), (0x3000, 0x3000));
        assert_eq!(permitted(0x0fff..0x2000), (0x0fff, 0x0fff));
        assert_eq!(permitted(0x3000..0x3001), (0x3000, 0x3000));
        assert_eq!(permitted(0x4000..0x5800), (0x5000, 0x4000));
        assert_eq!(permitted(0x5000..0x5800), (0x5000, 0x5800));
        assert_eq!(permitted(0x6000..0x6001), (0x6000, 0x6000));
    }

    #[test]
    fn a_line_that_is_no_mapping_is_passed_over() {
        assert_eq!(parse("7f00-7f10 r-xp 00000000 00:00 0  [vdso]").map(|one| one.is_writable), Some(false));
        for line in ["", "7f00 rw-p", "7f00-7f10", "xyz-7f10 rw-p"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
