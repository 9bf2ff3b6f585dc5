//! The progress callbacks of a worker.
//!
//! Used by `Worker::progress`, which calls [`CallbackQ::dispatch`]. Built on [`crate::sync`]. Interfaces register here,
//! also from across the plugin boundary, which is why a callback is a C function with an argument.
//!
//! Up to [`FAST_SLOTS`] callbacks are called one after the other, without a lock, a search or a list; a single one is called
//! without reading anything else. Of several, those that have nothing to do while others have are idle ([`TERM`], [`IDLE_PACE`]). Whatever else there may
//! be to do (callbacks beyond these, one-shots, changes from other threads) is announced by one flag, which is all that a dispatch reads.
//!
//! # Guarantees
//!
//! - A removal on the dispatching thread holds at once, also from inside a callback: what was removed is not called
//!   again. The callback that removes itself ends normally.
//! - A change through a [`CallbackQHandle`] takes effect at the next dispatch that begins after the call, in the order of the
//!   calls of one thread. A callback removed from another thread may be running then, and may be called until the next dispatch begins;
//!   [`CallbackQHandle::remove_then`] reports when that is over.
//! - What a callback adds runs in this dispatch or in the next one. A dispatch ends: one-shots added by one-shots wait for the next.
//! - Each callback runs once a dispatch, with two exceptions: an idle one runs now and then, within the check delay ([`IDLE_PACE`],
//!   [`IDLE_INTERVAL`]), and where callbacks dispatch again, the outer dispatch may pass over or repeat some.
//! - The next dispatch after [`CallbackQ::check_all`] runs all, the idle ones too; the next one after [`CallbackQ::activate`] runs that callback.

mod activity;
mod fast;
#[cfg(all(test, loom))]
mod models;
mod oneshot;
mod remote;
mod slow;
#[cfg(all(test, not(loom)))]
mod tests;

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::rc::Rc;

pub use activity::{IDLE_INTERVAL, IDLE_PACE, SLOW, TERM};
pub use oneshot::{Oneshot, OneshotKey};
pub use remote::{CallbackQHandle, QueueClosed};

use crate::clock;
use crate::pending_work::{PendingWork, WorkSource};
use crate::sync::Arc;
use fast::{Fast, Slot};
use remote::Shared;
use slow::Slow;

/// A progress callback: gets its argument, returns how much it did (0: nothing).
pub type Callback = unsafe extern "C" fn(argument: *mut c_void) -> u32;

/// How many callbacks a dispatch calls directly.
pub const FAST_SLOTS: usize = 32;

/// Names a callback in its queue; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallbackId(NonZeroU64);

impl CallbackId {
    /// The number, for the way through a C interface; never 0.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The id of a number; `None` for 0. A number that no queue gave names no callback.
    pub const fn new(number: u64) -> Option<CallbackId> {
        match NonZeroU64::new(number) {
            None => None,
            Some(number) => Some(CallbackId(number)),
        }
    }
}

/// A callback with its argument.
#[derive(Clone, Copy, Debug)]
pub struct RawCallback {
    /// The function.
    pub callback: Callback,
    /// What it is called with.
    pub argument: *mut c_void,
}

/// The callbacks of one worker; belongs to the thread that dispatches.
pub struct CallbackQ {
    /// What a dispatch calls, never empty: the only callback there is, or a walk over the fast slots.
    entry: Slot,
    /// Filled from the first on; an empty one ends the walk. They do not move, since `entry` may point to one.
    fast: Rc<Fast>,
    shared: Arc<Shared>,
    slow: RefCell<Slow>,
    /// Callbacks may be of this thread only.
    thread: PhantomData<*mut ()>,
}

impl CallbackQ {
    /// A queue without callbacks.
    pub fn new() -> CallbackQ {
        CallbackQ::with_pending_work(PendingWork::new())
    }

    /// As [`CallbackQ::new`], with a word that others may ask through as well.
    pub fn with_pending_work(pending_work: PendingWork) -> CallbackQ {
        CallbackQ::with_clock(pending_work, clock::now)
    }

    fn with_clock(pending_work: PendingWork, clock: activity::Clock) -> CallbackQ {
        let entry = Slot::empty();
        entry.fill_with_nothing();
        CallbackQ {
            entry,
            fast: Rc::new(Fast::new(clock)),
            shared: Arc::new(Shared::new(pending_work)),
            slow: RefCell::new(Slow::new()),
            thread: PhantomData,
        }
    }

    /// Calls every callback once, and the one-shots that are due; returns the sum of what they return (modulo 2^32).
    #[inline]
    pub fn dispatch(&self) -> u32 {
        if self.shared.pending_work.has(WorkSource::Queue) {
            return self.dispatch_slow();
        }
        self.dispatch_fast()
    }

    /// As [`CallbackQ::dispatch`], for a caller that has just found no pending work.
    #[inline]
    pub fn dispatch_fast(&self) -> u32 {
        // SAFETY: the entry always has a callback (`with_pending_work` and `choose_entry` ensure it).
        let entry = unsafe { self.entry.get().unwrap_unchecked() };
        // SAFETY: the caller of `add` vouched for the callback until it is removed, and no slot holds a removed one. The walk
        // gets the slots, which live as long as the queue.
        unsafe { (entry.callback)(entry.argument) }
    }

    /// Has a dispatch call the only callback there is, or walk over all of them. To be called whenever a slot has changed.
    fn choose_entry(&self) {
        match (self.fast.slots[0].get(), self.fast.slots[1].get()) {
            (None, _) => self.entry.fill_with_nothing(),
            (Some(only), None) => self.entry.fill(only),
            _ => self
                .entry
                .fill(RawCallback { callback: walk, argument: Rc::as_ptr(&self.fast).cast_mut().cast() }),
        }
        self.fast.changed();
    }

    /// Has the next dispatch call all callbacks, the idle ones too. Those that do nothing then stay idle.
    pub fn check_all(&self) {
        self.fast.check_all();
    }

    /// Makes a callback active: each dispatch calls it, until it has nothing to do for a [`TERM`] again.
    #[inline]
    pub fn activate(&self, id: CallbackId) {
        if self.fast.any_idle()
            && let Some(index) = self.slot_of(id)
        {
            self.fast.activate(index);
        }
    }

    #[cold]
    #[inline(never)]
    fn dispatch_slow(&self) -> u32 {
        let count = self.attend();
        count.wrapping_add(self.dispatch_fast())
    }

    /// Adds a callback. O(1), allocates only beyond the fast slots.
    ///
    /// # Safety
    ///
    /// `callback` may be called with `argument` on this queue's thread at any time until it is removed, and does not
    /// unwind.
    pub unsafe fn add(&self, callback: Callback, argument: *mut c_void) -> CallbackId {
        let id = self.shared.new_id();
        self.insert(id, RawCallback { callback, argument });
        id
    }

    /// Removes a callback, also the one that is running; it is not called again. Returns its argument, or `None` if
    /// there is no such callback.
    pub fn remove(&self, id: CallbackId) -> Option<*mut c_void> {
        self.take(id).or_else(|| {
            // Another thread may have added it a moment ago.
            self.apply_changes();
            self.take(id)
        })
    }

    /// Runs `run` once, in the next dispatch; its result counts as that of a callback. One-shots of one key run in the
    /// order in which they were added.
    pub fn add_oneshot(&self, key: OneshotKey, run: impl FnOnce() -> u32 + 'static) {
        self.push_oneshot(key, Oneshot::Boxed(Box::new(run)));
    }

    /// As [`CallbackQ::add_oneshot`], for a C function.
    ///
    /// # Safety
    ///
    /// `callback` may be called with `argument` once on this queue's thread, unless it is removed before, and does not unwind.
    pub unsafe fn add_oneshot_raw(&self, key: OneshotKey, callback: Callback, argument: *mut c_void) {
        self.push_oneshot(key, Oneshot::Raw(RawCallback { callback, argument }));
    }

    /// Removes the one-shots of a key that have not run yet; returns how many those were.
    pub fn remove_oneshots(&self, key: OneshotKey) -> usize {
        self.remove_oneshots_if(key, |_| true)
    }

    /// Removes the one-shots of a key that have not run yet and for which `is_removed` returns true; returns how many those
    /// were. Where the argument of a raw one owns something, `is_removed` is the place to free it.
    pub fn remove_oneshots_if(&self, key: OneshotKey, is_removed: impl FnMut(&Oneshot) -> bool) -> usize {
        self.apply_changes();
        self.take_oneshots(key, is_removed)
    }

    /// A way to change the queue from other threads.
    pub fn handle(&self) -> CallbackQHandle {
        CallbackQHandle::new(self.shared.clone())
    }

    /// How many callbacks are registered, one-shots not counted, nor changes that wait for a dispatch.
    pub fn len(&self) -> usize {
        self.slow.borrow().len()
    }

    /// Whether no callback is registered, as [`CallbackQ::len`] counts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Calls the active fast slots, and the others in checks.
///
/// # Safety
/// `fast` are the slots of a queue, which is not dropped meanwhile.
unsafe extern "C" fn walk(fast: *mut c_void) -> u32 {
    // SAFETY: the caller's promise. They are only ever shared.
    let fast = unsafe { &*fast.cast::<Fast>() };
    // SAFETY: the caller of `add` vouched for each callback until it is removed, and a slot holds no removed one.
    unsafe { fast.dispatch() }
}

impl Default for CallbackQ {
    fn default() -> CallbackQ {
        CallbackQ::new()
    }
}

impl Drop for CallbackQ {
    fn drop(&mut self) {
        self.close();
        let left = self.len();
        if left > 0 {
            crate::log::warn!(callbacks = left, "a callback queue was dropped with callbacks registered");
        }
    }
}

impl fmt::Debug for CallbackQ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackQ").field("len", &self.len()).finish_non_exhaustive()
    }
}
