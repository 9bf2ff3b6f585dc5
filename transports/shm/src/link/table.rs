//! The connections of an interface, by number and by peer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use slab::Slab;

use crate::io::socket::Credentials;
use crate::link::channel::Channel;
use crate::link::connection::Connection;
use crate::link::place::{PeerName, Whereabouts};

/// See the module.
#[derive(Default)]
pub(crate) struct Table {
    connections: RefCell<Slab<Rc<Connection>>>,
    /// What endpoints to a peer use.
    by_peer: RefCell<HashMap<PeerName, Rc<Connection>>>,
}

impl Table {
    /// The number that the next connection gets.
    pub(crate) fn next_number(&self) -> u32 {
        self.connections.borrow().vacant_key() as u32
    }

    /// Adds a connection that was made with that number.
    pub(crate) fn add(&self, connection: &Rc<Connection>) {
        let number = self.connections.borrow_mut().insert(Rc::clone(connection));
        debug_assert_eq!(number, connection.channel.number as usize);
    }

    pub(crate) fn get(&self, number: usize) -> Option<Rc<Connection>> {
        self.connections.borrow().get(number).cloned()
    }

    /// One more than the largest number that there is.
    pub(crate) fn numbers(&self) -> usize {
        self.connections.borrow().capacity()
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.borrow().len()
    }

    /// A copy of the list, because what is done with one connection may add and remove others.
    pub(crate) fn all(&self) -> Vec<Rc<Connection>> {
        self.connections.borrow().iter().map(|(_, connection)| Rc::clone(connection)).collect()
    }

    /// Whether nothing that peers carry out is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.borrow().iter().all(|(_, connection)| !connection.has_outstanding())
    }

    /// Whether a connection can give memory back when it is idle.
    pub(crate) fn can_trim(&self) -> bool {
        self.connections.borrow().iter().any(|(_, connection)| connection.channel.rings.sender.can_trim())
    }

    /// The processes that have connected to this interface.
    pub(crate) fn accepted(&self, mut each: impl FnMut(Credentials)) {
        for (_, connection) in &*self.connections.borrow() {
            let channel = &connection.channel;
            if let Some((_, one)) = channel.line().filter(|_| !channel.connects) {
                each(*one);
            }
        }
    }

    /// The connection that endpoints to a peer use, if it works.
    pub(crate) fn of_peer(&self, name: &PeerName) -> Option<Rc<Connection>> {
        self.by_peer.borrow().get(name).filter(|connection| connection.channel.is_sound()).cloned()
    }

    /// From now on endpoints to a peer use this one.
    pub(crate) fn set_of_peer(&self, name: PeerName, connection: &Rc<Connection>) {
        self.by_peer.borrow_mut().insert(name, Rc::clone(connection));
    }

    /// A connection that the peer of an address has made itself.
    ///
    /// A hello can claim any interface. The kernel reports the process that connected, and the address contains the peer's process. A
    /// connection of another process, or of one that is not known, is not used.
    pub(crate) fn accepted_from(&self, to: &Whereabouts) -> Option<Rc<Connection>> {
        self.find(|channel| {
            (channel.peer_iface, channel.peer_key) == (to.iface.id, to.iface.key)
                && !channel.connects
                && channel.is_sound()
                && channel
                    .line()
                    .is_some_and(|(_, peer)| to.process.is_some_and(|process| process.is(peer.pid, peer.uid)))
        })
    }

    /// The connection that this side has made to the interface with this number and key, in this process.
    pub(crate) fn made_to(&self, iface: u64, key: u64, process: Credentials) -> Option<Rc<Connection>> {
        self.find(|channel| {
            (channel.peer_iface, channel.peer_key) == (iface, key)
                && channel.connects
                && channel.is_sound()
                && channel.line().is_some_and(|(_, peer)| *peer == process)
        })
    }

    /// The connection that the peer of ours has made, to share its ping-pong line as the peer has asked for; `None` until it is here.
    pub(crate) fn shared_by(&self, own: &Channel) -> Option<Rc<Connection>> {
        self.find(|channel| {
            let number = channel.peer().map(|peer| peer.side.doorbell_number.wrapping_add(1));
            !channel.connects
                && (channel.peer_iface, channel.peer_key) == (own.peer_iface, own.peer_key)
                && channel.process().is_some()
                && channel.process() == own.process()
                && number == Some(own.shares.get())
        })
    }

    fn find(&self, is_it: impl Fn(&Channel) -> bool) -> Option<Rc<Connection>> {
        let connections = self.connections.borrow();
        connections.iter().map(|(_, it)| it).find(|it| is_it(&it.channel)).cloned()
    }

    /// Removes a connection.
    pub(crate) fn forget(&self, connection: &Rc<Connection>) {
        self.by_peer.borrow_mut().retain(|_, known| !Rc::ptr_eq(known, connection));
        self.connections.borrow_mut().try_remove(connection.channel.number as usize);
    }

    /// Removes all connections.
    pub(crate) fn clear(&self) {
        self.by_peer.borrow_mut().clear();
        self.connections.borrow_mut().clear();
    }
}
