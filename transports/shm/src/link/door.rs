//! Connections in their handshake: of peers whose hello has not arrived, and of this side to peers whose listen queue is full.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use slab::Slab;
use ucs::clock::Deadline;
use ucs::event_set::TimerFd;
use ucs::log::Limited;
use ucs::sys::SystemError;

use crate::io::socket::Line;
use crate::link::connection::Connection;
use crate::link::handshake::Dial;

/// A connection whose hello has not arrived.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    pub(crate) line: Line,
    pub(crate) deadline: Deadline,
}

/// See the module.
pub(crate) struct Door {
    pub(crate) half_open: RefCell<Slab<HalfOpen>>,
    pub(crate) dials: RefCell<Vec<(Rc<Connection>, Dial)>>,
    /// Until when the listener is paused.
    pub(crate) resting: Cell<Option<Deadline>>,
    /// Log lines about the pause.
    pub(crate) rests: Limited,
    pub(crate) timer: TimerFd,
    pub(crate) next_tick: Cell<Deadline>,
}

impl Door {
    pub(crate) fn new() -> Result<Door, SystemError> {
        Ok(Door {
            half_open: RefCell::default(),
            dials: RefCell::default(),
            resting: Cell::new(None),
            rests: Limited::new(1),
            timer: TimerFd::new()?,
            next_tick: Cell::new(Deadline::NEVER),
        })
    }

    /// The timer, for the event set.
    pub(crate) fn timer(&self) -> &TimerFd {
        &self.timer
    }

    /// Closes all of them.
    pub(crate) fn close(&self) {
        self.half_open.borrow_mut().clear();
        self.dials.borrow_mut().clear();
    }

    /// Sets the timer to wake progress at this time, if not earlier.
    pub(crate) fn want_tick(&self, at: Deadline) {
        if at == Deadline::NEVER || at >= self.next_tick.get() {
            return;
        }
        match self.timer.set(at.remaining()) {
            Ok(()) => self.next_tick.set(at),
            Err(error) => ucs::log::error!("{error}"),
        }
    }

    /// Removes the oldest connection of the process that has most of them.
    pub(crate) fn make_room(&self) -> Option<OwnedFd> {
        let mut half_open = self.half_open.borrow_mut();
        let mut counts = HashMap::new();
        for (_, one) in half_open.iter() {
            *counts.entry(one.line.1).or_insert(0usize) += 1;
        }
        let key = |one: &HalfOpen| (counts[&one.line.1], Reverse(one.deadline));
        let (number, _) = half_open.iter().max_by_key(|(_, one)| key(one))?;
        Some(half_open.remove(number).line.0)
    }
}
