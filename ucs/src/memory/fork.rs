//! Noticing that the process has forked.
//!
//! For objects that a child must not use, because their sockets, rings and device contexts belong to the
//! parent: each keeps a [`ForkGuard`] and returns an error. Built on `MADV_WIPEONFORK`, or on the
//! process number where the kernel lacks it.
//!
//! The mark is a page that the kernel gives to a child as zeroes. A check costs a load, no handler has to
//! be registered, and it works for every way of forking that copies memory. `vfork` and threads
//! share memory and are no forks here.

use std::ptr::NonNull;
use std::sync::OnceLock;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::sync::fixed::{AtomicU64, Ordering};
use crate::sys::pages;

/// How many forks are between the first process that called this and this one, or more.
///
/// Equal numbers mean the same process. The first call maps a page.
#[inline]
pub fn generation() -> u64 {
    match mark() {
        Some(mark) => generation_by_mark(mark),
        None => generation_by_process(),
    }
}

/// Remembers the process in which something was made.
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard {
    generation: u64,
    /// The mark, cached; where there is none, a word that never matches.
    mark: &'static AtomicU64,
}

/// Something was used in a child that its parent had made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this object was made before the process forked and belongs to the parent: make a new one in the child"
)]
pub struct Forked;

impl ForkGuard {
    /// A guard for something that is made now.
    pub fn new() -> ForkGuard {
        static NO_MARK: AtomicU64 = AtomicU64::new(0);
        ForkGuard { generation: generation(), mark: mark().unwrap_or(&NO_MARK) }
    }

    /// Whether this is still the process in which the guard was made. A load and a comparison.
    #[inline]
    pub fn check(&self) -> Result<(), Forked> {
        // Relaxed: as in `generation_by_mark`.
        if self.mark.load(Ordering::Relaxed) == self.generation + 1 { Ok(()) } else { self.check_slowly() }
    }

    #[cold]
    #[inline(never)]
    fn check_slowly(&self) -> Result<(), Forked> {
        if generation() == self.generation { Ok(()) } else { Err(Forked) }
    }
}

impl Default for ForkGuard {
    fn default() -> ForkGuard {
        ForkGuard::new()
    }
}

impl From<Forked> for crate::Error {
    fn from(_: Forked) -> crate::Error {
        crate::Error::INVALID_PARAM
    }
}

/// The highest generation that was ever given out; copied by a fork, unlike the mark.
static LAST: AtomicU64 = AtomicU64::new(0);

/// The word in the wiped page: the generation plus one, or zero in a child that has not looked yet.
fn mark() -> Option<&'static AtomicU64> {
    static MARK: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    *MARK.get_or_init(map_mark)
}

fn map_mark() -> Option<&'static AtomicU64> {
    // SAFETY: the page is never unmapped, zeroed, aligned, and accessed through this reference only.
    let mark = unsafe { AtomicU64::from_ptr(wiped_page()?.as_ptr().cast()) };
    mark.store(LAST.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    Some(mark)
}

/// A new page of zeroes that is one again in each child, and never unmapped; `None` where the kernel has no such thing.
pub(super) fn wiped_page() -> Option<NonNull<u8>> {
    // Miri has no madvise.
    if cfg!(miri) {
        return None;
    }
    let (length, protection) = (pages::page_size(), ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the page is ours and holds nothing yet. If the kernel knows no such advice, the page stays
    // unused.
    unsafe { madvise(page, length, Advice::LinuxWipeOnFork) }.ok()?;
    NonNull::new(page.cast())
}

fn generation_by_mark(mark: &AtomicU64) -> u64 {
    loop {
        // Relaxed: all threads of a child find zero or a generation, and no other data depends on which.
        let seen = mark.load(Ordering::Relaxed);
        if seen != 0 {
            return seen - 1;
        }
        // Counted before it is marked: a child of this child that is forked in between takes a higher number.
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = mark.compare_exchange(0, next + 1, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn generation_by_process() -> u64 {
    /// The process number of the last call in the upper half, the generation in the lower.
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let process = u64::from(std::process::id());
    let update = |seen: u64| {
        let (last_process, generation) = (seen >> 32, seen & u64::from(u32::MAX));
        let is_child = last_process != 0 && last_process != process;
        Some(process << 32 | (generation + u64::from(is_child)) & u64::from(u32::MAX))
    };
    // The closure always returns, so both arms hold the value before the update.
    let (Ok(before) | Err(before)) = SEEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
    update(before).unwrap_or(before) & u64::from(u32::MAX)
}

/// Runs `check` in a forked child; returns whether it held there.
#[cfg(test)]
pub(crate) fn in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `check`, which takes no lock that another thread may hold, but for the allocator's, which the C
    // library keeps usable, and ends without running destructors.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        // A watchdog of the child's own: the kernel ends it.
        // SAFETY: arms a timer of this child; it has no other effect.
        unsafe { libc::alarm(10) };
        let code = i32::from(!check());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above, which ends within its alarm, and writes one integer.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending_work::{PendingWork, WorkSource};

    #[test]
    fn a_child_and_its_child_are_generations_of_their_own_and_the_parent_stays() {
        let guard = ForkGuard::new();
        assert!(guard.check().is_ok());
        assert!(in_child(|| {
            let in_child_guard = ForkGuard::new();
            let stable = in_child_guard.check().is_ok() && guard.check() == Err(Forked);
            stable && in_child(|| guard.check() == Err(Forked) && in_child_guard.check() == Err(Forked))
        }));
        assert!(guard.check().is_ok());
        assert!(!in_child(|| guard.check().is_ok()), "the check cannot fail");
    }

    #[test]
    fn pending_work_is_never_empty_in_a_child_whatever_is_added_and_removed() {
        let pending_work = PendingWork::new();
        assert!(pending_work.is_empty());
        assert!(in_child(|| {
            let before = pending_work.is_empty();
            pending_work.add(WorkSource::Owner);
            pending_work.remove(WorkSource::Owner);
            !before && !pending_work.is_empty()
        }));
        assert!(pending_work.is_empty(), "the parent's own is as it was");
    }

    #[test]
    fn the_fallback_notices_a_fork_too() {
        let before = generation_by_process();
        assert_eq!(generation_by_process(), before);
        assert!(in_child(|| generation_by_process() != before));
        assert_eq!(generation_by_process(), before);
    }

    #[test]
    fn a_guard_is_two_words_and_its_error_says_what_to_do() {
        assert_eq!(size_of::<ForkGuard>(), 16);
        assert!(Forked.to_string().contains("make a new one in the child"));
        assert_eq!(crate::Error::from(Forked), crate::Error::INVALID_PARAM);
    }
}
