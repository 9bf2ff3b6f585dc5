//! The part of an endpoint that its connection knows: its number, its pending requests, the reasons that block its operations, and the
//! report of its failure.
//!
//! The endpoint owns it. The connection refers to it weakly.

use std::cell::Cell;

use uct_plugin::memory::Gate;
use uct_plugin::pending::PendingGroup;
use uct_plugin::traits::EpUser;
use uct_plugin::{EpStatus, Error};

/// The endpoint has failed.
pub(crate) const FAILED: u8 = 1;
/// A fence waits for operations ahead of it.
pub(crate) const FENCED: u8 = 2;
/// Requests are pending.
pub(crate) const PENDING: u8 = 4;
/// It has no connection yet.
pub(crate) const UNCONNECTED: u8 = 8;

/// See the module.
pub(crate) struct Member {
    /// Reasons that block operations, as bits.
    closed: Cell<u8>,
    /// Open while no reason blocks operations, for accesses of the host.
    memory_gate: Gate,
    pub(crate) status: EpStatus,
    /// Its pending requests.
    pub(crate) group: PendingGroup,
    /// Distinguishes its operations from those of other endpoints on the connection.
    pub(crate) number: u32,
}

impl Member {
    /// For a new endpoint without a connection. `number` is unique in its interface.
    pub(crate) fn new(user: EpUser, number: u32) -> Member {
        Member {
            closed: Cell::new(UNCONNECTED),
            // SAFETY: the endpoint returns it as its gate.
            memory_gate: unsafe { Gate::new() },
            status: EpStatus::new(user),
            group: PendingGroup::default(),
            number,
        }
    }

    /// Whether no reason blocks operations.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.closed.get() == 0
    }

    /// Whether this reason blocks operations.
    pub(crate) fn is_closed(&self, why: u8) -> bool {
        self.closed.get() & why != 0
    }

    /// Adds a reason that blocks operations.
    pub(crate) fn close(&self, why: u8) {
        self.closed.set(self.closed.get() | why);
        self.memory_gate.close();
    }

    /// Removes a reason.
    pub(crate) fn open(&self, why: u8) {
        self.closed.set(self.closed.get() & !why);
        if self.is_open() {
            self.memory_gate.open();
        }
    }

    /// The gate, for the host.
    pub(crate) fn memory_gate(&self) -> &Gate {
        &self.memory_gate
    }

    /// From now on every operation returns `error`, unless the endpoint has failed or was cancelled before.
    pub(crate) fn fail(&self, error: Error) {
        self.status.fail(error);
        self.close(FAILED);
    }
}
