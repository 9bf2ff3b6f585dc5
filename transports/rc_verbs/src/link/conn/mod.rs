//! One connection: a queue pair, its operations in flight, and the credits of both sides.
//!
//! Here is its state; each file beside has one kind of operations on it.

mod atomic;
mod connect;
mod emulated;
mod end;
mod failure;
mod flush;
mod liveness;
mod message;
mod receive;
mod rma;
mod send;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use uct_ib::verbs::Qp;
use uct_plugin::traits::EpUser;
use uct_plugin::{EpStatus, Error, PendingGroup};

use super::emulation::Emulated;
use super::op::TxOp;
use super::shared::Shared;
use crate::proto::liveness::Pulse;
use crate::proto::outstanding::OutstandingQueue;
use crate::proto::send_queue::SendQueue;
use crate::proto::window::PeerWindow;

/// A flag of a connection: its group may have pending requests.
pub(crate) const HAS_PENDING: u8 = 1;
/// The host has destroyed its endpoint; it lives until everything in flight has ended.
pub(crate) const DESTROYED: u8 = 2;

/// A connection. The table of connections holds it until all that was posted has ended, and its endpoint until that is destroyed.
pub(crate) struct Conn {
    pub(crate) qp: Qp,
    pub(crate) shared: Rc<Shared>,
    pub(crate) queue: SendQueue,
    /// Its place in the interface's table.
    pub(crate) index: u32,
    /// How many messages the peer may send.
    pub(crate) window: PeerWindow,
    /// What the end of a work request checks: [`HAS_PENDING`] and [`DESTROYED`]; rarely set.
    pub(crate) flags: Cell<u8>,
    /// It is in the agenda's list of connections that are blocked on shared resources.
    pub(crate) is_blocked: Cell<bool>,
    /// It is in the agenda's list of connections with deferred work.
    pub(crate) is_deferred: Cell<bool>,
    pub(crate) pulse: Pulse,
    pub(crate) status: EpStatus,
    pub(crate) outstanding: OutstandingQueue<TxOp>,
    pub(crate) emulated: RefCell<VecDeque<Emulated>>,
    /// A step of the first emulated atomic is in flight; its completion starts the next one.
    pub(crate) is_stepping: Cell<bool>,
    pub(crate) group: PendingGroup,
}

impl Conn {
    /// A connection that has no peer yet.
    pub(crate) fn new(shared: &Rc<Shared>, qp: Qp, index: u32, window: PeerWindow, user: EpUser) -> Conn {
        Conn {
            qp,
            shared: Rc::clone(shared),
            queue: SendQueue::new(shared.limits.tx_queue_len),
            index,
            window,
            flags: Cell::new(0),
            is_blocked: Cell::new(false),
            is_deferred: Cell::new(false),
            pulse: Pulse::default(),
            status: EpStatus::new(user),
            outstanding: OutstandingQueue::default(),
            emulated: RefCell::default(),
            is_stepping: Cell::new(false),
            group: PendingGroup::default(),
        }
    }

    /// The failure that ended it, if one did.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.status.failure()
    }

    /// Stops sending, with this reason; returns whether it was the first.
    pub(crate) fn shut(&self, error: Error) -> bool {
        let is_first = self.status.fail(error);
        if is_first {
            self.queue.shut();
        }
        is_first
    }

    pub(crate) fn set_flag(&self, flag: u8) {
        self.flags.set(self.flags.get() | flag);
    }

    pub(crate) fn clear_flag(&self, flag: u8) {
        self.flags.set(self.flags.get() & !flag);
    }

    /// Whether the host has destroyed it.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.flags.get() & DESTROYED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_no_bigger_than_it_was() {
        assert!(size_of::<Conn>() <= 208, "{} bytes", size_of::<Conn>());
    }
}
