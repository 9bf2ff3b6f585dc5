//! Large messages go by rendezvous: the sender offers registered memory, and the receiver reads the message from it in one operation.
//!
//! An offered message stays at the head of its sender's queue, and registered, until the receiver has answered: nothing overtakes it, and
//! there is one offer at a time each way. The receiver reads into memory that only the operation and the connection hold, so either
//! may end first.

use std::rc::Rc;

use ucs::Error as Status;
use uct_host::{Access, Completion, MemorySlice, Posted, Worker};

use super::super::lane::Lane;
use super::super::message::Message;
use super::Conn;
use super::kept::Kept;
use super::offer::{Offer, Read, Source, TransferMode};
use super::state::{Outgoing, State, Ticket};
use crate::error::Error;
use crate::proto::envelope::Kind;
use crate::proto::shared::{MAX_KEY, Shared};

/// What a connection needs for large messages.
#[derive(Clone)]
pub(crate) struct Large {
    /// Messages from this length on are offered, in bytes; `usize::MAX` for none.
    pub(crate) from: usize,
    pub(crate) worker: Worker,
    pub(super) kept: Kept,
}

impl Large {
    pub(crate) fn new(from: usize, worker: Worker) -> Large {
        Large { from, worker, kept: Kept::default() }
    }
}

impl Outgoing {
    /// Whether the peer knows of it.
    pub(super) fn has_begun(&self) -> bool {
        self.sent > 0 || self.is_offered()
    }

    /// Whether it waits for the peer to read it.
    pub(super) fn is_offered(&self) -> bool {
        matches!(self.mode, TransferMode::Offer { is_sent: true, .. })
    }

    /// Its memory, if it is registered.
    pub(super) fn into_source(self) -> Option<Source> {
        match self.mode {
            TransferMode::Offer { source, .. } | TransferMode::Refused(source) => Some(source),
            TransferMode::Undecided | TransferMode::Parts => None,
        }
    }

    /// Decides how it leaves; the description, if it is offered. Not to be called inside a transport.
    pub(super) fn decide(&mut self, lane: &Lane, from: usize) -> Option<&[u8]> {
        match std::mem::replace(&mut self.mode, TransferMode::Parts) {
            TransferMode::Undecided if self.kind == Kind::Last && self.data.len() >= from => {
                self.mode = lane.offer(&mut self.data);
            }
            TransferMode::Refused(source) => self.data = source.into_bytes(),
            TransferMode::Undecided => {}
            mode => self.mode = mode,
        }
        self.description()
    }

    /// What to send the peer, if it is offered.
    pub(super) fn description(&self) -> Option<&[u8]> {
        match &self.mode {
            TransferMode::Offer { description, .. } => Some(description),
            _ => None,
        }
    }
}

impl Lane {
    /// Registers bytes so that the peer can read them in one operation, where the transport can; they go in parts if it refuses.
    fn offer(&self, data: &mut Vec<u8>) -> TransferMode {
        let Some(large) = self.reads(data.len()) else {
            return TransferMode::Parts;
        };
        let memory = match large.domain.try_register(std::mem::take(data), Access::REMOTE_GET) {
            Ok(memory) => memory,
            Err((refused, bytes)) => {
                ucs::log::debug!("a message of {} bytes is sent in parts: {refused}", bytes.len());
                *data = bytes;
                return TransferMode::Parts;
            }
        };
        let Some(key) = memory.packed_key().ok().filter(|key| key.len() <= MAX_KEY) else {
            *data = memory.into_bytes().unwrap_or_else(|memory| memory.to_vec());
            return TransferMode::Parts;
        };
        let description = Shared { address: memory.address(), length: memory.len() as u64, key }.to_bytes();
        TransferMode::Offer { source: Source::Own(memory), description, is_sent: false }
    }

    /// The offer of a part of the application's memory; `None` if the peer cannot read it there.
    fn offer_slice(&self, slice: &MemorySlice) -> Option<TransferMode> {
        let large = self.reads(slice.len())?;
        // Memory of another transport is copied, unless it is the net's.
        let slice = slice.for_domain(&large.domain).ok()?;
        let memory = slice.memory();
        if !memory.access().contains(Access::REMOTE_GET) {
            return None;
        }
        let key = memory.packed_key().ok().filter(|key| key.len() <= MAX_KEY)?;
        let shared = Shared { address: slice.address()?, length: slice.len() as u64, key };
        let source = Source::Slice(slice.clone());
        Some(TransferMode::Offer { source, description: shared.to_bytes(), is_sent: false })
    }
}

/// What became of an offer.
enum End {
    /// It waits: for the application, for the transport, or for the end of the operation.
    Later(Offer),
    /// The bytes; none if no reader is left.
    Taken(Option<Vec<u8>>),
    /// This side cannot read them.
    Refused,
    /// The connection has failed.
    Failed,
}

impl State {
    /// Whether an offer may be read: as a message in parts, one may be longer than the window if nothing is ahead of it.
    fn has_room_for(&self, offer: &Offer) -> bool {
        self.received.is_empty() || self.receive.has_room(offer.length())
    }

    /// The receiver has read the message that was offered, or wants it in parts. An error is what it did wrong.
    pub(super) fn answered(&mut self, is_taken: bool) -> Result<(), &'static str> {
        if self.fin.is_deaf {
            // It was given up.
            return Ok(());
        }
        if !self.outgoing.front().is_some_and(Outgoing::is_offered) {
            return Err("it replied to an offer that was not made");
        }
        let Some(offered) = self.outgoing.pop_front() else { return Ok(()) };
        let (number, since) = (offered.number, offered.since);
        // Registrations do not end inside a transport.
        let source = offered.into_source();
        if is_taken {
            self.retired.extend(source);
        } else if let Some(source) = source {
            let mode = TransferMode::Refused(source);
            self.outgoing.push_front(Outgoing {
                number,
                since,
                kind: Kind::Last,
                data: Vec::new(),
                sent: 0,
                mode,
            });
        }
        Ok(())
    }
}

impl Conn {
    /// Sends a part of registered memory: the peer reads a large one there, where it can, and everything else is copied now.
    pub(crate) fn send_slice(self: &Rc<Conn>, slice: &MemorySlice) -> Result<Option<Ticket>, Error> {
        let offer = match self.lane.get() {
            Some(lane) if slice.len() >= self.large.from => lane.offer_slice(slice),
            _ => None,
        };
        match offer {
            Some(offer) => self.queue_as(Kind::Last, Vec::new(), offer).map(Some),
            None => self.send(&slice.to_vec()),
        }
    }

    /// Reads what the peer offers, as far as it can be read now. Not to be called inside a transport.
    pub(super) fn fetch(self: &Rc<Conn>, lane: &Lane) {
        let offer = {
            let mut state = self.state.borrow_mut();
            let is_left = |offer: &Offer| state.leaves_offers && lane.reads_at_once(offer.length());
            if state.offer.as_ref().is_some_and(is_left) {
                return;
            }
            state.offer.take()
        };
        let Some(offer) = offer else { return };
        let cost = offer.cost;
        let answer = match self.read(lane, offer) {
            End::Later(offer) => {
                self.state.borrow_mut().offer = Some(offer);
                return;
            }
            End::Failed => return,
            End::Taken(Some(bytes)) => {
                let readers = {
                    let mut state = self.state.borrow_mut();
                    let message = Message::assembled(self.large.worker.buffers().adopt(bytes));
                    state.received.push_back((message, cost));
                    state.control.push_back((Kind::Taken, Vec::new()));
                    state.readers.take()
                };
                return readers.wake();
            }
            End::Taken(None) => Kind::Taken,
            End::Refused => Kind::InParts,
        };
        let mut state = self.state.borrow_mut();
        state.receive.release(cost);
        state.control.push_back((answer, Vec::new()));
    }

    fn read(self: &Rc<Conn>, lane: &Lane, mut offer: Offer) -> End {
        let is_deaf = self.state.borrow().fin.wanted == Some(true);
        if let Some(read) = &offer.read
            && read.is_posted
        {
            if !read.completion.is_done() {
                return End::Later(offer);
            }
            return match read.completion.result() {
                Ok(()) => offer.taken(is_deaf),
                Err(status) if lane.ep.failure().is_some() => {
                    self.fail_by_status(status);
                    End::Failed
                }
                Err(_) => {
                    self.broken("the message that it offered cannot be read");
                    End::Failed
                }
            };
        }
        if is_deaf {
            return End::Taken(None);
        }
        if self.sink.get().is_some() {
            // It takes fragments.
            return End::Refused;
        }
        if !self.state.borrow().has_room_for(&offer) || self.waits_for_room.get() {
            return End::Later(offer);
        }
        let read = match offer.read.take().map_or_else(|| self.prepare(lane, &offer), Ok) {
            Ok(read) => read,
            Err(reason) => {
                ucs::log::debug!(peer = self.peer, "a large message is requested in parts: {reason}");
                return End::Refused;
            }
        };
        let slices = [read.memory.slice(..)];
        let posted = lane.ep.get_zcopy(&slices, offer.place.address, &read.key, &read.completion);
        drop(slices);
        let read = offer.read.insert(read);
        match posted {
            Ok(Posted::Done) => offer.taken(false),
            Ok(Posted::InProgress) => {
                read.is_posted = true;
                self.agenda.rouse();
                End::Later(offer)
            }
            Err(Status::NO_RESOURCE) => {
                if !self.wait_for_transport(lane) {
                    self.become_due();
                }
                End::Later(offer)
            }
            Err(status) if lane.ep.failure().is_some() => {
                self.fail_by_status(status);
                End::Failed
            }
            Err(status) => {
                ucs::log::debug!(peer = self.peer, "a large message is requested in parts: {status}");
                End::Refused
            }
        }
    }

    /// Memory for the message, and the key to the peer's; an error is the reason why not.
    fn prepare(self: &Rc<Conn>, lane: &Lane, offer: &Offer) -> Result<Read, String> {
        let unread = || format!("this side's transport does not read {} bytes in place", offer.length());
        let large = lane.reads(offer.length()).ok_or_else(unread)?;
        let key = large.domain.unpack(&offer.place.key).map_err(|refused| refused.to_string())?;
        let bytes = self.large.worker.buffers().try_take_filled(offer.length());
        let bytes = bytes.map_err(|_| format!("there is no memory for {} bytes", offer.length()))?;
        let memory = large.domain.try_register(bytes, Access::empty());
        let memory = memory.map_err(|(refused, _bytes)| refused.to_string())?;
        let conn = Rc::downgrade(self);
        let completion = Completion::with_callback(&self.large.worker, move |_result| {
            if let Some(conn) = conn.upgrade() {
                conn.become_due();
            }
        });
        Ok(Read { memory, key, completion, is_posted: false })
    }
}

impl Offer {
    /// The bytes that were read; none if no reader is left.
    fn taken(self, is_deaf: bool) -> End {
        let memory = self.read.filter(|_| !is_deaf).map(|read| read.memory);
        End::Taken(memory.map(|memory| memory.into_bytes().unwrap_or_else(|memory| memory.to_vec())))
    }
}
