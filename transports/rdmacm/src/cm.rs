//! The connection manager: listeners and connections by their numbers, and the progress of all.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use ucs::event_set::{EventSet, Events};
use ucs::log::Limited;
use ucs::{Error, Result};
use uct_ib::IbConfig;
use uct_plugin::cm::{CmAttr, CmConnect, CmData, CmEvent, CmEvents, CmParams, CmPath, CmUser, Finding};
use uct_plugin::{ConnectionManager, Failure, Outcome};

use crate::config::RdmacmConfig;
use crate::conn::{self, Conn, Path, Request};
use crate::doctor;
use crate::io::abi::RDMA_CM_EVENT_CONNECT_REQUEST;
use crate::io::{CmError, Event, Id};
use crate::link::explain::{loopback, refusal};
use crate::proto::private::{self, Kind, Message};
use crate::proto::refusal::{Refusal, Step};
use crate::proto::state::Report;
use crate::shared::{Shared, failure};

/// Events that one call of progress takes.
const EVENTS_IN_TURN: u32 = 64;

/// The connection manager `rdmacm`.
pub(crate) struct RdmaCm {
    shared: Rc<Shared>,
    events: CmEvents<RdmaCm>,
    /// Readable as long as progress has something to do.
    set: EventSet,
    owners: RefCell<HashMap<usize, Owner>>,
    /// Lines about requests that are none.
    malformed: Limited,
}

/// What an event is about.
#[derive(Clone)]
enum Owner {
    Listener(Rc<Listener>),
    Conn(Rc<Conn>),
}

struct Listener {
    key: usize,
    user: CmUser,
    id: Id,
}

/// A listener as the host holds it.
pub(crate) struct RdmaListener {
    cm: Rc<RdmaCm>,
    listener: Rc<Listener>,
}

/// One side of a connection as the host holds it.
pub(crate) struct RdmaEp {
    cm: Rc<RdmaCm>,
    conn: Rc<Conn>,
}

impl ConnectionManager for RdmaCm {
    type Listener = RdmaListener;
    type Request = Request;
    type Ep = RdmaEp;

    fn open(params: CmParams<'_, Self>) -> Result<Rc<Self>, Failure> {
        let (config, ib) =
            (RdmacmConfig::from_settings(&params.settings)?, IbConfig::from_settings(&params.settings)?);
        let shared = Rc::new(Shared::open(config, ib)?);
        let set = EventSet::new()
            .and_then(|set| {
                set.add(&*shared.channel, Events::READ, 0)?;
                set.add(&shared.deadlines, Events::READ, 1)?;
                set.add(&shared.wake, Events::READ, 2)?;
                Ok(set)
            })
            .map_err(|error| Failure::new((&error).into(), error.to_string()))?;
        Ok(Rc::new(RdmaCm {
            shared,
            events: params.events,
            set,
            owners: RefCell::default(),
            malformed: Limited::default(),
        }))
    }

    fn attributes(&self) -> CmAttr {
        CmAttr {
            size: size_of::<CmAttr>(),
            max_connect_data: Kind::Connect.capacity(),
            max_accept_data: Kind::Accept.capacity(),
            max_reject_data: Kind::Reject.capacity(),
            // rdma_cm carries none.
            max_disconnect_data: 0,
        }
    }

    fn event_fd(&self) -> Result<RawFd> {
        Ok(self.set.as_raw_fd())
    }

    fn progress(self: &Rc<Self>) -> u32 {
        let mut count = 0;
        while count < EVENTS_IN_TURN {
            match Event::take(&self.shared.channel) {
                Ok(Some(event)) => self.dispatch(event),
                Ok(None) => break,
                Err(error) => {
                    ucs::log::warn!(%error, "rdmacm: an event cannot be read");
                    break;
                }
            }
            count += 1;
            count += self.report_all();
        }
        if self.shared.deadlines.is_due() {
            while let Some(key) = self.shared.deadlines.take() {
                if let Some(Owner::Conn(conn)) = self.owner(key) {
                    conn.late();
                }
            }
            self.shared.deadlines.rearm();
        }
        self.shared.devices.sweep();
        count + self.report_all()
    }

    fn close(&self) {
        self.owners.take();
    }

    fn listen(
        self: &Rc<Self>,
        user: CmUser,
        address: SocketAddr,
        backlog: Option<u32>,
    ) -> Result<Rc<RdmaListener>, Failure> {
        let key = self.shared.next_key();
        let id = self.bound(key, address).map_err(failure)?;
        id.listen(backlog.unwrap_or(self.shared.config.backlog))
            .map_err(|error| failure(refusal(&error, Step::Listen, &address.to_string())))?;
        let listener = Rc::new(Listener { key, user, id });
        self.owners.borrow_mut().insert(key, Owner::Listener(Rc::clone(&listener)));
        Ok(Rc::new(RdmaListener { cm: Rc::clone(self), listener }))
    }

    fn listener_address(listener: &Rc<RdmaListener>) -> Result<SocketAddr> {
        listener.listener.id.local_address().ok_or(Error::INVALID_ADDR)
    }

    fn listener_destroy(listener: Rc<RdmaListener>) {
        listener.cm.owners.borrow_mut().remove(&listener.listener.key);
    }

    fn connect(self: &Rc<Self>, params: CmConnect) -> Result<Rc<RdmaEp>, Failure> {
        let CmConnect { user, address, source, timeout } = params;
        if address.port() == 0 {
            let words = format!("cannot connect to {address}: the port is missing → use the server's port");
            return Err(Failure::new(Error::INVALID_ADDR, words));
        }
        let refused = source.and_then(|source| loopback(Step::Bind, source));
        if let Some(refusal) = refused.or_else(|| loopback(Step::Connect, address)) {
            return Err(failure(refusal));
        }
        let conn = Conn::connect(&self.shared, user, address, source, timeout).map_err(failure)?;
        Ok(self.keep(conn))
    }

    fn send(ep: &Rc<RdmaEp>, data: CmData<'_>) -> Result {
        ep.conn.send(data.private, data.token)
    }

    fn accept(
        self: &Rc<Self>,
        request: Request,
        user: CmUser,
        data: CmData<'_>,
        timeout: Option<Duration>,
    ) -> Result<Rc<RdmaEp>, Failure> {
        let conn = Conn::accept(&self.shared, user, request, data.private, data.token, timeout);
        Ok(self.keep(conn.map_err(failure)?))
    }

    fn reject(request: Request, data: &[u8]) -> Result {
        conn::reject(request.id, data).map_err(|refusal| refusal.status)
    }

    fn notify(ep: &Rc<RdmaEp>) -> Result {
        ep.conn.notify()
    }

    fn disconnect(ep: &Rc<RdmaEp>, _reason: &[u8]) -> Result<Outcome> {
        ep.conn.disconnect()
    }

    fn addresses(ep: &Rc<RdmaEp>) -> Result<(SocketAddr, SocketAddr)> {
        ep.conn.path().map(|path| (path.local, path.peer)).ok_or(Error::BUSY)
    }

    fn diagnose(address: SocketAddr) -> Result<Vec<Finding>> {
        Ok(doctor::examine(address))
    }

    fn destroy(ep: Rc<RdmaEp>) {
        ep.cm.owners.borrow_mut().remove(&ep.conn.key);
        ep.conn.destroy();
    }
}

impl RdmaCm {
    fn keep(self: &Rc<Self>, conn: Rc<Conn>) -> Rc<RdmaEp> {
        self.owners.borrow_mut().insert(conn.key, Owner::Conn(Rc::clone(&conn)));
        Rc::new(RdmaEp { cm: Rc::clone(self), conn })
    }

    fn owner(&self, key: usize) -> Option<Owner> {
        self.owners.borrow().get(&key).cloned()
    }

    /// An identifier of a listener, bound to its address.
    fn bound(&self, key: usize, address: SocketAddr) -> Result<Id, Refusal> {
        if let Some(refusal) = loopback(Step::Listen, address) {
            return Err(refusal);
        }
        let failed = |error: CmError| refusal(&error, Step::Bind, &address.to_string());
        let id = Id::new(&self.shared.channel, key).map_err(failed)?;
        if self.shared.config.reuse_address {
            id.reuse_address().map_err(failed)?;
        }
        if address.is_ipv6() {
            id.only_its_family().map_err(failed)?;
        }
        id.bind(address).map_err(failed)?;
        Ok(id)
    }

    fn dispatch(&self, event: Event) {
        match self.owner(event.key) {
            Some(Owner::Listener(listener)) if event.event == RDMA_CM_EVENT_CONNECT_REQUEST => {
                self.request(&listener, event);
            }
            Some(Owner::Conn(conn)) => conn.event(event),
            // Of a request that is not answered yet, or of a listener: its device is gone.
            Some(Owner::Listener(_)) => ucs::log::debug!(?event, "rdmacm: an event of a listener"),
            // A request that overtook the end of its listener: dropping it rejects it.
            None => {}
        }
    }

    fn request(&self, listener: &Listener, event: Event) {
        let Some(id) = event.request else { return };
        let Some(path) = Path::of(&id) else { return };
        let private_data = event.param.private_data.clone();
        let private = match private::unpack(Kind::Connect, &private_data) {
            Message::Ours(data) | Message::Foreign(data) => data,
            Message::Bad(bad) => {
                if let Some(left_out) = self.malformed.admit() {
                    ucs::log::warn!(
                        peer = %path.peer,
                        reason = %bad,
                        "rdmacm: a malformed connection request was rejected{left_out}"
                    );
                }
                return;
            }
        };
        let by = path.clone();
        let request = Request { id, path, param: event.param };
        self.events.report(listener.user, CmEvent::Request { request, private, path: as_reported(&by) });
    }

    /// Reports what connections have to report; no borrow is held meanwhile.
    fn report_all(&self) -> u32 {
        let mut count = 0;
        while let Some(key) = self.shared.pop_ready() {
            let Some(Owner::Conn(conn)) = self.owner(key) else { continue };
            while let Some(report) = conn.next_report() {
                self.report(&conn, &report);
                count += 1;
            }
        }
        count
    }

    fn report(&self, conn: &Conn, report: &Report) {
        let report_event = |event: CmEvent<'_, Request>| self.events.report(conn.user, event);
        match report {
            Report::Resolved => {
                if let Some(path) = conn.path() {
                    report_event(CmEvent::Resolved(as_reported(&path)));
                }
            }
            Report::Connected => report_event(CmEvent::Connected(&conn.take_answer())),
            Report::Notified => report_event(CmEvent::Notified),
            Report::Disconnected => report_event(CmEvent::Disconnected(&[])),
            Report::Lost(refusal) => report_event(CmEvent::Lost(&refusal.words)),
            Report::Failed(refusal) => report_event(CmEvent::Failed {
                error: refusal.status,
                private: &conn.take_answer(),
                reason: &refusal.words,
            }),
        }
    }
}

fn as_reported(path: &Path) -> CmPath<'_> {
    CmPath { local: path.local, peer: path.peer, device: &path.device }
}
