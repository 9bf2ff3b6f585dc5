//! The connection that a new endpoint uses: the one that there is, or another.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use socket2::{Socket, Type};
use ucs::Error;
use ucs::sys::{SystemError, random};
use uct_plugin::{Failure, Result, Scope, SocketSide};

use crate::iface::TcpIface;
use crate::io::socket::set_up;
use crate::link::connection::{Conn, State};
use crate::link::route;
use crate::proto::addr::{DeviceAddress, IfaceAddress};
use crate::proto::wire::HELLO;

/// In place of the address at the other end of a Unix socket, which has none.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl TcpIface {
    /// The connection for a new endpoint to a peer.
    pub(crate) fn conn_to(&self, device: &DeviceAddress, peer: &IfaceAddress) -> Result<Rc<Conn>, Failure> {
        if let Some(conn) = self.table.current(peer) {
            return Ok(conn);
        }
        let path = route::path((&self.device, &self.here), &self.families, device, peer, Scope::Network)
            .map_err(|reason| Failure::new(Error::UNREACHABLE, reason))?;
        let token = random::secret().map_err(|error| Failure::new(Error::from(&error), error.to_string()))?;
        let destination = Rc::new(peer.clone());
        let conn = self.table.add(peer.id, token, Some(Rc::clone(&destination)))?;
        self.table.set_current(destination, &conn);
        conn.connect(&self.shared, path.peer, path.source);
        if !self.config.conn_nb {
            self.await_system(&conn)?;
        }
        Ok(conn)
    }

    /// A connection over a socket that is connected already, for one endpoint: the application has found out whose its other end is.
    /// Endpoints that know the peer by its address alone do not use it.
    pub(crate) fn conn_over(
        &self,
        peer: &IfaceAddress,
        socket: OwnedFd,
        side: SocketSide,
    ) -> Result<Rc<Conn>, Failure> {
        let (socket, address) = connected(socket)?;
        let address = address.unwrap_or(NOWHERE);
        let system = |error: SystemError| Failure::new(Error::from(&error), error.to_string());
        if side == SocketSide::Accepted {
            let conn = self.table.add(peer.id, 0, None)?;
            conn.note_handed_over();
            if let Err(error) = self.take_in(socket, address, &[], Some(conn.id())) {
                conn.fail(&self.shared, Error::CANCELED, "its socket cannot be added to the event set");
                return Err(system(error));
            }
            return Ok(conn);
        }
        let token = random::secret().map_err(system)?;
        if address != NOWHERE {
            set_up(&socket, &self.shared.settings().socket)
                .map_err(|error| Failure::system("set up a socket", &error))?;
        }
        let conn = self.table.add(peer.id, token, Some(Rc::new(peer.clone())))?;
        conn.connect_over(&self.shared, socket, address).map_err(|error| {
            conn.fail(&self.shared, Error::CANCELED, "its socket cannot be added to the event set");
            Failure::system("watch a socket", &error)
        })?;
        Ok(conn)
    }

    /// As a socket that the own listener has accepted.
    pub(crate) fn adopt_accepted(&self, socket: OwnedFd, first: &[u8]) -> Result<(), Failure> {
        let (socket, address) = connected(socket)?;
        // It counts for its source, which a Unix socket does not have.
        let address = address
            .ok_or_else(|| Failure::new(Error::INVALID_PARAM, "the socket is no TCP socket of a peer"))?;
        if first.len() >= HELLO {
            let reason = format!("{} bytes were read already, a hello has {HELLO}", first.len());
            return Err(Failure::new(Error::INVALID_PARAM, reason));
        }
        self.take_in(socket, address, first, None)
            .map_err(|error| Failure::new(Error::from(&error), error.to_string()))
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

/// A socket of the application's, and the address at its other end; none if it is a Unix socket.
fn connected(socket: OwnedFd) -> Result<(Socket, Option<SocketAddr>), Failure> {
    let socket = Socket::from(socket);
    socket.set_nonblocking(true).map_err(|error| Failure::system("set up a socket", &error))?;
    let is_stream = socket.r#type().is_ok_and(|kind| kind == Type::STREAM);
    match socket.peer_addr() {
        Ok(address) if is_stream && (address.is_ipv4() || address.is_ipv6() || address.is_unix()) => {
            Ok((socket, address.as_socket()))
        }
        Ok(_) => {
            Err(Failure::new(Error::INVALID_PARAM, "the socket is neither a TCP socket nor a Unix stream"))
        }
        Err(error) => Err(Failure::system("read the address at the other end of a socket", &error)),
    }
}
