//! The tasks that an event wakes.

use std::task::{Context, Waker};

use smallvec::SmallVec;

use super::super::agenda::Agenda;
use crate::wake::wake;

/// The tasks that an event wakes, each once. One needs no memory.
#[derive(Default)]
pub(super) struct Wakers(SmallVec<[Waker; 1]>);

impl Wakers {
    pub(super) fn add(&mut self, context: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(context.waker())) {
            self.0.push(context.waker().clone());
        }
    }

    pub(super) fn take(&mut self) -> Wakers {
        std::mem::take(self)
    }

    /// With those of another event.
    pub(super) fn and(mut self, others: Wakers) -> Wakers {
        self.0.extend(others.0);
        self
    }

    /// Has the engine wake them.
    #[inline]
    pub(super) fn wake_later(self, agenda: &Agenda) {
        // Mostly nothing waits: the task that asks makes progress itself.
        if !self.0.is_empty() {
            agenda.wake_later(self.0);
        }
    }

    /// Wakes them. No state is borrowed meanwhile. Not to be called inside a transport.
    pub(super) fn wake(self) {
        self.0.into_iter().for_each(wake);
    }
}
