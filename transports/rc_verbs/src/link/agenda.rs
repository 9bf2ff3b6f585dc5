//! What progress has to do besides polling the queues. Connections note it here by their place in the table.

use std::cell::{Cell, RefCell};

use uct_plugin::Error;

/// The notes, and whether progress is running.
#[derive(Default)]
pub(crate) struct Agenda {
    /// [`Agenda::RUNNING`] and [`Agenda::WORK`]: one byte, so that one comparison shows that neither is set.
    state: Cell<u8>,
    /// Connections that are blocked on something that all share; with deferred work; about to fail.
    blocked: RefCell<Vec<u32>>,
    has_blocked: Cell<bool>,
    deferred: RefCell<Vec<u32>>,
    failing: RefCell<Vec<(u32, Error, String)>>,
}

impl Agenda {
    const RUNNING: u8 = 1;
    const WORK: u8 = 2;

    /// Progress is not on the stack, and there is no work.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.state.get() == 0
    }

    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.state.get() & Agenda::RUNNING != 0
    }

    /// Whether there is work.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.state.get() & Agenda::WORK != 0
    }

    /// Adds work.
    #[inline]
    pub(crate) fn add_work(&self) {
        self.state.set(self.state.get() | Agenda::WORK);
    }

    /// The work is about to be done.
    pub(crate) fn begin_work(&self) {
        self.state.set(self.state.get() & !Agenda::WORK);
    }

    #[inline]
    pub(crate) fn run(&self) {
        self.state.set(self.state.get() | Agenda::RUNNING);
    }

    #[inline]
    pub(crate) fn leave(&self) {
        self.state.set(self.state.get() & !Agenda::RUNNING);
    }

    /// Has a connection served again when any work request of the interface has ended.
    pub(crate) fn note_blocked(&self, index: u32) {
        self.blocked.borrow_mut().push(index);
        self.has_blocked.set(true);
    }

    #[inline]
    pub(crate) fn has_blocked(&self) -> bool {
        self.has_blocked.get()
    }

    /// Takes the connections that are blocked on shared resources.
    pub(crate) fn take_blocked(&self) -> Vec<u32> {
        self.has_blocked.set(false);
        self.blocked.take()
    }

    /// Has progress do a connection's deferred work.
    pub(crate) fn defer(&self, index: u32) {
        self.deferred.borrow_mut().push(index);
    }

    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.borrow().is_empty()
    }

    pub(crate) fn take_deferred(&self) -> Vec<u32> {
        self.deferred.take()
    }

    /// Has progress fail a connection.
    #[cold]
    pub(crate) fn fail_later(&self, index: u32, error: Error, reason: String) {
        self.failing.borrow_mut().push((index, error, reason));
        self.add_work();
    }

    pub(crate) fn take_failing(&self) -> Vec<(u32, Error, String)> {
        self.failing.take()
    }
}
