//! Who an interface is connected to: channels are made, met, and buried.
//!
//! For: endpoints (they connect), the door (it accepts) and progress (it buries). Stands on the handshake and on channels.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use ucs::event_set::Events;
use ucs::sys::process::credentials;
use ucs::units::Ternary;
use uct_plugin::{Error, Failure, PeerAddress};

use crate::iface::ShmIface;
use crate::io::Mapping;
use crate::io::socket::{Credentials, Line};
use crate::link::attention::flag;
use crate::link::channel::Channel;
use crate::link::peer::Peer;
use crate::link::place::Whereabouts;
use crate::link::rings::Rings;
use crate::proto::addr::{DeviceAddress, IfaceAddress, ProcessName, Route};
use crate::proto::ring::{Geometry, Pool};
use crate::proto::wire::Hello;

/// All of an address that says who the peer is and how it is found: number and key, which others may know and put into an address
/// of their own, the process, and the ways there.
pub(crate) type PeerName = (u64, u64, Option<ProcessName>, (Route, Option<Route>));

impl ShmIface {
    /// The shape of the rings that this side makes.
    fn shape(&self) -> Geometry {
        let pool = |count, size: usize| Pool { count, stride: size as u32 };
        Geometry {
            slots: self.config.fifo_size.next_power_of_two(),
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

    /// The channel to a peer: the one that there is, or a new one.
    pub(crate) fn channel_to(&self, peer: PeerAddress<'_>) -> Result<Rc<Channel>, Failure> {
        crate::link::remote::registry()?;
        let to = self.whereabouts(peer).map_err(|reason| Failure::new(Error::UNREACHABLE, reason))?;
        let name = (to.iface.id, to.iface.key, to.process, to.routes);
        let known = self.by_peer.borrow().get(&name).filter(|channel| channel.is_sound()).cloned();
        if let Some(channel) = known.or_else(|| self.accepted_from(&to)) {
            self.by_peer.borrow_mut().insert(name, Rc::clone(&channel));
            return Ok(channel);
        }
        let number = self.channels.borrow().vacant_key();
        let timeout = self.config.connect_timeout.to_duration();
        let directory = self.directory.as_deref();
        let (dial, rings, memory) = self.party.dial(number as u32, &to, directory, timeout, self.shape())?;
        let attention = self.attention.flags();
        let channel = Rc::new(Channel::connecting(number as u32, &to.iface, &rings, memory, attention));
        self.begin(&channel, dial)?;
        self.add(&channel);
        self.by_peer.borrow_mut().insert(name, Rc::clone(&channel));
        Ok(channel)
    }

    /// A connection that the peer of an address has made itself.
    ///
    /// Who says hello can say that it is anybody. Its process is what the system says it is, and the address names the process
    /// that the peer is: a connection of another one is not taken, nor one whose process cannot be told.
    fn accepted_from(&self, to: &Whereabouts) -> Option<Rc<Channel>> {
        let is_it = |channel: &&Rc<Channel>| {
            (channel.peer_iface, channel.peer_key) == (to.iface.id, to.iface.key)
                && !channel.connects
                && channel.is_sound()
                && channel
                    .line()
                    .is_some_and(|(_, peer)| to.process.is_some_and(|process| process.is(peer.pid, peer.uid)))
        };
        self.channels.borrow().iter().map(|(_, channel)| channel).find(is_it).cloned()
    }

    fn add(&self, channel: &Rc<Channel>) {
        if self.config.cma == Ternary::No {
            channel.forbid_cma();
        }
        let number = self.channels.borrow_mut().insert(Rc::clone(channel));
        debug_assert_eq!(number, channel.number as usize);
    }

    /// A channel has its socket from now on.
    pub(crate) fn stand(&self, channel: &Channel, line: Line) -> Result<(), Failure> {
        self.events
            .add(&line.0, Events::READ, u64::from(channel.number))
            .map_err(|error| Failure::new(Error::IO_ERROR, error.to_string()))?;
        channel.take_line(line);
        Ok(())
    }

    /// Meets a peer that has said hello.
    pub(crate) fn meet(&self, line: Line, hello: &Hello, fds: &[OwnedFd], rings: &Rings, memory: Mapping) {
        let number = self.channels.borrow().vacant_key();
        let own = self.own_connection(hello, line.1);
        let shares = own.as_ref().filter(|own| own.peer_iface > self.party.address.id);
        let met = Peer::new(hello.from, fds)
            .map_err(|reason| Failure::new(Error::REJECTED, reason))
            .and_then(|peer| {
                let shared = shares.map_or(0, |own| own.number + 1);
                self.party.welcome(line.0.as_fd(), number as u32, shared)?;
                let attention = self.attention.flags();
                let channel = Rc::new(Channel::accepted(number as u32, rings, memory, peer, attention));
                self.stand(&channel, line)?;
                self.add(&channel);
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
                self.heat(&channel);
            }
            Err(failure) => {
                if let Some(left_out) = self.party.refusals.admit() {
                    tracing::debug!("a peer cannot be met: {failure}{left_out}");
                }
            }
        }
    }

    /// The connection that we have made to who says hello, if both have connected at once and each knows that the other is the
    /// process at both connections.
    fn own_connection(&self, hello: &Hello, from: Credentials) -> Option<Rc<Channel>> {
        let is_it = |channel: &&Rc<Channel>| {
            (channel.peer_iface, channel.peer_key) == (hello.from.iface, hello.from.key)
                && channel.connects
                && channel.is_sound()
                && channel.line().is_some_and(|(_, peer)| *peer == from)
        };
        // The other side compares users too: this one has to be at both connections what it was when it began to listen.
        let is_comparable = from.pid != 0 && credentials().effective_uid == self.party.address.uid;
        let channels = self.channels.borrow();
        let known = channels.iter().map(|(_, channel)| channel).find(is_it).cloned();
        known.filter(|_| hello.knows_process == 1 && is_comparable)
    }

    /// Has our connection use the shuttle of the peer's, as the peer has asked for, once that connection is here.
    pub(crate) fn share_shuttle(&self, own: &Channel) {
        let channels = self.channels.borrow();
        let is_it = |channel: &&Rc<Channel>| {
            let number = channel.peer().map(|peer| peer.side.bell_number.wrapping_add(1));
            !channel.connects
                && (channel.peer_iface, channel.peer_key) == (own.peer_iface, own.peer_key)
                && channel.process().is_some()
                && channel.process() == own.process()
                && number == Some(own.shares.get())
        };
        if let Some(channel) = channels.iter().map(|(_, channel)| channel).find(is_it) {
            if channel.user() != own.user() {
                let reason = "the peer asks to share a connection that another user has made".to_owned();
                own.set_broken(Error::REJECTED, reason);
                return;
            }
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
        self.by_peer.borrow_mut().retain(|_, known| !Rc::ptr_eq(known, channel));
        self.channels.borrow_mut().try_remove(channel.number as usize);
        if let Some(socket) = channel.socket() {
            // It may be out of the set already.
            let _ = self.events.remove(socket);
        }
        let members = channel.members();
        for member in &members {
            member.set_failed(broken.error);
        }
        channel.emulation.fail(broken.error);
        for member in members {
            member.report(&self.errors, broken.error, &broken.reason);
        }
    }
}
