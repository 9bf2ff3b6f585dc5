//! What lies under the lock of a domain's net: endpoints, their peers, and what is to be done in turns.
//!
//! Frames are delivered inside a transport (`sink`): they are matched and copied there, and what is to be sent for them is queued. Calls of the
//! program send at once what can be sent. The rest is done in turns.

mod atomic;
mod begun;
mod call;
mod cancel;
mod close;
mod copied;
mod endpoint;
mod fail;
mod input;
mod link;
mod message;
mod native;
mod pause;
mod peek;
mod peer;
mod placed;
mod receive;
mod remote;
mod send;
mod serve;
mod sink;
mod totals;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use slab::Slab;
use uct_core::Memory;
use uct_net::protocol::{Engine, Protocol};

pub(super) use self::call::Stop;
use self::endpoint::Endpoint;
use self::input::{Input, Payload};
use self::link::LocalFrame;
use self::peer::Ticket;
#[cfg(test)]
pub(super) use self::placed::PLACED;
pub use self::totals::Totals;
use super::region::Regions;
use super::{Atomic, Bindings, Errno, Peek, Receive, Rma, Send};
use crate::wire::{Frame, MAX_HEAD, whole_message};

/// Rounds of frames within the domain in one turn.
const ROUNDS: u32 = 16;

/// The state of a domain.
#[derive(Clone)]
pub(super) struct State(Rc<Inside>);

struct Inside {
    inner: RefCell<Inner>,
    /// What connections report, done in the next turn.
    events: RefCell<Vec<Event>>,
    has_events: Cell<bool>,
}

/// All endpoints of a domain.
struct Inner {
    endpoints: Slab<Endpoint>,
    shared: Shared,
    /// Peers that are being served: no allocation for each turn.
    serving: Vec<(usize, u32)>,
}

/// What endpoints have in common.
pub(super) struct Shared {
    /// Frames from endpoints of the domain to others.
    local: VecDeque<LocalFrame>,
    /// Peers that have something to be sent, or to be released: endpoint and number.
    due: Vec<(usize, u32)>,
    /// Peers that are to be called.
    to_open: Vec<(usize, u32)>,
    /// Peers within the domain that wait until frames have been delivered.
    blocked: Vec<(usize, u32)>,
    /// Messages that are to be read in the memory of peers, when there is room: endpoint and number.
    again: Vec<(usize, usize)>,
    /// Registrations that have to end, outside of transports.
    retired: Vec<Retired>,
    inside: Weak<Inside>,
    engine: Engine,
    pub(super) regions: Arc<Regions>,
    pub(super) totals: Totals,
}

/// A registration that has to end, and what ends with it.
struct Retired {
    memory: Memory,
    /// An operation of the endpoint with this number: the program gets the memory back when no peer can read it.
    ends: Option<(usize, Ticket, Result<(), Errno>)>,
}

/// What a connection has reported.
enum Event {
    /// It may have room again.
    Writable { endpoint: usize, peer: u32, attempt: u32 },
    /// It has ended.
    Ended { endpoint: usize, peer: u32, attempt: u32, reason: uct_net::Error },
    /// What was being read in a peer's memory has been read, or cannot be.
    Read { endpoint: usize, reading: usize, is_read: bool },
    /// Its peer has broken the protocol.
    Broken { endpoint: usize, peer: u32, attempt: u32, reason: String },
}

impl State {
    pub(super) fn new(engine: &Engine, regions: Arc<Regions>) -> State {
        let shared = |inside: &Weak<Inside>| Shared {
            local: VecDeque::new(),
            due: Vec::new(),
            to_open: Vec::new(),
            blocked: Vec::new(),
            again: Vec::new(),
            retired: Vec::new(),
            inside: Weak::clone(inside),
            engine: engine.clone(),
            regions,
            totals: Totals::default(),
        };
        State(Rc::new_cyclic(|inside| Inside {
            inner: RefCell::new(Inner {
                endpoints: Slab::new(),
                shared: shared(inside),
                serving: Vec::new(),
            }),
            events: RefCell::default(),
            has_events: Cell::new(false),
        }))
    }

    /// Something of an endpoint, and what cannot wait for a turn behind it. An endpoint that is closed answers with an error.
    #[inline]
    fn with(
        &self,
        engine: &Engine,
        endpoint: usize,
        work: impl FnOnce(&mut Endpoint, &mut Shared) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut inner = self.0.inner.borrow_mut();
        let Inner { endpoints, shared, .. } = &mut *inner;
        let endpoint = endpoints.get_mut(endpoint).ok_or(Errno::INVALID)?;
        let outcome = work(endpoint, shared);
        if shared.has_work() {
            inner.serve(1);
            self.open_links(&mut inner, engine);
            if inner.shared.has_work() {
                engine.request_turn();
            }
        }
        outcome
    }

    pub(super) fn send(&self, engine: &Engine, endpoint: usize, send: &Send<'_>) -> Result<(), Errno> {
        self.with(engine, endpoint, |endpoint, shared| endpoint.send(shared, send))
    }

    pub(super) fn receive(
        &self,
        engine: &Engine,
        endpoint: usize,
        receive: &Receive<'_>,
    ) -> Result<(), Errno> {
        self.with(engine, endpoint, |endpoint, shared| endpoint.receive(shared, receive))
    }

    pub(super) fn receive_many(
        &self,
        engine: &Engine,
        endpoint: usize,
        receive: &Receive<'_>,
        minimum: usize,
    ) -> Result<(), Errno> {
        self.with(engine, endpoint, |endpoint, shared| endpoint.receive_many(shared, receive, minimum))
    }

    pub(super) fn peek(&self, engine: &Engine, endpoint: usize, peek: &Peek) -> Result<(), Errno> {
        self.with(engine, endpoint, |endpoint, shared| endpoint.peek(shared, peek))
    }

    pub(super) fn claim(
        &self,
        engine: &Engine,
        endpoint: usize,
        receive: &Receive<'_>,
        discard: bool,
    ) -> Result<(), Errno> {
        self.with(engine, endpoint, |endpoint, shared| endpoint.claim(shared, receive, discard))
    }

    pub(super) fn cancel(&self, engine: &Engine, endpoint: usize, context: usize) -> Result<(), Errno> {
        self.with(engine, endpoint, |endpoint, shared| endpoint.cancel(shared, context))
    }

    pub(super) fn write(&self, engine: &Engine, endpoint: usize, rma: &Rma<'_>) -> Result<(), Errno> {
        self.with(engine, endpoint, |endpoint, shared| endpoint.write(shared, rma))
    }

    pub(super) fn read(&self, engine: &Engine, endpoint: usize, rma: &Rma<'_>) -> Result<(), Errno> {
        self.with(engine, endpoint, |endpoint, shared| endpoint.read(shared, rma))
    }

    pub(super) fn atomic(&self, engine: &Engine, endpoint: usize, atomic: &Atomic<'_>) -> Result<(), Errno> {
        self.with(engine, endpoint, |endpoint, shared| endpoint.atomic(shared, atomic))
    }

    pub(super) fn totals(&self) -> Totals {
        self.0.inner.borrow().shared.totals
    }

    /// Adds an endpoint and returns its number.
    pub(super) fn add(&self, address: SocketAddr, bindings: Bindings, stop: &Rc<Stop>) -> usize {
        let mut inner = self.0.inner.borrow_mut();
        let entry = inner.endpoints.vacant_entry();
        let number = entry.key();
        entry.insert(Endpoint::new(number, address, bindings, Rc::clone(stop)));
        number
    }

    #[cfg(test)]
    pub(super) fn peers(&self, endpoint: usize) -> usize {
        self.0.inner.borrow().endpoints.get(endpoint).map_or(0, |endpoint| endpoint.peers.len())
    }

    /// Whether all that the endpoint has sent has been handed over.
    pub(super) fn is_handed_over(&self, endpoint: usize) -> bool {
        let inner = self.0.inner.borrow();
        inner.endpoints.get(endpoint).is_none_or(Endpoint::is_handed_over)
    }

    fn note(&self, engine: &Engine, event: Event) {
        self.0.events.borrow_mut().push(event);
        self.0.has_events.set(true);
        engine.request_turn();
    }
}

impl Inside {
    /// Does something with an endpoint, as long as the peer has the connection of this attempt.
    #[inline]
    fn of_peer<T>(
        &self,
        endpoint: usize,
        peer: u32,
        attempt: u32,
        work: impl FnOnce(&mut Endpoint, &mut Shared) -> T,
    ) -> Option<T> {
        let mut inner = self.inner.borrow_mut();
        let Inner { endpoints, shared, .. } = &mut *inner;
        let endpoint = endpoints.get_mut(endpoint)?;
        let state = endpoint.peer(peer);
        if state.attempt != attempt || !state.link.is_open() {
            return None;
        }
        Some(work(endpoint, shared))
    }
}

impl Protocol for State {
    #[inline]
    fn turn(&self, engine: &Engine) -> bool {
        let is_busy = self.0.has_events.get() || self.0.inner.borrow().shared.has_work();
        if is_busy {
            self.work(engine);
        }
        is_busy
    }
}

impl State {
    /// A turn with something to do.
    #[inline(never)]
    fn work(&self, engine: &Engine) {
        if self.0.has_events.replace(false) {
            let events = std::mem::take(&mut *self.0.events.borrow_mut());
            for event in events {
                self.happened(engine, event);
            }
        }
        let mut inner = self.0.inner.borrow_mut();
        inner.serve(ROUNDS);
        self.open_links(&mut inner, engine);
        if inner.shared.has_work() {
            engine.request_turn();
        }
    }
}

impl Shared {
    #[inline]
    fn has_work(&self) -> bool {
        !self.due.is_empty()
            || !self.local.is_empty()
            || !self.to_open.is_empty()
            || !self.blocked.is_empty()
            || !self.again.is_empty()
            || !self.retired.is_empty()
    }
}

impl Inner {
    /// Serves peers that are due, and delivers frames within the domain.
    fn serve(&mut self, rounds: u32) {
        for Retired { memory, ends } in self.shared.retired.drain(..) {
            drop(memory);
            if let Some((endpoint, ticket, outcome)) = ends
                && let Some(endpoint) = self.endpoints.get(endpoint)
            {
                endpoint.has_ended(&ticket, outcome);
            }
        }
        for (endpoint, reading) in std::mem::take(&mut self.shared.again) {
            if let Some(endpoint) = self.endpoints.get_mut(endpoint) {
                endpoint.go_on_reading(&mut self.shared, reading);
            }
        }
        for _ in 0..rounds {
            std::mem::swap(&mut self.shared.due, &mut self.serving);
            for (endpoint, peer) in self.serving.drain(..) {
                if let Some(endpoint) = self.endpoints.get_mut(endpoint) {
                    endpoint.serve(&mut self.shared, peer);
                }
            }
            for _ in 0..self.shared.local.len() {
                let Some(LocalFrame { endpoint, peer, bytes }) = self.shared.local.pop_front() else { break };
                let Some(endpoint) = self.endpoints.get_mut(endpoint) else { continue };
                let outcome = endpoint.arrived(&mut self.shared, peer, Input::Local(&bytes));
                debug_assert!(outcome.is_ok(), "a frame of this process: {outcome:?}");
            }
            for (endpoint, peer) in std::mem::take(&mut self.shared.blocked) {
                if let Some(endpoint) = self.endpoints.get_mut(endpoint) {
                    endpoint.unblock(&mut self.shared, peer);
                }
            }
            if self.shared.due.is_empty() && self.shared.local.is_empty() {
                break;
            }
        }
    }
}

impl Endpoint {
    /// A frame of a peer has arrived. Returns whether its credit is held back.
    ///
    /// # Errors
    /// The peer has broken the protocol.
    #[inline(always)]
    fn arrived(&mut self, shared: &mut Shared, peer: u32, input: Input<'_>) -> Result<bool, String> {
        let mut head = [0; MAX_HEAD];
        let head = &mut head[..input.len().min(MAX_HEAD)];
        input.read(0, head);
        match whole_message(head) {
            Some((id, envelope, start)) => {
                Ok(self.message(shared, peer, &envelope, id, Payload { input, start }))
            }
            None => self.other_arrived(shared, peer, head, input),
        }
    }

    /// As [`Endpoint::arrived`], of a frame that is no whole message and begins with `head`.
    #[inline(never)]
    fn other_arrived(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        head: &[u8],
        input: Input<'_>,
    ) -> Result<bool, String> {
        let (frame, start) = Frame::parse(head, input.len()).map_err(|malformed| malformed.to_string())?;
        Ok(self.frame(shared, peer, frame, Payload { input, start })?)
    }

    /// As [`Endpoint::arrived`], of a frame that was read.
    fn frame(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        frame: Frame,
        payload: Payload<'_>,
    ) -> Result<bool, &'static str> {
        match frame {
            // Each is read ahead of this.
            Frame::Message { .. } => return Err("its message is malformed"),
            Frame::Request { id, envelope, length } => {
                return self.request(shared, peer, &envelope, id, length, payload);
            }
            Frame::Begin { id, envelope, length } => {
                return self.begin_message(shared, peer, (id, envelope, length), payload);
            }
            Frame::Rest => return self.rest_of_message(shared, peer, payload),
            Frame::Pause | Frame::Resume => self.pause(shared, peer, frame == Frame::Pause),
            Frame::Fetch { id, receiver, wanted } => self.asked(shared, peer, id, receiver, wanted)?,
            Frame::Fragment { id } => self.fragment(shared, peer, id, payload)?,
            Frame::Done { id, status } => self.done(shared, peer, id, status)?,
            Frame::Write { id, key, offset, data, is_last } => {
                self.written(shared, peer, (id, key, offset, data, is_last), payload);
            }
            Frame::Read { id, key, offset, length } => self.reads(shared, peer, (id, key, offset, length)),
            Frame::Data { id, is_last } => self.data(shared, peer, id, is_last, payload)?,
            Frame::Atomic { id, key, offset, element, fetches, is_last } => {
                let flags = (element, fetches, is_last);
                self.updated(shared, peer, (id, key, offset), flags, payload)?;
            }
        }
        let state = self.peer(peer);
        let is_held = state.has_many_replies();
        if is_held {
            state.held += payload.input.credit();
        }
        Ok(is_held)
    }
}
