//! The callbacks that a dispatch calls directly.
//!
//! All of them, or the active ones. No dependencies but `activity`, which knows which ones these are. `CallbackQ` owns the slots, `slow` fills
//! them.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use super::activity::{Activity, Clock, Slots};
use super::{Callback, FAST_SLOTS, RawCallback};

/// One of the callbacks that a dispatch calls directly.
pub(super) struct Slot {
    callback: Cell<Option<Callback>>,
    argument: Cell<*mut c_void>,
}

impl Slot {
    pub(super) fn empty() -> Slot {
        Slot { callback: Cell::new(None), argument: Cell::new(ptr::null_mut()) }
    }

    pub(super) fn get(&self) -> Option<RawCallback> {
        let argument = self.argument.get();
        self.callback.get().map(|callback| RawCallback { callback, argument })
    }

    pub(super) fn fill(&self, raw: RawCallback) {
        self.callback.set(Some(raw.callback));
        self.argument.set(raw.argument);
    }

    /// Makes it a slot that does nothing.
    pub(super) fn fill_with_nothing(&self) {
        unsafe extern "C" fn nothing(_: *mut c_void) -> u32 {
            0
        }
        self.fill(RawCallback { callback: nothing, argument: ptr::null_mut() });
    }

    pub(super) fn clear(&self) {
        self.callback.set(None);
        self.argument.set(ptr::null_mut());
    }
}

/// The slots. They stay where they are while callbacks run, which may change them.
pub(super) struct Fast {
    pub(super) slots: [Slot; FAST_SLOTS],
    /// The only callback that is active, if it is one; otherwise empty.
    only: Slot,
    activity: Activity,
}

impl Fast {
    pub(super) fn new(clock: Clock) -> Fast {
        Fast {
            slots: std::array::from_fn(|_| Slot::empty()),
            only: Slot::empty(),
            activity: Activity::new(clock),
        }
    }

    /// To be called whenever a slot has changed. Makes all active.
    pub(super) fn changed(&self) {
        let count = self.slots.iter().take_while(|slot| slot.get().is_some()).count();
        self.activity.fill(if count == FAST_SLOTS { Slots::MAX } else { (1 << count) - 1 });
        self.choose_only();
    }

    /// Has the next dispatch call all callbacks, the idle ones too.
    pub(super) fn check_all(&self) {
        self.activity.check_all();
    }

    /// Makes a slot active.
    pub(super) fn activate(&self, index: usize) {
        let slot = 1 << index;
        if self.activity.idle() & slot != 0 {
            self.activity.activate(slot);
            self.choose_only();
        }
    }

    pub(super) fn any_idle(&self) -> bool {
        self.activity.idle() != 0
    }

    fn choose_only(&self) {
        let active = self.activity.active();
        let only = &self.slots[active.trailing_zeros() as usize % FAST_SLOTS];
        match only.get() {
            Some(only) if active.is_power_of_two() => self.only.fill(only),
            _ => self.only.clear(),
        }
    }

    /// Calls the active callbacks, and now and then the others.
    ///
    /// # Safety
    /// The callbacks in the slots may be called (see where they are filled).
    #[inline]
    pub(super) unsafe fn dispatch(&self) -> u32 {
        if self.activity.count_dispatch() {
            // SAFETY: the caller's promise.
            return unsafe { self.check() };
        }
        if let Some(only) = self.only.get() {
            // SAFETY: the caller's promise; it is in a slot (`changed`).
            return unsafe { (only.callback)(only.argument) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.call_active() }
    }

    /// A dispatch that also calls what is idle and due.
    #[cold]
    #[inline(never)]
    unsafe fn check(&self) -> u32 {
        let mut begin = self.activity.begin_check();
        let (mut left, mut count) = (self.activity.idle(), 0u32);
        while left != 0 {
            let index = left.trailing_zeros();
            left &= left - 1;
            if self.activity.is_due(index, begin) {
                // SAFETY: the caller's promise.
                count = count.wrapping_add(unsafe { self.call(1 << index) });
                let end = self.activity.now();
                self.activity.note_call(index, begin, end);
                begin = end;
            }
        }
        // SAFETY: the caller's promise.
        count = count.wrapping_add(unsafe { self.call_active() });
        if self.activity.end_check() {
            self.choose_only();
        }
        count
    }

    /// Apart, so that one that is active alone is called without a frame.
    #[inline(never)]
    unsafe fn call_active(&self) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.call(self.activity.active()) }
    }

    /// Calls `which` of the slots, up to the first that is empty.
    #[inline]
    unsafe fn call(&self, which: Slots) -> u32 {
        let (mut left, mut count) = (which, 0u32);
        while left != 0 {
            let index = left.trailing_zeros();
            let Some(raw) = self.slots[index as usize].get() else { break };
            left &= left - 1;
            // SAFETY: the caller's promise.
            let done = unsafe { (raw.callback)(raw.argument) };
            if done != 0 {
                self.activity.note_busy(index);
                count = count.wrapping_add(done);
            }
        }
        count
    }
}
