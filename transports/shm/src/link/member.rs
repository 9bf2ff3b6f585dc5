//! What a channel knows of an endpoint that uses it: its number, its pending requests, whether its operations may go ahead, and how to
//! report that it has failed.
//!
//! The endpoint holds it, a channel refers to it weakly.

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
/// It has no channel yet.
pub(crate) const UNCONNECTED: u8 = 8;

/// An endpoint as its channel sees it.
pub(crate) struct Member {
    /// What speaks against operations going ahead without a closer look, as bits.
    closed: Cell<u8>,
    /// Open while nothing does, for accesses of the host's.
    memory_gate: Gate,
    pub(crate) status: EpStatus,
    /// Its pending requests.
    pub(crate) group: PendingGroup,
    /// Tells its operations from those of others on the channel.
    pub(crate) number: u32,
}

impl Member {
    /// That of an endpoint with this number among those of its interface, without a channel.
    pub(crate) fn new(user: EpUser, number: u32) -> Member {
        Member {
            closed: Cell::new(UNCONNECTED),
            // SAFETY: the endpoint answers it as its gate.
            memory_gate: unsafe { Gate::new() },
            status: EpStatus::new(user),
            group: PendingGroup::default(),
            number,
        }
    }

    /// Whether nothing speaks against an operation.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.closed.get() == 0
    }

    /// Whether this speaks against operations.
    pub(crate) fn is_closed(&self, why: u8) -> bool {
        self.closed.get() & why != 0
    }

    /// From now on this speaks against operations.
    pub(crate) fn close(&self, why: u8) {
        self.closed.set(self.closed.get() | why);
        self.memory_gate.close();
    }

    /// From now on this does not any more.
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
