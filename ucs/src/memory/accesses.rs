//! Accesses to memory whose owner may take it back at any time: the owner waits for those in flight.
//!
//! For registered memory, which one thread accesses while another ends the registration. Built on the barrier of `barrier.rs`. Each
//! accessor has a counter of its own, odd while it accesses, which costs it two plain stores; the rest is paid by the owner:
//!
//! ```text
//! accessor                                    owner
//! counter = odd            (Section::enter)   registration is not live any more
//! light barrier                               heavy barrier                        (Accesses::wait_for_all)
//! is the registration live? if so, access     every counter that is odd: wait until it changes
//! counter = even           (dropped)          the memory is the owner's alone
//! ```
//!
//! One of the two sees what the other has stored. So a section must be short: it copies, or makes system calls that do not block, and
//! nothing of an application's runs in it, which could end a registration itself and would wait for itself.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::barrier::{self, Among};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, fixed, hint, thread};

/// The counters of all that access some memory.
#[derive(Debug)]
pub struct Accesses {
    /// By a number of the caller's.
    counters: Mutex<BTreeMap<usize, Entry>>,
}

/// A counter, and the process whose threads write to it: in a child of a fork it never changes.
#[derive(Debug)]
struct Entry {
    counter: NonNull<AtomicU64>,
    process: u32,
}

// SAFETY: atomics are for all threads, and `Accesses::add` was promised that this one is there.
unsafe impl Send for Entry {}

/// An access in flight. It ends when this is dropped.
#[derive(Debug)]
pub struct Section<'a> {
    counter: &'a AtomicU64,
    /// It ends in the thread in which it has begun.
    thread: PhantomData<*const ()>,
}

/// Reads of a counter in a row without a pause, then with the processor given up in between, then with a sleep.
const SPINS: u32 = 100;
const YIELDS: u32 = 1000;

impl Default for Accesses {
    fn default() -> Accesses {
        Accesses { counters: Mutex::new(BTreeMap::new()) }
    }
}

impl Accesses {
    /// Counts the accesses of one more accessor, which has a number of its own.
    ///
    /// # Safety
    /// The counter is valid until [`Accesses::remove`] has returned, or for ever. It is even now.
    pub unsafe fn add(&self, number: usize, counter: NonNull<AtomicU64>) {
        self.lock().insert(number, Entry { counter, process: std::process::id() });
    }

    /// Forgets an accessor, which does not access anything any more.
    pub fn remove(&self, number: usize) {
        self.lock().remove(&number);
    }

    /// Waits for all accesses that have begun before the caller made them impossible. Not to be called inside a [`Section`], which would
    /// wait for itself.
    pub fn wait_for_all(&self) {
        debug_assert!(
            !nested::is_inside(),
            "a registration ends inside of an access, and would wait for it for ever"
        );
        // Held to the end: what is removed meanwhile waits for us, and its counter stays valid. The lock is never taken in a section.
        let counters = self.lock();
        if counters.is_empty() {
            return;
        }
        if !barrier::heavy(Among::Threads) && barrier::is_registered(Among::Threads) {
            // The kernel has made such barriers and now refuses: something forbids it. What a processor has stored reaches the
            // others within microseconds all the same.
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        for entry in counters.values() {
            entry.wait();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Entry>> {
        self.counters.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Entry {
    /// Waits until the access in flight has ended, if one is.
    fn wait(&self) {
        // SAFETY: `Accesses::add` was promised that it is valid while the entry is there.
        let counter = unsafe { self.counter.as_ref() };
        // SYNC: pairs with the Release at the end of a section: what was accessed is accessed no more.
        let seen = counter.load(Ordering::Acquire);
        if seen.is_multiple_of(2) || self.process != std::process::id() {
            return;
        }
        let mut looks = 0;
        // SYNC: as above.
        while counter.load(Ordering::Acquire) == seen {
            match looks {
                ..SPINS if cfg!(not(loom)) => hint::spin_loop(),
                ..YIELDS => thread::yield_now(),
                // Of another priority, or stopped.
                _ => pause(),
            }
            looks = looks.saturating_add(1);
        }
    }
}

#[cfg(not(loom))]
fn pause() {
    std::thread::sleep(std::time::Duration::from_micros(50));
}

#[cfg(loom)]
fn pause() {
    thread::yield_now();
}

impl<'a> Section<'a> {
    /// Begins an access; `fenced` unless the process has registered for [`Among::Threads`]. What is accessed has to be looked up, and
    /// found live, afterwards.
    ///
    /// # Panics
    /// In another access that is counted by the same counter.
    ///
    /// # Safety
    /// One thread at a time uses the counter.
    #[inline]
    pub unsafe fn enter(counter: &'a AtomicU64, fenced: bool) -> Section<'a> {
        // SYNC: no other thread writes.
        let before = counter.load(Ordering::Relaxed);
        if !before.is_multiple_of(2) {
            refuse();
        }
        // SYNC: the barrier below orders it with what the caller reads next; it pairs with the one in `Accesses::wait_for_all`. The Release is
        // for an owner that waits for the access before this one, and sees this.
        counter.store(before.wrapping_add(1), Ordering::Release);
        if fenced {
            barrier::full();
        } else {
            barrier::light();
        }
        nested::enter();
        Section { counter, thread: PhantomData }
    }
}

impl Drop for Section<'_> {
    #[inline]
    fn drop(&mut self) {
        nested::leave();
        // SYNC: no other thread writes; the Release pairs with the Acquire in `Entry::wait`.
        self.counter.store(self.counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

/// Has `access` access memory whose registration lives, which is while `live` holds `value`; `None` if it has ended.
///
/// As a [`Section`] that is not fenced, for an access that may be so short that the checks of one would be most of it. One thread at
/// a time uses the counter, and `access` neither panics nor begins an access with the same counter: the owner would wait for ever.
#[inline]
pub fn access_while_live<T>(
    counter: &impl Word,
    live: &impl Word,
    value: u64,
    access: impl FnOnce() -> T,
) -> Option<T> {
    count(counter);
    barrier::light();
    // SYNC: pairs with the store that ends the registration, in this process or another. Its owner waits behind a heavy barrier
    // until the counter is even.
    let result = (live.load(Ordering::Acquire) == value).then(access);
    count(counter);
    result
}

#[inline]
fn count(counter: &impl Word) {
    // SYNC: no other thread writes. The Release pairs with the Acquire in `Entry::wait`.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
}

/// An atomic word: one that crosses the boundary to a plugin, or that of a model.
pub trait Word {
    /// Its value.
    fn load(&self, order: Ordering) -> u64;
    /// Changes it.
    fn store(&self, value: u64, order: Ordering);
}

impl Word for fixed::AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
}

#[cold]
#[inline(never)]
fn refuse() -> ! {
    panic!("an access to registered memory inside of another one");
}

/// Whether this thread is inside of a section; looked at in debug builds alone.
#[cfg(all(debug_assertions, not(loom)))]
mod nested {
    use std::cell::Cell;

    thread_local! {
        static SECTIONS: Cell<u32> = const { Cell::new(0) };
    }

    pub(super) fn enter() {
        SECTIONS.set(SECTIONS.get() + 1);
    }

    pub(super) fn leave() {
        SECTIONS.set(SECTIONS.get() - 1);
    }

    pub(super) fn is_inside() -> bool {
        SECTIONS.get() > 0
    }
}

#[cfg(not(all(debug_assertions, not(loom))))]
mod nested {
    #[inline]
    pub(super) fn enter() {}

    #[inline]
    pub(super) fn leave() {}

    pub(super) fn is_inside() -> bool {
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    fn accesses(counter: &AtomicU64) -> Accesses {
        barrier::register(Among::Threads);
        let accesses = Accesses::default();
        // SAFETY: every test's counter outlives the value.
        unsafe { accesses.add(1, NonNull::from(counter)) };
        accesses
    }

    /// A section of a counter that no other thread uses.
    fn enter(counter: &AtomicU64) -> Section<'_> {
        // SAFETY: as each test says by its threads.
        unsafe { Section::enter(counter, !barrier::is_registered(Among::Threads)) }
    }

    #[test]
    fn the_owner_waits_for_the_access_that_is_under_way_and_for_nothing_else() {
        let counter = AtomicU64::new(0);
        let accesses = accesses(&counter);
        accesses.wait_for_all();
        let (begun, wait) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let (settled, is_settled) = mpsc::channel();
        std::thread::scope(|threads| {
            let counter = &counter;
            threads.spawn(move || {
                let section = enter(counter);
                begun.send(()).unwrap();
                ended.recv().unwrap();
                drop(section);
            });
            wait.recv().unwrap();
            let accesses = &accesses;
            threads.spawn(move || {
                accesses.wait_for_all();
                settled.send(()).unwrap();
            });
            assert!(is_settled.recv_timeout(Duration::from_millis(50)).is_err(), "it did not wait");
            end.send(()).unwrap();
            is_settled.recv_timeout(Duration::from_secs(60)).expect("it waits for an access that has ended");
        });
        accesses.wait_for_all();
    }

    #[test]
    fn an_accessor_that_always_accesses_does_not_keep_the_owner() {
        let counter = AtomicU64::new(0);
        let accesses = accesses(&counter);
        let is_over = crate::sync::fixed::AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _section = enter(&counter);
                    std::thread::yield_now();
                }
            });
            for _ in 0..if cfg!(miri) { 10 } else { 1000 } {
                accesses.wait_for_all();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_panic_ends_the_access_and_one_inside_of_another_is_refused() {
        let counter = AtomicU64::new(0);
        let accesses = accesses(&counter);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _outer = enter(&counter);
            let _inner = enter(&counter);
        }));
        assert!(result.is_err());
        accesses.wait_for_all();
        drop(enter(&counter));
        assert_eq!(counter.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn an_access_of_few_instructions_is_waited_for_and_none_begins_after_the_end() {
        let (counter, live) = (AtomicU64::new(0), AtomicU64::new(7));
        let accesses = accesses(&counter);
        let (begun, wait) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let (settled, is_settled) = mpsc::channel();
        std::thread::scope(|threads| {
            let (counter, live) = (&counter, &live);
            threads.spawn(move || {
                let accessed = access_while_live(counter, live, 7, || {
                    begun.send(()).unwrap();
                    ended.recv().unwrap();
                    1
                });
                assert_eq!(accessed, Some(1));
            });
            wait.recv().unwrap();
            let accesses = &accesses;
            threads.spawn(move || {
                live.store(0, Ordering::Release);
                accesses.wait_for_all();
                settled.send(()).unwrap();
            });
            assert!(is_settled.recv_timeout(Duration::from_millis(50)).is_err(), "it did not wait");
            end.send(()).unwrap();
            is_settled.recv_timeout(Duration::from_secs(60)).expect("it waits for an access that has ended");
        });
        assert_eq!(access_while_live(&counter, &live, 7, || 2), None);
        accesses.wait_for_all();
        assert_eq!(counter.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn an_accessor_that_is_gone_and_one_of_another_process_are_not_waited_for() {
        let counter = AtomicU64::new(1);
        let accesses = accesses(&counter);
        accesses.lock().get_mut(&1).unwrap().process ^= 1 << 30;
        accesses.wait_for_all();
        accesses.remove(1);
        accesses.wait_for_all();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn the_end_of_a_registration_inside_of_an_access_is_noticed() {
        let counter = AtomicU64::new(0);
        let accesses = Accesses::default();
        let _section = enter(&counter);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| accesses.wait_for_all()));
        assert!(result.is_err());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::cell::UnsafeCell;
    use loom::sync::Arc;

    /// Memory with an owner.
    struct Shared {
        live: AtomicU64,
        memory: UnsafeCell<u64>,
        counters: [AtomicU64; 2],
        accesses: Accesses,
    }

    // SAFETY: loom watches the cell.
    unsafe impl Sync for Shared {}

    impl Word for AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }

        fn store(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }
    }

    impl Shared {
        fn new(accessors: usize) -> Arc<Shared> {
            let shared = Arc::new(Shared {
                live: AtomicU64::new(1),
                memory: UnsafeCell::new(0),
                counters: [AtomicU64::new(0), AtomicU64::new(0)],
                accesses: Accesses::default(),
            });
            for (number, counter) in shared.counters.iter().enumerate().take(accessors) {
                // SAFETY: they live as long as `accesses`.
                unsafe { shared.accesses.add(number, NonNull::from(counter)) };
            }
            shared
        }

        fn access(&self, accessor: usize, fenced: bool) {
            // SAFETY: each accessor is one thread's.
            let _section = unsafe { Section::enter(&self.counters[accessor], fenced) };
            if self.live.load(Ordering::Acquire) == 1 {
                // SAFETY: the model shows that no thread writes meanwhile. Reading is enough for loom to notice.
                self.memory.with(|memory| unsafe { memory.read() });
            }
        }

        /// As a host accesses a word through a window.
        fn access_word(&self, accessor: usize) {
            access_while_live(&self.counters[accessor], &self.live, 1, || {
                // SAFETY: as in `access`.
                self.memory.with(|memory| unsafe { memory.read() });
            });
        }

        fn end(&self) {
            self.live.store(0, Ordering::Release);
            self.accesses.wait_for_all();
            // SAFETY: it is not accessed any more, which loom checks.
            self.memory.with_mut(|memory| unsafe { memory.write(1) });
        }
    }

    #[test]
    fn nobody_accesses_memory_whose_registration_has_ended() {
        loom::model(|| {
            let shared = Shared::new(1);
            let accessor = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                accessor.access(0, false);
                accessor.access(0, false);
            });
            shared.end();
            thread.join().unwrap();
        });
    }

    #[test]
    fn nobody_accesses_it_where_accessors_make_the_barrier() {
        loom::model(|| {
            let shared = Shared::new(1);
            let accessor = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || accessor.access(0, true));
            shared.end();
            thread.join().unwrap();
        });
    }

    #[test]
    fn nobody_accesses_a_word_whose_registration_has_ended() {
        loom::model(|| {
            let shared = Shared::new(1);
            let accessor = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                accessor.access_word(0);
                accessor.access_word(0);
            });
            shared.end();
            thread.join().unwrap();
        });
    }

    #[test]
    fn an_access_to_a_word_and_a_longer_one_are_both_waited_for() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Shared::new(2);
            let [word, section] = [Arc::clone(&shared), Arc::clone(&shared)];
            let threads = [
                loom::thread::spawn(move || word.access_word(0)),
                loom::thread::spawn(move || section.access(1, false)),
            ];
            shared.end();
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    #[test]
    fn two_accessors_are_both_waited_for() {
        // All interleavings of three threads are too many.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Shared::new(2);
            let threads = [0, 1].map(|number| {
                let accessor = Arc::clone(&shared);
                loom::thread::spawn(move || accessor.access(number, false))
            });
            shared.end();
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    #[test]
    fn an_accessor_that_is_added_late_finds_the_registration_ended() {
        loom::model(|| {
            let shared = Shared::new(0);
            let accessor = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                // SAFETY: as in `new`.
                unsafe { accessor.accesses.add(0, NonNull::from(&accessor.counters[0])) };
                accessor.access(0, false);
                accessor.accesses.remove(0);
            });
            shared.end();
            thread.join().unwrap();
        });
    }
}
