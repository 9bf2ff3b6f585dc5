//! The tasks that an event wakes.

use std::task::{Context, Waker};

/// The tasks that an event wakes, each once.
#[derive(Default)]
pub(super) struct Wakers(Vec<Waker>);

impl Wakers {
    pub(super) fn add(&mut self, context: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(context.waker())) {
            self.0.push(context.waker().clone());
        }
    }

    pub(super) fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.0)
    }
}

/// Wakes them; no state is borrowed meanwhile.
pub(super) fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}
