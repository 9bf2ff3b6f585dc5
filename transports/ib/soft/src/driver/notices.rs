//! Descriptors that become readable when something has happened, and what has happened.
//!
//! For completion channels and asynchronous events.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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

    /// Takes the oldest, and has it counted: no [`Notices::withdraw`] comes between the two, so that who withdraws what is
    /// about an object knows by the counts who else still uses it. Waits for one, unless the descriptor does not block.
    ///
    /// # Errors
    /// That of reading the descriptor.
    pub fn take<R>(&self, count: impl FnOnce(T) -> R) -> io::Result<R> {
        loop {
            rustix::io::read(&self.descriptor, &mut [0; 8])?;
            let mut waiting = lock(&self.waiting);
            if let Some(notice) = waiting.pop_front().flatten() {
                return Ok(count(notice));
            }
        }
    }

    /// Withdraws those of which this holds. What was taken before has been counted.
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
pub struct Acknowledgements(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// Taken, acknowledged.
    counts: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Acknowledgements {
    /// One was taken.
    pub fn take(&self) {
        lock(&self.0.counts).0 += 1;
    }

    /// So many were acknowledged.
    pub fn acknowledge(&self, count: u64) {
        // The object, and with it this, may end as soon as the count is right.
        let shared = self.0.clone();
        lock(&shared.counts).1 += count;
        shared.changed.notify_all();
    }

    /// Waits until all that were taken are acknowledged.
    pub fn wait(&self) {
        let counts = lock(&self.0.counts);
        let _all = self
            .0
            .changed
            .wait_while(counts, |counts| is_waited_for(*counts))
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// Whether not all that were taken are acknowledged.
fn is_waited_for((taken, acknowledged): (u64, u64)) -> bool {
    taken > acknowledged
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_counted_before_anybody_withdraws() {
        let notices = Notices::new().expect("a descriptor");
        notices.push(1);
        notices.push(2);
        let taken = notices.take(|notice| {
            assert!(notices.waiting.try_lock().is_err(), "others wait meanwhile");
            notice
        });
        assert_eq!(taken.expect("there are two"), 1);
        notices.withdraw(|notice| *notice == 2);
        notices.push(3);
        assert_eq!(notices.take(|notice| notice).expect("there is one more"), 3);
    }

    #[test]
    fn the_end_waits_for_what_was_taken() {
        let counts = [(0, 0), (1, 0), (2, 1), (2, 2), (1, 2)];
        assert_eq!(counts.map(is_waited_for), [false, true, true, false, false]);
        let counts = Arc::new(Acknowledgements::default());
        counts.wait();
        counts.take();
        counts.take();
        assert_eq!(*lock(&counts.0.counts), (2, 0));
        let waiting = std::thread::spawn({
            let counts = counts.clone();
            move || counts.wait()
        });
        counts.acknowledge(1);
        assert!(!waiting.is_finished());
        counts.acknowledge(1);
        waiting.join().expect("it ends");
    }
}
