//! The handlers of an interface: the table that the transport reads, and the owner of the closures in it.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;

use uct_abi::{UCT_AM_IDS, UctAmCallback, UctAmTable};

use super::AmId;
use super::placer::PlacerSlot;
use super::table::AmTable;
use crate::stats::Count;
use crate::worker::WorkerInner;

/// The handlers of an interface. One that is removed must not be dropped before no transport is on the stack,
/// since it may be running.
pub(crate) struct HandlerTable {
    table: Rc<AmTable>,
    placer: Rc<PlacerSlot>,
    owned: RefCell<Vec<(AmId, Box<dyn Owned>)>>,
    /// Messages that removed handlers had received.
    received: Cell<Count>,
    /// The buffer of the last message that was copied out of shared memory.
    spare: Cell<Vec<u8>>,
}

/// A handler of whatever type.
pub(crate) trait Owned {
    /// What it has received.
    fn received(&self) -> Count;
}

/// What the table holds for one handler.
pub(super) struct Entry {
    pub(super) callback: UctAmCallback,
    /// Its first argument.
    pub(super) argument: *mut c_void,
}

impl HandlerTable {
    /// A table without handlers, of an interface of the worker, which warns of at most `log_rate` messages a second.
    pub(crate) fn new(worker: NonNull<WorkerInner>, log_rate: u32) -> HandlerTable {
        HandlerTable {
            table: AmTable::new(log_rate),
            placer: PlacerSlot::new(worker),
            owned: RefCell::default(),
            received: Cell::default(),
            spare: Cell::default(),
        }
    }

    /// The table as the transport has it.
    pub(crate) fn as_ptr(&self) -> *mut UctAmTable {
        Rc::as_ptr(&self.table).cast_mut().cast()
    }

    /// What takes long messages ahead of the handlers.
    pub(crate) fn placer(&self) -> &PlacerSlot {
        &self.placer
    }

    /// Memory for a copy of a message; empty if a handler around this one has it.
    pub(super) fn take_spare(&self) -> Vec<u8> {
        self.spare.take()
    }

    /// Takes it back.
    pub(super) fn give_spare(&self, spare: Vec<u8>) {
        self.spare.set(spare);
    }

    /// Installs a handler; returns the one that it replaces, to be dropped once that does not run.
    ///
    /// # Safety
    /// `entry` may be called for as long as `handler` lives.
    pub(super) unsafe fn set(
        &self,
        id: AmId,
        entry: Entry,
        handler: Box<dyn Owned>,
    ) -> Option<Box<dyn Owned>> {
        self.table.set(id, entry.callback, entry.argument);
        let replaced = self.take_one(id);
        self.owned.borrow_mut().push((id, handler));
        replaced
    }

    /// Takes the handler of an id, which the table has no more. What it has received stays counted.
    fn take_one(&self, id: AmId) -> Option<Box<dyn Owned>> {
        let mut owned = self.owned.borrow_mut();
        let index = owned.iter().position(|(of, _)| *of == id)?;
        let (_, handler) = owned.swap_remove(index);
        self.received.set(self.received.get() + handler.received());
        Some(handler)
    }

    /// Takes the handlers, and shares the table, which a transport reads until it is closed.
    pub(crate) fn take(&mut self) -> HandlerTable {
        let owned = RefCell::new(self.owned.take());
        HandlerTable {
            table: Rc::clone(&self.table),
            placer: Rc::clone(&self.placer),
            owned,
            received: self.received.clone(),
            spare: Cell::default(),
        }
    }

    /// Removes all handlers and the placer; returns what is to be dropped once none of them runs.
    pub(crate) fn clear_all(&self) -> Vec<Box<dyn Owned>> {
        self.placer.clear();
        (0..UCT_AM_IDS as u8).filter_map(|id| self.clear(AmId(id))).collect()
    }

    /// What all handlers, and placers, have received.
    pub(crate) fn received(&self) -> Count {
        let owned = self.owned.borrow();
        let others = self.received.get() + self.placer.received().get();
        owned.iter().fold(others, |sum, (_, handler)| sum + handler.received())
    }

    /// Removes a handler, as [`HandlerTable::set`] does: messages of its id are dropped from now on.
    pub(crate) fn clear(&self, id: AmId) -> Option<Box<dyn Owned>> {
        self.table.clear(id);
        self.take_one(id)
    }
}
