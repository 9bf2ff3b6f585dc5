//! The connections of an interface: made, found, watched, forgotten.

use std::rc::Rc;

use socket2::Socket;
use ucs::Error;
use ucs::datastruct::slot_map::SlotId;
use ucs::event_set::Events;
use ucs::sys::random;
use uct_plugin::{Failure, Result, Scope};

use crate::iface::TcpIface;
use crate::link::connection::{Conn, State};
use crate::link::route;
use crate::proto::addr::{DeviceAddress, IfaceAddress};

impl TcpIface {
    pub(crate) fn conn(&self, id: SlotId) -> Option<Rc<Conn>> {
        self.conns.borrow().get(id).cloned()
    }

    pub(crate) fn all_conns(&self) -> Vec<Rc<Conn>> {
        self.conns.borrow().iter().map(|(_, conn)| Rc::clone(conn)).collect()
    }

    pub(crate) fn has_connections(&self) -> bool {
        !self.conns.borrow().is_empty()
    }

    /// A connection that nobody uses yet.
    pub(crate) fn new_conn(
        &self,
        peer: u64,
        token: u64,
        destination: Option<Rc<IfaceAddress>>,
    ) -> Result<Rc<Conn>, Failure> {
        let mut conns = self.conns.borrow_mut();
        // Which of two is the later one matters while a connection is opened: that 2^32 of them lie between cannot be.
        let number = self.made.get() as u32;
        let id = conns
            .insert_with(|id| Rc::new(Conn::new(id, number, peer, token, destination)))
            .ok_or_else(|| Failure::new(Error::EXCEEDS_LIMIT, "the interface has too many connections"))?;
        self.made.set(self.made.get() + 1);
        conns.get(id).cloned().ok_or_else(|| Failure::from(Error::NO_ELEM))
    }

    /// The connection that new endpoints to an address use.
    fn current(&self, peer: &IfaceAddress) -> Option<Rc<Conn>> {
        self.current.borrow().get(peer).cloned()
    }

    pub(crate) fn forget_current(&self, conn: &Rc<Conn>) {
        let Some(destination) = conn.destination() else { return };
        let mut current = self.current.borrow_mut();
        if current.get(destination).is_some_and(|other| Rc::ptr_eq(other, conn)) {
            current.remove(destination);
        }
    }

    /// Forgets a connection that is over.
    pub(crate) fn forget(&self, conn: &Rc<Conn>) {
        self.forget_current(conn);
        self.accepted.borrow_mut().remove(conn.id());
        self.conns.borrow_mut().remove(conn.id());
        if self.hot().is_some_and(|hot| Rc::ptr_eq(&hot, conn)) {
            self.set_hot(None);
        }
    }

    /// The connection for a new endpoint to a peer.
    pub(crate) fn conn_to(&self, device: &DeviceAddress, peer: &IfaceAddress) -> Result<Rc<Conn>, Failure> {
        if let Some(conn) = self.current(peer).filter(|conn| conn.is_open_to_endpoints()) {
            return Ok(conn);
        }
        let way = route::way(&self.device, &self.families, device, peer, Scope::Network)
            .map_err(|reason| Failure::new(Error::UNREACHABLE, reason))?;
        let token = random::secret().map_err(|error| Failure::new(Error::from(&error), error.to_string()))?;
        let destination = Rc::new(peer.clone());
        let conn = self.new_conn(peer.id, token, Some(Rc::clone(&destination)))?;
        self.current.borrow_mut().insert(destination, Rc::clone(&conn));
        conn.connect(self, way.peer, way.source);
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
            return Err(Failure::new(error, self.last_failure.borrow().clone()));
        }
        outcome
            .map_err(|error| Failure::new(error, "the peer's system has not answered within connect_timeout"))
    }

    pub(crate) fn add_socket(&self, conn: &Conn, socket: &Socket) -> std::io::Result<()> {
        self.add(conn, socket, Events::READ)
    }

    pub(crate) fn add_connecting(&self, conn: &Conn, socket: &Socket) -> std::io::Result<()> {
        self.add(conn, socket, Events::WRITE)
    }

    fn add(&self, conn: &Conn, socket: &Socket, events: Events) -> std::io::Result<()> {
        let added = self.events.add(socket, events, conn.id().get().into());
        added.map_err(|error| std::io::Error::from_raw_os_error(error.errno))
    }

    pub(crate) fn remove_socket(&self, socket: &Socket) {
        // One that is not in the set any more need not be removed.
        let _ = self.events.remove(socket);
    }

    /// Changes what the event set watches a connection for.
    pub(crate) fn watch(&self, conn: &Conn, events: Events) {
        conn.with_socket(|socket| {
            if let Err(error) = self.events.modify(socket, events, conn.id().get().into()) {
                tracing::error!("{error}");
            }
        });
    }

    pub(crate) fn count_blocked(&self, change: i32) {
        self.blocked.set(self.blocked.get() + change);
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.get() > 0
    }

    #[inline(always)]
    pub(crate) fn hot(&self) -> Option<Rc<Conn>> {
        let hot = self.hot.take();
        self.hot.set(hot.clone());
        hot
    }

    pub(crate) fn set_hot(&self, conn: Option<&Rc<Conn>>) {
        self.hot.set(conn.cloned());
    }

    #[inline(always)]
    pub(crate) fn has_one_connection(&self) -> bool {
        self.conns.borrow().len() == 1
    }

    #[inline(always)]
    pub(crate) fn misses(&self) -> u32 {
        self.misses.get()
    }

    #[inline(always)]
    pub(crate) fn set_misses(&self, misses: u32) {
        self.misses.set(misses);
    }
}
