//! Answers that wait until they can be sent, and how many bytes of them an interface holds.
//!
//! For: the target's side of puts, gets and atomics. A peer that asks and does not acknowledge what it gets makes answers wait:
//! what it can hold that way is limited for its connection, and for all connections of the interface together.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Answers that may wait on one connection. An initiator has at most 256 operations outstanding (`max_rma`).
const WAITING: usize = 512;

/// Bytes of the waiting answers of all connections of an interface.
#[derive(Clone, Default)]
pub(crate) struct Held(Rc<Cell<usize>>);

impl Held {
    /// The bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.get()
    }
}

/// The answers that wait on a connection, in order.
pub(crate) struct Answers {
    waiting: RefCell<VecDeque<Vec<u8>>>,
    bytes: Cell<usize>,
    held: Held,
    refused: Cell<u32>,
}

impl Answers {
    /// None yet. They count in `held`.
    pub(crate) fn new(held: &Held) -> Answers {
        Answers {
            waiting: RefCell::default(),
            bytes: Cell::new(0),
            held: held.clone(),
            refused: Cell::new(0),
        }
    }

    /// Whether a peer that was refused once more is still within `most` refusals.
    pub(crate) fn may_refuse(&self, most: u32) -> bool {
        self.refused.set(self.refused.get().saturating_add(1));
        self.refused.get() <= most
    }

    /// Appends an answer; false if too many wait.
    pub(crate) fn push(&self, answer: Vec<u8>) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= WAITING {
            return false;
        }
        self.count(self.bytes.get() + weight(&answer));
        waiting.push_back(answer);
        true
    }

    /// Sends from the front until `send` says that one must wait; answers whether none is left.
    pub(crate) fn send_all(&self, mut send: impl FnMut(&[u8]) -> bool) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        while let Some(answer) = waiting.front() {
            if !send(answer) {
                return false;
            }
            self.count(self.bytes.get() - weight(answer));
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
        let all = &self.held.0;
        all.set(all.get() - self.bytes.replace(bytes) + bytes);
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.count(0);
    }
}

/// What an answer takes in memory, about: an empty one is not free.
fn weight(answer: &[u8]) -> usize {
    answer.len() + size_of::<Vec<u8>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_until_they_are_sent_dropped_or_gone() {
        let held = Held::default();
        let (one, other) = (Answers::new(&held), Answers::new(&held));
        assert!(one.push(vec![1; 100]) && one.push(vec![2; 100]) && other.push(vec![3; 1000]));
        assert_eq!(held.bytes(), one.bytes() + other.bytes());
        assert!(one.bytes() >= 200 && other.bytes() >= 1000);
        let before = one.bytes();
        assert!(!one.send_all(|answer| answer[0] == 1), "the second waits");
        assert_eq!(one.bytes(), before / 2);
        assert!(one.send_all(|_| true) && one.is_empty());
        assert_eq!((one.bytes(), held.bytes()), (0, other.bytes()));
        assert!(one.push(Vec::new()));
        assert!(one.bytes() > 0, "an empty answer is not free");
        one.clear();
        assert_eq!(held.bytes(), other.bytes());
        drop(other);
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn a_connection_holds_no_more_answers_than_two_honest_initiators_could_ask_for() {
        let answers = Answers::new(&Held::default());
        assert!((0..WAITING).all(|_| answers.push(Vec::new())));
        assert!(!answers.push(Vec::new()));
        let weighed = answers.bytes();
        assert_eq!(weighed, WAITING * weight(&[]), "what was not taken does not count");
    }

    #[test]
    fn refusals_are_counted() {
        let answers = Answers::new(&Held::default());
        assert!((0..20).all(|_| answers.may_refuse(20)));
        assert!(!answers.may_refuse(20));
    }
}
