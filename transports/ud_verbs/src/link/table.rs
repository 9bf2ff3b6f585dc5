//! The connections of an interface that this side owns.

use std::cell::RefCell;
use std::rc::Rc;

use super::conn::Conn;
use crate::proto::ConnectionId;

/// Connections by their index.
#[derive(Default)]
pub(crate) struct ConnTable(RefCell<Vec<Option<Rc<Conn>>>>);

impl ConnTable {
    /// The connection of this number, if this side owns it.
    #[inline]
    pub(crate) fn get(&self, id: ConnectionId) -> Option<Rc<Conn>> {
        self.0.borrow().get(id.index())?.clone()
    }

    /// Every connection, as they are now.
    pub(crate) fn all(&self) -> Vec<Rc<Conn>> {
        self.0.borrow().iter().flatten().cloned().collect()
    }

    /// Holds a connection until it is forgotten.
    pub(crate) fn insert(&self, conn: &Rc<Conn>) {
        let mut conns = self.0.borrow_mut();
        let index = conn.connection.index();
        if conns.len() <= index {
            conns.resize(index + 1, None);
        }
        conns[index] = Some(Rc::clone(conn));
    }

    /// Forgets a connection whose endpoint is destroyed.
    pub(crate) fn forget(&self, id: ConnectionId) {
        let conn = self.0.borrow_mut().get_mut(id.index()).and_then(Option::take);
        drop(conn);
    }
}
