//! What the worker's thread and the asynchronous context share: a value that one of them holds at a time.
//!
//! The timers of an interface go on while the application does not call progress. Built on one atomic flag, and on none
//! where the handlers of the asynchronous context run inside progress: then there is only one side, which is inside or not.
//! The worker's thread may enter while it is inside, as a handler that sends does; the other side never waits: it sets
//! a flag that work is due.

use std::cell::Cell;
use std::marker::PhantomData;

use ucs::sync::atomic::{AtomicBool, Ordering};
use ucs::sync::cell::UnsafeCell;

/// A value that one side holds at a time.
pub(crate) struct Lock<T> {
    /// The other side may be another thread.
    is_contended: bool,
    held: AtomicBool,
    is_due: AtomicBool,
    /// How often the worker's thread is inside. Touched by it alone.
    depth: Cell<u32>,
    /// Whether a reference to the value exists. Used only by the side that holds the value.
    is_borrowed: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: `value` and `is_borrowed` are used only by the side that has set `held`, `depth` by the worker's thread (`enter`). Without
// contention all three are that thread's (`Lock::uncontended`).
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value is the worker's thread's.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// A guard stays in its thread.
    thread: PhantomData<*const ()>,
}

impl<T> Lock<T> {
    /// A value that is not held.
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock::of(true, value)
    }

    /// As [`Lock::new`], for less.
    ///
    /// # Safety
    /// The worker's thread is the only one that ever calls [`Lock::visit`].
    pub(crate) unsafe fn uncontended(value: T) -> Lock<T> {
        Lock::of(false, value)
    }

    fn of(is_contended: bool, value: T) -> Lock<T> {
        Lock {
            is_contended,
            held: AtomicBool::new(false),
            is_due: AtomicBool::new(false),
            depth: Cell::new(0),
            is_borrowed: Cell::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes hold, from the worker's thread; waits for the other side, which is never long inside. Nests.
    ///
    /// # Safety
    /// Only one thread ever calls this: the worker's.
    #[inline(always)]
    pub(crate) unsafe fn enter(&self) -> Guard<'_, T> {
        let depth = self.depth.get();
        if self.is_contended && depth == 0 {
            self.take();
        }
        self.depth.set(depth + 1);
        Guard { lock: self, thread: PhantomData }
    }

    /// Works on the value, as [`Guard::with`] does, if it is not held, from any thread; otherwise sets the flag of
    /// [`Lock::take_due`].
    pub(crate) fn visit<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        struct Taken<'a>(&'a AtomicBool);
        impl Drop for Taken<'_> {
            fn drop(&mut self) {
                // SYNC: as in `Guard::drop`.
                self.0.store(false, Ordering::Release);
            }
        }
        let is_free = if self.is_contended { self.is_taken() } else { self.depth.get() == 0 };
        if !is_free {
            // SYNC: a flag by itself; the work that it announces is found in the value, under the lock.
            self.is_due.store(true, Ordering::Relaxed);
            return None;
        }
        if self.is_contended {
            let _taken = Taken(&self.held);
            return Some(self.borrow(work));
        }
        // SAFETY: without contention this is the worker's thread (`Lock::uncontended`).
        let guard = unsafe { self.enter() };
        Some(guard.with(work))
    }

    /// Whether the other side found the value held since the last [`Lock::take_due`].
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        // SYNC: as in `visit`.
        self.is_due.load(Ordering::Relaxed)
    }

    /// As [`Lock::is_due`], and clears the flag.
    pub(crate) fn take_due(&self) -> bool {
        // SYNC: as in `visit`.
        self.is_due() && self.is_due.swap(false, Ordering::Relaxed)
    }

    #[inline(never)]
    fn take(&self) {
        while !self.is_taken() {
            ucs::sync::thread::yield_now();
        }
    }

    /// Takes hold if the value is not held.
    #[inline]
    fn is_taken(&self) -> bool {
        // SYNC: the Acquire pairs with the Release in `Guard::drop` and `visit`. A side that fails has read nothing, and writes nothing.
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Works on the value, which this side holds.
    #[inline(always)]
    fn borrow<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        struct Returned<'a>(&'a Cell<bool>);
        impl Drop for Returned<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        assert!(!self.is_borrowed.replace(true), "the interface's state is in use further up the stack");
        let _returned = Returned(&self.is_borrowed);
        self.value.with_mut(|value| {
            // SAFETY: this side holds the value, which both callers ensure, and the flag just set keeps out a second reference.
            work(unsafe { &mut *value })
        })
    }
}

impl<T> Guard<'_, T> {
    /// Works on the value. `work` calls nothing of the application's, which could enter again.
    #[inline(always)]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        self.lock.borrow(work)
    }

    /// How often the worker's thread is inside, this time included.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.lock.depth.get()
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.lock.depth.get() - 1;
        self.lock.depth.set(depth);
        if self.lock.is_contended && depth == 0 {
            // SYNC: pairs with the Acquire in `take` and `visit`.
            self.lock.held.store(false, Ordering::Release);
        }
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_worker_nests_and_the_other_side_leaves_word() {
        nest_and_leave_word(&Lock::new(1));
        // SAFETY: nothing leaves this test's thread.
        nest_and_leave_word(&unsafe { Lock::uncontended(1) });
    }

    fn nest_and_leave_word(lock: &Lock<i32>) {
        // SAFETY: this test's thread is the only one that enters.
        let outer = unsafe { lock.enter() };
        // SAFETY: as above.
        let inner = unsafe { lock.enter() };
        inner.with(|value| *value += 1);
        drop(inner);
        assert_eq!(lock.visit(|value| *value), None);
        outer.with(|value| *value += 1);
        drop(outer);
        assert!(lock.take_due());
        assert!(!lock.take_due(), "word is left once");
        assert_eq!(lock.visit(|value| *value), Some(3));
    }

    #[test]
    fn both_sides_see_what_the_other_has_done() {
        let lock = Arc::new(Lock::new([0u64; 2]));
        let other = Arc::clone(&lock);
        let thread = std::thread::spawn(move || {
            let mut done = 0;
            while done < 10_000 {
                let visit = other.visit(|value: &mut [u64; 2]| value.iter_mut().for_each(|half| *half += 1));
                done += u32::from(visit.is_some());
            }
        });
        for _ in 0..10_000 {
            // SAFETY: this test's thread is the only one that enters.
            let guard = unsafe { lock.enter() };
            guard.with(|value| {
                assert_eq!(value[0], value[1]);
                value.iter_mut().for_each(|half| *half += 1);
            });
        }
        thread.join().expect("the other side does not panic");
        // SAFETY: as above.
        assert_eq!(unsafe { lock.enter() }.with(|value| *value), [20_000, 20_000]);
    }

    #[test]
    #[should_panic(expected = "in use further up the stack")]
    fn a_second_reference_is_refused() {
        let lock = Lock::new(());
        // SAFETY: this test's thread is the only one that enters.
        let guard = unsafe { lock.enter() };
        guard.with(|()| guard.with(|()| ()));
    }
}
