//! Messages that go to a library's own protocol: straight from the transport to its sink, and from its memory to the transport.

#![expect(unsafe_code, reason = "copies to memory to which there is no reference")]

use std::fmt;
use std::rc::Rc;

use ucs::Error as Status;
use uct_host::{AmMessage, Space};

use super::Conn;
use super::receive::Problem;
use super::state::{State, closed};
use crate::error::{Error, Stage};
use crate::proto::assembly::TooLong;
use crate::proto::envelope::{ENVELOPE, Envelope, HEADER, Kind};
use crate::proto::window::cost;

/// Takes what arrives on a connection: see [`Connection::deliver_to`](crate::local::Connection::deliver_to).
///
/// A connection holds its sink until its last handle is gone and its peer has everything. A sink that holds the connection, or what holds it, by an
/// `Rc` keeps it for ever: let it hold a `Weak`.
pub trait Sink: 'static {
    /// A fragment of a message has arrived. The fragments of a message come in order, and so do messages. Returns whether the peer gets the credit
    /// for it back now.
    ///
    /// It is called inside the transport. It may read the fragment, call `release` of a connection, and
    /// [`spawn`](crate::protocol::Engine::spawn) and [`request_turn`](crate::protocol::Engine::request_turn) of the engine, and wake wakers of
    /// tasks of the engine. It sends nothing, polls no future, makes no progress and drops no handle of a connection: it notes what is to be
    /// done for the protocol's turn, which follows in the same turn of the engine.
    fn deliver(&self, fragment: &Fragment<'_>) -> Credit;

    /// A fragment of `length` bytes arrives, and `head` are its first ones. Whether the sink takes the others where [`Sink::place`] says, and not in the
    /// transport's buffer; then it copies what it needs of the head, and [`Sink::deliver`] follows when all of it has arrived, with a fragment that
    /// [is placed](Fragment::is_placed), unless the connection ends before. Called by transports that can receive so, under the rules of
    /// [`Sink::deliver`].
    fn begin(&self, head: &[u8], length: usize, is_last: bool) -> bool {
        let _ = (head, length, is_last);
        false
    }

    /// Where the bytes from `offset` on of the fragment that was begun go, as many as have room there: asked before each receive. `None`: nobody
    /// wants them.
    fn place(&self, offset: usize) -> Option<Space> {
        let _ = offset;
        None
    }

    /// There may be credit and room again, after a `try_send` for which there was none. Called outside of the transports.
    fn writable(&self) {}

    /// Nothing follows: the peer has closed the connection ([`Error::is_closed_by_peer`]), or it has failed. Called once, outside of the transports, after
    /// what arrived before; not called when this side has closed the connection or dropped its last handle.
    fn ended(&self, reason: Error);
}

/// What becomes of the credit for a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credit {
    /// The peer gets it back: it may send as much again.
    Returned,
    /// It is held back until [`Connection::release`](crate::local::Connection::release). The peer stops when all of its window is held.
    Held,
}

/// A fragment of a message, as a [`Sink`] sees it: in the buffer of the transport.
pub struct Fragment<'a> {
    place: Place<'a>,
    is_last: bool,
}

enum Place<'a> {
    /// In the transport, from this byte on.
    Transport(&'a AmMessage<'a>, usize),
    /// It had arrived before there was a sink.
    Copy(&'a [u8]),
    /// So many bytes, where the sink has them.
    Placed(usize),
}

impl<'a> Fragment<'a> {
    /// Whether its bytes are where the sink wanted them ([`Sink::begin`]), and cannot be read here.
    #[inline]
    pub fn is_placed(&self) -> bool {
        matches!(self.place, Place::Placed(_))
    }

    /// Its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.place {
            Place::Transport(message, start) => message.len() - start,
            Place::Copy(bytes) => bytes.len(),
            Place::Placed(length) => *length,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its message ends with it.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// What [`Connection::release`](crate::local::Connection::release) is given for it.
    pub fn credit(&self) -> u32 {
        cost(self.len())
    }

    /// Copies bytes from `offset` on, straight from the transport's buffer.
    ///
    /// # Panics
    /// If they end beyond the fragment, or it is placed.
    #[inline]
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        match &self.place {
            Place::Transport(message, start) => message.read(start + offset, target),
            Place::Copy(bytes) => target.copy_from_slice(&bytes[offset..][..target.len()]),
            Place::Placed(_) => panic!("{PLACED}"),
        }
    }

    /// As [`Fragment::read`], to memory to which there is no reference.
    ///
    /// # Panics
    /// If the bytes end beyond the fragment, or it is placed.
    ///
    /// # Safety
    /// `target` is writable for `length` bytes, and the transport's buffer is no part of it.
    #[inline]
    pub unsafe fn read_raw(&self, offset: usize, target: *mut u8, length: usize) {
        match &self.place {
            // SAFETY: the caller's promise.
            Place::Transport(message, start) => unsafe { message.read_raw(start + offset, target, length) },
            Place::Copy(bytes) => {
                let bytes = &bytes[offset..][..length];
                // SAFETY: the caller's promise; the slice has so many bytes.
                unsafe { ucs::memory::copy_raw(target, bytes.as_ptr(), length) };
            }
            Place::Placed(_) => panic!("{PLACED}"),
        }
    }

    /// All of its bytes; none if it is placed. Where the peer can write to the transport's buffer, they are copied first: [`Fragment::read`] is one
    /// copy less.
    pub fn bytes(&self) -> &[u8] {
        match &self.place {
            Place::Transport(message, start) => &message[*start..],
            Place::Copy(bytes) => bytes,
            Place::Placed(_) => &[],
        }
    }
}

/// What a sink does wrong that reads a fragment of which it has the bytes.
const PLACED: &str = "the bytes of a placed fragment are the sink's";

impl fmt::Debug for Fragment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fragment")
            .field("length", &self.len())
            .field("is_last", &self.is_last)
            .finish_non_exhaustive()
    }
}

impl Conn {
    /// What arrives goes to the sink from now on, and what has arrived at once. Not to be called inside a transport.
    pub(crate) fn deliver_to(self: &Rc<Conn>, sink: Rc<dyn Sink>) -> bool {
        if self.sink.set(Rc::clone(&sink)).is_err() {
            return false;
        }
        loop {
            let next = {
                let mut state = self.state.borrow_mut();
                let begun = state.received.is_empty().then(|| state.assembly.take()).flatten();
                match state.received.pop_front() {
                    Some((message, cost)) => Some((Ok(message), cost, true)),
                    None => begun.map(|begun| (Err(begun), std::mem::take(&mut state.assembly_cost), false)),
                }
            };
            let Some((message, cost, is_last)) = next else { break };
            let bytes = match &message {
                Ok(message) => &**message,
                Err(begun) => begun,
            };
            if !is_last {
                self.state.borrow_mut().delivered = bytes.len();
            }
            let credit = sink.deliver(&Fragment { place: Place::Copy(bytes), is_last });
            self.settle(credit, cost);
        }
        // An offer is answered, and an end is reported to the sink, in the next turn.
        self.become_due();
        true
    }

    /// A message arrived for the sink; its payload begins at `start`. Runs inside a transport.
    #[inline(never)]
    pub(super) fn receive_for(
        &self,
        sink: &dyn Sink,
        envelope: Envelope,
        start: usize,
        message: &AmMessage<'_>,
    ) {
        self.hand_over(sink, envelope, Place::Transport(message, start));
    }

    /// Hands a fragment to the sink.
    fn hand_over(&self, sink: &dyn Sink, envelope: Envelope, place: Place<'_>) {
        let fragment = Fragment { place, is_last: envelope.kind == Kind::Last };
        match self.try_hand_over(sink, envelope, &fragment) {
            Ok(true) => self.become_due(),
            Ok(false) => {}
            Err(problem) => self.refuse(problem),
        }
    }

    fn try_hand_over(
        &self,
        sink: &dyn Sink,
        envelope: Envelope,
        fragment: &Fragment<'_>,
    ) -> Result<bool, Problem> {
        let length = fragment.len();
        let is_last = fragment.is_last;
        let mut is_due = {
            let mut state = self.state.borrow_mut();
            let Some(has_room) = state.arrives(self, envelope, length, length + HEADER + ENVELOPE)? else {
                return Ok(false);
            };
            if state.fin.wanted == Some(true) {
                // Discarded: this side has ended reading. The message may have been in flight then.
                state.receive.release(cost(length));
                return Ok(state.receive.is_due());
            }
            if length > self.room_in_message(&state) {
                let length = state.delivered.saturating_add(length);
                return Err(TooLong { length, is_all: is_last }.into());
            }
            state.delivered = if is_last { 0 } else { state.delivered + length };
            has_room && (self.is_blocked() || !state.outgoing.is_empty())
        };
        let credit = sink.deliver(fragment);
        let mut state = self.state.borrow_mut();
        match credit {
            Credit::Returned => state.receive.release(cost(length)),
            Credit::Held => state.held = state.held.wrapping_add(cost(length)),
        }
        is_due |= state.receive.is_due();
        Ok(is_due)
    }

    /// Bytes that the message may have of which fragments have been delivered.
    fn room_in_message(&self, state: &State) -> usize {
        self.max_message - state.delivered.min(self.max_message)
    }

    /// The beginning of a fragment has arrived, behind its envelope. Whether the sink takes the rest while it arrives. What it costs, and whether it may
    /// come, is looked at when it is whole. Runs inside a transport.
    pub(crate) fn begin_fragment(&self, envelope: Envelope, head: &[u8], length: usize) -> bool {
        let Some(sink) = self.sink.get() else { return false };
        let is_last = envelope.kind == Kind::Last;
        // A peer may send over several connections of the transport at once.
        if !(is_last || envelope.kind == Kind::Part) || self.arriving.get().is_some() {
            return false;
        }
        let state = self.state.borrow();
        if state.failure.is_some() || state.fin.wanted == Some(true) || length > self.room_in_message(&state)
        {
            return false;
        }
        drop(state);
        let is_taken = sink.begin(head, length, is_last);
        if is_taken {
            self.arriving.set(Some(envelope));
        }
        is_taken
    }

    /// Where the bytes from `offset` on of the fragment that was begun go.
    pub(crate) fn place_fragment(&self, offset: usize) -> Option<Space> {
        let sink = self.sink.get().filter(|_| self.arriving.get().is_some())?;
        let state = self.state.borrow();
        if state.failure.is_some() || state.fin.wanted == Some(true) {
            return None;
        }
        drop(state);
        sink.place(offset)
    }

    /// The fragment that was begun has arrived, `length` bytes with its header and envelope.
    pub(crate) fn end_fragment(&self, length: usize) {
        if let (Some(sink), Some(envelope)) = (self.sink.get(), self.arriving.take()) {
            self.hand_over(&**sink, envelope, Place::Placed(length - HEADER - ENVELOPE));
        }
    }

    /// Gives credit back, or holds it. Not to be called while the state is borrowed.
    fn settle(&self, credit: Credit, cost: u32) {
        let mut state = self.state.borrow_mut();
        match credit {
            Credit::Returned => state.receive.release(cost),
            Credit::Held => state.held = state.held.wrapping_add(cost),
        }
        if state.receive.is_due() {
            drop(state);
            self.become_due();
        }
    }

    /// Gives the peer credit back that the sink has held. May be called inside a transport.
    pub(crate) fn release(&self, credit: u32) {
        let mut state = self.state.borrow_mut();
        let credit = credit.min(state.held);
        state.held -= credit;
        state.receive.release(credit);
        if state.receive.is_due() {
            drop(state);
            self.become_due();
        }
    }

    /// The longest message of [`Conn::try_send_parts`].
    pub(crate) fn longest_fragment(&self) -> usize {
        self.lane.get().map_or(0, |lane| lane.fragment().min(self.state.borrow().send.longest()))
    }

    /// Sends a message of several parts, all together in one of the transport's; false if there is no credit or room for it now, or something is ahead
    /// of it.
    pub(crate) fn try_send_parts(self: &Rc<Conn>, head: &[u8], parts: &[&[u8]]) -> Result<bool, Error> {
        let Some(lane) = self.lane.get() else { return Ok(false) };
        let length = head.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        let envelope = {
            let mut state = self.state.borrow_mut();
            state.check_sendable(&self.peer)?;
            if length > lane.fragment().min(state.send.longest()) {
                let reason =
                    format!("a message of {length} bytes is longer than a fragment of this connection");
                return Err(Error::new(Stage::Connected, &*self.peer, Status::INVALID_PARAM, reason));
            }
            if !state.takes(length) || self.waits_for_room.get() {
                self.blocked.set(Some(length));
                return Ok(false);
            }
            state.send.take(length);
            Envelope { kind: Kind::Last, granted: state.receive.offer() }
        };
        match lane.send_parts(envelope, head, parts, length) {
            Ok(()) => {
                self.state.borrow_mut().receive.grant(envelope.granted);
                self.agenda.rouse();
                Ok(true)
            }
            Err(Status::NO_RESOURCE) => {
                self.state.borrow_mut().send.give_back(length);
                self.blocked.set(Some(length));
                if !self.wait_for_transport(lane) {
                    self.become_due();
                }
                Ok(false)
            }
            Err(status) => Err(self.fail_by_status(status)),
        }
    }

    /// Whether the sink waits for credit or room.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.get().is_some()
    }

    /// Tells the sink of room and of the end. Not to be called inside a transport.
    pub(super) fn serve_sink(&self) {
        let Some(sink) = self.sink.get() else { return };
        if let Some(length) = self.blocked.get()
            && !self.waits_for_room.get()
            && self.state.borrow().takes(length)
        {
            self.blocked.set(None);
            sink.writable();
        }
        if self.has_told_end.get() {
            return;
        }
        let reason = self.state.borrow().why_ended(&self.peer);
        if let Some(reason) = reason {
            self.has_told_end.set(true);
            sink.ended(reason);
        }
    }
}

impl State {
    /// Whether there is credit for a message of this length, and nothing ahead of it.
    fn takes(&self, length: usize) -> bool {
        self.outgoing.is_empty() && self.send.room().is_some_and(|room| length <= room)
    }

    /// Why nothing follows, for a sink.
    fn why_ended(&self, peer: &str) -> Option<Error> {
        match () {
            () if self.fin.wanted == Some(true) => None,
            () if self.fin.has_come => Some(closed(peer)),
            () => self.failure.clone(),
        }
    }
}
