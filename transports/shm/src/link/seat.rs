//! A channel's seat at a shuttle.
//!
//! For: channels. Stands on the shuttle of the ring that they have, or of another channel to the same peer: two interfaces that
//! connect to each other at the same time have two channels, each sends over its own, and the answers to the one come over the
//! other. Both channels then share one shuttle. Which one is agreed on by hello and welcome (`ShmIface::meet`).

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use crate::io::Mapping;
use crate::proto::ring::{Body, Control, MappedShuttle, Short, Shuttle, Watch};

/// One end of a shuttle, with what it lies in.
struct End {
    shuttle: Shuttle<MappedShuttle>,
    _memory: Arc<Mapping>,
}

/// See the module.
pub(crate) struct Seat {
    /// What `end` holds, at hand.
    shuttle: Cell<NonNull<Shuttle<MappedShuttle>>>,
    end: RefCell<Rc<End>>,
    /// Tells words of this channel's rings from those of the other channel at the shuttle.
    mark: Cell<u64>,
}

impl Seat {
    /// At a shuttle of one's own.
    pub(crate) fn new(shuttle: Shuttle<MappedShuttle>, memory: Arc<Mapping>) -> Seat {
        let end = Rc::new(End { shuttle, _memory: memory });
        Seat { shuttle: Cell::new(NonNull::from(&end.shuttle)), end: RefCell::new(end), mark: Cell::new(0) }
    }

    /// Changes over to the shuttle of another channel.
    pub(crate) fn share(&self, other: &Seat) {
        let end = Rc::clone(&other.end.borrow());
        self.shuttle.set(NonNull::from(&end.shuttle));
        self.end.replace(end);
        self.mark.set(Control::SHARED);
    }

    /// Whether both are at the same shuttle.
    pub(crate) fn is_beside(&self, other: &Seat) -> bool {
        self.shuttle.get() == other.shuttle.get()
    }

    #[inline(always)]
    fn shuttle(&self) -> &Shuttle<MappedShuttle> {
        // SAFETY: it is the one in `end`, which nobody replaces during the calls below: none of them is given anything to call
        // but what fills a message.
        unsafe { self.shuttle.get().as_ref() }
    }

    /// Whether it is our turn.
    #[inline(always)]
    pub(crate) fn is_mine(&self) -> bool {
        self.shuttle().is_mine()
    }

    /// Sends a message of a ring's position; it is our turn.
    #[inline(always)]
    pub(crate) fn send(&self, position: u64, id: u8, length: usize, fill: impl FnOnce(*mut u8)) {
        self.shuttle().send(Control::short(position + self.mark.get(), id, length), fill);
    }

    /// As [`Shuttle::take`].
    #[inline(always)]
    pub(crate) fn take(&self, position: u64, copy: &mut Body) -> Option<Short> {
        self.shuttle().take(position + self.mark.get(), copy)
    }

    /// As [`Shuttle::has`].
    #[inline(always)]
    pub(crate) fn has(&self, position: u64) -> bool {
        self.shuttle().has(position + self.mark.get())
    }

    /// As [`Shuttle::watch`].
    #[inline(always)]
    pub(crate) fn watch(&self, position: u64) -> Watch {
        self.shuttle().watch(position + self.mark.get())
    }
}
