//! The callbacks that a dispatch calls directly.
//!
//! All of them, or those that do not rest. No dependencies but `rest`, which knows which ones these are. `CallbackQ` owns the slots, `slow` fills
//! them.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use super::rest::{Clock, Rest, Slots};
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
    /// The only callback that is awake, if it is one; otherwise empty.
    only: Slot,
    rest: Rest,
}

impl Fast {
    pub(super) fn new(clock: Clock) -> Fast {
        Fast { slots: std::array::from_fn(|_| Slot::empty()), only: Slot::empty(), rest: Rest::new(clock) }
    }

    /// To be called whenever a slot has changed. Ends all rest.
    pub(super) fn changed(&self) {
        let count = self.slots.iter().take_while(|slot| slot.get().is_some()).count();
        self.rest.fill(if count == FAST_SLOTS { Slots::MAX } else { (1 << count) - 1 });
        self.choose_only();
    }

    /// Has the next dispatch call all callbacks, those that rest too.
    pub(super) fn check_all(&self) {
        self.rest.check_all();
    }

    fn choose_only(&self) {
        let awake = self.rest.awake();
        let only = &self.slots[awake.trailing_zeros() as usize % FAST_SLOTS];
        match only.get() {
            Some(only) if awake.is_power_of_two() => self.only.fill(only),
            _ => self.only.clear(),
        }
    }

    /// Calls the callbacks that do not rest, and now and then those that do.
    ///
    /// # Safety
    /// The callbacks in the slots may be called (see where they are filled).
    #[inline]
    pub(super) unsafe fn dispatch(&self) -> u32 {
        if self.rest.count_dispatch() {
            // SAFETY: the caller's promise.
            return unsafe { self.check() };
        }
        if let Some(only) = self.only.get() {
            // SAFETY: the caller's promise; it is in a slot (`changed`).
            return unsafe { (only.callback)(only.argument) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.call_awake() }
    }

    /// A dispatch that also calls what rests and is due.
    #[cold]
    #[inline(never)]
    unsafe fn check(&self) -> u32 {
        let mut begin = self.rest.begin_check();
        let (mut left, mut count) = (self.rest.resting(), 0u32);
        while left != 0 {
            let index = left.trailing_zeros();
            left &= left - 1;
            if self.rest.is_due(index, begin) {
                // SAFETY: the caller's promise.
                count = count.wrapping_add(unsafe { self.call(1 << index) });
                let end = self.rest.now();
                self.rest.note_call(index, begin, end);
                begin = end;
            }
        }
        // SAFETY: the caller's promise.
        count = count.wrapping_add(unsafe { self.call_awake() });
        if self.rest.end_check() {
            self.choose_only();
        }
        count
    }

    /// Apart, so that one that is awake alone is called without a frame.
    #[inline(never)]
    unsafe fn call_awake(&self) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.call(self.rest.awake()) }
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
                self.rest.note_busy(index);
                count = count.wrapping_add(done);
            }
        }
        count
    }
}
