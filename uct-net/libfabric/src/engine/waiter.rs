//! A descriptor that tells a sleeping program that there is something to read.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use ucs::event_set::EventFd;

use super::Errno;

/// The descriptor of a queue or a counter. It is raised at most once for each time that a sleeper has armed it.
pub(super) struct Waiter {
    event: EventFd,
    is_armed: AtomicBool,
    is_signaled: AtomicBool,
    /// Of threads that wait in a net.
    wakers: Mutex<Vec<Waker>>,
}

impl Waiter {
    pub(super) fn new() -> Result<Waiter, Errno> {
        let event = EventFd::new().map_err(|_| Errno(libc::EMFILE))?;
        Ok(Waiter {
            event,
            is_armed: AtomicBool::new(false),
            is_signaled: AtomicBool::new(false),
            wakers: Mutex::default(),
        })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// As [`Waiter::arm`], for a thread that is woken in place of the descriptor.
    pub(super) fn arm_with(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        drop(wakers);
        // SYNC: as in `arm`.
        self.is_armed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
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
            self.wake();
        }
    }

    /// Ends the next sleep, or this one, though there is nothing.
    pub(super) fn signal(&self) {
        // SYNC: pairs with `take_signal`; the descriptor orders them.
        self.is_signaled.store(true, Ordering::SeqCst);
        self.wake();
    }

    #[cold]
    fn wake(&self) {
        self.event.signal();
        let wakers = std::mem::take(&mut *self.wakers.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether the sleep was ended by [`Waiter::signal`].
    pub(super) fn take_signal(&self) -> bool {
        // SYNC: pairs with `signal`.
        self.is_signaled.swap(false, Ordering::SeqCst)
    }
}
