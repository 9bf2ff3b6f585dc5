//! A counter of operations that have ended.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Errno;
use super::waiter::Waiter;

/// Counts successes and failures, for any thread. What reads it makes progress first ([`super::Domain::progress`]).
pub struct Counter {
    value: AtomicU64,
    errors: AtomicU64,
    waiter: Option<Waiter>,
}

impl Counter {
    /// A counter at 0. One that can be waited for takes a descriptor.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn new(can_wait: bool) -> Result<Counter, Errno> {
        let waiter = if can_wait { Some(Waiter::new()?) } else { None };
        Ok(Counter { value: AtomicU64::new(0), errors: AtomicU64::new(0), waiter })
    }

    /// Operations that have succeeded.
    pub fn value(&self) -> u64 {
        // SYNC: pairs with `add`: what the operation has moved is visible to the reader.
        self.value.load(Ordering::SeqCst)
    }

    /// Operations that have failed.
    pub fn errors(&self) -> u64 {
        // SYNC: as in `value`.
        self.errors.load(Ordering::SeqCst)
    }

    /// Adds to the successes.
    pub fn add(&self, count: u64) {
        // SYNC: pairs with `value`.
        self.value.fetch_add(count, Ordering::SeqCst);
        self.notify();
    }

    /// Adds to the failures.
    pub fn add_errors(&self, count: u64) {
        // SYNC: pairs with `errors`.
        self.errors.fetch_add(count, Ordering::SeqCst);
        self.notify();
    }

    /// Sets the successes.
    pub fn set(&self, value: u64) {
        // SYNC: pairs with `value`.
        self.value.store(value, Ordering::SeqCst);
        self.notify();
    }

    /// Sets the failures.
    pub fn set_errors(&self, value: u64) {
        // SYNC: pairs with `errors`.
        self.errors.store(value, Ordering::SeqCst);
        self.notify();
    }

    /// The descriptor, readable when the counter has changed after [`Counter::arm`].
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.waiter.as_ref().map(Waiter::descriptor)
    }

    /// From now on the next change raises the descriptor. The caller reads the values once more before it sleeps.
    pub fn arm(&self) {
        if let Some(waiter) = &self.waiter {
            waiter.arm();
        }
    }

    pub(super) fn waiter(&self) -> Option<&Waiter> {
        self.waiter.as_ref()
    }

    fn notify(&self) {
        if let Some(waiter) = &self.waiter {
            waiter.notify();
        }
    }
}
