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

    /// Takes those of another event as well.
    #[inline]
    pub(super) fn append(&mut self, others: &mut Wakers) {
        // Mostly one of them waits for nothing, and an extension costs more than all that is left of a short message.
        if self.0.is_empty() {
            std::mem::swap(self, others);
        } else if !others.0.is_empty() {
            self.0.append(&mut others.0);
        }
    }

    /// Has the engine wake them.
    #[inline]
    pub(super) fn wake_later(self, agenda: &Agenda) {
        // Mostly nothing waits: the task that asks makes progress itself.
        if !self.0.is_empty() {
            agenda.wake_all_later(self.0);
        }
    }

    /// Wakes them. No state is borrowed meanwhile. Not to be called inside a transport.
    pub(super) fn wake(self) {
        self.0.into_iter().for_each(wake);
    }
}
