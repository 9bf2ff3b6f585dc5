//! Futures of a library's own protocol, polled in turns of the engine by whichever thread makes one.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};

use slab::Slab;

use super::core::Core;
use super::lock::lock;
use crate::wake::guarded;

/// A set of futures. They are polled in turns, outside of the transports, and dropped under the engine's lock.
pub(super) struct Tasks {
    tasks: RefCell<Slab<Task>>,
    woken: Arc<Woken>,
    is_closed: Cell<bool>,
}

struct Task {
    /// None while it is polled.
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    waker: Waker,
}

/// The tasks that were woken, from any thread.
struct Woken {
    is_due: AtomicBool,
    keys: Mutex<Vec<usize>>,
    core: Weak<Core>,
}

/// Wakes one task: it is polled in the next turn.
struct TaskWaker {
    key: usize,
    woken: Arc<Woken>,
}

impl Tasks {
    pub(super) fn new(core: &Arc<Core>) -> Tasks {
        let woken =
            Woken { is_due: AtomicBool::new(false), keys: Mutex::default(), core: Arc::downgrade(core) };
        Tasks { tasks: RefCell::default(), woken: Arc::new(woken), is_closed: Cell::new(false) }
    }

    /// Adds a future, which is polled in the next turn. It is dropped at once if the set is closed.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        if self.is_closed.get() {
            return;
        }
        let future: Pin<Box<dyn Future<Output = ()>>> = Box::pin(future);
        let mut tasks = self.tasks.borrow_mut();
        let place = tasks.vacant_entry();
        let key = place.key();
        let waker = Waker::from(Arc::new(TaskWaker { key, woken: Arc::clone(&self.woken) }));
        place.insert(Task { future: Some(future), waker });
        drop(tasks);
        self.woken.add(key);
    }

    /// Has the next turn come soon.
    pub(super) fn request_turn(&self) {
        // SYNC: pairs with `take_due`; both are under the engine's lock.
        self.woken.is_due.store(true, Ordering::Relaxed);
    }

    /// Whether a turn has something to poll.
    pub(super) fn is_due(&self) -> bool {
        // SYNC: a wake of another thread that is not seen here wakes a thread that looks again.
        self.woken.is_due.load(Ordering::Acquire)
    }

    /// Polls those that were woken. Returns whether there were any.
    pub(super) fn run(&self) -> bool {
        if !self.is_due() {
            return false;
        }
        // SYNC: what a waker made ready ahead of its wake is seen by the poll that follows.
        self.woken.is_due.swap(false, Ordering::AcqRel);
        let keys = std::mem::take(&mut *lock(&self.woken.keys));
        for key in keys {
            self.poll(key);
        }
        true
    }

    fn poll(&self, key: usize) {
        let taken = {
            let mut tasks = self.tasks.borrow_mut();
            tasks.get_mut(key).and_then(|task| Some((task.future.take()?, task.waker.clone())))
        };
        // One that has ended, or that polls itself.
        let Some((mut future, waker)) = taken else { return };
        // One that panics is over, and the others go on.
        let mut outcome = Poll::Ready(());
        guarded(|| outcome = future.as_mut().poll(&mut Context::from_waker(&waker)));
        let mut tasks = self.tasks.borrow_mut();
        if outcome.is_pending()
            && let Some(task) = tasks.get_mut(key)
        {
            task.future = Some(future);
            return;
        }
        let ended = tasks.try_remove(key);
        drop(tasks);
        drop((ended, future));
    }

    /// Drops all of them, and takes no more.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
    }
}

impl Woken {
    /// The task is polled in the next turn.
    fn add(&self, key: usize) {
        let mut keys = lock(&self.keys);
        if !keys.contains(&key) {
            keys.push(key);
        }
        drop(keys);
        // SYNC: pairs with `run`.
        self.is_due.store(true, Ordering::Release);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.add(self.key);
        // A thread that is inside makes another turn, or finds the task due when it arms.
        if let Some(core) = self.woken.core.upgrade()
            && !core.outside.is_inside()
        {
            core.doorbell.ring();
        }
    }
}
