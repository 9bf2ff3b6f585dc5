//! The life of a connection: established, used by endpoints, probed when the peer is silent, closed.
//!
//! A side without endpoints sends its queued data and then `UNUSE`, and nothing more. A side that has received `UNUSE`, and has no
//! endpoints, closes. So every accepted message arrives, and an idle pair keeps no socket.

use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use socket2::Socket;
use ucs::Error;
use ucs::clock::Deadline;
use ucs::event_set::Events;
use uct_plugin::completion::complete;
use uct_plugin::{Blocked, Completion, Outcome, Result};

use super::{Conn, OpenedBy, State, Use};
use crate::io::socket;
use crate::link::member::Member;
use crate::link::shared::Shared;
use crate::proto::wire::{FEATURE_FILL, FEATURE_RMA, FRAME_HEADER, HELLO, Hello, control};
use ucs::admission::Source;

/// What may be behind a connection that the system has given up.
pub(super) const UNACKNOWLEDGED: &str = ": the peer's system acknowledges nothing; it is down, or the network drops packets, long ones alone where \
     the MTU of a link on the way is smaller than this side's";

/// What is known about a connection that the peer has ended.
const REFUSED: &str = "; it had refused accesses to its memory, for a key that has ended or an address outside of the memory, and ends a \
     connection with too many of them (max_refused)";

impl Conn {
    /// Its socket was handed over by the application.
    pub(crate) fn note_handed_over(&self) {
        self.opened_by.set(OpenedBy::Application);
    }

    fn is_handed_over(&self) -> bool {
        self.opened_by.get() == OpenedBy::Application
    }

    /// The connection is established: queued data are sent.
    pub(crate) fn establish(self: &Rc<Self>, shared: &Shared, hello: &Hello, socket: Option<Socket>) {
        if let Some(socket) = socket {
            self.close_socket(shared);
            if shared.add_socket(self.id, &socket, Events::READ).is_err() {
                return self.fail(shared, Error::NO_MEMORY, "the socket cannot be added to the event set");
            }
            self.adopt(socket);
        }
        if hello.in_use && self.peer_use.get() == Use::Never {
            self.peer_use.set(Use::Using);
        }
        self.features.set((hello.features & (FEATURE_RMA | FEATURE_FILL)) as u8);
        self.stand(shared);
    }

    pub(super) fn stand(&self, shared: &Shared) {
        *self.connecting.borrow_mut() = None;
        self.state.set(State::Established);
        if let Some(peer) = self.socket_address() {
            self.source.set(Source::of(peer.ip()));
        }
        self.heard.set(true);
        self.ready.set(!self.has_queued());
        self.send_use(shared);
        self.mark_dirty(shared);
        shared.timers.want_tick(shared.timers.keepalive_tick().min(self.linger.get()));
        ucs::log::debug!(peer = self.describe_peer(), "a connection is established");
    }

    /// Of the peer, as the system knows it.
    fn socket_address(&self) -> Option<SocketAddr> {
        self.socket.borrow().as_ref().and_then(|socket| socket.peer_addr().ok()?.as_socket())
    }

    /// Whether it is being established.
    pub(crate) fn is_connecting(&self) -> bool {
        self.state.get() == State::Connecting
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state.get(), State::Closed(_))
    }

    /// Whether endpoints of this side may use it.
    pub(crate) fn is_open_to_endpoints(&self) -> bool {
        self.error().is_none() && self.own_use.get() != Use::Over
    }

    /// Whether this side has endpoints on it.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.members.borrow().is_empty()
    }

    /// Whether the peer opened it and sent nothing behind its hello, or no more than a sign of life.
    pub(crate) fn is_unused(&self) -> bool {
        const SIGNS: u64 = 8 * FRAME_HEADER as u64;
        let socket = self.socket.borrow();
        let received = socket.as_ref().and_then(|socket| socket::bytes_received(socket).ok());
        self.destination.is_none() && received.is_some_and(|received| received <= HELLO as u64 + SIGNS)
    }

    /// An endpoint uses it from now on.
    pub(crate) fn attach(&self, shared: &Shared, member: Weak<Member>) {
        self.members.borrow_mut().push(member);
        if self.opened_by.get() == OpenedBy::Own {
            shared.stop_counting(self.id);
        }
        self.own_use.set(Use::Using);
        if self.state.get() == State::Established {
            self.send_use(shared);
        }
    }

    fn send_use(&self, shared: &Shared) {
        if self.own_use.get() == Use::Using && !self.use_told.replace(true) {
            self.send_control(shared, control::USE);
        }
    }

    /// The peer knows from the hello that this side uses it.
    pub(super) fn note_use_told(&self) {
        self.use_told.set(self.own_use.get() == Use::Using);
    }

    /// The peer knows from the response to its hello that this side uses it.
    pub(crate) fn note_welcomed(&self) {
        self.note_use_told();
    }

    /// An endpoint does not use it any more.
    pub(crate) fn detach(&self, shared: &Shared, member: &Rc<Member>) {
        self.members.borrow_mut().retain(|other| !std::ptr::eq(other.as_ptr(), Rc::as_ptr(member)));
        if self.is_retiring() {
            self.mark_dirty(shared);
        }
    }

    /// Whether all endpoints of this side have gone, and the peer was not notified yet.
    pub(super) fn is_retiring(&self) -> bool {
        self.own_use.get() == Use::Using && self.members.borrow().is_empty()
    }

    /// Notifies the peer that it is unused, once everything has left.
    pub(crate) fn retire(self: &Rc<Self>, shared: &Shared) {
        if !self.is_retiring() {
            return;
        }
        // From here on it is the peer that decides how long it stays.
        let is_standing = self.state.get() == State::Established;
        if is_standing
            && self.opened_by.get() == OpenedBy::Own
            && !shared.leave_to_peer(self.id, self.source.get())
        {
            let reason =
                "no endpoint uses it, and its peer has as many as it may (max_connections_per_source)";
            return self.fail(shared, Error::CANCELED, reason);
        }
        if self.is_handed_over() && self.linger.get() == Deadline::NEVER {
            // What waits to be sent does not prolong it: the peer decides when it reads.
            self.linger(shared);
        }
        if self.has_unfinished() {
            return;
        }
        match self.state.get() {
            State::Closed(_) => {}
            State::Connecting => self.fail(shared, Error::CANCELED, "it is not needed any more"),
            State::Established => {
                self.own_use.set(Use::Over);
                self.send_control(shared, control::UNUSE);
                if self.peer_use.get() == Use::Over {
                    self.fail(shared, Error::CANCELED, "it is not needed any more");
                } else if self.peer_use.get() == Use::Never && !self.is_handed_over() {
                    self.linger(shared);
                }
            }
        }
    }

    fn linger(&self, shared: &Shared) {
        self.linger.set(Deadline::after(shared.settings().linger_timeout));
        shared.timers.want_tick(self.linger.get());
    }

    /// Whether closing the interface has to wait for it.
    pub(crate) fn has_unfinished(&self) -> bool {
        self.has_queued() || !self.initiator.is_idle()
    }

    pub(super) fn on_use(&self) {
        if self.peer_use.get() == Use::Never {
            self.peer_use.set(Use::Using);
        }
        if !self.is_handed_over() {
            self.linger.set(Deadline::NEVER);
        }
    }

    pub(super) fn on_unuse(self: &Rc<Self>, shared: &Shared) {
        self.peer_use.set(Use::Over);
        if self.own_use.get() != Use::Using {
            self.fail(shared, Error::CANCELED, "it is not needed any more");
        }
    }

    pub(super) fn on_eof(self: &Rc<Self>, shared: &Shared) {
        self.fail(shared, Error::CONNECTION_RESET, "the peer closed the connection");
    }

    /// A send has failed, and received messages were delivered: the endpoints fail.
    pub(crate) fn on_broken(self: &Rc<Self>, shared: &Shared) {
        while self.state.get() == State::Established && self.receive(shared).any {}
        if let Some(error) = self.broken.get() {
            let reason = match error {
                Error::NO_MEMORY => "there is no memory for a send buffer",
                _ => "the connection was lost while sending",
            };
            let hint = if error == Error::TIMED_OUT { UNACKNOWLEDGED } else { "" };
            self.fail(shared, error, &format!("{reason}{hint}"));
        }
    }

    /// The connection has ended: outstanding operations complete with the error, and each endpoint reports it. From progress only.
    pub(crate) fn fail(self: &Rc<Self>, shared: &Shared, error: Error, reason: &str) {
        if matches!(self.state.get(), State::Closed(_)) {
            return;
        }
        let this = Rc::clone(self);
        let peer = this.describe_peer();
        ucs::log::debug!(peer, %error, "a connection ends: {reason}");
        let mut ended = Vec::new();
        this.drop_queue(&mut ended);
        this.unblock(shared);
        this.state.set(State::Closed(error));
        this.close_socket(shared);
        shared.stop_counting(this.id);
        shared.agenda.note_over(this.id);
        this.drop_received(shared);
        *this.connecting.borrow_mut() = None;
        ended.extend(this.flushes.take().into_iter().map(|(_, completion)| completion));
        for completion in ended {
            completion.complete(Err(error));
        }
        this.initiator.fail(error);
        let refused = match error {
            // It is the most likely reason for that end, which carries none.
            Error::CONNECTION_RESET if this.initiator.has_refusals() => REFUSED,
            _ => "",
        };
        let words = format!("{reason}{refused} ({peer})");
        loop {
            let Some(member) = this.members.borrow_mut().pop() else { break };
            if let Some(member) = member.upgrade() {
                member.status.fail(error);
                member.status.report(shared.errors(), &words);
            }
        }
        shared.note_failure(words);
        shared.agenda.check_flushes();
    }

    fn describe_peer(&self) -> String {
        let address = self.socket_address();
        let address =
            address.or_else(|| self.connecting.borrow().as_ref().map(|connecting| connecting.address()));
        // One of a Unix socket is unspecified.
        match address.filter(|address| !address.ip().is_unspecified()) {
            Some(address) => format!("peer {address}, interface {:016x}", self.peer),
            None => format!("peer with interface {:016x}", self.peer),
        }
    }

    pub(super) fn close_socket(&self, shared: &Shared) {
        self.fd.set(-1);
        if let Some(socket) = self.socket.take() {
            shared.remove_socket(&socket);
            // What is left in the system's buffer goes its way.
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
    }

    /// Timer of an established connection; returns the next deadline.
    pub(crate) fn tick(self: &Rc<Self>, shared: &Shared, now: u64, is_keepalive: bool) -> Deadline {
        match self.state.get() {
            State::Closed(_) => return Deadline::NEVER,
            State::Connecting => return self.tick_connecting(shared, now),
            State::Established => {}
        }
        if self.linger.get().expired_at(now) {
            // What was sent last is not to be lost with it.
            self.discard_received(shared);
            self.fail(shared, Error::CANCELED, "the peer did not close it in time");
            return Deadline::NEVER;
        }
        // While nothing is read from the peer, silence does not mean that the peer is dead.
        if is_keepalive && !self.is_held() && (self.is_in_use() || !self.initiator.is_idle()) {
            if self.heard.replace(false) {
                self.silent.set(0);
            } else {
                self.silent.set(self.silent.get() + 1);
                if self.silent.get() > shared.timers.most_silent_ticks() {
                    let reason = "the peer has not answered within the time limit (keepalive_timeout)";
                    self.fail(shared, Error::ENDPOINT_TIMEOUT, reason);
                    return Deadline::NEVER;
                }
                self.probe(shared);
            }
        }
        self.linger.get()
    }

    /// Has progress serve the requests of its endpoints, if there are any and there is room for what they send.
    pub(crate) fn note_pending(&self, shared: &Shared) {
        if self.pending.is_idle() || !self.has_room(shared) || self.initiator.admit().is_err() {
            return;
        }
        if !self.is_pending.replace(true) {
            shared.agenda.note_pending(self.id);
        }
    }

    /// Serves them in turn until there is no room; the next time goes on where this one stopped. Returns how many ended.
    pub(crate) fn serve(&self, shared: &Shared) -> u32 {
        self.is_pending.set(false);
        let served = self.pending.dispatch(Blocked::Interface);
        self.note_pending(shared);
        served
    }

    /// Flushes for an owner: done when all it sent has left, and all it asked for was carried out.
    pub(crate) fn flush_for(
        &self,
        shared: &Shared,
        owner: u32,
        completion: Option<Completion>,
    ) -> Result<Outcome> {
        if let Some(error) = self.error() {
            return Err(error);
        }
        if self.has_queued() && !self.blocked.get() {
            self.flush(shared);
        }
        if !self.has_queued() && !shared.agenda.has_ended() {
            return self.initiator.flush(owner, completion);
        }
        self.mark_dirty(shared);
        if let Some(completion) = completion {
            self.flushes.borrow_mut().push((owner, completion));
        }
        Ok(Outcome::InProgress)
    }

    /// Everything has left: flushes go on with what is to be carried out.
    pub(crate) fn go_on_flushing(&self) {
        if self.flushes.borrow().is_empty() || self.has_queued() {
            return;
        }
        for (owner, completion) in self.flushes.take() {
            if self.initiator.is_idle() {
                let result = self.initiator.flush(owner, None).map(drop);
                completion.complete(result);
            } else {
                // It is not idle, so the completion is taken.
                let _ = self.initiator.flush(owner, Some(completion));
            }
        }
    }

    /// Gives up on what an owner has outstanding.
    pub(crate) fn cancel(&self, shared: &Shared, owner: u32) {
        let mut ended = Vec::new();
        self.detach_vectors(shared, owner, &mut ended);
        let (own, others): (Vec<_>, Vec<_>) =
            self.flushes.take().into_iter().partition(|(other, _)| *other == owner);
        *self.flushes.borrow_mut() = others;
        ended.extend(own.into_iter().map(|(_, completion)| completion));
        for completion in ended {
            complete(Some(completion), Err(Error::CANCELED));
        }
        self.initiator.cancel(owner, Error::CANCELED);
    }

    /// The same for all of its endpoints.
    pub(crate) fn cancel_all(&self, shared: &Shared) {
        let members: Vec<_> = self.members.borrow().iter().filter_map(Weak::upgrade).collect();
        for member in members {
            self.cancel(shared, member.owner);
        }
    }

    /// Reads and drops received data, so that closing the socket does not make the system drop data that it still has to send.
    pub(crate) fn discard_received(&self, shared: &Shared) {
        if self.state.get() != State::Established {
            return;
        }
        // SAFETY: the scratch memory is initialised, and nothing else uses it while this runs.
        let scratch = unsafe { std::slice::from_raw_parts_mut(shared.scratch(), shared.scratch_size()) };
        // Bounded: a peer that sends for ever is cut off.
        for _ in 0..1024 {
            match rustix::net::recv(self.fd(), &mut *scratch, rustix::net::RecvFlags::empty()) {
                Ok((received, _)) if received > 0 => {}
                _ => break,
            }
        }
    }
}
