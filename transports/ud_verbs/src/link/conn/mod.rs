//! A connection that this side owns: messages to a peer, its pending requests, and what waits for its acknowledgements.
//!
//! Here is its state; each file beside has one kind of operations on it.

mod flush;
mod rma;
mod send;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use uct_ib::DeviceAddress;
use uct_plugin::rma::Initiator;
use uct_plugin::traits::EpUser;
use uct_plugin::{Completion, Error, Failure, Outcome, PendingGroup, Result};

use super::emulation;
use super::failure::status;
use super::shared::Shared;
use crate::proto::addr::{EpAddress, origin};
use crate::proto::{ConnectionId, Phase, Psn};

/// A connection that this side owns. The table of connections holds it until its endpoint is destroyed.
pub(crate) struct Conn {
    pub(crate) shared: Rc<Shared>,
    pub(crate) connection: ConnectionId,
    pub(crate) pending: PendingGroup,
    pub(crate) user: EpUser,
    /// Puts, gets and atomics without a response yet.
    pub(crate) initiator: Initiator,
    waits: RefCell<VecDeque<Wait>>,
    checks: RefCell<Vec<Completion>>,
    /// The place up to which an acknowledgement was requested.
    ack_requested_to: Cell<Option<Psn>>,
}

/// Where a flush that began at some time ends: messages ahead of a place (none if it began before the connection stood),
/// and operations up to a number.
pub(crate) type Mark = (Option<Psn>, u32);

/// A flush.
struct Wait {
    mark: Mark,
    completion: Completion,
}

impl Conn {
    pub(crate) fn new(shared: &Rc<Shared>, connection: ConnectionId, user: EpUser) -> Conn {
        Conn {
            shared: Rc::clone(shared),
            connection,
            pending: PendingGroup::default(),
            user,
            initiator: emulation::initiator(shared.limits.message, shared.limits.operations),
            waits: RefCell::default(),
            checks: RefCell::default(),
            ack_requested_to: Cell::new(None),
        }
    }

    /// Whether the connection is over.
    pub(crate) fn is_over(&self) -> bool {
        let phase = self.shared.enter().with(|core| core.table.phase(self.connection));
        matches!(phase, Phase::Finished | Phase::Failed(_) | Phase::Aborted)
    }

    /// The peer has acknowledged something, or shown that it is alive.
    pub(crate) fn on_news(&self) {
        self.pump();
        self.shared.pending.schedule(&self.pending);
        if !self.waits.borrow().is_empty() || !self.checks.borrow().is_empty() {
            self.serve_waits();
        }
    }

    /// Ends everything that waits with an error.
    pub(crate) fn cancel(&self, error: Error) {
        self.initiator.fail(error);
        let waits = std::mem::take(&mut *self.waits.borrow_mut());
        waits.into_iter().for_each(|wait| wait.completion.complete(Err(error)));
        let checks = std::mem::take(&mut *self.checks.borrow_mut());
        checks.into_iter().for_each(|check| check.complete(Err(error)));
    }

    /// Gives up on everything that is outstanding. The endpoint is good for destruction only.
    fn abort(&self) {
        let guard = self.shared.enter();
        guard.with(|core| {
            core.clock.read();
            core.table.abort(core.clock.now(), self.connection);
            core.transmit();
        });
        self.shared.add_work(&guard);
        self.shared.drain(&guard, self.connection);
        self.cancel(Error::CANCELED);
    }

    /// What the peer must know to connect to this.
    pub(crate) fn address(&self) -> EpAddress {
        self.shared.enter().with(|core| EpAddress {
            qp: core.queue.number(),
            invitation: core.table.invitation(self.connection),
        })
    }

    /// Connects to a connection of a peer that waits for it.
    pub(crate) fn connect_to(&self, device: &DeviceAddress, peer: EpAddress) -> Result<(), Failure> {
        let guard = self.shared.enter();
        let connected = guard.with(|core| {
            core.check()?;
            let path = core.paths.find(device, peer.qp)?;
            core.clock.read();
            let origin = origin(device, peer.qp);
            core.table.connect_to(core.clock.now(), self.connection, peer.invitation, origin, path).map_err(
                |_| {
                    Failure::new(
                        Error::ALREADY_EXISTS,
                        "the endpoint is already connected, or was created with a peer",
                    )
                },
            )
        });
        connected?;
        self.shared.add_work(&guard);
        Ok(())
    }

    /// The endpoint is gone: what has been sent is still delivered.
    pub(crate) fn close(&self) {
        let guard = self.shared.enter();
        guard.with(|core| {
            core.clock.read();
            core.table.close(core.clock.now(), self.connection);
            core.transmit();
        });
        self.cancel(Error::CANCELED);
        self.shared.add_work(&guard);
    }

    /// Probes the peer.
    pub(crate) fn check(&self, completion: Option<Completion>) -> Result<Outcome> {
        let guard = self.shared.enter();
        match guard.with(|core| core.table.phase(self.connection)) {
            Phase::Failed(failure) => return Err(status(failure)),
            Phase::Unconnected => return Err(Error::NOT_CONNECTED),
            Phase::Finished | Phase::Aborted => return Err(Error::CANCELED),
            Phase::Connecting | Phase::Connected => {}
        }
        guard.with(|core| {
            core.clock.read();
            core.table.probe(core.clock.now(), self.connection);
            core.transmit();
        });
        self.shared.add_work(&guard);
        match completion {
            Some(completion) => {
                self.checks.borrow_mut().push(completion);
                Ok(Outcome::InProgress)
            }
            None => Ok(Outcome::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_no_bigger_than_it_was() {
        assert!(size_of::<Conn>() <= 240, "{} bytes", size_of::<Conn>());
    }
}
