//! A descriptor that tells a sleeping program that there is something to read.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use ucs::event_set::EventFd;

use super::Errno;

/// The descriptor of a queue or a counter. It is raised at most once for each time that a sleeper has armed it.
pub(super) struct Waiter {
    event: EventFd,
    is_armed: AtomicBool,
    is_signaled: AtomicBool,
}

impl Waiter {
    pub(super) fn new() -> Result<Waiter, Errno> {
        let event = EventFd::new().map_err(|_| Errno(libc::EMFILE))?;
        Ok(Waiter { event, is_armed: AtomicBool::new(false), is_signaled: AtomicBool::new(false) })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// From now on what is added raises the descriptor. The caller looks once more before it sleeps.
    pub(super) fn arm(&self) {
        self.event.drain();
        // SYNC: pairs with `notify`: either that one sees the flag, or the caller's next look sees what it has added.
        self.is_armed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Something was added.
    #[inline]
    pub(super) fn notify(&self) {
        fence(Ordering::SeqCst);
        // SYNC: pairs with `arm`.
        if self.is_armed.load(Ordering::SeqCst) && self.is_armed.swap(false, Ordering::SeqCst) {
            self.event.signal();
        }
    }

    /// Ends the next sleep, or this one, though there is nothing.
    pub(super) fn signal(&self) {
        // SYNC: pairs with `take_signal`; the descriptor orders them.
        self.is_signaled.store(true, Ordering::SeqCst);
        self.event.signal();
    }

    /// Whether the sleep was ended by [`Waiter::signal`].
    pub(super) fn take_signal(&self) -> bool {
        // SYNC: pairs with `signal`.
        self.is_signaled.swap(false, Ordering::SeqCst)
    }

    /// Sleeps until the descriptor is readable, an interruption, or the end of the time.
    pub(super) fn sleep(&self, limit: Option<std::time::Duration>) {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut watched = [PollFd::new(&self.event, PollFlags::IN)];
        // After an interruption the caller looks and sleeps again.
        let _ = poll(&mut watched, limit.as_ref());
    }
}
