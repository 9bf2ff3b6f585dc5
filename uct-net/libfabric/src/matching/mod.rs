//! Matching: which receive gets which message.
//!
//! A message goes to the earliest posted receive that accepts it. A receive gets the earliest unexpected message that it accepts.
//! This is pure state, without memory of messages or connections; the engine has one for tagged and one for other messages of each endpoint.

mod filter;
mod list;
mod posted;
mod unexpected;

pub use filter::{Envelope, Filter};
use posted::Posted;
pub use posted::{Cancel, Landing, MultiId, Part, Released, Why};
use unexpected::Queue;
pub use unexpected::{Unexpected, UnexpectedId};

/// Posted receives `R` and unexpected messages `U` of an endpoint. A message that meets a posted receive takes no memory.
#[derive(Debug)]
pub struct Matching<R, U> {
    posted: Posted<R>,
    unexpected: Queue<U>,
}

/// What the failure of a source ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed<R, U> {
    /// Receives of its messages only.
    pub receives: Vec<R>,
    /// Unexpected messages that will never be complete. Claimed ones are among them, whose receives will find none.
    pub messages: Vec<Unexpected<U>>,
}

impl<R: Clone, U> Matching<R, U> {
    /// Neither receives nor messages.
    #[expect(clippy::new_without_default, reason = "an endpoint makes it, by name")]
    pub fn new() -> Matching<R, U> {
        Matching { posted: Posted::new(), unexpected: Queue::new() }
    }

    /// Matches a message that arrives with a posted receive. If there is none, the message is unexpected, and [`keep`](Matching::keep) is next.
    ///
    /// A multi-receive whose remaining room is too small for the message ends here; [`next_released`](Matching::next_released) reports it.
    #[inline]
    pub fn arrive(&mut self, envelope: &Envelope) -> Option<Landing<R>> {
        self.posted.arrive(envelope)
    }

    /// Keeps a message for which [`arrive`](Matching::arrive) has found no receive.
    pub fn keep(&mut self, envelope: Envelope, payload: U) -> UnexpectedId {
        self.unexpected.append(envelope, payload)
    }

    /// The payload of an unexpected message; `None` once a receive has taken it.
    pub fn payload(&mut self, id: UnexpectedId) -> Option<&mut U> {
        self.unexpected.payload(id)
    }

    /// Posts a receive. If an unexpected message is there for it, both come back instead.
    pub fn post(&mut self, filter: Filter, receive: R) -> Option<(R, Unexpected<U>)> {
        let found = self.unexpected.find(&filter);
        if let Some(message) = found.and_then(|id| self.unexpected.take(id)) {
            return Some((receive, message));
        }
        self.posted.append(filter, receive);
        None
    }

    /// Posts a receive of many messages, one behind the other in a buffer of `capacity` bytes. It ends when less than `minimum` bytes are left, or less
    /// than the next message needs. Returns the unexpected messages that it has matched at once.
    pub fn post_multi(
        &mut self,
        filter: Filter,
        receive: R,
        capacity: u64,
        minimum: u64,
    ) -> Vec<(Landing<R>, Unexpected<U>)> {
        let id = self.posted.append_multi(filter, receive, capacity, minimum);
        let mut matched = Vec::new();
        while self.posted.is_posted(id)
            && let Some(found) = self.unexpected.find(&filter)
            && let Some(landing) =
                self.unexpected.get(found).and_then(|m| self.posted.land_in(id, &m.envelope))
        {
            matched.extend(self.unexpected.take(found).map(|message| (landing, message)));
        }
        matched
    }

    /// A part of the buffer of a multi-receive is filled, or will not be. Returns the multi-receive if it ended and this was its last part.
    pub fn finish(&mut self, id: MultiId) -> Option<Released<R>> {
        self.posted.finish(id)
    }

    /// A multi-receive that ended while no part of its buffer was being filled.
    pub fn next_released(&mut self) -> Option<Released<R>> {
        self.posted.next_released()
    }

    /// Cancels the earliest posted receive that `is_it` names.
    pub fn cancel(&mut self, is_it: impl FnMut(&R) -> bool) -> Cancel<R> {
        self.posted.cancel(is_it)
    }

    /// The earliest unexpected message that a receive would get.
    pub fn peek(&self, filter: &Filter) -> Option<(UnexpectedId, &Unexpected<U>)> {
        let id = self.unexpected.find(filter)?;
        Some((id, self.unexpected.get(id)?))
    }

    /// Reserves an unexpected message for the receive with this context. Returns whether it did: not if a receive or another claim has the message, nor
    /// if this context has a message already.
    pub fn claim(&mut self, id: UnexpectedId, context: usize) -> bool {
        self.unexpected.claim(id, context)
    }

    /// Takes the message that this context has claimed.
    pub fn take_claimed(&mut self, context: usize) -> Option<Unexpected<U>> {
        self.unexpected.take_claimed(context)
    }

    /// Takes an unexpected message out that no receive is going to get.
    pub fn discard(&mut self, id: UnexpectedId) -> Option<Unexpected<U>> {
        self.unexpected.take(id)
    }

    /// Ends what waits for a failed source. Unexpected messages stay where `is_complete` says that all of them is here.
    pub fn fail_source(&mut self, source: u32, is_complete: impl FnMut(&U) -> bool) -> Failed<R, U> {
        Failed {
            receives: self.posted.fail_source(source),
            messages: self.unexpected.fail_source(source, is_complete),
        }
    }
}
