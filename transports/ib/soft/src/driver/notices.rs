//! Descriptors that become readable when something has happened, and what has happened.
//!
//! For completion channels and asynchronous events.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// What has happened, one readable count each.
pub struct Notices<T> {
    descriptor: OwnedFd,
    /// One that was withdrawn leaves its place, since its count cannot be taken back.
    waiting: Mutex<VecDeque<Option<T>>>,
}

impl<T> Notices<T> {
    /// None yet.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Notices<T>> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
        Ok(Notices { descriptor, waiting: Mutex::default() })
    }

    /// Readable while there is one.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Adds one.
    pub fn push(&self, notice: T) {
        lock(&self.waiting).push_back(Some(notice));
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }

    /// Takes the oldest. Waits for one, unless the descriptor does not block.
    ///
    /// # Errors
    /// That of reading the descriptor.
    pub fn take(&self) -> io::Result<T> {
        loop {
            rustix::io::read(&self.descriptor, &mut [0; 8])?;
            if let Some(notice) = lock(&self.waiting).pop_front().flatten() {
                return Ok(notice);
            }
        }
    }

    /// Withdraws those of which this holds.
    pub fn withdraw(&self, of: impl Fn(&T) -> bool) {
        for notice in lock(&self.waiting).iter_mut() {
            if notice.as_ref().is_some_and(&of) {
                *notice = None;
            }
        }
    }
}

/// Counts of what was taken and acknowledged of one object, which does not end before the two are the same.
#[derive(Default)]
pub struct Acknowledgements {
    counts: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Acknowledgements {
    /// One was taken.
    pub fn take(&self) {
        lock(&self.counts).0 += 1;
    }

    /// So many were acknowledged.
    pub fn acknowledge(&self, count: u64) {
        lock(&self.counts).1 += count;
        self.changed.notify_all();
    }

    /// Waits until all that were taken are acknowledged.
    pub fn wait(&self) {
        let counts = lock(&self.counts);
        let _all = self
            .changed
            .wait_while(counts, |counts| counts.0 > counts.1)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
