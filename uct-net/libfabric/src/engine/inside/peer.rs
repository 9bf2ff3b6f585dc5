//! A peer of an endpoint: its connection, what waits to be sent to it, and the operations that it has to end.

use std::collections::VecDeque;
use std::net::SocketAddr;

use slab::Slab;
use uct_core::Memory;

use super::super::{Buffers, Errno, Remote, Send, flags};
use super::link::Link;
use super::message::{Arriving, Begun, Placed, Readable};
use crate::wire::{Element, Head};

/// Operations that wait for room or for the connection. Beyond it the program gets `EAGAIN`.
pub(super) const MAX_WAITING: usize = 1024;
/// Replies that wait. Beyond it the peer's credit is held back until they have left.
const MAX_REPLIES: usize = 4 * MAX_WAITING;

/// Another endpoint.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) link: Link,
    /// The number of the attempt to connect, or of the connection: what belongs to an earlier one is of no effect.
    pub(super) attempt: u32,
    /// What is sent in this order.
    pub(super) jobs: VecDeque<Job>,
    /// Messages that wait until the peer takes messages again, ahead of the jobs.
    pub(super) parked: VecDeque<Job>,
    /// The peer has sent a pause frame.
    pub(super) is_paused: bool,
    /// A pause frame was sent to the peer.
    pub(super) has_paused: bool,
    /// Bytes of the peer's unexpected messages, with what they cost.
    pub(super) unexpected: usize,
    /// What is sent in turns, behind the jobs.
    pub(super) streams: VecDeque<Stream>,
    /// Operations of this side that the peer ends, by the ids that it gets. 32 bits of an id are enough: 2^32 entries are more than memory.
    pub(super) operations: Slab<Pending>,
    /// Messages that are arriving in fragments, by the ids that the peer gets.
    pub(super) arriving: Slab<Arriving>,
    /// The peer's message of which further frames follow.
    pub(super) begun: Option<Begun>,
    /// The peer's frame whose bytes are received straight to where they go.
    pub(super) placed: Option<Placed>,
    /// A message was read in the peer's memory within the call.
    pub(super) reads_at_once: bool,
    /// Messages that are to be read in the peer's memory.
    pub(super) readable: VecDeque<Box<Readable>>,
    /// Why an earlier frame of the write or atomic operation that is arriving was refused.
    pub(super) refused: Option<Errno>,
    /// Credit of the peer's that is held back until replies have left.
    pub(super) held: u32,
    /// It waits until the connection takes something again.
    pub(super) is_blocked: bool,
    /// It is in the list of peers to be served.
    pub(super) is_due: bool,
    /// The version of the address vector, and the peer's index in it.
    pub(super) index: Option<(u64, u64)>,
}

/// How an operation of this side completes.
#[derive(Clone, Copy)]
pub(super) struct Ticket {
    pub(super) context: usize,
    pub(super) flags: u64,
    pub(super) is_reported: bool,
}

impl Ticket {
    /// Of a message.
    #[inline]
    pub(super) fn of(send: &Send<'_>) -> Ticket {
        let kind = if send.tag.is_some() { flags::TAGGED } else { flags::MSG };
        Ticket { context: send.context, flags: flags::SEND | kind, is_reported: send.mode.is_reported }
    }
}

/// Something that is sent in order.
pub(super) enum Job {
    /// A frame without payload.
    Head(Head),
    /// A frame, copied. The ticket completes when it has left.
    Copied(Box<[u8]>, Option<Ticket>),
    /// A message in the program's buffers, from `sent` on. The ticket completes when all of it has left; without one the peer ends operation `id`.
    Message { head: Head, id: u32, buffers: Buffers, sent: usize, ticket: Option<Ticket> },
    /// A write, from `sent` on. The peer ends the operation.
    Write { id: u32, remote: Remote, buffers: Buffers, sent: usize, data: Option<u64> },
    /// An atomic operation, from element `sent` on. The peer ends it.
    Atomic(Box<AtomicJob>),
}

/// An atomic operation that is being sent.
pub(super) struct AtomicJob {
    pub(super) id: u32,
    pub(super) remote: Remote,
    pub(super) element: Element,
    pub(super) size: usize,
    pub(super) fetches: bool,
    /// Copies: they are short.
    pub(super) operands: Vec<u8>,
    pub(super) compare: Vec<u8>,
    pub(super) sent: usize,
}

/// Bytes that are sent in many fragments.
pub(super) enum Stream {
    /// Of a message that the receiver has asked for; `id` is of this side.
    Message { id: u32, receiver: u32, buffers: Buffers, sent: usize },
    /// Of a region that the peer reads; `id` is the peer's.
    Region { id: u32, key: u64, offset: u64, length: u64, sent: u64 },
}

/// An operation of this side.
pub(super) struct Pending {
    pub(super) ticket: Ticket,
    pub(super) kind: PendingKind,
    /// The bytes, if they are not the program's.
    pub(super) _copy: Option<Box<[u8]>>,
}

/// What has to come from the peer.
pub(super) enum PendingKind {
    /// The end, once all of the operation has left.
    Done { is_sent: bool },
    /// A receiver that asks for the bytes. With `delivery` also the end.
    Asked {
        buffers: Buffers,
        delivery: bool,
        is_asked: bool,
        /// The receiver may read them here, and end the operation then.
        memory: Option<Memory>,
    },
    /// The bytes of a region, or the former elements.
    Data { buffers: Buffers, received: usize },
}

impl Job {
    /// Whether it is a message or announces one.
    pub(super) fn is_message(&self) -> bool {
        match self {
            Job::Head(head) => Head::is_of_message(head.bytes()),
            Job::Copied(bytes, _) => Head::is_of_message(bytes),
            // The rest of one that has begun is none.
            Job::Message { sent, .. } => *sent == 0,
            Job::Write { .. } | Job::Atomic(_) => false,
        }
    }
}

impl Peer {
    pub(super) fn new(address: SocketAddr) -> Peer {
        Peer {
            address,
            link: Link::Closed,
            attempt: 0,
            jobs: VecDeque::new(),
            parked: VecDeque::new(),
            is_paused: false,
            has_paused: false,
            unexpected: 0,
            streams: VecDeque::new(),
            operations: Slab::new(),
            arriving: Slab::new(),
            begun: None,
            placed: None,
            reads_at_once: false,
            readable: VecDeque::new(),
            refused: None,
            held: 0,
            is_blocked: false,
            is_due: false,
            index: None,
        }
    }

    /// Whether nothing waits to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.parked.is_empty() && self.streams.is_empty()
    }

    /// All of an operation that the peer ends has left.
    pub(super) fn has_sent(&mut self, id: u32) {
        if let Some(Pending { kind: PendingKind::Done { is_sent }, .. }) =
            self.operations.get_mut(id as usize)
        {
            *is_sent = true;
        }
    }

    /// Whether nothing waits ahead of what is sent now.
    #[inline]
    pub(super) fn is_clear(&self) -> bool {
        self.jobs.is_empty() && !self.is_paused
    }

    /// Whether the program has to wait until something has left.
    pub(super) fn is_full(&self) -> bool {
        self.jobs.len() + self.parked.len() >= MAX_WAITING
    }

    /// Whether replies to the peer have piled up.
    pub(super) fn has_many_replies(&self) -> bool {
        self.jobs.len() + self.streams.len() >= MAX_REPLIES
    }
}
