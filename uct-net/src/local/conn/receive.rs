//! Receiving: the effect of each message of the peer, and how the application takes messages.

use std::collections::TryReserveError;
use std::rc::Rc;
use std::task::Context;

use ucs::Error as Status;
use ucs::text::PeerText;
use uct_host::AmMessage;

use super::super::message::Message;
use super::Conn;
use super::end::MAX_REASON;
use super::moves::MAX_NOTICE;
use super::offer::Offer;
use super::state::{State, closed};
use super::wakers::Wakers;
use crate::error::{Error, Stage};
use crate::proto::assembly::{Part, Refused, TooLong};
use crate::proto::envelope::{Envelope, Kind};
use crate::proto::shared::Shared;
use crate::proto::window::cost;

/// Most answers that wait for room: an honest peer asks for three.
const MAX_CONTROL: usize = 8;
/// Most pieces of memory that a peer shares ahead of what the application has taken.
const MAX_SHARED: usize = 64;

impl Conn {
    /// A message arrived; its payload begins at `start`. Runs inside a transport.
    pub(crate) fn receive(self: &Rc<Conn>, envelope: Envelope, start: usize, message: AmMessage<'_>) {
        if let Some(sink) = self.sink.get()
            && matches!(envelope.kind, Kind::Part | Kind::Last)
        {
            return self.receive_for(&**sink, envelope, start, &message);
        }
        let outcome = self.state.borrow_mut().receive(self, envelope, start, message);
        match outcome {
            Ok(Received { is_due, wakers }) => {
                if is_due {
                    self.become_due();
                }
                wakers.wake_later(&self.agenda);
            }
            Err(problem) => self.refuse(problem),
        }
    }

    /// A message is not taken in.
    #[cold]
    pub(super) fn refuse(&self, problem: Problem) {
        match problem {
            Problem::Mistake(mistake) => self.broken(mistake),
            Problem::TooLong(TooLong { length, is_all }) => {
                let least = if is_all { "" } else { "at least " };
                let limit = self.max_message;
                // Both are shorter than `MAX_REASON` up to 10^10 bytes.
                let for_peer = format!("message of {least}{length} bytes: max_message is {limit}");
                let reason =
                    format!("the peer sent a message of {least}{length} bytes: max_message is {limit}");
                let error = Error::new(Stage::Connected, &*self.peer, Status::IO_ERROR, reason);
                self.give_up(
                    &for_peer,
                    error.hint("raise max_message on this side, or send shorter messages"),
                );
            }
            Problem::NoMemory => {
                let reason = "this side has no memory for a message of the peer's";
                let error = Error::new(Stage::Connected, &*self.peer, Status::NO_MEMORY, reason);
                self.give_up("the receiver has no memory for a message", error);
            }
        }
    }

    /// The peer has broken the protocol: sends it the reason, once. Runs inside a transport.
    pub(crate) fn broken(&self, mistake: &str) {
        let reason = format!("the peer broke the protocol: {mistake}");
        self.give_up(mistake, Error::new(Stage::Connected, &*self.peer, Status::IO_ERROR, reason));
    }

    /// Ends the connection for a reason of this side, and sends the peer its own.
    fn give_up(&self, for_peer: &str, error: Error) {
        if self.state.borrow().failure.is_some() {
            return;
        }
        self.state.borrow_mut().control.push_back((Kind::Abort, for_peer.as_bytes().to_vec()));
        self.become_due();
        self.fail(error);
    }

    /// The next message; `None` if there is none yet.
    pub(crate) fn try_receive(self: &Rc<Conn>) -> Result<Option<Message>, Error> {
        let mut state = self.state.borrow_mut();
        let Some((message, cost)) = state.received.pop_front() else {
            let may_come = !state.fin.has_come && state.failure.is_none() && !state.leaves_offers;
            drop(state);
            return if may_come { Ok(None) } else { self.receive_none() };
        };
        state.receive.release(cost);
        if state.received.is_empty() {
            let cost = std::mem::take(&mut state.assembly_cost);
            state.receive.release(cost);
        }
        let is_due = state.receive.is_due() || state.offer.is_some();
        drop(state);
        if is_due {
            self.pump();
        }
        Ok(Some(message))
    }

    /// As [`Conn::try_receive`], where no message has arrived and none may come by itself.
    #[cold]
    fn receive_none(self: &Rc<Conn>) -> Result<Option<Message>, Error> {
        {
            let mut state = self.state.borrow_mut();
            state.check_ended(&self.peer)?;
            if state.offer.is_none() {
                return Ok(None);
            }
            // It was left to a caller that reads it where it likes, and this one takes it from wherever it is.
            state.leaves_offers = false;
        }
        self.pump();
        self.try_receive()
    }

    /// As [`Conn::try_receive`]; registers the caller if there is none yet.
    pub(crate) fn poll_receive(self: &Rc<Conn>, context: &Context<'_>) -> Result<Option<Message>, Error> {
        let received = self.try_receive()?;
        if received.is_none() {
            self.state.borrow_mut().readers.add(context);
        }
        Ok(received)
    }

    /// Registers the caller for when something arrives.
    pub(crate) fn wait_for_message(&self, context: &Context<'_>) {
        self.state.borrow_mut().readers.add(context);
    }

    /// The next memory that the peer shared; as [`Conn::poll_receive`].
    pub(crate) fn poll_shared(&self, context: &Context<'_>) -> Result<Option<Shared>, Error> {
        let mut state = self.state.borrow_mut();
        if let Some(shared) = state.shared.pop_front() {
            return Ok(Some(shared));
        }
        state.check_ended(&self.peer)?;
        state.readers.add(context);
        Ok(None)
    }

    /// The next notification of a transfer of the peer's; as [`Conn::poll_receive`].
    pub(crate) fn poll_notice(self: &Rc<Conn>, context: &Context<'_>) -> Result<Option<Message>, Error> {
        let mut state = self.state.borrow_mut();
        if let Some((notice, cost)) = state.notices.pop_front() {
            state.receive.release(cost);
            let is_due = state.receive.is_due();
            drop(state);
            if is_due {
                self.pump();
            }
            return Ok(Some(notice));
        }
        state.check_ended(&self.peer)?;
        state.readers.add(context);
        Ok(None)
    }

    /// Whether the peer's probe has arrived (`asked`), or the reply to ours; registers the caller if not.
    pub(crate) fn poll_probe(&self, asked: bool, context: &Context<'_>) -> Result<bool, Error> {
        let mut state = self.state.borrow_mut();
        // A later failure of the connection is reported to its next operation.
        let is_there = if asked { state.is_probed } else { state.has_probe_reply };
        if is_there {
            return Ok(true);
        }
        state.check()?;
        state.readers.add(context);
        Ok(false)
    }
}

/// The payload of a message, which begins at a byte of it.
struct Payload<'a>(&'a AmMessage<'a>, usize);

impl Part for Payload<'_> {
    fn length(&self) -> usize {
        self.0.len() - self.1
    }

    fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), TryReserveError> {
        self.0.append_to(self.1, bytes)
    }
}

/// What a message that arrived asks for.
struct Received {
    is_due: bool,
    wakers: Wakers,
}

/// Why a message is not taken in.
pub(super) enum Problem {
    /// What the peer did wrong.
    Mistake(&'static str),
    TooLong(TooLong),
    NoMemory,
}

impl From<TooLong> for Problem {
    fn from(message: TooLong) -> Problem {
        Problem::TooLong(message)
    }
}

impl From<&'static str> for Problem {
    fn from(mistake: &'static str) -> Problem {
        Problem::Mistake(mistake)
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        match refused {
            Refused::TooLong(message) => message.into(),
            Refused::NoMemory => Problem::NoMemory,
        }
    }
}

impl State {
    /// Whether more may come; the error otherwise. The end, once it has come, holds whatever becomes of the lane.
    pub(super) fn check_ended(&self, peer: &str) -> Result<(), Error> {
        if self.fin.has_come {
            return Err(closed(peer));
        }
        self.check()
    }

    /// Accounts for a message of the peer's. Returns whether there is more room to send than before, or `None` if the connection has failed.
    #[inline(always)]
    pub(super) fn arrives(
        &mut self,
        conn: &Conn,
        envelope: Envelope,
        length: usize,
        all: usize,
    ) -> Result<Option<bool>, Problem> {
        if self.failure.is_some() {
            return Ok(None);
        }
        self.arrived.operations += 1;
        self.arrived.bytes += all as u64;
        let room = self.send.room();
        // Ahead of the lane the peer's window is not known; what it grants then, its later messages repeat.
        if conn.lane().is_some() && !self.send.grant(envelope.granted) {
            return Err("it granted more than its window".into());
        }
        let has_room = self.send.room() != room;
        if envelope.kind.is_charged() {
            if self.fin.has_come {
                return Err("it sent a message after its end".into());
            }
            if !self.receive.receive(length) {
                return Err("it sent more than it had credit for".into());
            }
            if self.offer.is_some() {
                return Err("it sent a message ahead of one that it offered".into());
            }
        }
        Ok(Some(has_room))
    }

    /// Takes in a message of the peer's.
    fn receive(
        &mut self,
        conn: &Conn,
        envelope: Envelope,
        start: usize,
        message: AmMessage<'_>,
    ) -> Result<Received, Problem> {
        let length = message.len() - start;
        let Some(has_room) = self.arrives(conn, envelope, length, message.len())? else {
            return Ok(Received { is_due: false, wakers: Wakers::default() });
        };
        let mut wakers = Wakers::default();
        let mut is_due = !self.outgoing.is_empty();
        match envelope.kind {
            Kind::Part | Kind::Last if self.fin.wanted == Some(true) => {
                // Discarded: this side has ended reading. The message may have been in flight then.
                self.receive.release(cost(length));
            }
            Kind::Part => {
                self.assembly.part(&Payload(&message, start), conn.max_message)?;
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
                    Message::assembled(self.assembly.last(&Payload(&message, start), conn.max_message)?)
                } else if length > conn.max_message {
                    return Err(TooLong { length, is_all: true }.into());
                } else {
                    Message::received(message, start, &conn.kept)
                };
                self.received.push_back((message, cost));
                wakers = self.readers.take();
            }
            Kind::Share => {
                let shared = Shared::parse(&message[start..]).ok_or("its shared memory is malformed")?;
                self.receive.release(cost(length));
                if self.shared.len() >= MAX_SHARED {
                    return Err("it shared more memory than this side has asked for".into());
                }
                self.shared.push_back(shared);
                wakers = self.readers.take();
            }
            Kind::Notify if self.fin.wanted == Some(true) => self.receive.release(cost(length)),
            Kind::Notify if length > MAX_NOTICE => return Err("its notification is too long".into()),
            Kind::Notify => {
                self.notices.push_back((Message::received(message, start, &conn.kept), cost(length)));
                wakers = self.readers.take();
            }
            Kind::Offer => {
                let place = Shared::parse(&message[start..]).ok_or("its offer is malformed")?;
                if self.assembly.is_begun() {
                    return Err("it offered a message in the middle of another".into());
                }
                if place.length > conn.max_message as u64 {
                    let length = usize::try_from(place.length).unwrap_or(usize::MAX);
                    return Err(TooLong { length, is_all: true }.into());
                }
                self.offer = Some(Offer::new(place, cost(length)));
                is_due = true;
                if self.leaves_offers {
                    wakers = self.readers.take();
                }
            }
            Kind::Taken | Kind::InParts => {
                self.answered(envelope.kind == Kind::Taken)?;
                is_due = true;
                wakers = self.writers.take();
            }
            Kind::Credit => {}
            Kind::Probe if self.is_probed => {
                return Err("it sent a second probe before the reply".into());
            }
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
                    return Err("it sent its end too often".into());
                }
                self.fin.has_come = true;
                if message.get(start) == Some(&1) {
                    self.fin.is_deaf = true;
                    self.lose();
                }
                self.control.push_back((Kind::FinReply, Vec::new()));
                is_due = true;
                wakers = self.take_waiting();
            }
            Kind::FinReply => {
                self.fin.is_acknowledged = self.fin.is_sent;
                wakers = self.writers.take();
            }
            Kind::Abort => {
                let text = &message[start..message.len().min(start + MAX_REASON)];
                let reason = format!("aborted by the peer: {}", PeerText::new(text));
                let peer = &*conn.peer;
                let failure = Error::new(Stage::Close, peer, Status::CONNECTION_RESET, reason);
                conn.close_spans(&failure);
                self.failure = Some(failure);
                // It is reported to the sink.
                is_due = true;
                wakers = self.take_waiting();
            }
        }
        if has_room {
            wakers.append(&mut self.writers);
            is_due |= conn.is_blocked();
        }
        // Credit that was returned without the application: no other message reports it to the sender.
        let is_given_back =
            self.assembly.is_begun() || self.fin.wanted == Some(true) || envelope.kind == Kind::Share;
        is_due |= self.receive.is_due() && is_given_back;
        Ok(Received { is_due, wakers })
    }
}
