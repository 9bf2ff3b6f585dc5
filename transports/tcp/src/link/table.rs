//! The connections of an interface: added, found, forgotten, and what needs to know several of them.
//!
//! Built on `Conn` and `Shared`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use slotmap::SlotMap;
use ucs::Error;
use ucs::admission::Vacancy;
use ucs::clock::Deadline;
use ucs::event_set::Events;
use uct_plugin::{Failure, Result};

use super::conn_id::ConnId;
use super::connection::Conn;
use super::shared::Shared;
use crate::proto::addr::IfaceAddress;

/// Most connections of an interface: more than a process has descriptors.
const MAX_CONNS: usize = 1 << 20;

/// The connections of an interface.
#[derive(Default)]
pub(crate) struct Table {
    conns: RefCell<SlotMap<ConnId, Rc<Conn>>>,
    /// The connection that new endpoints to an address use.
    current: RefCell<HashMap<Rc<IfaceAddress>, Rc<Conn>>>,
    /// The connection that had something last, or has at this moment.
    active: Cell<Option<Rc<Conn>>>,
    /// Consecutive receives without data.
    misses: Cell<u32>,
    made: Cell<u64>,
}

impl Table {
    /// A connection that is not over.
    pub(crate) fn conn(&self, id: ConnId) -> Option<Rc<Conn>> {
        self.conns.borrow().get(id).filter(|conn| !conn.is_over()).cloned()
    }

    /// All that are not over.
    pub(crate) fn all(&self) -> Vec<Rc<Conn>> {
        let conns = self.conns.borrow();
        conns.iter().filter(|(_, conn)| !conn.is_over()).map(|(_, conn)| Rc::clone(conn)).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.conns.borrow().iter().filter(|(_, conn)| !conn.is_over()).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.conns.borrow().iter().all(|(_, conn)| conn.is_over())
    }

    #[inline]
    pub(crate) fn has_one(&self) -> bool {
        self.conns.borrow().len() == 1
    }

    /// How many there were so far.
    pub(crate) fn made(&self) -> u64 {
        self.made.get()
    }

    /// A connection without endpoints.
    pub(crate) fn add(
        &self,
        peer: u64,
        token: u64,
        destination: Option<Rc<IfaceAddress>>,
    ) -> Result<Rc<Conn>, Failure> {
        let mut conns = self.conns.borrow_mut();
        // Which of two is the later one matters while a connection is opened: that 2^32 of them lie between cannot be.
        let number = self.made.get() as u32;
        if conns.len() == MAX_CONNS {
            return Err(Failure::new(Error::EXCEEDS_LIMIT, "the interface has too many connections"));
        }
        let id = conns.insert_with_key(|id| Rc::new(Conn::new(id, number, peer, token, destination)));
        self.made.set(self.made.get() + 1);
        Ok(Rc::clone(&conns[id]))
    }

    /// The connection that new endpoints to an address use.
    pub(crate) fn current(&self, peer: &IfaceAddress) -> Option<Rc<Conn>> {
        self.current.borrow().get(peer).filter(|conn| conn.is_open_to_endpoints()).cloned()
    }

    pub(crate) fn set_current(&self, destination: Rc<IfaceAddress>, conn: &Rc<Conn>) {
        self.current.borrow_mut().insert(destination, Rc::clone(conn));
    }

    fn forget_current(&self, conn: &Rc<Conn>) {
        let Some(destination) = conn.destination() else { return };
        let mut current = self.current.borrow_mut();
        if current.get(destination).is_some_and(|other| Rc::ptr_eq(other, conn)) {
            current.remove(destination);
        }
    }

    fn forget(&self, id: ConnId) {
        let Some(conn) = self.conns.borrow_mut().remove(id) else { return };
        self.forget_current(&conn);
        if self.active().is_some_and(|active| Rc::ptr_eq(&active, &conn)) {
            self.set_active(None);
        }
    }

    /// Forgets the connections that are over.
    pub(crate) fn forget_over(&self, shared: &Shared) {
        while let Some(id) = shared.agenda.next_over() {
            self.forget(id);
        }
    }

    #[inline]
    pub(crate) fn active(&self) -> Option<Rc<Conn>> {
        let active = self.active.take();
        self.active.set(active.clone());
        active
    }

    pub(crate) fn set_active(&self, conn: Option<&Rc<Conn>>) {
        self.active.set(conn.cloned());
    }

    #[inline]
    pub(crate) fn misses(&self) -> u32 {
        self.misses.get()
    }

    #[inline]
    pub(crate) fn set_misses(&self, misses: u32) {
        self.misses.set(misses);
    }

    /// Something happened on the socket of a connection that is being established.
    pub(crate) fn on_connecting(&self, shared: &Shared, conn: &Rc<Conn>, events: Events) {
        let Some(other) = conn.on_connecting(shared, events, &self.all()) else { return };
        let was_active = self.active().is_some_and(|active| Rc::ptr_eq(&active, &other));
        self.forget(other.id());
        if was_active {
            self.set_active(Some(conn));
        }
        conn.go_on(shared, &other);
    }

    /// A connection was accepted from a peer that claims to be `peer`: connections that are being established may wait for it.
    pub(crate) fn on_claimant(&self, shared: &Shared, peer: u64) {
        for conn in self.all().into_iter().filter(|conn| conn.peer == peer && conn.is_connecting()) {
            conn.on_claimant(shared);
        }
    }

    /// What was noted for a connection: sends, resumes, and ends its use if its last endpoint has gone.
    pub(crate) fn look_after(&self, shared: &Shared, conn: &Rc<Conn>) {
        conn.take_dirty();
        conn.note_replies();
        conn.flush_unless_blocked(shared);
        conn.resume(shared);
        conn.go_on_flushing();
        conn.note_pending(shared);
        conn.retire(shared);
        if !conn.is_open_to_endpoints() {
            self.forget_current(conn);
        }
    }

    /// Whether there is room for one more connection of a source, which an unused one may make.
    pub(crate) fn make_room(
        &self,
        shared: &Shared,
        address: IpAddr,
        lacks_descriptors: bool,
        unused_timeout: Duration,
    ) -> bool {
        let is_unused = |id| self.conn(id).is_some_and(|conn| conn.is_unused());
        match shared.vacancy(address, lacks_descriptors, unused_timeout, is_unused) {
            Vacancy::Free => true,
            Vacancy::None => false,
            Vacancy::Instead(id) => {
                if let Some(conn) = self.conn(id) {
                    let reason = "it was not used, and another connection needs its place (unused_timeout)";
                    conn.fail(shared, Error::CANCELED, reason);
                }
                true
            }
        }
    }

    /// Has the large messages begin for which there is room now.
    pub(crate) fn serve_announced(&self, shared: &Shared) {
        while let Some((id, room)) = shared.next_room() {
            match self.conn(id) {
                Some(conn) => conn.on_room(shared, room),
                None => shared.give_room(room),
            }
        }
    }

    /// Ends the connections that hold room which others need, and send nothing; returns when to check again.
    pub(crate) fn tick_announced(&self, shared: &Shared, now: u64) -> Deadline {
        if let Err(later) = shared.begin_search_for_room(now) {
            return later;
        }
        for conn in self.all() {
            if conn.is_stalled(now) && shared.is_room_needed(conn.source()) {
                let reason = "a large message stalled, and other connections need its room";
                shared.agenda.fail_later(conn.id(), Error::ENDPOINT_TIMEOUT, reason.to_owned());
            }
        }
        shared.next_search_for_room()
    }

    /// Whether a connection has something outstanding.
    pub(crate) fn has_unfinished(&self) -> bool {
        self.all().iter().any(|conn| conn.has_unfinished())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_alone_while_it_is_the_only_one() {
        let table = Table::default();
        assert!(!table.has_one());
        let first = table.add(1, 1, None).unwrap();
        assert!(table.has_one());
        let second = table.add(2, 2, None).unwrap();
        assert!(!table.has_one());
        table.forget(first.id());
        assert!(table.has_one());
        table.forget(second.id());
        assert!(!table.has_one());
    }
}
