//! Listening: connections of peers are accepted, introduce themselves, and are taken or refused. Everybody may connect and
//! send anything, so who has not introduced itself has little room and little time here.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use ucs::Error;
use ucs::clock::Deadline;
use ucs::event_set::Events;
use ucs::log::Limited;
use ucs::sys::socket;

use crate::iface::TcpIface;
use crate::io::socket::set_up;
use crate::link::admission::Source;
use crate::link::connection::{Conn, State};
use crate::progress::LISTENERS;
use crate::proto::wire::{self, BadHello, HELLO, Hello, HelloKind, Refusal};

/// Connections taken in one progress.
const ACCEPTS: usize = 32;
/// How long the listeners rest when the system has no descriptor for another connection.
const REST: Duration = Duration::from_millis(100);
/// Marks the number of a half-open connection in the event set.
pub(crate) const HALF_OPEN: u64 = 1 << 40;

/// A connection that has not introduced itself.
struct HalfOpen {
    socket: Socket,
    address: SocketAddr,
    hello: [u8; HELLO],
    have: usize,
    deadline: Deadline,
}

/// Those of an interface, the oldest first.
pub(crate) struct HalfOpenList {
    list: BTreeMap<u64, HalfOpen>,
    next: u64,
    /// Until when the listeners rest.
    resting: Option<Deadline>,
    /// Lines about refused connections and about the rest; both come as often as unauthenticated peers like.
    refusals: Limited,
    rests: Limited,
}

impl Default for HalfOpenList {
    fn default() -> HalfOpenList {
        HalfOpenList {
            list: BTreeMap::new(),
            next: 0,
            resting: None,
            refusals: Limited::new(1),
            rests: Limited::new(1),
        }
    }
}

impl HalfOpenList {
    /// The oldest one of the source that has the most.
    fn oldest_of_the_most(&self) -> Option<u64> {
        let mut counts = HashMap::<Source, usize>::new();
        for one in self.list.values() {
            *counts.entry(Source::of(one.address.ip())).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count)?.0;
        self.list.iter().find(|(_, one)| Source::of(one.address.ip()) == most).map(|(token, _)| *token)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }
}

impl TcpIface {
    /// Takes waiting connections.
    pub(crate) fn accept(&self, listener: usize) -> u32 {
        let mut count = 0;
        for _ in 0..ACCEPTS {
            match socket::accept(&self.listeners()[listener]) {
                Ok(Some((socket, address))) => {
                    count += 1;
                    if self.is_among_last(&socket, self.config().reserved_descriptors / 2) {
                        drop(socket);
                        self.lack_descriptors(&"the descriptors of the process are running out");
                        break;
                    }
                    self.take_in(socket, address);
                }
                Ok(None) => break,
                Err(error) => {
                    // Out of descriptors, most likely.
                    self.lack_descriptors(&error);
                    break;
                }
            }
        }
        count
    }

    /// A connection that has not introduced itself makes room, else the listeners rest.
    fn lack_descriptors(&self, reason: &dyn std::fmt::Display) {
        self.count_dropped();
        if !self.drop_oldest() {
            self.rest(reason);
        }
    }

    fn take_in(&self, socket: Socket, address: SocketAddr) {
        if self.half_open().borrow().len() >= self.config().max_half_open as usize {
            self.count_dropped();
            self.drop_oldest();
        }
        let deadline = Deadline::after(self.config().hello_timeout.to_duration());
        let token = {
            let mut half_open = self.half_open().borrow_mut();
            half_open.next += 1;
            HALF_OPEN | half_open.next
        };
        if set_up(&socket, self.socket_options()).is_err()
            || self.events().add(&socket, Events::READ, token).is_err()
        {
            return;
        }
        let fresh = HalfOpen { socket, address, hello: [0; HELLO], have: 0, deadline };
        self.half_open().borrow_mut().list.insert(token, fresh);
        self.want_tick(deadline);
        self.on_half_open(token);
    }

    /// Takes the listeners, which stay readable, out of the event set for a while: what cannot be accepted waits in the system.
    fn rest(&self, reason: &dyn std::fmt::Display) {
        for listener in self.listeners() {
            let _ = self.events().remove(listener);
        }
        let until = Deadline::after(REST);
        let mut half_open = self.half_open().borrow_mut();
        half_open.resting = Some(until);
        if let Some(left_out) = half_open.rests.admit() {
            tracing::warn!("{reason}: peers wait until there is room{left_out}");
        }
        drop(half_open);
        self.want_tick(until);
    }

    /// Listens again, once the rest is over; answers when that is.
    fn end_rest(&self, now: u64) -> Deadline {
        let Some(until) = self.half_open().borrow().resting else { return Deadline::NEVER };
        if !until.expired_at(now) {
            return until;
        }
        self.half_open().borrow_mut().resting = None;
        for (number, listener) in (LISTENERS..).zip(self.listeners()) {
            if let Err(error) = self.events().add(listener, Events::READ, number) {
                tracing::error!("nobody can connect any more: {error}");
            }
        }
        Deadline::NEVER
    }

    fn drop_oldest(&self) -> bool {
        let mut half_open = self.half_open().borrow_mut();
        let oldest = half_open.oldest_of_the_most();
        oldest.is_some_and(|token| half_open.list.remove(&token).is_some())
    }

    /// Drops those that took too long; answers when the next one is due.
    pub(crate) fn tick_half_open(&self, now: u64) -> Deadline {
        let rest = self.end_rest(now);
        let mut half_open = self.half_open().borrow_mut();
        let before = half_open.list.len();
        half_open.list.retain(|_, one| !one.deadline.expired_at(now));
        for _ in half_open.list.len()..before {
            self.count_dropped();
        }
        half_open.list.values().map(|one| one.deadline).min().unwrap_or(Deadline::NEVER).min(rest)
    }

    /// Something has come from a connection that has not introduced itself.
    pub(crate) fn on_half_open(&self, token: u64) {
        let verdict = {
            let mut half_open = self.half_open().borrow_mut();
            let Some(one) = half_open.list.get_mut(&token) else { return };
            match recv(&one.socket, &mut one.hello[one.have..], RecvFlags::empty()) {
                Ok((received, _)) if received > 0 => {
                    one.have += received;
                    match wire::check_start(&one.hello[..one.have]) {
                        Ok(()) if one.have < HELLO => return,
                        Ok(()) => Some(Hello::read(&one.hello)),
                        Err(bad) => Some(Err(bad)),
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => return,
                _ => None,
            }
        };
        let Some(one) = self.half_open().borrow_mut().list.remove(&token) else { return };
        let _ = self.events().remove(&one.socket);
        match verdict {
            None => self.count_dropped(),
            Some(Ok(hello)) if hello.kind == HelloKind::Hello => self.admit(one, &hello),
            Some(Ok(_)) => self.count_dropped(),
            Some(Err(bad)) => {
                self.count_dropped();
                if matches!(bad, BadHello::Version(_)) {
                    if let Some(left_out) = self.half_open().borrow().refusals.admit() {
                        tracing::warn!(peer = %one.address, "a connection was refused: {bad}{left_out}");
                    }
                    self.refuse(&one.socket, Refusal::Version);
                }
            }
        }
    }

    /// Says why a connection is not taken, and nothing else: no id and no key.
    fn refuse(&self, socket: &Socket, refusal: Refusal) {
        let hello = Hello { sender: 0, refusal: Some(refusal), ..self.hello(HelloKind::Refuse) };
        self.dismiss(socket, &hello);
    }

    /// The last words over a socket.
    fn dismiss(&self, socket: &Socket, hello: &Hello) {
        // A peer that is gone does not need the answer.
        let _ = send(socket, &hello.write(), SendFlags::NOSIGNAL);
        let _ = socket.shutdown(std::net::Shutdown::Write);
    }

    /// Takes a connection that has introduced itself, or refuses it.
    fn admit(&self, one: HalfOpen, hello: &Hello) {
        let HalfOpen { socket, address, .. } = one;
        if !wire::is_same(self.own_address().key, hello.key) {
            self.count_dropped();
            tracing::debug!(peer = %address, "a connection was refused: it is meant for another interface");
            return self.refuse(&socket, Refusal::WrongIface);
        }
        if hello.max_message > self.max_message() as u64 {
            self.count_dropped();
            if let Some(left_out) = self.half_open().borrow().refusals.admit() {
                tracing::warn!(
                    peer = %address,
                    "a connection was refused: the peer may send messages of {} bytes, this side takes {}; set \
                     max_message to the same{left_out}",
                    hello.max_message,
                    self.max_message()
                );
            }
            return self.refuse(&socket, Refusal::MessageSize);
        }
        // Who the peer says to be decides only what it is told of its own.
        if hello.sender != self.id() {
            let conns = self.all_conns();
            if let Some(claim) = &hello.claim
                && conns.iter().any(|conn| conn.is_claimed(hello.sender, claim))
            {
                return self.dismiss(&socket, &self.hello(HelloKind::Same));
            }
            if !hello.wants_own && conns.iter().any(|conn| conn.is_instead(self.id(), hello.sender)) {
                return self.refuse(&socket, Refusal::Duplicate);
            }
        }
        if !self.make_room(&socket, address.ip()) {
            self.count_dropped();
            if let Some(left_out) = self.half_open().borrow().refusals.admit() {
                tracing::warn!(peer = %address, "a connection has to wait: there is no room for it{left_out}");
            }
            return self.refuse(&socket, Refusal::Full);
        }
        let Ok(conn) = self.new_conn(hello.sender, hello.token, None) else {
            return self.refuse(&socket, Refusal::Full);
        };
        self.note_accepted(conn.id(), address.ip());
        self.welcome(&conn, socket, hello);
        for opened in self.all_conns() {
            if opened.peer == hello.sender && opened.state() == State::Connecting {
                opened.on_claimant(self);
            }
        }
    }

    fn welcome(&self, conn: &Rc<Conn>, socket: Socket, hello: &Hello) {
        let answer = conn.hello(self, HelloKind::Accept).write();
        match send(&socket, &answer, SendFlags::NOSIGNAL) {
            Ok(HELLO) => {
                conn.note_welcomed();
                conn.establish(self, hello, Some(socket));
            }
            _ => conn.fail(self, Error::CONNECTION_RESET, "the peer went as it was welcomed"),
        }
    }
}
