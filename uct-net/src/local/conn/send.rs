//! Sending: messages that wait for credit and room, and what needs neither.

use std::rc::Rc;
use std::task::{Context, Poll};

use ucs::Error as Status;
use ucs::clock;

use super::super::lane::Lane;
use super::Conn;
use super::large::Large;
use super::offer::TransferMode;
use super::state::{Outgoing, State, Ticket, closed};
use crate::error::{Error, Stage};
use crate::proto::envelope::{Envelope, Kind};

/// What is to be sent next.
enum Next {
    Control(Kind, Vec<u8>),
    /// So many bytes of this message.
    Data(Outgoing, usize),
    /// The offer of this message.
    Offer(Outgoing),
}

impl Conn {
    /// Sends a message that fits into one of the transport's, if nothing is ahead of it and there is room for it now.
    #[inline]
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

    /// Sends a message, or queues it.
    #[inline]
    pub(crate) fn send(self: &Rc<Conn>, message: &[u8]) -> Result<Option<Ticket>, Error> {
        if self.try_send(message)? { Ok(None) } else { self.queue_message(message).map(Some) }
    }

    /// Queues a message that cannot be sent now: a copy of it, or where it is staged.
    #[inline(never)]
    fn queue_message(self: &Rc<Conn>, message: &[u8]) -> Result<Ticket, Error> {
        if let Some(offer) = self.stage(message) {
            return self.queue_as(Kind::Last, Vec::new(), offer);
        }
        let mut copy = Vec::new();
        copy.try_reserve_exact(message.len()).map_err(|_| {
            let reason =
                format!("this side has no memory for a copy of a message of {} bytes", message.len());
            Error::new(Stage::Connected, &*self.peer, Status::NO_MEMORY, reason)
        })?;
        copy.extend_from_slice(message);
        self.queue(Kind::Last, copy)
    }

    /// Queues a message, whatever its length.
    pub(crate) fn queue(self: &Rc<Conn>, kind: Kind, data: Vec<u8>) -> Result<Ticket, Error> {
        self.queue_as(kind, data, TransferMode::Undecided)
    }

    pub(super) fn queue_as(
        self: &Rc<Conn>,
        kind: Kind,
        data: Vec<u8>,
        mode: TransferMode,
    ) -> Result<Ticket, Error> {
        let number = {
            let mut state = self.state.borrow_mut();
            state.check_sendable(&self.peer)?;
            let number = state.made;
            state.made += 1;
            state.outgoing.push_back(Outgoing { number, since: clock::ticks(), kind, data, sent: 0, mode });
            number
        };
        self.pump();
        Ok(Ticket(number))
    }

    /// Sends the beginning of `bytes`, in messages of the transport's size, as far as there are credit and room now: 0 if there are none.
    pub(crate) fn send_some(&self, bytes: &[u8]) -> Result<usize, Error> {
        let mut sent = 0;
        while let Some(length) = self.next_piece(&bytes[sent..])?
            && self.try_send(&bytes[sent..sent + length])?
        {
            sent += length;
        }
        Ok(sent)
    }

    /// How many of the bytes go into a message now; `None` if there are none, or no credit, or something is ahead of them.
    fn next_piece(&self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        let Some(lane) = self.lane.get().filter(|_| !bytes.is_empty()) else { return Ok(None) };
        let state = self.state.borrow();
        state.check_sendable(&self.peer)?;
        Ok(state.piece(lane, bytes.len()).filter(|_| state.outgoing.is_empty()))
    }

    /// As [`Conn::send_some`]; registers the caller if nothing was sent.
    pub(crate) fn poll_send_some(
        self: &Rc<Conn>,
        bytes: &[u8],
        context: &Context<'_>,
    ) -> Poll<Result<usize, Error>> {
        match self.send_some(bytes)? {
            0 if self.next_piece(bytes)?.is_some() => self.wait_for_transport_room(context),
            0 => self.wait_for_room(context),
            sent => return Poll::Ready(Ok(sent)),
        }
        Poll::Pending
    }

    /// Whether a queued message has left; registers the caller if not.
    pub(crate) fn poll_left(&self, ticket: Ticket, context: &Context<'_>) -> Poll<Result<(), Error>> {
        if self.has_left(ticket)? {
            return Poll::Ready(Ok(()));
        }
        self.state.borrow_mut().writers.add(context);
        Poll::Pending
    }

    /// Whether a queued message has left.
    pub(crate) fn has_left(&self, ticket: Ticket) -> Result<bool, Error> {
        let state = self.state.borrow();
        if state.lost_from.is_some_and(|lost| lost <= ticket.0) {
            return Err(state.why_lost(&self.peer));
        }
        if state.outgoing.front().is_none_or(|first| first.number > ticket.0) {
            return Ok(true);
        }
        state.check()?;
        Ok(false)
    }

    /// Whether all that was queued has left; registers the caller if not.
    pub(crate) fn poll_idle(&self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        let mut state = self.state.borrow_mut();
        if state.lost_from.is_some() {
            return Poll::Ready(Err(state.why_lost(&self.peer)));
        }
        if state.outgoing.is_empty() {
            return Poll::Ready(Ok(()));
        }
        state.check()?;
        state.writers.add(context);
        Poll::Pending
    }

    /// Takes a queued message back, if nothing of it has left; what has begun goes on.
    pub(crate) fn withdraw(&self, ticket: Ticket) {
        let writers = {
            let mut state = self.state.borrow_mut();
            let before = state.outgoing.len();
            state.outgoing.retain(|message| message.number != ticket.0 || message.has_begun());
            if state.outgoing.len() == before {
                return;
            }
            state.writers.take()
        };
        // What was behind it may go now: a shorter message, or the end.
        self.become_due();
        writers.wake();
    }

    /// Queues something without credit.
    pub(crate) fn control(self: &Rc<Conn>, kind: Kind, payload: Vec<u8>) {
        self.state.borrow_mut().control.push_back((kind, payload));
        self.pump();
    }

    /// Sends what is to be sent, as far as there are credit and room. Not to be called inside a transport.
    pub(crate) fn pump(self: &Rc<Conn>) {
        let Some(lane) = self.lane.get() else { return };
        self.retire();
        self.fetch(lane);
        if self.waits_for_room.get() {
            return;
        }
        let mut has_left = false;
        loop {
            let (next, offer) = {
                let mut state = self.state.borrow_mut();
                (state.next(lane, &self.large), state.receive.offer())
            };
            let Some(next) = next else { break };
            let outcome = match &next {
                Next::Control(kind, payload) => lane.send(Envelope { kind: *kind, granted: offer }, payload),
                Next::Data(message, length) => {
                    let end = message.sent + length;
                    let kind = if end == message.data.len() { message.kind } else { Kind::Part };
                    lane.send(Envelope { kind, granted: offer }, &message.data[message.sent..end])
                }
                Next::Offer(message) => {
                    let envelope = Envelope { kind: Kind::Offer, granted: offer };
                    lane.send(envelope, message.description().expect("it was made"))
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
                    // It stays queued, so that its sender gets the failure and not success.
                    self.state.borrow_mut().put_back(next);
                    self.fail_by_status(status);
                    break;
                }
            }
        }
        if has_left {
            self.agenda.rouse();
            if self.has_moves() || self.is_blocked() {
                // A notification may be what has left, or what was ahead of the sink's next message.
                self.become_due();
            }
            let writers = self.state.borrow_mut().writers.take();
            writers.wake();
        }
    }
}

impl State {
    pub(super) fn check_sendable(&self, peer: &str) -> Result<(), Error> {
        self.check()?;
        if self.fin.is_deaf {
            return Err(closed(peer));
        }
        if let Some(is_deaf) = self.fin.wanted {
            let reason = if is_deaf {
                "this side has closed the connection"
            } else {
                "this side has ended its messages"
            };
            return Err(Error::new(Stage::Close, peer, Status::CANCELED, reason));
        }
        Ok(())
    }

    /// Takes out what is to be sent next.
    fn next(&mut self, lane: &Lane, large: &Large) -> Option<Next> {
        if let Some((kind, payload)) = self.control.pop_front() {
            return Some(Next::Control(kind, payload));
        }
        if self.failure.is_some() {
            return None;
        }
        if let Some(room) = self.send.room()
            && let Some(first) = self.outgoing.front_mut().filter(|first| !first.is_offered())
        {
            if let Some(description) = first.decide(lane, large.from) {
                let fits = description.len() <= room;
                return if fits { self.outgoing.pop_front().map(Next::Offer) } else { None };
            }
            let left = first.data.len() - first.sent;
            if let Some(length) = self.piece(lane, left) {
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

    /// How many of `left` bytes go into the next message of the transport; `None` until there is credit for a message that is worth it.
    fn piece(&self, lane: &Lane, left: usize) -> Option<usize> {
        let fragment = lane.fragment();
        let length = self.send.room()?.min(left).min(fragment);
        // Credit for a part of a short message waits for the rest.
        (length == left || length >= fragment.min(1024)).then_some(length)
    }

    /// What [`State::next`] returned was sent, with an offer of credit.
    fn sent(&mut self, next: Next, offer: u32) {
        self.receive.grant(offer);
        match next {
            Next::Control(Kind::Fin, _) => self.fin.is_sent = true,
            Next::Control(..) => {}
            Next::Offer(mut message) => {
                if let TransferMode::Offer { description, is_sent, .. } = &mut message.mode {
                    *is_sent = true;
                    self.send.take(description.len());
                }
                self.outgoing.push_front(message);
            }
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
            Next::Data(message, _) | Next::Offer(message) => self.outgoing.push_front(message),
        }
    }
}
