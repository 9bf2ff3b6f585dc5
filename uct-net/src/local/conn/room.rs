//! Waiting for the transport's room. One pending request of the transport serves all waiting tasks.

use std::rc::Rc;
use std::task::Context;

use ucs::Error as Status;
use uct_host::Pending;

use super::super::lane::Lane;
use super::Conn;

impl Conn {
    /// Registers the caller for when something has left or the connection has failed.
    pub(crate) fn wait_for_room(&self, context: &Context<'_>) {
        self.state.borrow_mut().writers.add(context);
    }

    /// Registers the caller for when the transport has room. One pending request of the transport serves all waiting tasks.
    pub(crate) fn wait_for_transport_room(self: &Rc<Conn>, context: &Context<'_>) {
        let Some(lane) = self.lane.get() else { return };
        self.wait_for_room(context);
        self.is_awaited.set(true);
        if !self.waits_for_room.get() && !self.wait_for_transport(lane) {
            self.become_due();
        }
    }

    /// Has the transport report when there is room; false if there is already.
    pub(super) fn wait_for_transport(self: &Rc<Conn>, lane: &Lane) -> bool {
        let conn = Rc::downgrade(self);
        let request = move |_ep: &uct_host::Ep| {
            if let Some(conn) = conn.upgrade() {
                conn.waits_for_room.set(false);
                conn.become_due();
            }
            Pending::Done
        };
        match lane.ep.pending_add(request) {
            Ok(()) => {
                self.waits_for_room.set(true);
                true
            }
            Err((Status::BUSY, _)) => false,
            Err((status, _)) => {
                self.fail_by_status(status);
                true
            }
        }
    }
}
