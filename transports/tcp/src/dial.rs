//! The connection that a new endpoint uses: the one that there is, or another.

use std::rc::Rc;

use ucs::Error;
use ucs::sys::random;
use uct_plugin::{Failure, Result, Scope};

use crate::iface::TcpIface;
use crate::link::connection::{Conn, State};
use crate::link::route;
use crate::proto::addr::{DeviceAddress, IfaceAddress};

impl TcpIface {
    /// The connection for a new endpoint to a peer.
    pub(crate) fn conn_to(&self, device: &DeviceAddress, peer: &IfaceAddress) -> Result<Rc<Conn>, Failure> {
        if let Some(conn) = self.table.current(peer) {
            return Ok(conn);
        }
        let way = route::way(&self.device, &self.families, device, peer, Scope::Network)
            .map_err(|reason| Failure::new(Error::UNREACHABLE, reason))?;
        let token = random::secret().map_err(|error| Failure::new(Error::from(&error), error.to_string()))?;
        let destination = Rc::new(peer.clone());
        let conn = self.table.add(peer.id, token, Some(Rc::clone(&destination)))?;
        self.table.set_current(destination, &conn);
        conn.connect(&self.shared, way.peer, way.source);
        if !self.config.conn_nb {
            self.await_system(&conn)?;
        }
        Ok(conn)
    }

    /// Waits until the system has connected.
    fn await_system(&self, conn: &Rc<Conn>) -> Result<(), Failure> {
        let limit = self.config.connect_timeout.to_duration();
        let outcome = self.wait_for(limit, || !conn.awaits_system());
        if let State::Closed(error) = conn.state() {
            return Err(Failure::new(error, self.shared.last_failure()));
        }
        outcome
            .map_err(|error| Failure::new(error, "the peer's system has not answered within connect_timeout"))
    }
}
