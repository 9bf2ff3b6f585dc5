//! Changes of a queue from other threads.
//!
//! For threads other than the worker's. Built on [`crate::sync`], under whose loom it is modelled. `slow`
//! applies what was posted here.

use std::ffi::c_void;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::PoisonError;

use super::{Callback, CallbackId, OneshotKey, RawCallback};
use crate::pending_work::{PendingWork, WorkSource};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard};

/// What the dispatching thread and the handles share.
pub(super) struct Shared {
    /// [`WorkSource::Queue`] is set while a dispatch has more to do than to call the fast slots. Any thread sets it; the dispatching
    /// thread clears it, under the lock and with no change posted, so no post goes unnoticed.
    pub(super) pending_work: PendingWork,
    /// Whether changes are posted: spares the lock where the pending work is something else. Written under the lock.
    posted: AtomicBool,
    next_id: AtomicU64,
    changes: Mutex<Changes>,
}

struct Changes {
    posted: Vec<Change>,
    /// The queue is gone; changes are not applied any more.
    closed: bool,
}

/// One change.
pub(super) enum Change {
    Add(CallbackId, RawCallback),
    Remove(CallbackId, Option<Box<dyn FnOnce() + Send>>),
    AddOneshot(OneshotKey, Box<dyn FnOnce() -> u32 + Send>),
    AddRawOneshot(OneshotKey, RawCallback),
    RemoveOneshots(OneshotKey),
}

// SAFETY: the raw pointers in it are only passed on; the poster vouched for their use on the other thread
// (`CallbackQHandle::add` and `add_oneshot_raw`).
unsafe impl Send for Change {}

impl Shared {
    pub(super) fn new(pending_work: PendingWork) -> Shared {
        Shared {
            pending_work,
            posted: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            changes: Mutex::new(Changes { posted: Vec::new(), closed: false }),
        }
    }

    /// An id that nothing has had.
    pub(super) fn new_id(&self) -> CallbackId {
        // SYNC: only uniqueness matters, which the read-modify-write gives.
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        CallbackId(NonZeroU64::new(number).unwrap_or(NonZeroU64::MAX))
    }

    /// What was posted since the last time, in order.
    pub(super) fn take(&self) -> Vec<Change> {
        // SYNC: a hint; a post missed here is seen by `clear_work` under the lock.
        if !self.posted.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut changes = self.lock();
        self.posted.store(false, Ordering::Relaxed);
        std::mem::take(&mut changes.posted)
    }

    /// Clears the bit of the queue, unless something has been posted.
    pub(super) fn clear_work(&self) {
        let changes = self.lock();
        if changes.posted.is_empty() {
            // SYNC: under the lock, as in every post, so it cannot undo one.
            self.pending_work.remove(WorkSource::Queue);
        }
    }

    /// Refuses further changes; returns those that were posted.
    pub(super) fn close(&self) -> Vec<Change> {
        let mut changes = self.lock();
        changes.closed = true;
        std::mem::take(&mut changes.posted)
    }

    fn post(&self, change: Change) -> Result<(), QueueClosed> {
        let mut changes = self.lock();
        if changes.closed {
            // Unlocked before what is in the change is dropped, which may come back here.
            drop(changes);
            return Err(QueueClosed);
        }
        changes.posted.push(change);
        // SYNC: both under the lock, so that `clear_work` sees the change or its store comes before this one. A dispatch that
        // happens after this call sees the flag by coherence.
        self.posted.store(true, Ordering::Relaxed);
        self.pending_work.add(WorkSource::Queue);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Changes> {
        // Nothing panics while it is locked.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue was dropped, and with it its callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the callback queue is gone, its worker was dropped")]
pub struct QueueClosed;

/// Changes a [`CallbackQ`](super::CallbackQ) from any thread. Cheap to clone. Never blocks for longer than it takes to
/// append to a list; does not wake a worker that sleeps.
///
/// Changes take effect at the next dispatch that begins after the call. They may be made from inside a callback as well.
#[derive(Clone)]
pub struct CallbackQHandle {
    shared: Arc<Shared>,
}

impl CallbackQHandle {
    pub(super) fn new(shared: Arc<Shared>) -> CallbackQHandle {
        CallbackQHandle { shared }
    }

    /// Adds a callback. The id is valid at once, for every kind of removal.
    ///
    /// # Safety
    ///
    /// `callback` may be called with `argument` on the queue's thread at any time from now on until its removal has taken
    /// effect, and does not unwind.
    pub unsafe fn add(&self, callback: Callback, argument: *mut c_void) -> Result<CallbackId, QueueClosed> {
        let id = self.shared.new_id();
        self.shared.post(Change::Add(id, RawCallback { callback, argument }))?;
        Ok(id)
    }

    /// Removes a callback; no effect if there is none of that id. It may be running when this returns, and may be called
    /// again until the next dispatch begins, so its argument stays valid: [`CallbackQHandle::remove_then`] reports the end of that time.
    pub fn remove(&self, id: CallbackId) -> Result<(), QueueClosed> {
        self.shared.post(Change::Remove(id, None))
    }

    /// As [`CallbackQHandle::remove`]; runs `then` on the queue's thread once the callback is never called again, from
    /// inside a dispatch or as the queue is dropped. The place to free what the callback uses. If the queue is gone
    /// already, so is the callback, and `then` is dropped without being run.
    pub fn remove_then(
        &self,
        id: CallbackId,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<(), QueueClosed> {
        self.shared.post(Change::Remove(id, Some(Box::new(then))))
    }

    /// Runs `run` once on the queue's thread, in the next dispatch; its result counts as that of a callback. If the
    /// queue is dropped before, `run` is dropped without being run.
    pub fn add_oneshot(
        &self,
        key: OneshotKey,
        run: impl FnOnce() -> u32 + Send + 'static,
    ) -> Result<(), QueueClosed> {
        self.shared.post(Change::AddOneshot(key, Box::new(run)))
    }

    /// As [`CallbackQHandle::add_oneshot`], for a C function. If the queue is dropped before, it is not called.
    ///
    /// # Safety
    ///
    /// `callback` may be called with `argument` once on the queue's thread, unless its removal has taken effect before, and does not
    /// unwind.
    pub unsafe fn add_oneshot_raw(
        &self,
        key: OneshotKey,
        callback: Callback,
        argument: *mut c_void,
    ) -> Result<(), QueueClosed> {
        self.shared.post(Change::AddRawOneshot(key, RawCallback { callback, argument }))
    }

    /// Removes the one-shots of a key that have not run by the next dispatch.
    pub fn remove_oneshots(&self, key: OneshotKey) -> Result<(), QueueClosed> {
        self.shared.post(Change::RemoveOneshots(key))
    }
}

impl fmt::Debug for CallbackQHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackQHandle").finish_non_exhaustive()
    }
}
