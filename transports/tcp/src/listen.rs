//! Listening: connections of peers are accepted, complete the handshake (`link::half_open`), and are used or refused.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{SendFlags, send};
use socket2::Socket;
use ucs::Error;
use ucs::clock::Deadline;
use ucs::event_set::Events;
use ucs::sys::descriptors::is_among_last;
use ucs::sys::{SystemError, socket};

use crate::iface::TcpIface;
use crate::io::socket::set_up;
use crate::link::conn_id::ConnId;
use crate::link::connection::Conn;
use crate::link::half_open::HalfOpen;
use crate::link::shared::LISTENERS;
use crate::proto::wire::{self, BadHello, HELLO, Hello, HelloKind, Refusal};

/// Connections taken in one progress.
const ACCEPTS: usize = 32;
/// How long the listeners rest when the system has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The keys of the limits of connections that peers open.
const ROOM: &str = "max_connections, max_connections_per_source, reserved_descriptors";

impl TcpIface {
    /// Takes waiting connections.
    pub(crate) fn accept(&self, listener: usize) -> u32 {
        let mut count = 0;
        for _ in 0..ACCEPTS {
            match socket::accept(&self.listeners[listener]) {
                Ok(Some((socket, address))) => {
                    count += 1;
                    if is_among_last(&socket, self.config.reserved_descriptors / 2) {
                        drop(socket);
                        self.pause_accepting(&"the descriptors of the process are running out");
                        break;
                    }
                    // One that cannot be watched is closed.
                    let _ = self.take_in(socket, address, &[], None);
                }
                Ok(None) => break,
                Err(error) => {
                    // Out of descriptors, most likely.
                    self.pause_accepting(&error);
                    break;
                }
            }
        }
        count
    }

    /// Closes a connection without a complete handshake to make room; without one the listeners pause.
    fn pause_accepting(&self, reason: &dyn std::fmt::Display) {
        self.count_dropped();
        if !self.half_open.borrow_mut().drop_oldest() {
            self.rest(reason);
        }
    }

    /// Awaits the hello on an accepted socket; `first` are bytes of it that were received already.
    pub(crate) fn take_in(
        &self,
        socket: Socket,
        address: SocketAddr,
        first: &[u8],
        conn: Option<ConnId>,
    ) -> Result<(), SystemError> {
        // One that an endpoint waits for is the application's.
        if conn.is_none() && self.half_open.borrow_mut().make_room() {
            self.count_dropped();
        }
        let deadline = Deadline::after(self.config.hello_timeout.to_duration());
        let token = self.half_open.borrow_mut().next_token();
        // A Unix socket has nothing to set up.
        if !address.ip().is_unspecified() {
            set_up(&socket, &self.shared.settings().socket)
                .map_err(|error| SystemError::new("set up a socket", error))?;
        }
        self.shared.events().add(&socket, Events::READ, token)?;
        self.half_open.borrow_mut().add(token, (socket, address), deadline, first, conn);
        self.shared.timers.want_tick(deadline);
        self.on_half_open(token);
        Ok(())
    }

    /// Takes the listeners, which stay readable, out of the event set for a while: what cannot be accepted waits in the system.
    fn rest(&self, reason: &dyn std::fmt::Display) {
        for listener in &self.listeners {
            let _ = self.shared.events().remove(listener);
        }
        let until = Deadline::after(ACCEPT_PAUSE);
        let mut half_open = self.half_open.borrow_mut();
        half_open.resting = Some(until);
        if let Some(left_out) = half_open.rests.admit() {
            ucs::log::warn!("{reason}: peers wait until there is room{left_out}");
        }
        drop(half_open);
        self.shared.timers.want_tick(until);
    }

    /// Listens again after the pause; returns when it ends.
    fn end_rest(&self, now: u64) -> Deadline {
        let Some(until) = self.half_open.borrow().resting else { return Deadline::NEVER };
        if !until.expired_at(now) {
            return until;
        }
        self.half_open.borrow_mut().resting = None;
        for (number, listener) in (LISTENERS..).zip(&self.listeners) {
            if let Err(error) = self.shared.events().add(listener, Events::READ, number) {
                ucs::log::error!("connections cannot be accepted any more: {error}");
            }
        }
        Deadline::NEVER
    }

    /// Drops those that took too long; returns when the next one is due.
    pub(crate) fn tick_half_open(&self, now: u64) -> Deadline {
        let rest = self.end_rest(now);
        let mut half_open = self.half_open.borrow_mut();
        let expired = half_open.drop_expired(now);
        let next = half_open.next_deadline().min(rest);
        drop(half_open);
        for waiting in expired {
            self.count_dropped();
            self.fail_waiting(
                waiting,
                Error::ENDPOINT_TIMEOUT,
                "the peer sent no hello in time (hello_timeout)",
            );
        }
        next
    }

    fn count_dropped(&self) {
        self.dropped.set(self.dropped.get() + 1);
    }

    /// A connection without a complete handshake has data to read.
    pub(crate) fn on_half_open(&self, token: u64) {
        let received = self.half_open.borrow_mut().receive(token);
        let Some((one, verdict)) = received else { return };
        self.shared.remove_socket(&one.socket);
        if one.conn.is_some() {
            return self.on_awaited(one, verdict);
        }
        match verdict {
            None => self.count_dropped(),
            Some(Ok(hello)) if hello.kind == HelloKind::Hello => self.admit(one, &hello),
            Some(Ok(_)) => self.count_dropped(),
            Some(Err(bad)) => {
                self.count_dropped();
                if matches!(bad, BadHello::Version(_)) {
                    if let Some(left_out) = self.half_open.borrow().refusals.admit() {
                        ucs::log::warn!(peer = %one.address, "a connection was refused: {bad}{left_out}");
                    }
                    self.refuse(&one.socket, Refusal::Version);
                }
            }
        }
    }

    /// The socket over which an endpoint was created has its hello, or has none.
    fn on_awaited(&self, one: HalfOpen, verdict: Option<Result<Hello, BadHello>>) {
        let HalfOpen { socket, address, conn: waiting, .. } = one;
        let Some(conn) = waiting.and_then(|id| self.table.conn(id)) else { return };
        let words = match verdict {
            None => "the peer closed the socket".to_owned(),
            Some(Err(bad)) => bad.to_string(),
            Some(Ok(hello)) if hello.kind != HelloKind::Hello || hello.sender != conn.peer => {
                "another interface than the peer's is connected to the socket".to_owned()
            }
            Some(Ok(hello)) if !wire::is_same(self.address.key, hello.key) => {
                self.refuse(&socket, Refusal::WrongIface);
                "the peer's hello is for another interface".to_owned()
            }
            Some(Ok(hello)) if hello.max_message > self.shared.max_message() as u64 => {
                self.refuse(&socket, Refusal::MessageSize);
                let most = self.shared.max_message();
                format!(
                    "the peer may send messages of {} bytes, this side accepts {most}: set max_message to one value on both sides",
                    hello.max_message
                )
            }
            // A Unix socket leads to what the application has put between, and that has limits of its own.
            Some(Ok(_)) if !address.ip().is_unspecified() && !self.make_room(&socket, address) => {
                self.refuse(&socket, Refusal::Full);
                format!("there is no room for a connection of {address} ({ROOM})")
            }
            Some(Ok(hello)) => {
                if !address.ip().is_unspecified() {
                    self.shared.note_accepted(conn.id(), address.ip());
                }
                return self.welcome(&conn, socket, &hello);
            }
        };
        self.count_dropped();
        self.fail_waiting(waiting, Error::UNREACHABLE, &words);
    }

    /// Fails the connection that waits for a socket, if any does.
    fn fail_waiting(&self, waiting: Option<ConnId>, error: Error, reason: &str) {
        if let Some(id) = waiting {
            self.shared.agenda.fail_later(id, error, reason.to_owned());
        }
    }

    /// Sends why a connection is not taken, and nothing else: no id and no key.
    fn refuse(&self, socket: &Socket, refusal: Refusal) {
        let hello = Hello { sender: 0, refusal: Some(refusal), ..self.shared.hello(HelloKind::Refuse) };
        self.dismiss(socket, &hello);
    }

    /// The last words over a socket.
    fn dismiss(&self, socket: &Socket, hello: &Hello) {
        // A peer that is gone does not need the response.
        let _ = send(socket, &hello.write(), SendFlags::NOSIGNAL);
        let _ = socket.shutdown(std::net::Shutdown::Write);
    }

    /// Uses or refuses a connection after its hello.
    fn admit(&self, one: HalfOpen, hello: &Hello) {
        let HalfOpen { socket, address, .. } = one;
        if !wire::is_same(self.address.key, hello.key) {
            self.count_dropped();
            if let Some(left_out) = self.half_open.borrow().refusals.admit() {
                let words = "a connection was refused: it is meant for another interface";
                ucs::log::debug!(peer = %address, "{words}{left_out}");
            }
            return self.refuse(&socket, Refusal::WrongIface);
        }
        if hello.max_message > self.shared.max_message() as u64 {
            self.count_dropped();
            if let Some(left_out) = self.half_open.borrow().refusals.admit() {
                ucs::log::warn!(
                    peer = %address,
                    "a connection was refused: the peer may send messages of {} bytes, this side accepts {}; set \
                     max_message to one value on both sides{left_out}",
                    hello.max_message,
                    self.shared.max_message()
                );
            }
            return self.refuse(&socket, Refusal::MessageSize);
        }
        // The claimed id decides only which of this side's own connections the reply refers to.
        if hello.sender != self.shared.id() {
            let conns = self.table.all();
            if let Some(claim) = &hello.claim
                && conns.iter().any(|conn| conn.is_claimed(hello.sender, claim))
            {
                return self.dismiss(&socket, &self.shared.hello(HelloKind::Same));
            }
            if !hello.wants_own && conns.iter().any(|conn| conn.is_instead(self.shared.id(), hello.sender)) {
                return self.refuse(&socket, Refusal::Duplicate);
            }
        }
        if !self.make_room(&socket, address) {
            self.count_dropped();
            if let Some(left_out) = self.half_open.borrow().refusals.admit() {
                ucs::log::warn!(
                    peer = %address,
                    "a connection is refused for now: no room ({ROOM}){left_out}"
                );
            }
            return self.refuse(&socket, Refusal::Full);
        }
        let Ok(conn) = self.table.add(hello.sender, hello.token, None) else {
            return self.refuse(&socket, Refusal::Full);
        };
        self.shared.note_accepted(conn.id(), address.ip());
        self.welcome(&conn, socket, hello);
        self.table.on_claimant(&self.shared, hello.sender);
    }

    /// Whether there is room for the connection over a socket, which one that is not used may make.
    fn make_room(&self, socket: &Socket, address: SocketAddr) -> bool {
        let lacks_descriptors = is_among_last(socket, self.config.reserved_descriptors);
        let unused_timeout = self.config.unused_timeout.to_duration();
        self.table.make_room(&self.shared, address.ip(), lacks_descriptors, unused_timeout)
    }

    fn welcome(&self, conn: &Rc<Conn>, socket: Socket, hello: &Hello) {
        let answer = conn.hello(&self.shared, HelloKind::Accept).write();
        match send(&socket, &answer, SendFlags::NOSIGNAL) {
            Ok(HELLO) => {
                conn.note_welcomed();
                conn.establish(&self.shared, hello, Some(socket));
            }
            _ => conn.fail(
                &self.shared,
                Error::CONNECTION_RESET,
                "the peer closed the connection during the handshake",
            ),
        }
    }
}
