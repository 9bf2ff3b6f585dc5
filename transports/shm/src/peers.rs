//! The connections of an interface: creates them, accepts them from peers, and reaps them.
//!
//! Used by endpoints, which connect, by `listen`, which accepts, and by progress, which reaps. Built on the handshake and on channels.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use ucs::event_set::Events;
use ucs::sys::process::credentials;
use ucs::units::Ternary;
use uct_plugin::{Error, Failure, PeerAddress};

use crate::iface::ShmIface;
use crate::io::Mapping;
use crate::io::socket::{Credentials, Line};
use crate::link::channel::Channel;
use crate::link::connection::Connection;
use crate::link::pair_layout::PairLayout;
use crate::link::peer::Peer;
use crate::link::place::Whereabouts;
use crate::link::remote::{SegmentCache, registry};
use crate::link::work::{PendingWork, source};
use crate::proto::addr::{DeviceAddress, IfaceAddress};
use crate::proto::ring::{FIRST_SLOTS, Geometry, Pool};
use crate::proto::wire::Hello;

impl ShmIface {
    /// The shape of the rings that this side makes.
    fn shape(&self) -> Geometry {
        let pool = |count, size: usize| Pool { count, stride: size as u32 };
        Geometry {
            slots: self.config.fifo_size.next_power_of_two(),
            first: FIRST_SLOTS,
            small: pool(self.config.small_seg_count, self.limits.short),
            bulk: pool(self.config.seg_count, self.limits.bulk),
        }
    }

    /// Where a peer is, from its address.
    pub(crate) fn whereabouts(&self, peer: PeerAddress<'_>) -> Result<Whereabouts, String> {
        let device = DeviceAddress::parse(peer.device)?;
        let iface = IfaceAddress::parse(peer.iface)?;
        let process = self.device.process_of(&device, &iface);
        Ok(Whereabouts { iface, routes: self.device.routes_to(&device)?, process })
    }

    /// The connection to a peer: the one that there is, or a new one.
    pub(crate) fn connection_to(&self, peer: PeerAddress<'_>) -> Result<Rc<Connection>, Failure> {
        registry()?;
        let to = self.whereabouts(peer).map_err(|reason| Failure::new(Error::UNREACHABLE, reason))?;
        let known = self.table.of_peer(&to.name()).or_else(|| self.table.accepted_from(&to));
        let connection = match known {
            Some(connection) => connection,
            None => self.connect(&to)?,
        };
        self.table.set_of_peer(to.name(), &connection);
        Ok(connection)
    }

    fn connect(&self, to: &Whereabouts) -> Result<Rc<Connection>, Failure> {
        let number = self.table.next_number();
        let timeout = self.config.connect_timeout.to_duration();
        let directory = self.directory.as_deref();
        let (dial, rings, memory) = self.identity.dial(number, to, directory, timeout, self.shape())?;
        let channel = Channel::connecting(number, &to.iface, &rings, memory, self.shared());
        let connection = Rc::new(Connection::new(channel));
        self.begin(&connection, dial)?;
        self.add(&connection);
        Ok(connection)
    }

    /// What all channels share.
    fn shared(&self) -> (PendingWork, Rc<SegmentCache>) {
        (self.work.clone(), Rc::clone(&self.cache))
    }

    fn add(&self, connection: &Rc<Connection>) {
        if self.config.cma == Ternary::No {
            connection.channel.forbid_cma();
        }
        self.table.add(connection);
    }

    /// Sets the socket of a channel.
    pub(crate) fn stand(&self, channel: &Channel, line: Line) -> Result<(), Failure> {
        self.events
            .add(&line.0, Events::READ, u64::from(channel.number))
            .map_err(|error| Failure::new(Error::IO_ERROR, error.to_string()))?;
        channel.take_line(line);
        Ok(())
    }

    /// Accepts a peer whose hello is valid.
    pub(crate) fn meet(
        &self,
        line: Line,
        hello: &Hello,
        fds: &[OwnedFd],
        rings: &PairLayout,
        memory: Mapping,
    ) {
        let number = self.table.next_number();
        let own = self.own_connection(hello, line.1);
        let shares = own.as_ref().filter(|own| own.channel.peer_iface > self.identity.address.id);
        let met = Peer::new(hello.from, fds)
            .map_err(|reason| Failure::new(Error::REJECTED, reason))
            .and_then(|peer| {
                let shared = shares.map_or(0, |own| own.channel.number + 1);
                self.identity.welcome(line.0.as_fd(), number, shared)?;
                let channel = Channel::accepted(number, rings, memory, peer, self.shared());
                self.stand(&channel, line)?;
                let connection = Rc::new(Connection::new(channel));
                self.add(&connection);
                Ok(connection)
            });
        match met {
            Ok(connection) => {
                if let Some(own) = shares {
                    connection.channel.rings.share(&own.channel.rings);
                    self.raise(source::CHANNEL);
                } else if let Some(own) = own.filter(|own| own.channel.shares.get() != 0) {
                    self.share_line(&own.channel);
                }
                self.start_polling(&connection);
            }
            Err(failure) => {
                if let Some(left_out) = self.identity.refusals.admit() {
                    ucs::log::debug!("a connection of a peer failed: {failure}{left_out}");
                }
            }
        }
    }

    /// Our connection to the sender of a hello, if both have connected at the same time and each knows that the other process is the same on
    /// both connections.
    fn own_connection(&self, hello: &Hello, from: Credentials) -> Option<Rc<Connection>> {
        // The other side compares users too: this one has to be at both connections what it was when it began to listen.
        let is_comparable = from.pid != 0 && credentials().effective_uid == self.identity.address.uid;
        let known = self.table.made_to(hello.from.iface, hello.from.key, from);
        known.filter(|_| hello.knows_process == 1 && is_comparable)
    }

    /// Makes our connection use the ping-pong line of the peer's connection, as the peer has requested, once that connection is accepted.
    pub(crate) fn share_line(&self, own: &Channel) {
        let Some(other) = self.table.shared_by(own) else { return };
        if other.channel.user() != own.user() {
            let reason = "the peer asks to share a connection that another user has made".to_owned();
            own.set_broken(Error::REJECTED, reason);
            return;
        }
        own.rings.share(&other.channel.rings);
        own.shares.set(0);
        // The word to watch may have changed.
        self.raise(source::CHANNEL);
    }

    /// Removes a broken connection, and reports the failure to its endpoints.
    pub(crate) fn reap(&self, connection: &Rc<Connection>) {
        let Some(broken) = connection.channel.broken() else { return };
        self.active.borrow_mut().retain(|other| !Rc::ptr_eq(other, connection));
        self.watch_first();
        connection.is_active.set(false);
        self.table.forget(connection);
        if let Some(socket) = connection.channel.socket() {
            // It may be out of the set already.
            let _ = self.events.remove(socket);
        }
        connection.channel.forget_segments();
        connection.fail(&self.errors, broken);
    }
}
