//! Sending messages: at once, behind others, or when the receiver asks for the bytes.

use uct_net::local::Connection;

use super::super::buffer::{length_of, with_slices};
use super::super::{Buffers, Errno, MAX_INJECT, Send};
use super::copied::Copied;
use super::endpoint::Endpoint;
use super::link::{LOCAL_FRAGMENT, Link};
use super::native::shortest_read;
use super::peer::{Job, Pending, PendingKind, Stream, Ticket};
use super::{Retired, Shared};
use crate::wire::{Envelope, Head, MAX_BEGUN, MAX_HEAD, Offer};

/// Longest message that goes without being asked for: in one frame, where the connection's frames have room for it, else in several.
const UNASKED: usize = 256 << 10;
/// The same, while there is no connection yet: any connection's frames have room for it.
const UNASKED_UNCONNECTED: usize = 512;
const _: () = assert!(UNASKED <= MAX_BEGUN);

impl Link {
    /// The way over a connection, whose frames have room for a head and more.
    pub(super) fn over(connection: Connection) -> Link {
        let fragment = connection.fragment();
        let read = connection.in_place().map_or(usize::MAX, shortest_read);
        Link::Net { connection, fragment, eager: UNASKED.min(fragment - MAX_HEAD).min(read - 1) }
    }

    /// Longest message that goes in one frame.
    #[inline]
    fn eager(&self) -> usize {
        match self {
            Link::Net { eager, .. } => *eager,
            Link::Local { .. } => LOCAL_FRAGMENT - MAX_HEAD,
            Link::Closed | Link::Calling | Link::Called => UNASKED_UNCONNECTED,
        }
    }

    /// Longest message that goes without being asked for.
    fn in_frames(&self) -> usize {
        let unread = self.reads_from().map_or(UNASKED, |from| UNASKED.min(from - 1));
        if self.fragment() > 0 { unread.max(self.eager()) } else { self.eager() }
    }
}

impl Endpoint {
    /// Sends a message, or queues it.
    #[inline]
    pub(super) fn send(&mut self, shared: &mut Shared, send: &Send<'_>) -> Result<(), Errno> {
        let peer = self.peer_at(send.to)?;
        let length = length_of(send.buffers);
        if send.mode.inject && length > MAX_INJECT {
            return Err(Errno::TOO_LONG);
        }
        let envelope = envelope(send);
        let state = &self.peers[peer as usize];
        if length <= state.link.eager() && state.is_clear() {
            // With an acknowledgement the operation is entered once the message has left, under the number that is free now.
            let id = if envelope.delivery { state.operations.vacant_key() as u32 } else { 0 };
            let head = Head::message(id, &envelope);
            let outcome = with_slices(send.buffers, |parts| state.link.try_send(shared, head.bytes(), parts));
            if outcome.ok_or(Errno::INVALID)? {
                shared.totals.sent(length);
                if envelope.delivery {
                    self.await_end(peer, Ticket::of(send));
                } else {
                    self.succeeded(&Ticket::of(send));
                }
                return Ok(());
            }
        }
        self.send_later(shared, peer, send)
    }

    /// A message has left whose end the peer tells.
    #[inline(never)]
    fn await_end(&mut self, peer: u32, ticket: Ticket) {
        let kind = PendingKind::Done { is_sent: true };
        self.peer(peer).operations.insert(Pending { ticket, kind, _copy: None });
    }

    /// Queues a message.
    #[cold]
    fn send_later(&mut self, shared: &mut Shared, peer: u32, send: &Send<'_>) -> Result<(), Errno> {
        let buffers = Buffers::new(send.buffers).ok_or(Errno::INVALID)?;
        let state = &self.peers[peer as usize];
        if state.is_full() {
            return Err(Errno::AGAIN);
        }
        let (envelope, ticket) = (envelope(send), Ticket::of(send));
        let (inject, length) = (send.mode.inject, buffers.len());
        let in_frames = if inject { state.link.eager() } else { state.link.in_frames() };
        self.open(shared, peer);
        shared.totals.sent(length);
        if length <= in_frames {
            self.queue_eager(shared, peer, envelope, buffers, ticket, inject);
        } else {
            self.queue_request(shared, peer, envelope, buffers, ticket, inject);
        }
        Ok(())
    }

    /// Queues a message that goes without being asked for, in one frame or several.
    fn queue_eager(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        envelope: Envelope,
        buffers: Buffers,
        ticket: Ticket,
        inject: bool,
    ) {
        let (id, ticket) = if envelope.delivery {
            // A copy may outlive the operation.
            let pending = Pending { ticket, kind: PendingKind::Done { is_sent: inject }, _copy: None };
            (self.peer(peer).operations.insert(pending) as u32, None)
        } else {
            (0, Some(ticket))
        };
        let length = buffers.len();
        let job = if inject {
            let mut bytes = Head::message(id, &envelope).bytes().to_vec();
            buffers.append_to(&mut bytes);
            Job::Copied(bytes.into(), ticket)
        } else {
            let head = match length <= self.peers[peer as usize].link.eager() {
                true => Head::message(id, &envelope),
                false => Head::begin(id, &envelope, length as u64),
            };
            Job::Message { head, id, buffers, sent: 0, ticket }
        };
        self.queue(shared, peer, job);
    }

    /// Queues the request of a message whose bytes the receiver asks for.
    fn queue_request(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        envelope: Envelope,
        buffers: Buffers,
        ticket: Ticket,
        inject: bool,
    ) {
        let Copied { buffers, copy } = Copied::new(buffers, inject);
        let length = buffers.len() as u64;
        let (memory, offer) = match self.offer(peer, &buffers) {
            Some((memory, offer)) if copy.is_none() => (Some(memory), Some(offer)),
            _ => (None, None),
        };
        let kind = PendingKind::Asked { buffers, delivery: envelope.delivery, is_asked: false, memory };
        let id = self.peer(peer).operations.insert(Pending { ticket, kind, _copy: copy }) as u32;
        let head = Head::request(id, &envelope, length);
        let offer = offer.as_ref().map_or(&[][..], Offer::bytes);
        let state = &self.peers[peer as usize];
        if state.is_clear() && state.link.try_send(shared, head.bytes(), &[offer]) {
            return;
        }
        let job = match offer {
            [] => Job::Head(head),
            _ => Job::Copied([head.bytes(), offer].concat().into(), None),
        };
        self.queue(shared, peer, job);
    }

    /// The receiver has matched a message and asks for its first `wanted` bytes.
    pub(super) fn asked(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        id: u32,
        receiver: u32,
        wanted: u64,
    ) -> Result<(), &'static str> {
        let state = self.peer(peer);
        let pending = state.operations.get_mut(id as usize);
        let Some(PendingKind::Asked { buffers, delivery, is_asked: is_asked @ false, memory }) =
            pending.map(|pending| &mut pending.kind)
        else {
            return Err("it asked for a message that was not announced");
        };
        if wanted > buffers.len() as u64 {
            return Err("it asked for more than a message has");
        }
        *is_asked = true;
        shared.retired.extend(memory.take().map(|memory| Retired { memory, ends: None }));
        let (buffers, delivery) = (buffers.part(0, wanted as usize), *delivery);
        if wanted > 0 {
            state.streams.push_back(Stream::Message { id, receiver, buffers, sent: 0 });
            self.is_due(shared, peer);
        } else if !delivery {
            self.ended(shared, peer, id, Ok(()))?;
        }
        Ok(())
    }

    /// All bytes of a message that the receiver has asked for have left.
    pub(super) fn streamed(&mut self, shared: &mut Shared, peer: u32, id: u32) {
        let pending = self.peer(peer).operations.get_mut(id as usize);
        if let Some(PendingKind::Asked { delivery: false, .. }) = pending.map(|pending| &pending.kind) {
            let _ = self.ended(shared, peer, id, Ok(()));
        }
    }

    /// An operation of this side has ended.
    pub(super) fn ended(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        id: u32,
        outcome: Result<(), Errno>,
    ) -> Result<(), &'static str> {
        let operations = &mut self.peer(peer).operations;
        let Some(pending) = operations.try_remove(id as usize) else {
            return Err("it ended an operation that was not begun");
        };
        let memory = match pending.kind {
            PendingKind::Asked { memory, .. } => memory,
            _ => None,
        };
        match memory {
            // Registrations do not end inside a transport.
            Some(memory) => {
                let ends = Some((self.number, pending.ticket, outcome));
                shared.retired.push(Retired { memory, ends });
            }
            None => self.has_ended(&pending.ticket, outcome),
        }
        Ok(())
    }

    /// The peer says that an operation of this side has ended.
    pub(super) fn done(
        &mut self,
        shared: &mut Shared,
        peer: u32,
        id: u32,
        status: u32,
    ) -> Result<(), &'static str> {
        let outcome = match status {
            0 => Ok(()),
            1..=4095 => Err(Errno(status as i32)),
            _ => return Err("it sent a status that is no error number"),
        };
        let may_end = match self.peer(peer).operations.get(id as usize).map(|pending| &pending.kind) {
            None => true,
            Some(PendingKind::Done { is_sent }) => *is_sent,
            Some(PendingKind::Asked { delivery, is_asked, memory, .. }) => {
                memory.is_some() || *delivery && *is_asked
            }
            // Its bytes are its end.
            Some(PendingKind::Data { .. }) => outcome.is_err(),
        };
        if !may_end {
            return Err("it ended an operation too early");
        }
        // Of a message in the middle of its bytes nothing more is sent.
        self.peer(peer)
            .streams
            .retain(|stream| !matches!(stream, Stream::Message { id: at, .. } if *at == id));
        self.ended(shared, peer, id, outcome)
    }

    /// Whether all that the program has sent has been handed to connections.
    pub(super) fn is_handed_over(&self) -> bool {
        self.peers.iter().all(|peer| match &peer.link {
            Link::Closed => true,
            Link::Net { connection, .. } => peer.is_empty() && connection.has_left(),
            _ => peer.is_empty(),
        })
    }
}

#[inline]
fn envelope(send: &Send<'_>) -> Envelope {
    Envelope { tag: send.tag, data: send.data, delivery: send.mode.delivery }
}
