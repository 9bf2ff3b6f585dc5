//! What the mappings of memory permit, in a child of a fork and behind a program that closes descriptors.

use std::fs::{self, File};
use std::ptr::null_mut;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
use ucs::memory::mapped::permitted;
use ucs::sys::pages::page_size;

use super::alone;

/// A page that may be read and written, until the process ends.
fn page() -> usize {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice.
    unsafe { mmap_anonymous(null_mut(), page_size(), protection, MapFlags::PRIVATE) }.unwrap().addr()
}

fn is_writable(page: usize) -> bool {
    permitted(page..page + page_size()).unwrap().writable_to == page + page_size()
}

#[test]
fn a_child_is_told_of_its_own_mappings() {
    if !alone::is_alone() {
        return;
    }
    let page = page();
    assert!(is_writable(page));
    // SAFETY: the child only changes a page that nothing refers to, asks, and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { mprotect(page as *mut _, page_size(), MprotectFlags::READ) }.unwrap();
        let is_right = !is_writable(page);
        // SAFETY: leaves without running anything else.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was made here.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was told of its parent's mappings");
    assert!(is_writable(page));
}

#[test]
fn a_program_that_closes_descriptors_is_told_the_truth() {
    if !alone::is_alone() {
        return;
    }
    let page = page();
    assert!(is_writable(page));
    let mut closed = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap) {
        if fs::read_link(entry.path()).is_ok_and(|link| link.ends_with("maps")) {
            let number = entry.file_name().to_str().unwrap().parse().unwrap();
            // SAFETY: what uses the number looks what it is.
            assert_eq!(unsafe { libc::close(number) }, 0);
            closed += 1;
        }
    }
    assert_eq!(closed, 1);
    let other = File::open("/dev/null").unwrap();
    assert!(is_writable(page));
    // SAFETY: a page that nothing refers to.
    unsafe { mprotect(page as *mut _, page_size(), MprotectFlags::READ) }.unwrap();
    assert!(!is_writable(page));
    drop(other);
}
