//! Deadlines of many connections behind one timer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};

use ucs::clock::Deadline;
use ucs::event_set::TimerFd;
use ucs::sys::SystemError;

/// Deadlines by the number of their owner, and a descriptor that is readable when one is over.
pub struct Deadlines {
    timer: TimerFd,
    due: RefCell<BTreeSet<(Deadline, usize)>>,
    /// What the timer is set to.
    set: Cell<Deadline>,
}

impl Deadlines {
    /// None.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn new() -> Result<Deadlines, SystemError> {
        Ok(Deadlines { timer: TimerFd::new()?, due: RefCell::default(), set: Cell::new(Deadline::NEVER) })
    }

    /// Replaces a deadline of an owner; [`Deadline::NEVER`] is none.
    pub fn replace(&self, owner: usize, old: Deadline, new: Deadline) {
        let mut due = self.due.borrow_mut();
        due.remove(&(old, owner));
        if new != Deadline::NEVER {
            due.insert((new, owner));
        }
        drop(due);
        self.adjust();
    }

    /// Takes an owner whose deadline is over.
    pub fn take(&self) -> Option<usize> {
        let mut due = self.due.borrow_mut();
        let &(deadline, owner) = due.first()?;
        if !deadline.expired() {
            return None;
        }
        due.pop_first();
        Some(owner)
    }

    /// After the timer was due: it is set for what comes next.
    pub fn rearm(&self) {
        self.timer.drain();
        self.set.set(Deadline::NEVER);
        self.adjust();
    }

    /// Whether the timer was due.
    pub fn is_due(&self) -> bool {
        self.set.get().expired()
    }

    fn adjust(&self) {
        let first = self.due.borrow().first().map_or(Deadline::NEVER, |&(deadline, _)| deadline);
        // A timer that is early finds nothing, and is set again then.
        if first >= self.set.get() {
            return;
        }
        self.set.set(first);
        if let Err(error) = self.timer.set(first.remaining()) {
            ucs::log::warn!(%error, "rdmacm: the timer of deadlines cannot be set");
        }
    }
}

impl AsFd for Deadlines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_over_is_taken_in_order_and_what_is_replaced_is_not() {
        let deadlines = Deadlines::new().expect("a timer");
        let now = Deadline::after(Duration::ZERO);
        let later = Deadline::after(Duration::from_secs(1000));
        deadlines.replace(1, Deadline::NEVER, later);
        deadlines.replace(2, Deadline::NEVER, now);
        deadlines.replace(3, Deadline::NEVER, now);
        deadlines.replace(2, now, later);
        while !deadlines.is_due() {
            std::thread::yield_now();
        }
        assert_eq!(deadlines.take(), Some(3));
        assert_eq!(deadlines.take(), None);
        deadlines.rearm();
        assert!(!deadlines.is_due());
        deadlines.replace(1, later, Deadline::NEVER);
        deadlines.replace(2, later, Deadline::NEVER);
        assert!(deadlines.due.borrow().is_empty());
    }
}
