//! Receive requests, the queues that hold them, and the queue that several queue pairs share.
//!
//! For responders.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::PdId;
use super::memory::Piece;

/// Pieces of memory of a request. Most have few.
pub type Pieces = SmallVec<[Piece; 2]>;

/// A receive request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiveRequest {
    /// The application's word.
    pub wr_id: u64,
    /// Where a message goes.
    pub pieces: Pieces,
}

/// Receive requests, first in, first out.
#[derive(Debug)]
pub struct ReceiveQueue {
    requests: VecDeque<ReceiveRequest>,
    capacity: usize,
}

impl ReceiveQueue {
    /// A queue for so many requests.
    pub fn new(capacity: usize) -> ReceiveQueue {
        ReceiveQueue { requests: VecDeque::new(), capacity }
    }

    /// Adds one, if there is room.
    pub fn push(&mut self, request: ReceiveRequest) -> bool {
        let has_room = self.requests.len() < self.capacity;
        if has_room {
            self.requests.push_back(request);
        }
        has_room
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<ReceiveRequest> {
        self.requests.pop_front()
    }

    /// The oldest comes back unused.
    pub fn put_back(&mut self, request: ReceiveRequest) {
        self.requests.push_front(request);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.requests.len()
    }
}

/// A receive queue that queue pairs share.
#[derive(Debug)]
pub struct SharedQueue {
    pub(super) pd: PdId,
    requests: ReceiveQueue,
    /// Below so many requests there is one event; 0 is none.
    limit: usize,
    /// Whether it failed: it neither takes nor gives requests.
    pub(super) is_failed: bool,
    /// Queue pairs that use it.
    pub(super) users: usize,
}

impl SharedQueue {
    /// A queue for so many requests.
    pub fn new(pd: PdId, capacity: usize) -> SharedQueue {
        SharedQueue { pd, requests: ReceiveQueue::new(capacity), limit: 0, is_failed: false, users: 0 }
    }

    /// Adds one, if there is room.
    pub fn push(&mut self, request: ReceiveRequest) -> bool {
        self.requests.push(request)
    }

    /// Takes the oldest, and says whether the queue fell below its limit by that, which it tells once.
    pub fn pop(&mut self) -> (Option<ReceiveRequest>, bool) {
        if self.is_failed {
            return (None, false);
        }
        let taken = self.requests.pop();
        let is_below = self.requests.len() < self.limit;
        if is_below {
            self.limit = 0;
        }
        (taken, is_below)
    }

    /// Arms the event for a number of requests below this one. It may not be above the capacity.
    pub fn set_limit(&mut self, limit: usize) -> bool {
        let is_possible = limit <= self.requests.capacity;
        if is_possible {
            self.limit = limit;
        }
        is_possible
    }

    /// The limit that is armed.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many requests it holds at most.
    pub fn capacity(&self) -> usize {
        self.requests.capacity
    }
}
