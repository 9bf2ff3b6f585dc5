//! One side of a connection: its identifier, its queue pair, and what its machine wants done.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use ucs::clock::Deadline;
use ucs::{Error, Result};
use uct_ib::verbs::Qp;
use uct_plugin::Outcome;
use uct_plugin::cm::{CmToken, CmUser};

use crate::io::abi::*;
use crate::io::{CmError, ConnParam, Event, EventParam, Id};
use crate::link::explain::{explain, refusal};
use crate::link::prepare;
use crate::proto::private::{self, Kind, Message};
use crate::proto::refusal::{Refusal, Step, rejected, system};
use crate::proto::state::{Act, Input, Machine, Next, Phase, Report};
use crate::shared::Shared;

/// One side of a connection.
pub(crate) struct Conn {
    shared: Rc<Shared>,
    pub(crate) key: usize,
    pub(crate) user: CmUser,
    machine: RefCell<Machine>,
    /// None once it is over by a failure.
    id: RefCell<Option<Id>>,
    /// Of a connection without a token.
    qp: RefCell<Option<Qp>>,
    /// Where the client connects to and from; the server's peer.
    peer: SocketAddr,
    source: Option<SocketAddr>,
    path: RefCell<Option<Path>>,
    timeout: Duration,
    deadline: Cell<Deadline>,
    /// The client's request until it is sent.
    request: RefCell<Option<(Vec<u8>, CmToken)>>,
    /// Private data that came with the server's answer.
    answer: RefCell<Vec<u8>>,
    reports: RefCell<VecDeque<Report>>,
    is_destroyed: Cell<bool>,
}

/// How the peer is reached.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    /// `mlx5_0:1`.
    pub(crate) device: String,
}

impl Path {
    /// That of an identifier which is bound to a device.
    pub(crate) fn of(id: &Id) -> Option<Path> {
        let (device, port) = id.device()?;
        Some(Path {
            local: id.local_address()?,
            peer: id.peer_address()?,
            device: format!("{device}:{port}"),
        })
    }

    fn device_name(&self) -> &str {
        self.device.split_once(':').map_or(&self.device, |(name, _)| name)
    }
}

impl Conn {
    fn new(
        shared: &Rc<Shared>,
        key: usize,
        user: CmUser,
        machine: Machine,
        id: Id,
        peer: SocketAddr,
    ) -> Conn {
        Conn {
            shared: Rc::clone(shared),
            key,
            user,
            machine: RefCell::new(machine),
            id: RefCell::new(Some(id)),
            qp: RefCell::default(),
            peer,
            source: None,
            path: RefCell::default(),
            timeout: shared.timeout(),
            deadline: Cell::new(Deadline::NEVER),
            request: RefCell::default(),
            answer: RefCell::default(),
            reports: RefCell::default(),
            is_destroyed: Cell::new(false),
        }
    }

    /// Begins to connect.
    pub(crate) fn connect(
        shared: &Rc<Shared>,
        user: CmUser,
        peer: SocketAddr,
        source: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Result<Rc<Conn>, Refusal> {
        let key = shared.next_key();
        let failed = |error: CmError| refusal(&error, Step::Address, &peer.to_string());
        let id = Id::new(&shared.channel, key).map_err(failed)?;
        let mut conn = Conn::new(shared, key, user, Machine::client(), id, peer);
        (conn.source, conn.timeout) = (source, timeout.unwrap_or(conn.timeout));
        match conn.act(Act::ResolveAddress) {
            // An answer of the network is an event, however early.
            Err(refusal) if refusal.status == Error::UNREACHABLE => conn.on(Input::Broken(refusal)),
            other => other?,
        }
        conn.set_deadline();
        Ok(Rc::new(conn))
    }

    /// Accepts a request, of whatever channel.
    pub(crate) fn accept(
        shared: &Rc<Shared>,
        user: CmUser,
        request: Request,
        data: &[u8],
        token: Option<CmToken>,
        timeout: Option<Duration>,
    ) -> Result<Rc<Conn>, Refusal> {
        let Request { mut id, path, param } = request;
        let peer = path.peer.to_string();
        let data = match private::pack(Kind::Accept, data) {
            Ok(data) => data,
            Err(status) => {
                reject(id, &[])?;
                return Err(Refusal::new(
                    status,
                    format!("{} bytes of private data are too many", data.len()),
                ));
            }
        };
        let key = shared.next_key();
        id.migrate(&shared.channel).map_err(|error| refusal(&error, Step::Accept, &peer))?;
        id.set_key(key);
        let mut conn = Conn::new(shared, key, user, Machine::server(), id, path.peer);
        conn.timeout = timeout.unwrap_or(conn.timeout);
        conn.path.replace(Some(path));
        if let Err(refusal) = conn.answer_request(&data, token, &param) {
            // Sends the client an explicit rejection, unless it has gone.
            if let Some(id) = conn.id.take() {
                let _ = reject(id, &[]);
            }
            return Err(refusal);
        }
        conn.set_deadline();
        Ok(Rc::new(conn))
    }

    fn answer_request(&self, data: &[u8], token: Option<CmToken>, param: &EventParam) -> Result<(), Refusal> {
        let token = self.token(token)?;
        self.prepare()?;
        let reads = self.max_reads()?;
        let own = ConnParam {
            private_data: data,
            responder_resources: reads.min(param.initiator_depth),
            initiator_depth: reads.min(param.responder_resources),
            ..self.conn_param(token)
        };
        self.with_id(Step::Accept, |id| id.accept(&own))
    }

    /// The token of the application's endpoint, or of a queue pair that is made for the connection.
    fn token(&self, given: Option<CmToken>) -> Result<CmToken, Refusal> {
        if let Some(token) = given {
            return Ok(token);
        }
        let words = |failure: uct_plugin::Failure| Refusal::new(failure.status, failure.reason);
        let name = self.path.borrow().as_ref().map(|path| path.device_name().to_owned()).unwrap_or_default();
        let qp = self.shared.devices.get(&name).and_then(|device| device.new_qp()).map_err(words)?;
        let token = CmToken { qp_number: qp.number(), has_srq: false };
        self.qp.replace(Some(qp));
        Ok(token)
    }

    fn max_reads(&self) -> Result<u8, Refusal> {
        let path = self.path.borrow();
        let name = path.as_ref().map(Path::device_name).unwrap_or_default();
        let device = self.shared.devices.get(name);
        device.map(|device| device.max_reads).map_err(|failure| Refusal::new(failure.status, failure.reason))
    }

    fn conn_param(&self, token: CmToken) -> ConnParam<'static> {
        ConnParam {
            private_data: &[],
            qp_number: token.qp_number,
            has_srq: token.has_srq,
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: self.shared.config.retry_count,
            rnr_retry_count: self.shared.config.rnr_retry_count,
        }
    }

    fn with_id<T>(&self, step: Step, call: impl FnOnce(&Id) -> Result<T, CmError>) -> Result<T, Refusal> {
        let id = self.id.borrow();
        let Some(id) = id.as_ref() else {
            return Err(Refusal::new(Error::NOT_CONNECTED, "the connection has ended"));
        };
        call(id).map_err(|error| refusal(&error, step, &self.peer.to_string()))
    }

    /// The queue pair to work; with a token of the application only a check that the peer is reachable.
    fn prepare(&self) -> Result<(), Refusal> {
        let (id, qp, peer) = (self.id.borrow(), self.qp.borrow(), self.peer.to_string());
        let Some(id) = id.as_ref() else {
            return Err(Refusal::new(Error::NOT_CONNECTED, "the connection has ended"));
        };
        match qp.as_ref() {
            Some(qp) => {
                prepare::initialize(id, qp, &peer)?;
                prepare::start(id, qp, &peer)
            }
            None => prepare::look(id, &peer),
        }
    }

    fn act(&self, act: Act) -> Result<(), Refusal> {
        match act {
            Act::ResolveAddress => {
                let milliseconds = self.shared.resolve_milliseconds();
                self.with_id(Step::Address, |id| id.resolve_address(self.source, self.peer, milliseconds))
            }
            Act::ResolveRoute => {
                let milliseconds = i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX);
                self.with_id(Step::Route, |id| id.resolve_route(milliseconds))
            }
            Act::Connect => {
                let Some((data, token)) = self.request.take() else { return Ok(()) };
                let reads = self.max_reads()?;
                let param = ConnParam {
                    private_data: &data,
                    responder_resources: reads,
                    initiator_depth: reads,
                    ..self.conn_param(token)
                };
                self.with_id(Step::Connect, |id| id.connect(&param))
            }
            Act::Prepare => self.prepare(),
            Act::Establish => self.with_id(Step::Establish, Id::establish),
            Act::Disconnect => {
                // An identifier that the kernel has already closed refuses it, and its end is an event.
                let _ = self.with_id(Step::Establish, Id::disconnect);
                Ok(())
            }
            Act::Stop => {
                self.stop();
                Ok(())
            }
        }
    }

    /// Ends what the queue pair of the connection does.
    fn stop(&self) {
        if let Some(qp) = self.qp.borrow().as_ref()
            && let Err(error) = qp.fail()
        {
            ucs::log::debug!(%error, "rdmacm: a queue pair does not stop");
        }
    }

    /// Does what follows from an event or a call, and keeps what is to be reported for progress.
    fn follow(&self, mut next: Next) {
        loop {
            let failed = next.acts.iter().find_map(|&act| self.act(act).err());
            let is_prepared = failed.is_none() && next.acts.contains(&Act::Prepare);
            let input = match failed {
                Some(refusal) => Some(Input::Broken(refusal)),
                None => is_prepared.then_some(Input::Prepared),
            };
            if !next.reports.is_empty() {
                self.reports.borrow_mut().extend(next.reports);
                self.shared.push_ready(self.key);
            }
            let Some(input) = input else { break };
            if let Input::Broken(refusal) = &input {
                self.close_failed(refusal);
            }
            next = self.machine.borrow_mut().on(input);
        }
        self.set_deadline();
    }

    /// Nothing of a failed connection stays pending in the kernel.
    fn close_failed(&self, refusal: &Refusal) {
        ucs::log::debug!(peer = %self.peer, reason = %refusal.words, "rdmacm: a connection failed");
        drop(self.id.take());
    }

    fn on(&self, input: Input) {
        if let Input::Broken(refusal) = &input {
            self.close_failed(refusal);
        }
        let next = self.machine.borrow_mut().on(input);
        self.follow(next);
    }

    fn set_deadline(&self) {
        let machine = self.machine.borrow();
        let is_timed = machine.is_timed() && !self.is_destroyed.get();
        // Address and route are one stage.
        let is_resolving = matches!(machine.phase(), Phase::Address | Phase::Route);
        let same = is_resolving && self.deadline.get() != Deadline::NEVER;
        if same && is_timed {
            return;
        }
        let new = if is_timed { Deadline::after(self.timeout) } else { Deadline::NEVER };
        let old = self.deadline.replace(new);
        self.shared.deadlines.replace(self.key, old, new);
    }

    /// Its deadline is over.
    pub(crate) fn late(&self) {
        self.deadline.set(Deadline::NEVER);
        let (phase, is_leaving) = (self.machine.borrow().phase(), self.machine.borrow().is_leaving());
        let peer = self.peer.to_string();
        let after = |what: &str, cause: &str| {
            let limit = self.timeout;
            Refusal::new(
                Error::TIMED_OUT,
                format!("{peer} {what} within {limit:?} (timeout of section rdmacm){cause}"),
            )
        };
        let refusal = match phase {
            Phase::Unanswered => {
                let next = self.machine.borrow_mut().answer();
                return self.follow(next);
            }
            Phase::Address => system(Step::Address, &peer, libc::ETIMEDOUT),
            Phase::Route => system(Step::Route, &peer, libc::ETIMEDOUT),
            Phase::Accepted => after("did not confirm the connection", ""),
            _ if is_leaving => after("did not acknowledge the disconnect", ""),
            _ => after(
                "did not reply to the connection request",
                ": its server neither accepts nor rejects it, or packets are lost",
            ),
        };
        self.on(Input::Broken(refusal));
    }

    /// An event of rdma_cm.
    pub(crate) fn event(&self, event: Event) {
        let peer = self.peer.to_string();
        let errno = -event.status;
        let input = match event.event {
            RDMA_CM_EVENT_ADDR_RESOLVED => Input::AddressResolved,
            RDMA_CM_EVENT_ADDR_ERROR if errno == libc::ETIMEDOUT => Input::AddressLate,
            RDMA_CM_EVENT_ADDR_ERROR => Input::Broken(explain(Step::Address, &peer, errno)),
            RDMA_CM_EVENT_ROUTE_RESOLVED => self.routed(),
            RDMA_CM_EVENT_ROUTE_ERROR => Input::Broken(explain(Step::Route, &peer, errno)),
            RDMA_CM_EVENT_CONNECT_RESPONSE => self.response(&event.param),
            RDMA_CM_EVENT_CONNECT_ERROR | RDMA_CM_EVENT_UNREACHABLE => {
                Input::Broken(system(Step::Connect, &peer, errno))
            }
            RDMA_CM_EVENT_REJECTED => self.rejected(&event),
            RDMA_CM_EVENT_ESTABLISHED => Input::Established,
            RDMA_CM_EVENT_DISCONNECTED => Input::Disconnected,
            RDMA_CM_EVENT_DEVICE_REMOVAL => Input::Broken(Refusal::new(
                Error::NO_DEVICE,
                format!("the RDMA device of the connection to {peer} is gone"),
            )),
            // The bond of the network device moved, or the number of the queue pair may come again.
            RDMA_CM_EVENT_ADDR_CHANGE | RDMA_CM_EVENT_TIMEWAIT_EXIT => return,
            other => {
                ucs::log::debug!(event = other, peer, "rdmacm: an event is ignored");
                return;
            }
        };
        self.on(input);
    }

    fn routed(&self) -> Input {
        let path = self.id.borrow().as_ref().and_then(Path::of);
        match path {
            Some(path) => {
                self.path.replace(Some(path));
                Input::RouteResolved
            }
            None => Input::Broken(system(Step::Route, &self.peer.to_string(), libc::ENODEV)),
        }
    }

    fn response(&self, param: &EventParam) -> Input {
        match private::unpack(Kind::Accept, &param.private_data) {
            Message::Ours(data) | Message::Foreign(data) => {
                self.answer.replace(data.to_vec());
                Input::Response
            }
            Message::Bad(bad) => Input::Broken(Refusal::new(Error::IO_ERROR, bad.to_string())),
        }
    }

    fn rejected(&self, event: &Event) -> Input {
        let peer = self.peer.to_string();
        match private::unpack(Kind::Reject, &event.param.private_data) {
            Message::Ours(data) => {
                self.answer.replace(data.to_vec());
                Input::Broken(Refusal::new(Error::REJECTED, format!("{peer} rejected the connection")))
            }
            _ => Input::Broken(rejected(&peer, event.status)),
        }
    }

    /// The application sends its request.
    pub(crate) fn send(&self, data: &[u8], token: Option<CmToken>) -> Result {
        let data = private::pack(Kind::Connect, data)?;
        let next = self.machine.borrow_mut().send()?;
        match self.token(token) {
            Ok(token) => {
                self.request.replace(Some((data, token)));
                self.follow(next);
            }
            Err(refusal) => self.on(Input::Broken(refusal)),
        }
        Ok(())
    }

    /// The application notifies the server.
    pub(crate) fn notify(&self) -> Result {
        let next = self.machine.borrow_mut().notify()?;
        self.follow(next);
        Ok(())
    }

    /// The application disconnects.
    pub(crate) fn disconnect(&self) -> Result<Outcome> {
        let (outcome, next) = self.machine.borrow_mut().disconnect()?;
        self.follow(next);
        Ok(outcome)
    }

    /// How the peer is reached, once resolved.
    pub(crate) fn path(&self) -> Option<Path> {
        self.path.borrow().clone()
    }

    /// The next report; none once it is destroyed.
    pub(crate) fn next_report(&self) -> Option<Report> {
        if self.is_destroyed.get() { None } else { self.reports.borrow_mut().pop_front() }
    }

    /// Private data that came with the server's answer.
    pub(crate) fn take_answer(&self) -> Vec<u8> {
        self.answer.take()
    }

    /// Ends the connection, whatever its state.
    pub(crate) fn destroy(&self) {
        self.is_destroyed.set(true);
        self.set_deadline();
        let (phase, is_leaving) = (self.machine.borrow().phase(), self.machine.borrow().is_leaving());
        match phase {
            // A server that awaits the notification gets the end.
            Phase::Prepared if self.act(Act::Establish).is_ok() => drop(self.act(Act::Disconnect)),
            Phase::Established if !is_leaving => drop(self.act(Act::Disconnect)),
            Phase::Unanswered => drop(self.act(Act::Disconnect)),
            _ => {}
        }
        self.stop();
        drop(self.id.take());
        if let Some(qp) = self.qp.take() {
            self.shared.devices.retire(qp);
        }
    }
}

/// A client's request.
pub(crate) struct Request {
    pub(crate) id: Id,
    pub(crate) path: Path,
    pub(crate) param: EventParam,
}

/// Rejects, with the application's data.
pub(crate) fn reject(id: Id, data: &[u8]) -> Result<(), Refusal> {
    let message = private::pack(Kind::Reject, data).map_err(|status| {
        Refusal::new(status, format!("{} bytes of private data are too many", data.len()))
    })?;
    id.reject(&message).map_err(|error| refusal(&error, Step::Accept, "the client"))
}
