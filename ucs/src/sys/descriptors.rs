//! How many descriptors the process may have, and how many of them are left.
//!
//! Used by listeners, which leave some to the application. Built on `getrlimit`.

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Resource, getrlimit};

use crate::event_set::EventFd;

/// How many the process may have.
pub fn limit() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
}

/// How many may be opened beside those that are open, as far as the lowest number that is free tells.
pub fn left() -> usize {
    let free = EventFd::new().map_or(usize::MAX, |fd| usize::try_from(fd.as_fd().as_raw_fd()).unwrap_or(0));
    limit().saturating_sub(free)
}

/// Whether one that was just opened is among the last `reserved` that the process may have. The system gives the lowest number that is free.
pub fn is_among_last(descriptor: impl AsFd, reserved: u32) -> bool {
    let number = usize::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0);
    number >= limit().saturating_sub(reserved as usize)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_among_the_last_if_so_many_are_reserved() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let reserved = |free: usize| u32::try_from(limit() - free).unwrap_or(u32::MAX);
        let number = usize::try_from(file.as_raw_fd()).unwrap();
        assert!(is_among_last(&file, reserved(number)));
        assert!(!is_among_last(&file, 0));
        assert!((1..=limit() - 3).contains(&left()));
    }
}
