//! What the worker's thread and the asynchronous context share: a value that one of them has at a time.
//!
//! For: the interface, whose timers go on while the application does not call progress. Stands on one atomic flag.
//! The worker's thread may enter while it is inside, as a handler that sends does; the other side never waits: it leaves
//! word that there is something to do.

use std::cell::Cell;
use std::marker::PhantomData;

use ucs::sync::atomic::{AtomicBool, Ordering};
use ucs::sync::cell::UnsafeCell;

/// A value of which one side has hold at a time.
pub(crate) struct Shared<T> {
    held: AtomicBool,
    is_due: AtomicBool,
    /// How often the worker's thread is inside. Touched by it alone.
    depth: Cell<u32>,
    /// Whether a reference to the value exists. Touched by whoever holds.
    is_borrowed: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: `value` and `is_borrowed` are touched by whoever has set `held`, `depth` by the worker's thread (`enter`).
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The value is this side's.
pub(crate) struct Guard<'a, T> {
    shared: &'a Shared<T>,
    is_worker: bool,
    /// A guard stays in its thread.
    thread: PhantomData<*const ()>,
}

impl<T> Shared<T> {
    /// A value that nobody holds.
    pub(crate) fn new(value: T) -> Shared<T> {
        Shared {
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
        if depth == 0 {
            self.take();
        }
        self.depth.set(depth + 1);
        Guard { shared: self, is_worker: true, thread: PhantomData }
    }

    /// Takes hold if nobody has, from any thread; otherwise leaves word for [`Shared::take_due`].
    pub(crate) fn try_enter(&self) -> Option<Guard<'_, T>> {
        if !self.is_taken() {
            // SYNC: a flag by itself; what it asks for is found in the value, under the lock.
            self.is_due.store(true, Ordering::Relaxed);
            return None;
        }
        Some(Guard { shared: self, is_worker: false, thread: PhantomData })
    }

    /// Whether the other side found the value held since the last call.
    #[inline(always)]
    pub(crate) fn take_due(&self) -> bool {
        // SYNC: as in `try_enter`. Two steps, so that the usual "no" writes nothing.
        self.is_due.load(Ordering::Relaxed) && self.is_due.swap(false, Ordering::Relaxed)
    }

    #[inline(always)]
    fn take(&self) {
        while !self.is_taken() {
            ucs::sync::thread::yield_now();
        }
    }

    /// Takes hold if nobody has.
    #[inline(always)]
    fn is_taken(&self) -> bool {
        // SYNC: the Acquire pairs with the Release in `Guard::drop`. Who fails has seen nothing, and writes nothing.
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl<T> Guard<'_, T> {
    /// Works on the value. `work` calls nobody who might come here again: nothing of the application's.
    #[inline(always)]
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        struct Returned<'a>(&'a Cell<bool>);
        impl Drop for Returned<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        assert!(
            !self.shared.is_borrowed.replace(true),
            "the interface's state is in use further up the stack"
        );
        let _returned = Returned(&self.shared.is_borrowed);
        self.shared.value.with_mut(|value| {
            // SAFETY: this side holds the value (a guard exists), and the flag just set keeps out a second reference.
            work(unsafe { &mut *value })
        })
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_worker {
            let depth = self.shared.depth.get() - 1;
            self.shared.depth.set(depth);
            if depth != 0 {
                return;
            }
        }
        // SYNC: pairs with the Acquire in `take` and `try_enter`.
        self.shared.held.store(false, Ordering::Release);
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
        let shared = Shared::new(1);
        // SAFETY: this test's thread is the only one that enters.
        let outer = unsafe { shared.enter() };
        // SAFETY: as above.
        let inner = unsafe { shared.enter() };
        inner.with(|value| *value += 1);
        drop(inner);
        assert!(shared.try_enter().is_none());
        outer.with(|value| *value += 1);
        drop(outer);
        assert!(shared.take_due());
        assert!(!shared.take_due(), "word is left once");
        assert_eq!(shared.try_enter().expect("free").with(|value| *value), 3);
    }

    #[test]
    fn both_sides_see_what_the_other_has_done() {
        let shared = Arc::new(Shared::new([0u64; 2]));
        let other = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let mut done = 0;
            while done < 10_000 {
                if let Some(guard) = other.try_enter() {
                    done += 1;
                    guard.with(|value| value.iter_mut().for_each(|half| *half += 1));
                }
            }
        });
        for _ in 0..10_000 {
            // SAFETY: this test's thread is the only one that enters.
            let guard = unsafe { shared.enter() };
            guard.with(|value| {
                assert_eq!(value[0], value[1]);
                value.iter_mut().for_each(|half| *half += 1);
            });
        }
        thread.join().expect("the other side does not panic");
        // SAFETY: as above.
        assert_eq!(unsafe { shared.enter() }.with(|value| *value), [20_000, 20_000]);
    }

    #[test]
    #[should_panic(expected = "in use further up the stack")]
    fn a_second_reference_is_refused() {
        let shared = Shared::new(());
        // SAFETY: this test's thread is the only one that enters.
        let guard = unsafe { shared.enter() };
        guard.with(|()| guard.with(|()| ()));
    }
}
