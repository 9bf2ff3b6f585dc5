//! The endpoints of an interface, for reports: those that are open, and the sum of those that were closed.
//!
//! An interface has this only in a process that can be attached to. Sends and progress do not touch it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use crate::stats::Counters;

/// An endpoint.
pub(crate) trait ObservedEp {
    /// What it was asked to do.
    fn counters(&self) -> Counters;

    /// Whether it failed.
    fn has_failed(&self) -> bool;
}

/// The endpoints of one interface.
#[derive(Default)]
pub(crate) struct ObservedEps {
    /// By address.
    open: RefCell<BTreeMap<usize, Weak<dyn ObservedEp>>>,
    closed: Cell<Totals>,
    pending: Cell<u64>,
}

/// Sums over endpoints.
#[derive(Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) endpoints: u64,
    pub(crate) failed: u64,
    pub(crate) counters: Counters,
}

impl Totals {
    fn and(self, ep: &dyn ObservedEp) -> Totals {
        Totals {
            endpoints: self.endpoints + 1,
            failed: self.failed + u64::from(ep.has_failed()),
            counters: self.counters + ep.counters(),
        }
    }
}

impl ObservedEps {
    /// An endpoint was created.
    pub(crate) fn add(&self, ep: &Rc<impl ObservedEp + 'static>) {
        let weak = Rc::downgrade(ep);
        self.open.borrow_mut().insert(Rc::as_ptr(ep).addr(), weak);
    }

    /// An endpoint is about to be gone.
    pub(crate) fn remove(&self, ep: &Rc<impl ObservedEp + 'static>) {
        if self.open.borrow_mut().remove(&Rc::as_ptr(ep).addr()).is_some() {
            self.closed.set(self.closed.get().and(&**ep));
        }
    }

    /// Requests were queued.
    pub(crate) fn pending_added(&self, count: u64) {
        self.pending.set(self.pending.get().wrapping_add(count));
    }

    /// Requests were done, or dropped. One that is done inside the call that queues it is counted down before it is counted up.
    pub(crate) fn pending_removed(&self, count: u64) {
        self.pending.set(self.pending.get().wrapping_sub(count));
    }

    /// Requests in the pending queues.
    pub(crate) fn pending(&self) -> u64 {
        self.pending.get()
    }

    /// The endpoints that were closed.
    pub(crate) fn closed(&self) -> Totals {
        self.closed.get()
    }

    /// Those that were closed, and those that are open.
    pub(crate) fn all(&self) -> Totals {
        let open: Vec<_> = self.open.borrow().values().filter_map(Weak::upgrade).collect();
        open.iter().fold(self.closed.get(), |totals, ep| totals.and(&**ep))
    }
}
