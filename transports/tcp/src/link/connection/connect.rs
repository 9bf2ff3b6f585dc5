//! Connecting: a socket, a hello each way, and what to do when that does not work.
//!
//! A side that is refused, since its peer has opened a connection of its own, or is opening one, looks for that one among those
//! that it has accepted (`identity`), and waits for it for a while. Where it finds none it opens another connection.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use ucs::Error;
use ucs::clock::Deadline;
use ucs::event_set::Events;

use super::identity::Claims;
use super::{Conn, Use};
use crate::io::socket;
use crate::link::shared::Shared;
use crate::proto::wire::{self, HELLO, Hello, HelloKind, Refusal};

/// Wait ahead of the first further attempt; each one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Longest wait between attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(320);

/// A connection that is being established.
pub(crate) struct Connecting {
    address: SocketAddr,
    source: Option<SocketAddr>,
    phase: Phase,
    retries: u32,
    deadline: Deadline,
    hello: [u8; HELLO],
    have: usize,
    claims: Claims,
    /// The last hello asked for a connection of its own: no other one may be named instead.
    wants_own: bool,
    /// The peer had no room at the last attempt.
    is_full: bool,
    /// Over a socket that was connected already: there is no other attempt.
    is_only: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No attempt runs until this time.
    Waiting(Deadline),
    /// The system connects.
    Socket,
    /// The hello was sent, the response is awaited.
    Answer,
}

impl Connecting {
    /// The address to connect to.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn claims(&mut self) -> &mut Claims {
        &mut self.claims
    }

    /// Receives some of the hello. A socket that was connected by the application may bring what is for the application: what is no hello
    /// stays in it.
    fn receive(&mut self, socket: &Socket) -> rustix::io::Result<usize> {
        let buffer = &mut self.hello[self.have..];
        let received = if self.is_only && self.have == 0 {
            let (seen, _) = recv(socket, &mut *buffer, RecvFlags::PEEK)?;
            match wire::check_start(&buffer[..seen]) {
                Ok(()) => recv(socket, &mut buffer[..seen], RecvFlags::empty())?.0,
                Err(_) => seen,
            }
        } else {
            recv(socket, buffer, RecvFlags::empty())?.0
        };
        self.have += received;
        Ok(received)
    }
}

impl Conn {
    /// Begins to connect.
    pub(crate) fn connect(self: &Rc<Self>, shared: &Shared, address: SocketAddr, source: Option<SocketAddr>) {
        let deadline = Deadline::after(shared.settings().connect_timeout);
        *self.connecting.borrow_mut() = Some(Box::new(Connecting {
            address,
            source,
            phase: Phase::Waiting(Deadline::at_ticks(0)),
            retries: 0,
            deadline,
            hello: [0; HELLO],
            have: 0,
            claims: Claims::default(),
            wants_own: false,
            is_full: false,
            is_only: false,
        }));
        shared.timers.want_tick(deadline);
        self.attempt(shared);
    }

    /// Begins with a socket that is connected already. The connection belongs to the side that has it, and is no answer to a peer that asks
    /// for its own.
    pub(crate) fn connect_over(
        &self,
        shared: &Shared,
        socket: Socket,
        address: SocketAddr,
    ) -> std::io::Result<()> {
        let deadline = Deadline::after(shared.settings().connect_timeout);
        shared.add_socket(self.id, &socket, Events::WRITE)?;
        *self.socket.borrow_mut() = Some(socket);
        *self.connecting.borrow_mut() = Some(Box::new(Connecting {
            address,
            source: None,
            phase: Phase::Socket,
            retries: 0,
            deadline,
            hello: [0; HELLO],
            have: 0,
            claims: Claims::default(),
            wants_own: true,
            is_full: false,
            is_only: true,
        }));
        self.note_handed_over();
        shared.timers.want_tick(deadline);
        Ok(())
    }

    fn is_only_attempt(&self) -> bool {
        self.connecting.borrow().as_ref().is_some_and(|connecting| connecting.is_only)
    }

    /// Whether this side is connecting.
    pub(crate) fn is_attempting(&self) -> bool {
        let connecting = self.connecting.borrow();
        connecting.as_ref().is_some_and(|connecting| !matches!(connecting.phase, Phase::Waiting(_)))
    }

    /// Whether the system has not connected yet.
    pub(crate) fn awaits_system(&self) -> bool {
        let connecting = self.connecting.borrow();
        connecting.as_ref().is_some_and(|connecting| connecting.phase != Phase::Answer)
    }

    fn set_phase(&self, phase: Phase) {
        if let Some(connecting) = self.connecting.borrow_mut().as_mut() {
            connecting.phase = phase;
            connecting.have = 0;
        }
    }

    pub(super) fn attempt(self: &Rc<Self>, shared: &Shared) {
        if self.is_only_attempt() {
            let reason = "the peer does not take the connection over this socket now: it may have as many as its max_connections or \
                          max_connections_per_source permits";
            return shared.agenda.fail_later(self.id, Error::UNREACHABLE, reason.to_owned());
        }
        let Some((address, source)) =
            self.connecting.borrow().as_ref().map(|connecting| (connecting.address, connecting.source))
        else {
            return;
        };
        let made = socket::connect(address, source, &shared.settings().socket).and_then(|socket| {
            shared.add_socket(self.id, &socket, Events::WRITE)?;
            Ok(socket)
        });
        match made {
            Ok(socket) => {
                *self.socket.borrow_mut() = Some(socket);
                self.set_phase(Phase::Socket);
            }
            Err(error) => self.attempt_failed(shared, &error),
        }
    }

    fn attempt_failed(self: &Rc<Self>, shared: &Shared, error: &std::io::Error) {
        self.close_socket(shared);
        let most = shared.settings().max_conn_retries;
        let pause = {
            let mut connecting = self.connecting.borrow_mut();
            let Some(connecting) = connecting.as_mut() else { return };
            connecting.retries += 1;
            if connecting.retries > most || connecting.is_only {
                None
            } else {
                let pause = FIRST_PAUSE.saturating_mul(1 << (connecting.retries - 1).min(6));
                Some(pause.min(LONGEST_PAUSE))
            }
        };
        match pause {
            Some(pause) => self.pause(shared, pause),
            None => {
                let status = error.raw_os_error().map_or(Error::UNREACHABLE, Error::from_errno);
                let times = if self.is_only_attempt() { 1 } else { most + 1 };
                let reason = format!("cannot connect, tried {times} times: {error}");
                shared.agenda.fail_later(self.id, status, reason);
            }
        }
    }

    pub(super) fn pause(&self, shared: &Shared, pause: Duration) {
        let until = Deadline::after(pause);
        self.set_phase(Phase::Waiting(until));
        shared.timers.want_tick(until);
    }

    /// Something happened on the socket of a connection that is being established; `siblings` are all connections of the interface. Returns the one
    /// whose socket was taken over: it is to be forgotten, and this one to [go on](Conn::go_on).
    pub(crate) fn on_connecting(
        self: &Rc<Self>,
        shared: &Shared,
        events: Events,
        siblings: &[Rc<Conn>],
    ) -> Option<Rc<Conn>> {
        let phase = self.connecting.borrow().as_ref().map(|connecting| connecting.phase);
        match phase {
            Some(Phase::Socket) if events.intersects(Events::WRITE | Events::ERROR) => {
                let outcome = match self.socket.borrow().as_ref().map(|socket| socket.take_error()) {
                    Some(Ok(None)) => Ok(()),
                    Some(Ok(Some(error)) | Err(error)) => Err(error),
                    None => return None,
                };
                match outcome.and_then(|()| self.send_hello(shared, siblings)) {
                    Ok(()) => {
                        self.set_phase(Phase::Answer);
                        self.watch(shared, Events::READ);
                    }
                    Err(error) => self.attempt_failed(shared, &error),
                }
                None
            }
            Some(Phase::Answer) => self.on_answer(shared, siblings),
            _ => None,
        }
    }

    /// What its socket is ready for at this moment.
    pub(crate) fn poll_socket(&self) -> Events {
        let socket = self.socket.borrow();
        let Some(socket) = socket.as_ref() else { return Events::empty() };
        let mut polled = [PollFd::new(socket, PollFlags::IN | PollFlags::OUT)];
        if poll(&mut polled, Some(&Timespec::default())).is_err() {
            return Events::empty();
        }
        let ready = polled[0].revents();
        let mut events = Events::empty();
        events.set(Events::READ, ready.contains(PollFlags::IN));
        events.set(Events::WRITE, ready.contains(PollFlags::OUT));
        events.set(Events::ERROR, ready.intersects(PollFlags::ERR | PollFlags::HUP));
        events
    }

    fn send_hello(&self, shared: &Shared, siblings: &[Rc<Conn>]) -> std::io::Result<()> {
        let socket = self.socket.borrow();
        let Some(socket) = socket.as_ref() else { return Ok(()) };
        let key = self.destination.as_ref().map_or(0, |address| address.key);
        let is_only = self.is_only_attempt();
        let claim = if is_only { None } else { self.next_claim(siblings) };
        let wants_own = is_only || claim.is_none() && self.wants_own();
        if let Some(connecting) = self.connecting.borrow_mut().as_mut() {
            connecting.wants_own = wants_own;
        }
        let hello =
            Hello { key, token: self.token, claim, wants_own, ..self.hello(shared, HelloKind::Hello) };
        let sent = send(socket, &hello.write(), SendFlags::NOSIGNAL)?;
        self.note_use_told();
        // The buffer of a new socket has room for a hello.
        if sent == HELLO { Ok(()) } else { Err(std::io::ErrorKind::WriteZero.into()) }
    }

    /// Whether the peer may not refuse the connection in favour of another one.
    fn has_to_get_own(&self) -> bool {
        self.connecting.borrow().as_ref().is_some_and(|connecting| connecting.wants_own)
    }

    /// What this side reports of itself.
    pub(crate) fn hello(&self, shared: &Shared, kind: HelloKind) -> Hello {
        Hello { in_use: self.own_use.get() == Use::Using, ..shared.hello(kind) }
    }

    fn on_answer(self: &Rc<Self>, shared: &Shared, siblings: &[Rc<Conn>]) -> Option<Rc<Conn>> {
        let answer = {
            let socket = self.socket.borrow();
            let mut connecting = self.connecting.borrow_mut();
            let (Some(socket), Some(connecting)) = (socket.as_ref(), connecting.as_mut()) else {
                return None;
            };
            match connecting.receive(socket) {
                Ok(0) => Err(std::io::ErrorKind::ConnectionReset.into()),
                Ok(_) => {
                    let hello = &connecting.hello;
                    match wire::check_start(&hello[..connecting.have]) {
                        Ok(()) if connecting.have < HELLO => return None,
                        Ok(()) => Ok(Hello::read(hello)),
                        Err(bad) => Ok(Err(bad)),
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => return None,
                Err(errno) => Err(errno.into()),
            }
        };
        match answer {
            Err(error) => self.attempt_failed(shared, &error),
            Ok(Err(bad)) => self.fail(shared, Error::UNREACHABLE, &bad.to_string()),
            Ok(Ok(hello)) => return self.on_hello(shared, &hello, siblings),
        }
        None
    }

    fn on_hello(self: &Rc<Self>, shared: &Shared, hello: &Hello, siblings: &[Rc<Conn>]) -> Option<Rc<Conn>> {
        match (hello.kind, hello.refusal) {
            (HelloKind::Accept, _) if hello.sender == self.peer => {
                if hello.max_message > shared.max_message() as u64 {
                    let reason = format!(
                        "the peer may send messages of {} bytes, this side accepts {}: set max_message to one value on both sides",
                        hello.max_message,
                        shared.max_message()
                    );
                    self.fail(shared, Error::UNREACHABLE, &reason);
                    return None;
                }
                self.fd.set(self.socket.borrow().as_ref().map_or(-1, AsRawFd::as_raw_fd));
                self.establish(shared, hello, None);
            }
            (HelloKind::Same, _) if hello.sender == self.peer && self.has_asked() => {
                return self.take_claimed(shared, siblings);
            }
            (HelloKind::Refuse, Some(Refusal::Duplicate)) if !self.has_to_get_own() => {
                self.close_socket(shared);
                self.look_for_peers_own(shared, siblings);
            }
            (HelloKind::Refuse, Some(Refusal::Full)) => {
                self.close_socket(shared);
                if let Some(connecting) = self.connecting.borrow_mut().as_mut() {
                    connecting.is_full = true;
                }
                self.pause(shared, LONGEST_PAUSE);
            }
            (HelloKind::Refuse, refusal) if refusal != Some(Refusal::Duplicate) => {
                let reason = match refusal {
                    Some(Refusal::Version) => {
                        "the peer has another version of the protocol: use the same release on both sides"
                    }
                    Some(Refusal::WrongIface) => {
                        "the peer's interface was closed, and another interface uses its address: obtain the peer's address again"
                    }
                    Some(Refusal::MessageSize) => {
                        "the peer accepts smaller messages only: set max_message to one value on both sides"
                    }
                    _ => "the peer refused the connection",
                };
                self.fail(shared, Error::REJECTED, reason);
            }
            _ => self.fail(shared, Error::UNREACHABLE, "the peer's hello is unexpected"),
        }
        None
    }

    /// Timer of a connection that is being established; returns the next deadline.
    pub(super) fn tick_connecting(self: &Rc<Self>, shared: &Shared, now: u64) -> Deadline {
        let Some((phase, deadline, retries, is_full)) =
            self.connecting.borrow().as_ref().map(|it| (it.phase, it.deadline, it.retries, it.is_full))
        else {
            return Deadline::NEVER;
        };
        if deadline.expired_at(now) {
            let missing = match phase {
                _ if is_full => {
                    "the peer accepts no further connection (its max_connections and max_connections_per_source)"
                }
                Phase::Answer => "the peer's program has not answered",
                _ => "the peer's system has not answered",
            };
            let reason = format!("{missing} within the time limit (connect_timeout), {retries} retries");
            self.fail(shared, Error::ENDPOINT_TIMEOUT, &reason);
            return Deadline::NEVER;
        }
        match phase {
            Phase::Waiting(until) if until.expired_at(now) => {
                self.attempt(shared);
                deadline
            }
            Phase::Waiting(until) => until.min(deadline),
            _ => deadline,
        }
    }
}
