//! Calls of the application from the inside of a net: wakers, and subscribers of `tracing`. One that panics keeps no other task from being woken, and
//! ends no thread of this crate.
//!
//! Used by both flavours, wherever wakers are called. Built on `ucs`.

use std::task::Waker;

use ucs::log::Limited;
use ucs::panic::caught;

/// Wakes a task.
pub(crate) fn wake(waker: Waker) {
    guarded(|| waker.wake());
}

/// Calls code of the application that has nobody to panic to.
pub(crate) fn guarded(call: impl FnOnce()) {
    if let Err(words) = caught(call) {
        // The subscriber that is told may be what panics.
        let _again = caught(|| report(&words));
    }
}

#[cold]
fn report(words: &str) {
    static LINES: Limited = Limited::new(1);
    if let Some(left_out) = LINES.admit() {
        ucs::log::error!("a waker or subscriber of the application panicked: {words}{left_out}");
    }
}
