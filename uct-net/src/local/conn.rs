//! One connection as the engine sees it: what is to be sent, what has arrived, and who waits for it.
//!
//! Handlers of messages run inside the transports. They queue and wake, and send nothing: what they find to send makes the
//! connection due, and [`Conn::pump`] sends it after the transports have returned.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Waker};

use ucs::Error as Status;
use uct_core::{AmMessage, EpFailure, Flush, Pending, Posted};

use super::agenda::Agenda;
use super::lane::Lane;
use super::message::{KeptCount, Message};
use crate::error::{Error, Stage};
use crate::options::NetOptions;
use crate::proto::assembly::Assembly;
use crate::proto::envelope::{Envelope, Kind, Token};
use crate::proto::handshake::Shared;
use crate::proto::window::{ReceiveWindow, SendWindow, cost};

/// Longest reason that is sent to, or taken from, a peer.
const MAX_REASON: usize = 64;

pub(crate) struct Conn {
    agenda: Rc<Agenda>,
    token: Token,
    peer: String,
    max_message: usize,
    kept: KeptCount,
    lane: OnceCell<Lane>,
    is_due: Cell<bool>,
    waits_for_room: Cell<bool>,
    /// An operation beside the messages waits for the transport's room as well.
    is_awaited: Cell<bool>,
    state: RefCell<State>,
}

struct State {
    send: SendWindow,
    receive: ReceiveWindow,
    outgoing: VecDeque<Outgoing>,
    made: u64,
    /// The first message that was queued and never will be sent.
    lost_from: Option<u64>,
    /// Messages without credit that are to be sent, in this order.
    control: VecDeque<(Kind, Vec<u8>)>,
    received: VecDeque<(Message, u32)>,
    assembly: Assembly,
    /// What the parts of the message that is being assembled cost, as far as the sender was not given it back.
    assembly_cost: u32,
    shared: VecDeque<Shared>,
    is_probed: bool,
    has_probe_reply: bool,
    fin: Fin,
    failure: Option<Error>,
    readers: Wakers,
    writers: Wakers,
}

/// How far the end of a connection is.
#[derive(Default)]
struct Fin {
    /// This side wants to end: `Some(true)` if it does not read either.
    wanted: Option<bool>,
    is_sent: bool,
    is_acknowledged: bool,
    /// The peer sends no more.
    has_come: bool,
    /// The peer does not read either.
    is_deaf: bool,
}

/// A message on its way out.
struct Outgoing {
    number: u64,
    kind: Kind,
    data: Vec<u8>,
    sent: usize,
}

/// What is to be sent next.
enum Next {
    Control(Kind, Vec<u8>),
    /// So many bytes of this message.
    Data(Outgoing, usize),
}

/// Who is woken by an event, each once.
#[derive(Default)]
struct Wakers(Vec<Waker>);

impl Wakers {
    fn add(&mut self, context: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(context.waker())) {
            self.0.push(context.waker().clone());
        }
    }

    fn take(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.0)
    }
}

/// Wakes them; no state is borrowed meanwhile.
fn wake(wakers: Vec<Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

/// Where a queued message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

impl Conn {
    /// A connection without a lane. `window` is what this side takes unread.
    pub(crate) fn new(
        options: &NetOptions,
        agenda: Rc<Agenda>,
        kept: KeptCount,
        token: Token,
        peer: String,
    ) -> Rc<Conn> {
        Rc::new(Conn {
            agenda,
            token,
            peer,
            max_message: options.max_message,
            kept,
            lane: OnceCell::new(),
            is_due: Cell::new(false),
            waits_for_room: Cell::new(false),
            is_awaited: Cell::new(false),
            state: RefCell::new(State {
                send: SendWindow::new(0),
                receive: ReceiveWindow::new(options.window),
                outgoing: VecDeque::new(),
                made: 0,
                lost_from: None,
                control: VecDeque::new(),
                received: VecDeque::new(),
                assembly: Assembly::default(),
                assembly_cost: 0,
                shared: VecDeque::new(),
                is_probed: false,
                has_probe_reply: false,
                fin: Fin::default(),
                failure: None,
                readers: Wakers::default(),
                writers: Wakers::default(),
            }),
        })
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
    }

    pub(crate) fn lane(&self) -> Option<&Lane> {
        self.lane.get()
    }

    /// The way to the peer is open; the peer takes `window` bytes unread.
    pub(crate) fn open(&self, lane: Lane, window: u32) {
        self.state.borrow_mut().send = SendWindow::new(window);
        let _ = self.lane.set(lane);
    }

    /// Has the engine call [`Conn::pump_due`] after the transports have returned.
    fn become_due(&self) {
        if !self.is_due.replace(true) {
            self.agenda.add(self.token);
        }
    }

    /// Sends what it became due for.
    pub(crate) fn pump_due(self: &Rc<Conn>) {
        self.is_due.set(false);
        self.pump();
        if !self.waits_for_room.get() && self.is_awaited.take() {
            let writers = self.state.borrow_mut().writers.take();
            wake(writers);
        }
    }

    // ---- sending

    /// Sends a message that fits into one of the transport's, if nothing is ahead of it and there is room for it now.
    pub(crate) fn try_send(&self, payload: &[u8]) -> Result<bool, Error> {
        let Some(lane) = self.lane.get() else { return Ok(false) };
        let envelope = {
            let mut state = self.state.borrow_mut();
            state.check_sendable(&self.peer)?;
            let fits = payload.len() <= lane.fragment()
                && state.outgoing.is_empty()
                && state.send.room().is_some_and(|room| payload.len() <= room);
            if !fits {
                return Ok(false);
            }
            state.send.take(payload.len());
            Envelope { kind: Kind::Last, granted: state.receive.offer() }
        };
        match lane.send(envelope, payload) {
            Ok(()) => {
                self.state.borrow_mut().receive.grant(envelope.granted);
                self.agenda.rouse();
                Ok(true)
            }
            Err(Status::NO_RESOURCE) => {
                self.state.borrow_mut().send.give_back(payload.len());
                Ok(false)
            }
            Err(status) => Err(self.fail_by_status(status)),
        }
    }

    /// Queues a message, whatever its length.
    pub(crate) fn queue(self: &Rc<Conn>, kind: Kind, data: Vec<u8>) -> Result<Ticket, Error> {
        let number = {
            let mut state = self.state.borrow_mut();
            state.check_sendable(&self.peer)?;
            let number = state.made;
            state.made += 1;
            state.outgoing.push_back(Outgoing { number, kind, data, sent: 0 });
            number
        };
        self.pump();
        Ok(Ticket(number))
    }

    /// Whether a queued message has left; registers the caller if not.
    pub(crate) fn poll_left(&self, ticket: Ticket, context: &Context<'_>) -> Result<bool, Error> {
        let mut state = self.state.borrow_mut();
        if state.lost_from.is_some_and(|lost| lost <= ticket.0) {
            return Err(state.why_lost(&self.peer));
        }
        if state.outgoing.front().is_none_or(|first| first.number > ticket.0) {
            return Ok(true);
        }
        state.check()?;
        state.writers.add(context);
        Ok(false)
    }

    /// Whether all that was queued has left; registers the caller if not.
    pub(crate) fn poll_idle(&self, context: &Context<'_>) -> Result<bool, Error> {
        let mut state = self.state.borrow_mut();
        if state.lost_from.is_some() {
            return Err(state.why_lost(&self.peer));
        }
        if state.outgoing.is_empty() {
            return Ok(true);
        }
        state.check()?;
        state.writers.add(context);
        Ok(false)
    }

    /// Takes a queued message back, if nothing of it has left; what has begun goes on.
    pub(crate) fn withdraw(&self, ticket: Ticket) {
        let writers = {
            let mut state = self.state.borrow_mut();
            let before = state.outgoing.len();
            state.outgoing.retain(|message| message.number != ticket.0 || message.sent > 0);
            if state.outgoing.len() == before {
                return;
            }
            state.writers.take()
        };
        // What was behind it may go now: a shorter message, or the end.
        self.become_due();
        wake(writers);
    }

    /// Bytes that are queued.
    pub(crate) fn queued(&self) -> usize {
        self.state.borrow().outgoing.iter().map(|message| message.data.len() - message.sent).sum()
    }

    /// Registers the caller for when something has left or the connection has failed.
    pub(crate) fn wait_for_room(&self, context: &Context<'_>) {
        self.state.borrow_mut().writers.add(context);
    }

    /// Queues something without credit.
    pub(crate) fn control(self: &Rc<Conn>, kind: Kind, payload: Vec<u8>) {
        self.state.borrow_mut().control.push_back((kind, payload));
        self.pump();
    }

    /// Sends what is to be sent, as far as there are credit and room. Not to be called inside a transport.
    pub(crate) fn pump(self: &Rc<Conn>) {
        let Some(lane) = self.lane.get() else { return };
        if self.waits_for_room.get() {
            return;
        }
        let mut has_left = false;
        loop {
            let (next, offer) = {
                let mut state = self.state.borrow_mut();
                (state.next(lane.fragment()), state.receive.offer())
            };
            let Some(next) = next else { break };
            let outcome = match &next {
                Next::Control(kind, payload) => lane.send(Envelope { kind: *kind, granted: offer }, payload),
                Next::Data(message, length) => {
                    let end = message.sent + length;
                    let kind = if end == message.data.len() { message.kind } else { Kind::Part };
                    lane.send(Envelope { kind, granted: offer }, &message.data[message.sent..end])
                }
            };
            match outcome {
                Ok(()) => {
                    self.state.borrow_mut().sent(next, offer);
                    has_left = true;
                }
                Err(Status::NO_RESOURCE) => {
                    self.state.borrow_mut().put_back(next);
                    if self.wait_for_transport(lane) {
                        break;
                    }
                }
                Err(status) => {
                    // It stays queued, so that its sender is told of the failure and not of success.
                    self.state.borrow_mut().put_back(next);
                    self.fail_by_status(status);
                    break;
                }
            }
        }
        if has_left {
            self.agenda.rouse();
            let writers = self.state.borrow_mut().writers.take();
            wake(writers);
        }
    }

    /// Registers the caller for when the transport has room. One request at the transport serves all who wait.
    pub(crate) fn wait_for_transport_room(self: &Rc<Conn>, context: &Context<'_>) {
        let Some(lane) = self.lane.get() else { return };
        self.wait_for_room(context);
        self.is_awaited.set(true);
        if !self.waits_for_room.get() && !self.wait_for_transport(lane) {
            self.become_due();
        }
    }

    /// Has the transport say when there is room; false if there is already.
    fn wait_for_transport(self: &Rc<Conn>, lane: &Lane) -> bool {
        let conn = Rc::downgrade(self);
        let request = move |_ep: &uct_core::Ep| {
            if let Some(conn) = conn.upgrade() {
                conn.waits_for_room.set(false);
                conn.become_due();
            }
            Pending::Done
        };
        match lane.ep.pending_add(request) {
            Ok(()) => {
                self.waits_for_room.set(true);
                true
            }
            Err((Status::BUSY, _)) => false,
            Err((status, _)) => {
                self.fail_by_status(status);
                true
            }
        }
    }

    // ---- receiving

    /// A message arrived; its payload begins at `start`. Runs inside a transport.
    pub(crate) fn receive(self: &Rc<Conn>, envelope: Envelope, start: usize, message: AmMessage<'_>) {
        let outcome = self.state.borrow_mut().receive(self, envelope, start, message);
        match outcome {
            Ok(Received { is_due, wakers }) => {
                if is_due {
                    self.become_due();
                }
                wake(wakers);
            }
            Err(mistake) => self.broken(mistake),
        }
    }

    /// The peer has broken the protocol; it is told how, once. Runs inside a transport.
    pub(crate) fn broken(&self, mistake: &str) {
        if self.state.borrow().failure.is_some() {
            return;
        }
        let reason = format!("the peer broke the protocol: {mistake}");
        self.state.borrow_mut().control.push_back((Kind::Abort, mistake.as_bytes().to_vec()));
        self.become_due();
        self.fail(Error::new(Stage::Connected, &*self.peer, Status::IO_ERROR, reason));
    }

    /// The next message; `None` if there is none yet, and the caller is registered.
    pub(crate) fn poll_receive(self: &Rc<Conn>, context: &Context<'_>) -> Result<Option<Message>, Error> {
        let mut state = self.state.borrow_mut();
        let Some((message, cost)) = state.received.pop_front() else {
            // The end, once it has come, holds whatever becomes of the lane.
            if state.fin.has_come {
                return Err(closed(&self.peer));
            }
            state.check()?;
            state.readers.add(context);
            return Ok(None);
        };
        state.receive.release(cost);
        if state.received.is_empty() {
            let cost = std::mem::take(&mut state.assembly_cost);
            state.receive.release(cost);
        }
        let is_due = state.receive.is_due();
        drop(state);
        if is_due {
            self.pump();
        }
        Ok(Some(message))
    }

    /// The next memory that the peer shared; as [`Conn::poll_receive`].
    pub(crate) fn poll_shared(&self, context: &Context<'_>) -> Result<Option<Shared>, Error> {
        let mut state = self.state.borrow_mut();
        if let Some(shared) = state.shared.pop_front() {
            return Ok(Some(shared));
        }
        if state.fin.has_come {
            return Err(closed(&self.peer));
        }
        state.check()?;
        state.readers.add(context);
        Ok(None)
    }

    /// Whether the peer's first message has arrived (`asked`), or the answer to ours; registers the caller if not.
    pub(crate) fn poll_probe(&self, asked: bool, context: &Context<'_>) -> Result<bool, Error> {
        let mut state = self.state.borrow_mut();
        // What happened to the connection since is for who uses it.
        let is_there = if asked { state.is_probed } else { state.has_probe_reply };
        if is_there {
            return Ok(true);
        }
        state.check()?;
        state.readers.add(context);
        Ok(false)
    }

    // ---- ending

    /// This side sends no more, and does not read either if `deaf`. What is queued goes out first.
    pub(crate) fn end(self: &Rc<Conn>, deaf: bool) {
        {
            let mut state = self.state.borrow_mut();
            if state.fin.wanted.is_some_and(|already| already || !deaf) {
                return;
            }
            // A second Fin says that this side does not read any more.
            state.fin.is_sent = false;
            state.fin.is_acknowledged = false;
            state.fin.wanted = Some(deaf);
        }
        self.pump();
    }

    /// Whether the peer has all that was sent and knows that nothing follows; registers the caller if not.
    pub(crate) fn poll_ended(&self, context: &Context<'_>) -> Result<bool, Error> {
        let mut state = self.state.borrow_mut();
        if state.lost_from.is_some() {
            return Err(state.why_lost(&self.peer));
        }
        if state.has_ended() {
            return Ok(true);
        }
        state.check()?;
        state.writers.add(context);
        Ok(false)
    }

    /// Whether nothing is left to do for a connection that nobody holds.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.borrow();
        let has_ended = (state.failure.is_some() || state.has_ended()) && state.control.is_empty();
        drop(state);
        if self.lane.get().is_none_or(|lane| lane.ep.failure().is_some()) {
            return true;
        }
        let is_flushed = || {
            self.lane.get().is_none_or(|lane| lane.ep.flush(Flush::empty(), None) != Ok(Posted::InProgress))
        };
        has_ended && is_flushed()
    }

    /// Why it ended, once it has; registers the caller if not.
    pub(crate) fn poll_closed(&self, context: &Context<'_>) -> Option<Error> {
        let mut state = self.state.borrow_mut();
        if let Some(failure) = &state.failure {
            return Some(failure.clone());
        }
        if state.fin.has_come && state.fin.is_deaf {
            return Some(closed(&self.peer));
        }
        state.readers.add(context);
        None
    }

    /// Gives the connection up: the peer is told why, as far as there is room.
    pub(crate) fn abort(self: &Rc<Conn>, reason: &str) {
        let shown = &reason.as_bytes()[..reason.len().min(MAX_REASON)];
        {
            let mut state = self.state.borrow_mut();
            state.lose();
            state.control.clear();
            state.control.push_back((Kind::Abort, shown.to_vec()));
        }
        self.pump();
        self.fail(Error::new(
            Stage::Close,
            &*self.peer,
            Status::CANCELED,
            format!("aborted by this side: {reason}"),
        ));
    }

    /// The transport says that the peer cannot be reached any more. A peer that has closed may go.
    pub(crate) fn lane_failed(&self, failure: &EpFailure) {
        if self.state.borrow().fin.is_deaf {
            return;
        }
        self.fail(Error::new(Stage::Connected, &*self.peer, failure.error, failure.to_string()));
    }

    fn fail_by_status(&self, status: Status) -> Error {
        let failure = self.lane.get().and_then(|lane| lane.ep.failure());
        let reason = failure.map_or_else(|| status.to_string(), ToString::to_string);
        let error = Error::new(Stage::Connected, &*self.peer, status, reason);
        self.fail(error.clone());
        error
    }

    /// Fails; the first failure holds.
    fn fail(&self, error: Error) {
        let wakers = {
            let mut state = self.state.borrow_mut();
            state.failure.get_or_insert(error);
            [state.readers.take(), state.writers.take()].concat()
        };
        wake(wakers);
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn").field("peer", &self.peer).finish_non_exhaustive()
    }
}

fn closed(peer: &str) -> Error {
    Error::new(Stage::Close, peer, Status::NOT_CONNECTED, "the peer closed the connection")
}

/// What a message that arrived asks for.
struct Received {
    is_due: bool,
    wakers: Vec<Waker>,
}

impl State {
    fn check(&self) -> Result<(), Error> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn check_sendable(&self, peer: &str) -> Result<(), Error> {
        self.check()?;
        if self.fin.is_deaf {
            return Err(closed(peer));
        }
        if self.fin.wanted.is_some() {
            let reason = "this side has closed the connection";
            return Err(Error::new(Stage::Close, peer, Status::NOT_CONNECTED, reason));
        }
        Ok(())
    }

    /// Gives up what is queued.
    fn lose(&mut self) {
        if let Some(first) = self.outgoing.front() {
            self.lost_from.get_or_insert(first.number);
        }
        self.outgoing.clear();
    }

    fn why_lost(&self, peer: &str) -> Error {
        self.failure.clone().unwrap_or_else(|| closed(peer))
    }

    fn has_ended(&self) -> bool {
        self.fin.is_deaf || self.fin.is_acknowledged
    }

    /// Takes out what is to be sent next.
    fn next(&mut self, fragment: usize) -> Option<Next> {
        if let Some((kind, payload)) = self.control.pop_front() {
            return Some(Next::Control(kind, payload));
        }
        if self.failure.is_some() {
            return None;
        }
        if let Some(room) = self.send.room()
            && let Some(first) = self.outgoing.front()
        {
            let length = (first.data.len() - first.sent).min(fragment).min(room);
            // Credit for a part of a short message waits for the rest.
            let is_worth_it = first.sent + length == first.data.len() || length >= fragment.min(1024);
            if is_worth_it {
                return self.outgoing.pop_front().map(|message| Next::Data(message, length));
            }
        }
        if self.outgoing.is_empty()
            && let Some(deaf) = self.fin.wanted
            && !self.fin.is_sent
        {
            return Some(Next::Control(Kind::Fin, vec![u8::from(deaf)]));
        }
        self.receive.is_due().then(|| Next::Control(Kind::Credit, Vec::new()))
    }

    /// What [`State::next`] returned was sent, with an offer of credit.
    fn sent(&mut self, next: Next, offer: u32) {
        self.receive.grant(offer);
        match next {
            Next::Control(Kind::Fin, _) => self.fin.is_sent = true,
            Next::Control(..) => {}
            Next::Data(mut message, length) => {
                self.send.take(length);
                message.sent += length;
                if message.sent < message.data.len() {
                    self.outgoing.push_front(message);
                }
            }
        }
    }

    /// What [`State::next`] returned was not sent.
    fn put_back(&mut self, next: Next) {
        match next {
            // These are made from the state again.
            Next::Control(Kind::Fin | Kind::Credit, _) => {}
            Next::Control(kind, payload) => self.control.push_front((kind, payload)),
            Next::Data(message, _) => self.outgoing.push_front(message),
        }
    }

    /// Takes in a message of the peer's; an error is what the peer did wrong.
    fn receive(
        &mut self,
        conn: &Conn,
        envelope: Envelope,
        start: usize,
        message: AmMessage<'_>,
    ) -> Result<Received, &'static str> {
        if self.failure.is_some() {
            return Ok(Received { is_due: false, wakers: Vec::new() });
        }
        if !self.send.grant(envelope.granted) {
            return Err("it granted more than its window");
        }
        let length = message.len() - start;
        if envelope.kind.is_charged() {
            if self.fin.has_come {
                return Err("it sent after its end");
            }
            if !self.receive.receive(length) {
                return Err("it sent more than it had credit for");
            }
        }
        let mut wakers = Vec::new();
        let mut is_due = !self.outgoing.is_empty();
        match envelope.kind {
            Kind::Part | Kind::Last if self.fin.wanted == Some(true) => {
                // Nobody reads it. The sender may have been on its way.
                self.receive.release(cost(length));
            }
            Kind::Part => {
                self.assembly
                    .part(&message[start..], conn.max_message)
                    .map_err(|_| "its message is longer than this side takes")?;
                self.assembly_cost += cost(length);
                // A message may be longer than the window; with others ahead of it, it has to wait.
                if self.received.is_empty() {
                    let cost = std::mem::take(&mut self.assembly_cost);
                    self.receive.release(cost);
                }
            }
            Kind::Last => {
                let cost = std::mem::take(&mut self.assembly_cost) + cost(length);
                let message = if self.assembly.is_begun() {
                    let whole = self.assembly.last(&message[start..], conn.max_message);
                    Message::assembled(whole.map_err(|_| "its message is longer than this side takes")?)
                } else if length > conn.max_message {
                    return Err("its message is longer than this side takes");
                } else {
                    Message::received(message, start, &conn.kept)
                };
                self.received.push_back((message, cost));
                wakers = self.readers.take();
            }
            Kind::Share => {
                let shared = Shared::parse(&message[start..]).ok_or("it shared no memory")?;
                self.receive.release(cost(length));
                if self.shared.len() >= MAX_SHARED {
                    return Err("it shared more memory than this side has asked for");
                }
                self.shared.push_back(shared);
                wakers = self.readers.take();
            }
            Kind::Credit => {}
            Kind::Probe if self.is_probed => return Err("it asked twice whether this side is there"),
            Kind::Probe => {
                self.is_probed = true;
                self.control.push_back((Kind::ProbeReply, Vec::new()));
                is_due = true;
                wakers = self.readers.take();
            }
            Kind::ProbeReply => {
                self.has_probe_reply = true;
                wakers = self.readers.take();
            }
            Kind::Fin => {
                if self.control.len() >= MAX_CONTROL {
                    return Err("it ends again and again");
                }
                self.fin.has_come = true;
                if message.get(start) == Some(&1) {
                    self.fin.is_deaf = true;
                    self.lose();
                }
                self.control.push_back((Kind::FinReply, Vec::new()));
                is_due = true;
                wakers = [self.readers.take(), self.writers.take()].concat();
            }
            Kind::FinReply => {
                self.fin.is_acknowledged = self.fin.is_sent;
                wakers = self.writers.take();
            }
            Kind::Abort => {
                let told = &message[start..message.len().min(start + MAX_REASON)];
                let told: String =
                    String::from_utf8_lossy(told).chars().filter(|letter| !letter.is_control()).collect();
                let reason = format!("aborted by the peer: {told}");
                let peer = &*conn.peer;
                self.failure = Some(Error::new(Stage::Close, peer, Status::CONNECTION_RESET, reason));
                wakers = [self.readers.take(), self.writers.take()].concat();
            }
        }
        // What was given back without the application: nothing else tells the sender.
        let is_given_back =
            self.assembly.is_begun() || self.fin.wanted == Some(true) || envelope.kind == Kind::Share;
        is_due |= self.receive.is_due() && is_given_back;
        Ok(Received { is_due, wakers })
    }
}

/// Most answers that wait for room: an honest peer asks for three.
const MAX_CONTROL: usize = 8;
/// Most pieces of memory that a peer shares ahead of what the application has taken.
const MAX_SHARED: usize = 64;
