//! Who an interface is connected to: channels are made, accepted, and buried.
//!
//! For: endpoints (they connect) and progress (it accepts and buries). Stands on the handshake and on channels.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use ucs::event_set::Events;
use ucs::units::Ternary;
use uct_plugin::{Error, Failure, PeerAddress};

use crate::addr::{DeviceAddress, IfaceAddress, Route};
use crate::attention::flag;
use crate::channel::{Channel, Peer, Rings};
use crate::handshake::Greeting;
use crate::iface::{GREETING, ShmIface};
use crate::ring::{Geometry, Pool};
use crate::segment::Mapping;
use crate::wire::Hello;

/// Connections that may be without a hello at a time.
const MAX_GREETINGS: usize = 64;

impl ShmIface {
    /// The shape of a ring whose receiver wants `headroom` bytes ahead of messages.
    fn shape(&self, headroom: u32) -> Geometry {
        let pool = |count, size: usize| Pool { count, stride: size as u32 + headroom };
        Geometry {
            slots: self.config.fifo_size.next_power_of_two(),
            small: pool(self.config.small_seg_count, self.limits.short),
            bulk: pool(self.config.seg_count, self.limits.bulk),
            headroom,
        }
    }

    /// Where a peer is, from its address.
    pub(crate) fn route(&self, peer: PeerAddress<'_>) -> Result<(IfaceAddress, Route), String> {
        let device = DeviceAddress::parse(peer.device)?;
        let iface = IfaceAddress::parse(peer.iface)?;
        Ok((iface, self.device.route_to(&device)?))
    }

    /// The channel to a peer: the one that there is, or a new one.
    pub(crate) fn channel_to(&self, peer: PeerAddress<'_>) -> Result<Rc<Channel>, Failure> {
        crate::remote::registry()?;
        let (to, route) = self.route(peer).map_err(|reason| Failure::new(Error::UNREACHABLE, reason))?;
        let known = self.by_peer.borrow().get(&to.id).cloned();
        if let Some(channel) = known.filter(|channel| channel.broken().is_none() && !channel.is_closed.get())
        {
            if channel.peer_key == to.key {
                return Ok(channel);
            }
            return Err(Failure::new(
                Error::UNREACHABLE,
                "the address has another key than the peer that is connected",
            ));
        }
        let number = self.channels.borrow().vacant_key();
        let (socket, rings, memory) =
            self.party.connect(number as u32, &to, route, self.directory.as_deref(), |headroom| {
                self.shape(headroom)
            })?;
        let attention = self.attention.flags();
        let channel = Rc::new(Channel::connecting(number as u32, &to, socket, &rings, memory, attention)?);
        self.add(&channel)?;
        self.by_peer.borrow_mut().insert(to.id, Rc::clone(&channel));
        Ok(channel)
    }

    fn add(&self, channel: &Rc<Channel>) -> Result<(), Failure> {
        if self.config.cma == Ternary::No {
            channel.forbid_cma();
        }
        self.events
            .add(channel.socket(), Events::READ, u64::from(channel.number))
            .map_err(|error| Failure::new(Error::IO_ERROR, error.to_string()))?;
        let number = self.channels.borrow_mut().insert(Rc::clone(channel));
        debug_assert_eq!(number, channel.number as usize);
        Ok(())
    }

    /// Takes incoming connections.
    pub(crate) fn accept_peers(&self) -> u32 {
        let mut count = 0;
        while let Some(socket) = self.listener.accept() {
            count += 1;
            match self.party.greet(std::os::fd::AsFd::as_fd(&socket)) {
                Greeting::Peer(hello, fds, rings, memory) => self.meet(socket, &hello, &fds, &rings, memory),
                Greeting::Over => (),
                Greeting::Waiting => {
                    let mut greetings = self.greetings.borrow_mut();
                    if greetings.len() >= MAX_GREETINGS
                        && let Some((oldest, _)) = greetings.iter().next()
                    {
                        let _ = self.events.remove(greetings.remove(oldest));
                    }
                    let token = GREETING | greetings.vacant_key() as u64;
                    if self.events.add(&socket, Events::READ, token).is_ok() {
                        greetings.insert(socket);
                    }
                }
            }
        }
        count
    }

    /// Meets a peer that has said hello.
    pub(crate) fn meet(
        &self,
        socket: OwnedFd,
        hello: &Hello,
        fds: &[OwnedFd],
        rings: &Rings,
        memory: Mapping,
    ) {
        let number = self.channels.borrow().vacant_key();
        let own = self.own_connection(hello);
        let shares = own.as_ref().filter(|own| own.peer_iface > self.party.address.id);
        let met = Peer::new(hello.from, fds)
            .map_err(|reason| Failure::new(Error::REJECTED, reason))
            .and_then(|peer| {
                let shared = shares.map_or(0, |own| own.number + 1);
                self.party.welcome(std::os::fd::AsFd::as_fd(&socket), number as u32, shared)?;
                let attention = self.attention.flags();
                let channel =
                    Rc::new(Channel::accepted(number as u32, socket, rings, memory, peer, attention)?);
                self.add(&channel)?;
                Ok(channel)
            });
        match met {
            Ok(channel) => {
                if let Some(own) = shares {
                    channel.seat.share(&own.seat);
                    self.attention.raise(flag::ALARM);
                } else if let Some(own) = own.filter(|own| own.shares.get() != 0) {
                    self.share_shuttle(&own);
                }
                if hello.from.iface != self.party.address.id {
                    self.by_peer.borrow_mut().entry(hello.from.iface).or_insert_with(|| Rc::clone(&channel));
                }
                self.heat(&channel);
            }
            Err(failure) => tracing::debug!("a peer cannot be met: {failure}"),
        }
    }

    /// The connection that we have made to who says hello: both have connected at once.
    fn own_connection(&self, hello: &Hello) -> Option<Rc<Channel>> {
        let known = self.by_peer.borrow().get(&hello.from.iface).cloned();
        known.filter(|own| {
            let is_alive = own.broken().is_none() && !own.is_closed.get();
            own.connects && is_alive && own.peer_key == hello.from.key
        })
    }

    /// Has our connection use the shuttle of the peer's, as the peer has asked for, once that connection is here.
    pub(crate) fn share_shuttle(&self, own: &Channel) {
        let channels = self.channels.borrow();
        let is_it = |channel: &&Rc<Channel>| {
            let number = channel.peer().map(|peer| peer.side.bell_number.wrapping_add(1));
            !channel.connects
                && (channel.peer_iface, channel.peer_key) == (own.peer_iface, own.peer_key)
                && number == Some(own.shares.get())
        };
        if let Some(channel) = channels.iter().map(|(_, channel)| channel).find(is_it) {
            own.seat.share(&channel.seat);
            own.shares.set(0);
            // What is to be looked at may be another word now.
            self.attention.raise(flag::ALARM);
        }
    }

    /// Parts from a channel that is broken, and tells its endpoints.
    pub(crate) fn bury(&self, channel: &Rc<Channel>) {
        let Some(broken) = channel.broken() else { return };
        self.hot.borrow_mut().retain(|other| !Rc::ptr_eq(other, channel));
        self.watch_bell();
        channel.is_hot.set(false);
        let mut by_peer = self.by_peer.borrow_mut();
        if by_peer.get(&channel.peer_iface).is_some_and(|known| Rc::ptr_eq(known, channel)) {
            by_peer.remove(&channel.peer_iface);
        }
        drop(by_peer);
        self.channels.borrow_mut().try_remove(channel.number as usize);
        // It may be out of the set already.
        let _ = self.events.remove(channel.socket());
        let endpoints = channel.endpoints();
        for ep in &endpoints {
            ep.set_failed(broken.error);
        }
        channel.emulation.fail(broken.error);
        for ep in endpoints {
            ep.report(broken);
        }
    }
}
