//! Calls of the application from the inside of a net: wakers, and subscribers of `tracing`. One that panics keeps no other task from being woken, and
//! ends no thread of this crate.
//!
//! Used by both flavours, wherever wakers are called. Built on the standard library.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use ucs::log::Limited;

/// Wakes a task.
pub(crate) fn wake(waker: Waker) {
    guarded(|| waker.wake());
}

/// Calls code of the application that has nobody to panic to.
pub(crate) fn guarded(call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        // The subscriber that is told may be what panics.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| report(panic))) {
            std::mem::forget(again);
        }
    }
}

#[cold]
fn report(panic: Box<dyn Any + Send>) {
    static LINES: Limited = Limited::new(1);
    if let Some(left_out) = LINES.admit() {
        let text = panic.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        ucs::log::error!("a waker or subscriber of the application panicked: {text}{left_out}");
    }
}
