//! Responses that wait until they can be sent, and how many bytes of them an interface holds.
//!
//! The target's side of puts, gets and atomics uses it. The responses to a peer that sends requests and does not acknowledge are queued:
//! what it can hold that way is limited for its connection, and for all connections of the interface together.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Responses that may wait on one connection. An initiator has at most 256 operations outstanding (`max_rma`).
const WAITING: usize = 512;

/// Bytes of the waiting responses of all connections of an interface.
#[derive(Clone, Default)]
pub(crate) struct QueuedBytes(Rc<Cell<usize>>);

impl QueuedBytes {
    /// The bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.get()
    }
}

/// The responses that wait on a connection, in order.
pub(crate) struct Responses {
    waiting: RefCell<VecDeque<Vec<u8>>>,
    bytes: Cell<usize>,
    queued: QueuedBytes,
    refused: Cell<u32>,
}

impl Responses {
    /// None yet. They count in `queued`.
    pub(crate) fn new(queued: &QueuedBytes) -> Responses {
        Responses {
            waiting: RefCell::default(),
            bytes: Cell::new(0),
            queued: queued.clone(),
            refused: Cell::new(0),
        }
    }

    /// Whether a peer that was refused once more is still within `most` refusals.
    pub(crate) fn may_refuse(&self, most: u32) -> bool {
        self.refused.set(self.refused.get().saturating_add(1));
        self.refused.get() <= most
    }

    /// Appends a response; false if too many wait.
    pub(crate) fn push(&self, response: Vec<u8>) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= WAITING {
            return false;
        }
        self.count(self.bytes.get() + weight(&response));
        waiting.push_back(response);
        true
    }

    /// Sends from the front until `send` reports that one must wait; returns whether none is left.
    pub(crate) fn send_all(&self, mut send: impl FnMut(&[u8]) -> bool) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(response) = waiting.front() {
            if !send(response) {
                return false;
            }
            self.count(self.bytes.get() - weight(response));
            waiting.pop_front();
        }
        true
    }

    /// Drops all.
    pub(crate) fn clear(&self) {
        self.waiting.take();
        self.count(0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// The bytes that wait here.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    fn count(&self, bytes: usize) {
        let all = &self.queued.0;
        all.set(all.get() - self.bytes.replace(bytes) + bytes);
    }
}

impl Drop for Responses {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// What a response takes in memory, about: an empty one is not free.
fn weight(response: &[u8]) -> usize {
    response.len() + size_of::<Vec<u8>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_until_they_are_sent_dropped_or_gone() {
        let queued = QueuedBytes::default();
        let (one, other) = (Responses::new(&queued), Responses::new(&queued));
        assert!(one.push(vec![1; 100]) && one.push(vec![2; 100]) && other.push(vec![3; 1000]));
        assert_eq!(queued.bytes(), one.bytes() + other.bytes());
        assert!(one.bytes() >= 200 && other.bytes() >= 1000);
        let before = one.bytes();
        assert!(!one.send_all(|response| response[0] == 1), "the second waits");
        assert_eq!(one.bytes(), before / 2);
        assert!(one.send_all(|_| true) && one.is_empty());
        assert_eq!((one.bytes(), queued.bytes()), (0, other.bytes()));
        assert!(one.push(Vec::new()));
        assert!(one.bytes() > 0, "an empty response is not free");
        one.clear();
        assert_eq!(queued.bytes(), other.bytes());
        drop(other);
        assert_eq!(queued.bytes(), 0);
    }

    #[test]
    fn a_connection_holds_no_more_responses_than_two_initiators_may_request() {
        let responses = Responses::new(&QueuedBytes::default());
        assert!((0..WAITING).all(|_| responses.push(Vec::new())));
        assert!(!responses.push(Vec::new()));
        let weighed = responses.bytes();
        assert_eq!(weighed, WAITING * weight(&[]), "what was not taken does not count");
    }

    #[test]
    fn refusals_are_counted() {
        let responses = Responses::new(&QueuedBytes::default());
        assert!((0..20).all(|_| responses.may_refuse(20)));
        assert!(!responses.may_refuse(20));
    }
}
