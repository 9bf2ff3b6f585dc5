//! What is called, and when: identifiers, schedules and the two forms of a callback.
//!
//! Used by the registry. No dependencies. All unsafe code of the asynchronous context is here.

use std::ffi::c_void;
use std::fmt;
use std::time::Duration;

use crate::event_set::Events;
use crate::panic::caught;

/// Names a handler; never used twice in one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct HandlerId(pub(super) u64);

/// A handler in C with its argument.
#[derive(Clone, Copy, Debug)]
pub struct RawHandler {
    /// Called with `argument`, the handler's number, and what happened: the bits of [`Events`], or 0 for a
    /// timer.
    pub handler: unsafe extern "C" fn(argument: *mut c_void, id: u64, events: u32),
    /// Passed to every call.
    pub argument: *mut c_void,
}

/// When a timer runs, counted from the moment it is added or modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Once, after this delay. Zero means as soon as possible.
    Once(Duration),
    /// Again and again with this interval, which is above zero.
    Every(Duration),
}

/// What to call.
pub(super) enum Callback {
    Closure(Box<dyn FnMut(HandlerId, Events) + Send>),
    Raw(RawCallback),
}

/// A C function that may be called from any thread.
pub(super) struct RawCallback(RawHandler);

// SAFETY: the code that registered the pair has promised, in `Callback::raw`, that it may be called from another
// thread.
unsafe impl Send for RawCallback {}

/// A handler that panicked, with what it said.
pub(super) struct Panicked(pub(super) String);

impl HandlerId {
    /// The number that a C handler gets.
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// The identifier of that number. A number that was never given out is an error where it is
    /// used.
    pub const fn from_raw(raw: u64) -> HandlerId {
        HandlerId(raw)
    }
}

impl fmt::Display for HandlerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Callback {
    pub(super) fn closure(closure: impl FnMut(HandlerId, Events) + Send + 'static) -> Callback {
        Callback::Closure(Box::new(closure))
    }

    /// # Safety
    /// Until the callback is dropped, the function may be called with its argument from any thread, one call
    /// at a time.
    pub(super) unsafe fn raw(handler: RawHandler) -> Callback {
        Callback::Raw(RawCallback(handler))
    }

    /// Runs it; a closure's panic becomes an error.
    pub(super) fn call(&mut self, id: HandlerId, events: Events) -> Result<(), Panicked> {
        match self {
            Callback::Closure(closure) => {
                // A closure that panicked is never called again, so what it left half-done is not seen by it.
                caught(|| closure(id, events)).map_err(Panicked)
            }
            Callback::Raw(RawCallback(RawHandler { handler, argument })) => {
                let bits = events.difference(Events::TIMER).bits();
                // SAFETY: `Callback::raw`'s caller promised that the call is allowed while the callback
                // exists; the dispatcher, which owns the callback meanwhile, makes one call at a time.
                unsafe { handler(*argument, id.0, bits) };
                Ok(())
            }
        }
    }
}
