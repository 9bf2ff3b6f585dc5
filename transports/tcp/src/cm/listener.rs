//! Listeners, and callers whose requests have not arrived.

use std::cell::{Cell, RefCell};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::Socket;
use ucs::Error;
use ucs::clock::Deadline;
use ucs::event_set::Events;
use ucs::log::Limited;
use ucs::sys::descriptors::is_among_last;
use ucs::sys::socket;
use uct_plugin::cm::{CmEvent, CmPath, CmUser};
use uct_plugin::{Failure, Result};

use super::request::{Pending, TcpCmRequest, send_frame};
use super::{Source, TcpCm};
use crate::proto::cm::{self, BadFrame, HEADER, Inbox, Kind, MAX_DATA, Refusal};

/// Clients that may wait in the system, unless the application gives a number. The system has a limit of its own.
const BACKLOG: u32 = 4096;
/// Callers taken in one look.
const ACCEPTS: usize = 64;
/// How long a listener rests that has no room for another caller.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A listener.
pub(crate) struct TcpCmListener {
    cm: Rc<TcpCm>,
    number: u64,
    user: CmUser,
    socket: Socket,
    pending: Arc<Pending>,
    is_destroyed: Cell<bool>,
    rest: Cell<Deadline>,
    refusals: Limited,
}

impl TcpCmListener {
    pub(super) fn create(
        cm: &Rc<TcpCm>,
        user: CmUser,
        address: SocketAddr,
        backlog: Option<u32>,
    ) -> Result<Rc<TcpCmListener>, Failure> {
        let backlog = i32::try_from(backlog.unwrap_or(BACKLOG)).unwrap_or(i32::MAX);
        let socket = socket::listen(address, backlog).map_err(|error| {
            let status = match error.errno {
                libc::EADDRNOTAVAIL => Error::NO_DEVICE,
                _ => Error::from(&error),
            };
            Failure::new(status, error.to_string())
        })?;
        let config = cm.config();
        let listener = Rc::new(TcpCmListener {
            cm: Rc::clone(cm),
            number: cm.next_number(),
            user,
            socket,
            pending: Pending::new(config.cm_max_pending, config.cm_max_pending_per_source),
            is_destroyed: Cell::new(false),
            rest: Cell::new(Deadline::NEVER),
            refusals: Limited::new(1),
        });
        let added =
            cm.add(listener.number, &listener.socket, Events::READ, Rc::clone(&listener) as Rc<dyn Source>);
        added.map_err(|error| Failure::new(Error::from(&error), error.to_string()))?;
        Ok(listener)
    }

    pub(super) fn address(&self) -> Result<SocketAddr> {
        Ok(socket::local_address(&self.socket)?)
    }

    pub(super) fn destroy(&self) {
        self.is_destroyed.set(true);
        self.cm.set_deadline(self.number, self.rest.replace(Deadline::NEVER), Deadline::NEVER);
        self.cm.unwatch(&self.socket);
        self.cm.forget(self.number);
        // A child of a fork may have the descriptor too.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Takes no caller for a while: they wait in the system.
    fn rest(&self) {
        self.cm.watch(self.number, &self.socket, Events::empty());
        let until = Deadline::after(ACCEPT_PAUSE);
        self.cm.set_deadline(self.number, self.rest.replace(until), until);
    }

    fn accept(self: &Rc<Self>, cm: &Rc<TcpCm>) -> u32 {
        let mut count = 0;
        for _ in 0..ACCEPTS {
            if self.is_destroyed.get() {
                break;
            }
            if !self.pending.has_room() {
                self.rest();
                break;
            }
            match socket::accept(&self.socket) {
                Ok(Some((socket, peer))) => count += self.take(cm, socket, peer),
                Ok(None) => break,
                Err(error) => match self.pending.give_way() {
                    Some(silent) => cm.give_way(silent),
                    None => {
                        self.warn(&format_args!("{error}: clients wait until there is room"));
                        self.rest();
                        break;
                    }
                },
            }
        }
        count
    }

    fn take(self: &Rc<Self>, cm: &Rc<TcpCm>, socket: Socket, peer: SocketAddr) -> u32 {
        let (number, is_short) = (cm.next_number(), is_among_last(&socket, cm.config().reserved_descriptors));
        let Some((place, goes)) = self.pending.admit(number, peer.ip(), is_short) else {
            if is_short {
                self.warn(&"a client was dropped: the descriptors of the process are running out");
                self.rest();
                return 0;
            }
            self.warn(&format_args!(
                "{peer} was refused: too many requests of its source wait (cm_max_pending_per_source)"
            ));
            let _ = send_frame(&socket, &cm::refuse(Refusal::TooMany));
            dismiss(&socket);
            return 0;
        };
        if let Some(silent) = goes {
            cm.give_way(silent);
        }
        let _ = socket.set_tcp_nodelay(true);
        let deadline = Deadline::after(cm.config().hello_timeout.to_duration());
        let caller = Rc::new(Caller {
            listener: Rc::clone(self),
            number,
            call: RefCell::new(Some((TcpCmRequest { socket, peer, place }, Inbox::default()))),
            deadline,
        });
        let call = caller.call.borrow();
        let Some((request, _)) = &*call else { return 0 };
        match cm.add(caller.number, &request.socket, Events::READ, Rc::clone(&caller) as Rc<dyn Source>) {
            Ok(()) => cm.set_deadline(caller.number, Deadline::NEVER, deadline),
            Err(error) => self.warn(&error),
        }
        drop(call);
        // Its request may have come with it.
        caller.receive(cm)
    }

    fn warn(&self, what: &dyn std::fmt::Display) {
        if let Some(left_out) = self.refusals.admit() {
            ucs::log::warn!("{what}{left_out}");
        }
    }
}

impl Source for TcpCmListener {
    fn on_events(self: Rc<Self>, cm: &Rc<TcpCm>, _events: Events) -> u32 {
        self.accept(cm)
    }

    fn on_deadline(self: Rc<Self>, cm: &Rc<TcpCm>) -> u32 {
        self.rest.set(Deadline::NEVER);
        cm.watch(self.number, &self.socket, Events::READ);
        self.accept(cm)
    }
}

/// A client whose request has not arrived. Any process can connect and send anything, or nothing.
struct Caller {
    listener: Rc<TcpCmListener>,
    number: u64,
    call: RefCell<Option<(TcpCmRequest, Inbox)>>,
    deadline: Deadline,
}

/// What a caller has sent so far.
enum Received {
    Part,
    Request(Vec<u8>),
    Bad(BadFrame),
    Gone,
}

impl Caller {
    fn receive(&self, cm: &Rc<TcpCm>) -> u32 {
        let received = {
            let mut call = self.call.borrow_mut();
            let Some((request, inbox)) = &mut *call else { return 0 };
            read(&request.socket, inbox)
        };
        if matches!(received, Received::Part) {
            return 0;
        }
        let Some(request) = self.take(cm) else { return 0 };
        let (listener, peer) = (&self.listener, request.peer);
        match received {
            Received::Part | Received::Gone => 0,
            Received::Bad(bad) => {
                listener.warn(&format_args!("a client at {peer} was refused: {bad}"));
                if matches!(bad, BadFrame::Version(_)) {
                    let _ = send_frame(&request.socket, &cm::refuse(Refusal::Version));
                }
                dismiss(&request.socket);
                0
            }
            Received::Request(private) => {
                request.place.keep();
                // Whatever it called, this is the address that it reached.
                let Ok(local) = socket::local_address(&request.socket) else { return 0 };
                if listener.is_destroyed.get() {
                    dismiss(&request.socket);
                    return 0;
                }
                let device = cm.device_of(local.ip());
                let path = CmPath { local, peer, device: &device };
                cm.report.report(listener.user, CmEvent::Request { request, private: &private, path });
                1
            }
        }
    }

    /// Takes the socket out of the event set.
    fn take(&self, cm: &TcpCm) -> Option<TcpCmRequest> {
        let (request, _) = self.call.borrow_mut().take()?;
        cm.unwatch(&request.socket);
        cm.set_deadline(self.number, self.deadline, Deadline::NEVER);
        cm.forget(self.number);
        Some(request)
    }
}

impl Source for Caller {
    fn on_events(self: Rc<Self>, cm: &Rc<TcpCm>, _events: Events) -> u32 {
        self.receive(cm)
    }

    fn give_way(self: Rc<Self>, cm: &Rc<TcpCm>) {
        if let Some(request) = self.take(cm) {
            let peer = request.peer;
            self.listener
                .warn(&format_args!("a client at {peer} that sent no request gave way to another one"));
            let _ = send_frame(&request.socket, &cm::refuse(Refusal::TooMany));
            dismiss(&request.socket);
        }
    }

    fn on_deadline(self: Rc<Self>, cm: &Rc<TcpCm>) -> u32 {
        if let Some(request) = self.take(cm) {
            let limit = cm.config().hello_timeout;
            let peer = request.peer;
            self.listener.warn(&format_args!(
                "a client at {peer} was dropped: no request within {limit} (hello_timeout)"
            ));
            dismiss(&request.socket);
        }
        0
    }
}

/// Reads what has come.
fn read(socket: &Socket, inbox: &mut Inbox) -> Received {
    let mut buffer = [0; HEADER + MAX_DATA];
    loop {
        match recv(socket, &mut buffer, RecvFlags::empty()) {
            Ok((received, _)) if received > 0 => inbox.push(&buffer[..received]),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Received::Part,
            _ => return Received::Gone,
        }
        match inbox.next() {
            Ok(None) => {}
            Ok(Some(frame)) if frame.kind == Kind::Request && inbox.is_empty() => {
                return Received::Request(frame.data);
            }
            Ok(Some(frame)) => return Received::Bad(BadFrame::Kind(frame.kind as u16)),
            Err(bad) => return Received::Bad(bad),
        }
    }
}

/// Closes a socket so that the peer gets what was sent, also if a child of a fork has the descriptor too.
fn dismiss(socket: &Socket) {
    let _ = socket.shutdown(Shutdown::Both);
}
