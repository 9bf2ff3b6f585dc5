//! The callbacks that a dispatch calls directly, and which of them rest.
//!
//! A worker with many interfaces open has traffic on one or two of them. To call the others each time would add their time to every
//! message, so a callback that does nothing while others do something rests: it is called at every [`IDLE_INTERVAL`]th dispatch only. The first
//! time it does something it is called at each dispatch again. While no callback does anything, none rests.
//! No dependencies. `CallbackQ` owns the slots, `slow` fills them.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

use super::{Callback, FAST_SLOTS, RawCallback};

/// A resting callback is called at every dispatch whose number is a multiple of this.
pub const IDLE_INTERVAL: u32 = 64;

/// After so many dispatches the callbacks that have done nothing meanwhile begin to rest, if any other did something.
pub const TERM: u32 = 4096;

const _: () = assert!(TERM.is_multiple_of(IDLE_INTERVAL) && u32::MAX % TERM == TERM - 1);

/// A set of slots: bit `i` for slot `i`.
type Slots = u32;

const _: () = assert!(Slots::BITS as usize == FAST_SLOTS);

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
    /// Called at each dispatch; those of the others that are filled rest.
    awake: Cell<Slots>,
    /// Did something in this term.
    busy: Cell<Slots>,
    dispatches: Cell<u32>,
}

impl Fast {
    pub(super) fn new() -> Fast {
        Fast {
            slots: std::array::from_fn(|_| Slot::empty()),
            awake: Cell::new(Slots::MAX),
            busy: Cell::new(0),
            dispatches: Cell::new(0),
        }
    }

    /// Ends all rest.
    pub(super) fn wake_all(&self) {
        self.awake.set(Slots::MAX);
    }

    /// Calls the callbacks that do not rest; now and then all of them.
    ///
    /// # Safety
    /// The callbacks in the slots may be called (see where they are filled).
    #[inline]
    pub(super) unsafe fn dispatch(&self) -> u32 {
        let number = self.dispatches.get().wrapping_add(1);
        self.dispatches.set(number);
        if number.is_multiple_of(IDLE_INTERVAL) {
            // SAFETY: the caller's promise.
            return unsafe { self.dispatch_all(number) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.call(self.awake.get()) }
    }

    #[cold]
    #[inline(never)]
    unsafe fn dispatch_all(&self, number: u32) -> u32 {
        // SAFETY: the caller's promise.
        let count = unsafe { self.call(Slots::MAX) };
        let busy = self.busy.get();
        if !number.is_multiple_of(TERM) {
            self.awake.set(self.awake.get() | busy);
        } else {
            self.awake.set(if busy == 0 { Slots::MAX } else { busy });
            self.busy.set(0);
        }
        count
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
                self.busy.set(self.busy.get() | 1 << index);
                count = count.wrapping_add(done);
            }
        }
        count
    }
}
