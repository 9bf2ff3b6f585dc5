//! What runs code of the application, and so is done outside of the engine's lock: wakers are woken and dropped, and its subscriber of `tracing` gets
//! what was logged inside.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Wake, Waker};

use smallvec::SmallVec;
use ucs::log::{Later, Postponing};

use super::lock::lock;
use crate::local::span::in_current;
use crate::wake::{guarded, wake};

/// What a thread leaves to be done after it has left the engine.
#[derive(Default)]
pub(crate) struct Outside {
    /// The thread that holds the engine's lock; 0 if none does.
    holder: AtomicUsize,
    has_some: AtomicBool,
    left: Mutex<Left>,
    lines: Mutex<Lines>,
}

/// All of them, to find the one whose lock a thread that logs holds.
static ALL: Mutex<Vec<Weak<Outside>>> = Mutex::new(Vec::new());

/// Most events that wait for the end of one hold of the lock. Further ones are counted.
const MAX_EVENTS: usize = 1024;

/// Events, and what was done to spans, in their order.
#[derive(Default)]
struct Lines {
    kept: VecDeque<Later>,
    left_out: u64,
    /// A thread is giving them to the subscriber.
    is_giving: bool,
}

/// Wakers to be woken, mostly one, and wakers to be dropped.
#[derive(Default)]
pub(super) struct Left {
    wake: SmallVec<[Waker; 1]>,
    drop: Vec<Waker>,
}

/// A number that no two living threads share; not 0.
fn here() -> usize {
    thread_local! {
        static HERE: Cell<u8> = const { Cell::new(0) };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// The one whose lock this thread holds.
fn held() -> Option<Arc<Outside>> {
    let all: Vec<_> = lock(&ALL).iter().filter_map(Weak::upgrade).collect();
    all.into_iter().find(|outside| outside.is_inside())
}

impl Outside {
    pub(super) fn new() -> Arc<Outside> {
        let outside = Arc::<Outside>::default();
        let mut all = lock(&ALL);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&outside));
        drop(all);
        ucs::log::postpone_by(Postponing {
            is_needed: || held().is_some(),
            keep: |later, is_event| {
                if let Some(outside) = held() {
                    outside.keep(in_current(later), is_event);
                }
            },
        });
        outside
    }

    /// Keeps something for the subscriber. This thread holds the lock.
    fn keep(&self, later: Later, is_event: bool) {
        let mut lines = lock(&self.lines);
        if is_event && lines.kept.len() >= MAX_EVENTS {
            lines.left_out += 1;
            return;
        }
        lines.kept.push_back(later);
        // SYNC: as in `put`.
        self.has_some.store(true, Ordering::Relaxed);
    }

    /// Gives the subscriber what was kept. No lock is held. A thread that does so already, further out on this stack or another one, goes on with what
    /// was added meanwhile.
    fn give(&self) {
        let mut lines = lock(&self.lines);
        if lines.is_giving || lines.kept.is_empty() && lines.left_out == 0 {
            return;
        }
        lines.is_giving = true;
        drop(lines);
        loop {
            let mut lines = lock(&self.lines);
            let next = lines.kept.pop_front();
            let left_out = if next.is_none() { std::mem::take(&mut lines.left_out) } else { 0 };
            lines.is_giving = next.is_some() || left_out > 0;
            drop(lines);
            match next {
                Some(next) => guarded(next),
                None if left_out > 0 => guarded(|| {
                    ucs::log::warn!(
                        "{left_out} lines of uct-net were left out: more than {MAX_EVENTS} at once"
                    );
                }),
                None => return,
            }
        }
    }

    /// This thread has taken the engine's lock.
    #[inline]
    pub(super) fn enter(&self) {
        // Only the holder writes its number here, so a thread that reads its own is the holder: no order is needed.
        // SYNC: pairs with `is_inside` of the same thread.
        self.holder.store(here(), Ordering::Relaxed);
    }

    /// This thread is about to leave the lock. Returns whether there is something to do afterwards ([`Outside::take_left`]).
    pub(super) fn leave(&self) -> bool {
        // SYNC: as in `enter`.
        self.holder.store(0, Ordering::Relaxed);
        // SYNC: written by this thread, or ahead of its lock.
        self.has_some.load(Ordering::Relaxed)
    }

    /// What is to be done when the lock, which this thread still has, was left.
    pub(super) fn take_left(&self) -> Left {
        // SYNC: as in `leave`; both under the engine's lock.
        self.has_some.store(false, Ordering::Relaxed);
        std::mem::take(&mut *lock(&self.left))
    }

    /// Whether this thread holds the engine's lock.
    pub(super) fn is_inside(&self) -> bool {
        // SYNC: pairs with `enter` and `leave` of the same thread.
        self.holder.load(Ordering::Relaxed) == here()
    }

    fn put(&self, put: impl FnOnce(&mut Left)) {
        put(&mut lock(&self.left));
        // SYNC: pairs with `leave` of this thread, which holds the lock.
        self.has_some.store(true, Ordering::Relaxed);
    }
}

impl Left {
    /// Wakes, drops, and gives the subscriber what was kept. No lock is held.
    pub(super) fn run(self, outside: &Outside) {
        for waker in self.wake {
            wake(waker);
        }
        self.drop.into_iter().for_each(|waker| guarded(|| drop(waker)));
        outside.give();
    }
}

/// The waker that the engine is given in place of a task's: the task is woken after the lock was left.
pub(crate) struct Signal {
    outside: Arc<Outside>,
    /// Taken when it is woken. The next poll brings another.
    user: Mutex<Option<Waker>>,
}

impl Signal {
    /// Whether it wakes this task.
    fn is_for(&self, user: &Waker) -> bool {
        lock(&self.user).as_ref().is_some_and(|own| own.will_wake(user))
    }

    /// Becomes this task's, if no task has it.
    fn take_over(&self, user: &mut Option<Waker>) -> bool {
        let mut own = lock(&self.user);
        let is_free = own.is_none();
        if is_free {
            *own = user.take();
        }
        is_free
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(waker) = lock(&self.user).take() else { return };
        if self.outside.is_inside() {
            self.outside.put(|left| left.wake.push(waker));
        } else {
            wake(waker);
        }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        let waker = self.user.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(waker) = waker
            && self.outside.is_inside()
        {
            self.outside.put(|left| left.drop.push(waker));
        }
    }
}

/// How many tasks that wait for the same keep their signals.
const MAX_KEPT: usize = 8;

/// The signals of the tasks that waited last, so that one that waits again and again needs no memory.
#[derive(Default)]
pub(super) struct Signals(Mutex<VecDeque<Arc<Signal>>>);

impl Signals {
    /// A waker for the engine that wakes `user`. Not to be called inside the engine.
    pub(super) fn waker(&self, outside: &Arc<Outside>, user: &Waker) -> Waker {
        // Cloned, and what is replaced is dropped, without a lock.
        let mut new = Some(user.clone());
        let (mut signals, mut replaced) = (lock(&self.0), None);
        let known = signals.iter().find(|signal| signal.is_for(user));
        let found = known.or_else(|| signals.iter().find(|signal| signal.take_over(&mut new))).cloned();
        let signal = found.unwrap_or_else(|| {
            if signals.len() == MAX_KEPT {
                replaced = signals.pop_front();
            }
            let made = Arc::new(Signal { outside: Arc::clone(outside), user: Mutex::new(new.take()) });
            signals.push_back(Arc::clone(&made));
            made
        });
        drop(signals);
        drop((replaced, new));
        Waker::from(signal)
    }
}
