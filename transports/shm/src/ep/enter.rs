//! Whether an operation may start, and if not, why.
//!
//! An endpoint is open while no reason blocks its operations. All reasons are bits of one number (`link::member`), so the fast path
//! tests one number. The host tests the memory gate.

use std::rc::Rc;

use uct_plugin::{Error, Result};

use super::ShmEp;
use crate::iface::count;
use crate::link::blocked::BlockedOn;
use crate::link::connection::Connection;
use crate::link::member::{FAILED, FENCED, PENDING, UNCONNECTED};

impl ShmEp {
    /// Connects the endpoint.
    pub(crate) fn attach(&self, connection: &Rc<Connection>) {
        if self.connection.set(Rc::clone(connection)).is_ok() {
            self.member.open(UNCONNECTED);
            connection.add_member(&self.member);
        }
    }

    /// The connection, if no reason blocks operations.
    #[inline]
    pub(crate) fn open(&self) -> Option<&Connection> {
        if !self.member.is_open() {
            return None;
        }
        self.connection.get().map(|connection| &**connection)
    }

    /// The connection, if an operation may start. Checks first whether the reasons that block operations still hold.
    #[inline]
    pub(crate) fn enter(&self) -> Result<&Connection> {
        match self.open() {
            Some(connection) => Ok(connection),
            None => self.enter_slow(),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_slow(&self) -> Result<&Connection> {
        let member = &self.member;
        if member.is_closed(FAILED) {
            return Err(member.status.failure().unwrap_or(Error::IO_ERROR));
        }
        let connection = self.connection.get().ok_or(Error::NOT_CONNECTED)?;
        if member.is_closed(PENDING) {
            if member.group.is_empty() {
                member.open(PENDING);
            } else if connection.pending.must_wait(&member.group) {
                return Err(Error::NO_RESOURCE);
            }
        }
        if member.is_closed(FENCED) {
            if connection.has_outstanding() {
                return Err(self.blocked(BlockedOn::Fence));
            }
            member.open(FENCED);
        }
        Ok(connection)
    }

    /// Notes what the operation is blocked on, for `pending_add`.
    #[cold]
    #[inline(never)]
    pub(crate) fn blocked(&self, on: BlockedOn) -> Error {
        self.blocked_on.set(Some(on));
        count(&self.iface.counts.no_resource);
        if let Some(connection) = self.connection.get() {
            connection.set_blocked();
        }
        if matches!(on, BlockedOn::Welcome | BlockedOn::Segment(_)) {
            self.iface.schedule.begin_epoch_now();
        }
        match (on, self.connection.get().and_then(|connection| connection.channel.broken())) {
            (BlockedOn::BrokenChannel, Some(broken)) => broken.error,
            _ => Error::NO_RESOURCE,
        }
    }
}
