//! One end of a connection: a socket, the state, and what waits to be sent.

use std::cell::{Cell, RefCell};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use ucs::Error;
use ucs::clock::Deadline;
use ucs::event_set::Events;
use ucs::sys::SystemError;
use ucs::sys::socket::{self, Connect};
use uct_plugin::cm::{CmConnect, CmEvent, CmPath, CmState, CmUser, Due, Input};
use uct_plugin::{Failure, Outcome, Result};

use super::request::TcpCmRequest;
use super::{Source, TcpCm};
use crate::proto::cm::{self, HEADER, Inbox, Kind, MAX_DATA, Refusal};

/// One end of a connection.
pub(crate) struct TcpCmEp {
    cm: Rc<TcpCm>,
    number: u64,
    user: CmUser,
    peer: SocketAddr,
    /// None if the connection could not even be begun.
    socket: Option<Socket>,
    state: Cell<CmState>,
    inbox: RefCell<Inbox>,
    outbox: RefCell<Vec<u8>>,
    /// Once everything has left, nothing more is sent.
    is_last_sent: Cell<bool>,
    timeout: Duration,
    deadline: Cell<Deadline>,
    is_watched: Cell<bool>,
    is_destroyed: Cell<bool>,
    /// Why it fails, once progress reports it.
    failure: RefCell<Option<(Error, String)>>,
}

/// What a read led to.
enum Read {
    Nothing,
    Some,
    End,
    Error(Errno),
}

impl TcpCmEp {
    fn new(
        cm: &Rc<TcpCm>,
        user: CmUser,
        (socket, peer): (Option<Socket>, SocketAddr),
        state: CmState,
        timeout: Option<Duration>,
    ) -> Rc<TcpCmEp> {
        Rc::new(TcpCmEp {
            cm: Rc::clone(cm),
            number: cm.next_number(),
            user,
            peer,
            socket,
            state: Cell::new(state),
            inbox: RefCell::default(),
            outbox: RefCell::default(),
            is_last_sent: Cell::new(false),
            timeout: timeout.unwrap_or_else(|| cm.config().connect_timeout.to_duration()),
            deadline: Cell::new(Deadline::NEVER),
            is_watched: Cell::new(false),
            is_destroyed: Cell::new(false),
            failure: RefCell::default(),
        })
    }

    pub(super) fn connect(cm: &Rc<TcpCm>, params: &CmConnect) -> Result<Rc<TcpCmEp>, Failure> {
        let peer = params.address;
        if peer.port() == 0 || peer.ip().is_multicast() {
            let reason = format!("no program can listen on {peer}: give the address and port of the server");
            return Err(Failure::new(Error::INVALID_ADDR, reason));
        }
        if let SocketAddr::V6(peer) = peer
            && peer.ip().is_unicast_link_local()
            && peer.scope_id() == 0
        {
            let reason =
                format!("{peer} is a link-local address: name the device, as in [{}%eth0]", peer.ip());
            return Err(Failure::new(Error::INVALID_ADDR, reason));
        }
        let made = |socket| TcpCmEp::new(cm, params.user, (socket, peer), CmState::client(), params.timeout);
        match socket::connect(peer, params.source) {
            Ok((socket, _)) => {
                let _ = socket.set_tcp_nodelay(true);
                let ep = made(Some(socket));
                ep.begin(Events::WRITE)?;
                Ok(ep)
            }
            // As of a connection that fails later: the application has one place for it.
            Err(error) if is_of_the_network(&error, params.source) => {
                let ep = made(None);
                cm.add_unwatched(ep.number, Rc::clone(&ep) as Rc<dyn Source>);
                ep.fail_later(status_of(&error), format!("resolve {peer}: {error}"));
                Ok(ep)
            }
            Err(error) if error.errno == libc::EADDRNOTAVAIL => {
                let reason = format!("{error}; expected an address of this machine to connect from");
                Err(Failure::new(Error::NO_DEVICE, reason))
            }
            Err(error) => Err(Failure::new(status_of(&error), error.to_string())),
        }
    }

    pub(super) fn accept(
        cm: &Rc<TcpCm>,
        request: TcpCmRequest,
        user: CmUser,
        private: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Rc<TcpCmEp>, Failure> {
        let peer = request.peer;
        request
            .check()
            .map_err(|error| Failure::new(error, format!("the client at {peer} closed the connection")))?;
        let TcpCmRequest { socket, .. } = request;
        let ep = TcpCmEp::new(cm, user, (Some(socket), peer), CmState::server(), timeout);
        ep.begin(Events::READ)?;
        ep.queue(&cm::write(Kind::Accept, private));
        Ok(ep)
    }

    /// Watches the socket; the first stage begins.
    fn begin(self: &Rc<Self>, events: Events) -> Result<(), Failure> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let added = self.cm.add(self.number, socket, events, Rc::clone(self) as Rc<dyn Source>);
        added.map_err(|error| Failure::new(Error::from(&error), error.to_string()))?;
        self.is_watched.set(true);
        self.set_deadline();
        Ok(())
    }

    /// The limit of the stage that begins.
    fn set_deadline(&self) {
        let awaits = self.state.get().awaits_peer();
        let new = if awaits { Deadline::after(self.timeout) } else { Deadline::NEVER };
        self.cm.set_deadline(self.number, self.deadline.replace(new), new);
    }

    fn fail_later(&self, error: Error, reason: String) {
        *self.failure.borrow_mut() = Some((error, reason));
        let now = Deadline::at_ticks(0);
        self.cm.set_deadline(self.number, self.deadline.replace(now), now);
    }

    pub(super) fn send(&self, private: &[u8]) -> Result {
        self.change(CmState::send)?;
        self.set_deadline();
        self.queue(&cm::write(Kind::Request, private));
        Ok(())
    }

    pub(super) fn notify(&self) -> Result {
        self.change(CmState::notify)?;
        self.queue(&cm::write(Kind::Notify, &[]));
        Ok(())
    }

    pub(super) fn disconnect(&self, reason: &[u8]) -> Result<Outcome> {
        let outcome = self.change(CmState::disconnect)?;
        if outcome == Outcome::Done {
            self.say_goodbye(reason);
        }
        Ok(outcome)
    }

    pub(super) fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        let socket = self.socket.as_ref().ok_or(Error::NOT_CONNECTED)?;
        if self.state.get().is_resolving() {
            return Err(Error::BUSY);
        }
        Ok((socket::local_address(socket)?, self.peer))
    }

    pub(super) fn destroy(&self) {
        self.is_destroyed.set(true);
        let state = self.state.get();
        if !state.has_disconnected() && state.is_connected() {
            self.say_goodbye(&[]);
        }
        self.cm.set_deadline(self.number, self.deadline.replace(Deadline::NEVER), Deadline::NEVER);
        self.unwatch();
        self.cm.forget(self.number);
        if let Some(socket) = &self.socket {
            // What was not read would have the system send a reset, which overtakes what was sent.
            let _ = recv(socket, &mut [0; HEADER + MAX_DATA], RecvFlags::empty());
            // A child of a fork may have the descriptor too.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn change<T>(&self, call: impl FnOnce(&mut CmState) -> Result<T>) -> Result<T> {
        let mut state = self.state.get();
        let outcome = call(&mut state);
        self.state.set(state);
        outcome
    }

    fn say_goodbye(&self, reason: &[u8]) {
        self.is_last_sent.set(true);
        self.queue(&cm::write(Kind::Disconnect, reason));
    }

    /// Sends a frame behind what waits.
    pub(super) fn queue(&self, frame: &[u8]) {
        self.outbox.borrow_mut().extend_from_slice(frame);
        self.flush();
    }

    /// Sends what there is room for. An error shows up as the socket is read.
    fn flush(&self) {
        let Some(socket) = &self.socket else { return };
        let mut outbox = self.outbox.borrow_mut();
        while !outbox.is_empty() {
            match send(socket, &outbox, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(outbox.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return self.watch(Events::READ | Events::WRITE),
                Err(_) => outbox.clear(),
            }
        }
        if self.is_last_sent.get() {
            let _ = socket.shutdown(Shutdown::Write);
        }
    }

    fn watch(&self, events: Events) {
        if let Some(socket) = self.socket.as_ref().filter(|_| self.is_watched.get()) {
            self.cm.watch(self.number, socket, events);
        }
    }

    /// Nothing that happens on the socket matters any more.
    fn unwatch(&self) {
        if let Some(socket) = self.socket.as_ref().filter(|_| self.is_watched.replace(false)) {
            self.cm.unwatch(socket);
        }
    }

    /// The system has connected, or has not.
    fn on_connected(&self, socket: &Socket) -> u32 {
        match socket::connect_outcome(socket, self.peer) {
            Ok(Connect::InProgress) => 0,
            Ok(Connect::Connected) => {
                self.watch(Events::READ);
                self.on_input(Input::Resolved, &[])
            }
            Err(error) => self.fail(status_of(&error), format!("resolve {}: {error}", self.peer)),
        }
    }

    /// Takes an input from the peer and reports what is due.
    fn on_input(&self, input: Input, data: &[u8]) -> u32 {
        let Ok(due) = self.change(|state| state.on(input)) else {
            let reason = format!("{}: the peer sent {input:?} out of turn", self.peer);
            return self.fail(Error::IO_ERROR, reason);
        };
        self.set_deadline();
        if self.state.get().is_over() {
            self.unwatch();
        }
        let report = |event| self.cm.report.report(self.user, event);
        match (due, input) {
            (None, _) => return 0,
            (Some(Due::Next), Input::Resolved) => {
                let local = self.socket.as_ref().and_then(|socket| socket::local_address(socket).ok());
                let local = local.unwrap_or(self.peer);
                let device = self.cm.device_of(local.ip());
                report(CmEvent::Resolved(CmPath { local, peer: self.peer, device: &device }));
            }
            (Some(Due::Next), Input::Accepted) => report(CmEvent::Connected(data)),
            (Some(Due::Next), _) => report(CmEvent::Notified),
            (Some(Due::Disconnected), Input::Disconnected) => report(CmEvent::Disconnected(data)),
            (Some(Due::Disconnected), _) => report(CmEvent::Lost(&self.take_failure().1)),
            (Some(Due::Failed), Input::Rejected) => {
                let reason = format!("{} rejected the request", self.peer);
                report(CmEvent::Failed { error: Error::REJECTED, private: data, reason: &reason });
            }
            (Some(Due::Failed), Input::Disconnected) => {
                let reason = format!("{} disconnected without a notification", self.peer);
                report(CmEvent::Failed { error: Error::CONNECTION_RESET, private: data, reason: &reason });
            }
            (Some(Due::Failed), _) => {
                let (error, reason) = self.take_failure();
                report(CmEvent::Failed { error, private: &[], reason: &reason });
            }
        }
        1
    }

    fn take_failure(&self) -> (Error, String) {
        let failure = self.failure.borrow_mut().take();
        failure.unwrap_or_else(|| (Error::CONNECTION_RESET, format!("{} closed the connection", self.peer)))
    }

    /// The connection is lost.
    fn fail(&self, error: Error, reason: String) -> u32 {
        *self.failure.borrow_mut() = Some((error, reason));
        self.on_input(Input::Lost, &[])
    }

    fn receive(&self, socket: &Socket) -> u32 {
        let mut count = 0;
        while !self.is_done() {
            let read = self.read(socket);
            count += self.take_frames();
            if self.is_done() {
                break;
            }
            let stage = self.state.get().stage();
            match read {
                Read::Some => {}
                Read::Nothing => break,
                Read::End => {
                    let reason = format!(
                        "{stage}: {} closed the connection: the program there has ended, or is of another kind",
                        self.peer
                    );
                    return count + self.fail(Error::CONNECTION_RESET, reason);
                }
                Read::Error(errno) => {
                    let error = SystemError::new(format!("receive from {}", self.peer), errno);
                    return count + self.fail(status_of(&error), format!("{stage}: {error}"));
                }
            }
        }
        count
    }

    fn is_done(&self) -> bool {
        self.is_destroyed.get() || self.state.get().is_over()
    }

    fn read(&self, socket: &Socket) -> Read {
        let mut buffer = [0; HEADER + MAX_DATA];
        loop {
            return match recv(socket, &mut buffer, RecvFlags::empty()) {
                Ok((0, _)) => Read::End,
                Ok((received, _)) => {
                    self.inbox.borrow_mut().push(&buffer[..received]);
                    Read::Some
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Read::Nothing,
                Err(errno) => Read::Error(errno),
            };
        }
    }

    fn take_frames(&self) -> u32 {
        let mut count = 0;
        while !self.is_done() {
            let next = self.inbox.borrow_mut().next();
            count += match next {
                Ok(None) => return count,
                Ok(Some(frame)) => match frame.kind {
                    Kind::Accept => self.on_input(Input::Accepted, &frame.data),
                    Kind::Reject => self.on_input(Input::Rejected, &frame.data),
                    Kind::Notify => self.on_input(Input::Notified, &[]),
                    Kind::Disconnect => self.on_input(Input::Disconnected, &frame.data),
                    Kind::Refuse => self.on_refusal(frame.refusal),
                    Kind::Request => self
                        .fail(Error::IO_ERROR, format!("{}: the peer sent a request out of turn", self.peer)),
                },
                Err(bad) => self.fail(Error::IO_ERROR, format!("{}: {bad}", self.peer)),
            };
        }
        count
    }

    fn on_refusal(&self, refusal: Option<Refusal>) -> u32 {
        let peer = self.peer;
        let (error, reason) = match refusal {
            Some(Refusal::TooMany) => (
                Error::EXCEEDS_LIMIT,
                format!(
                    "{peer} has too many requests of this machine waiting (its cm_max_pending_per_source): try again"
                ),
            ),
            Some(Refusal::Version) => (
                Error::UNSUPPORTED,
                format!(
                    "{peer} has another version of the connection manager: use the same release on both sides"
                ),
            ),
            None => (
                Error::UNSUPPORTED,
                format!(
                    "{peer} refused the request for a reason that this release does not know: use the same on both sides"
                ),
            ),
        };
        self.fail(error, reason)
    }
}

impl Source for TcpCmEp {
    fn on_events(self: Rc<Self>, _cm: &Rc<TcpCm>, events: Events) -> u32 {
        let Some(socket) = self.socket.as_ref().filter(|_| !self.is_destroyed.get()) else { return 0 };
        if self.state.get().is_resolving() {
            return self.on_connected(socket);
        }
        if events.contains(Events::WRITE) {
            self.watch(Events::READ);
            self.flush();
        }
        self.receive(socket)
    }

    fn on_deadline(self: Rc<Self>, _cm: &Rc<TcpCm>) -> u32 {
        self.deadline.set(Deadline::NEVER);
        if self.is_destroyed.get() {
            return 0;
        }
        if self.failure.borrow().is_some() {
            return self.on_input(Input::Lost, &[]);
        }
        let reason = format!(
            "{}: {} took longer than {:?}: check the program there, the network and its firewalls, or allow more time \
             (timeout, or connect_timeout)",
            self.state.get().stage(),
            self.peer,
            self.timeout
        );
        self.fail(Error::TIMED_OUT, reason)
    }
}

/// Whether an error concerns the path to the peer, not the request of the application.
fn is_of_the_network(error: &SystemError, source: Option<SocketAddr>) -> bool {
    match error.errno {
        libc::ECONNREFUSED | libc::ECONNRESET | libc::ETIMEDOUT => true,
        libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN => true,
        // The system has found no address of its own that leads there.
        libc::EADDRNOTAVAIL => source.is_none(),
        _ => false,
    }
}

/// The status of an error of a connection.
fn status_of(error: &SystemError) -> Error {
    match error.errno {
        libc::ECONNREFUSED => Error::NOT_CONNECTED,
        libc::ENETDOWN | libc::EADDRNOTAVAIL => Error::UNREACHABLE,
        _ => Error::from(error),
    }
}

/// What tests see and do that an application cannot.
#[cfg(test)]
impl TcpCmEp {
    /// Lets the socket take so little that more has to wait.
    pub(super) fn narrow(&self) {
        self.socket.as_ref().unwrap().set_send_buffer_size(1).unwrap();
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.outbox.borrow().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_path_are_told_as_those_of_a_connection_and_others_at_once() {
        let source = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let of = |errno: i32| SystemError::new("connect", errno);
        let path = [
            (libc::ECONNREFUSED, Error::NOT_CONNECTED),
            (libc::ENETDOWN, Error::UNREACHABLE),
            (libc::ENETUNREACH, Error::UNREACHABLE),
            (libc::EHOSTUNREACH, Error::UNREACHABLE),
            (libc::ETIMEDOUT, Error::TIMED_OUT),
            (libc::ECONNRESET, Error::CONNECTION_RESET),
        ];
        for (errno, status) in path {
            assert!(is_of_the_network(&of(errno), None) && is_of_the_network(&of(errno), source));
            assert_eq!(status_of(&of(errno)), status, "{errno}");
        }
        assert!(!is_of_the_network(&of(libc::EACCES), None));
        // Without a source address the system has found none that leads there; one that was given is not of this machine.
        assert!(is_of_the_network(&of(libc::EADDRNOTAVAIL), None));
        assert!(!is_of_the_network(&of(libc::EADDRNOTAVAIL), source));
        assert_eq!(status_of(&of(libc::EADDRNOTAVAIL)), Error::UNREACHABLE);
    }
}
