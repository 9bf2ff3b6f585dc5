//! Messages that came before their receives, in their order, and those that are claimed.

use std::collections::HashMap;

use super::filter::{Envelope, Filter};
use super::list::{Id, List};

/// A message that no receive has matched yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnexpectedId(Id);

/// A message that came before its receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpected<U> {
    /// What the message says of itself.
    pub envelope: Envelope,
    /// What the engine keeps of it.
    pub payload: U,
}

/// The unexpected messages.
#[derive(Debug)]
pub(super) struct Queue<U> {
    list: List<Unexpected<U>>,
    /// Claimed messages by the context of the receive that has claimed them. They are not in the list's order.
    claimed: HashMap<usize, Id>,
}

impl<U> Queue<U> {
    pub(super) fn new() -> Queue<U> {
        Queue { list: List::new(), claimed: HashMap::new() }
    }

    pub(super) fn append(&mut self, envelope: Envelope, payload: U) -> UnexpectedId {
        UnexpectedId(self.list.append(Unexpected { envelope, payload }))
    }

    pub(super) fn get(&self, id: UnexpectedId) -> Option<&Unexpected<U>> {
        self.list.get(id.0)
    }

    pub(super) fn payload(&mut self, id: UnexpectedId) -> Option<&mut U> {
        self.list.get_mut(id.0).map(|message| &mut message.payload)
    }

    /// The first message that is accepted and not claimed.
    pub(super) fn find(&self, filter: &Filter) -> Option<UnexpectedId> {
        let found = self.list.iter().find(|(_, message)| filter.accepts(&message.envelope));
        found.map(|(id, _)| UnexpectedId(id))
    }

    /// Takes a message out that is not claimed.
    pub(super) fn take(&mut self, id: UnexpectedId) -> Option<Unexpected<U>> {
        if self.list.is_linked(id.0) { self.list.remove(id.0) } else { None }
    }

    pub(super) fn claim(&mut self, id: UnexpectedId, context: usize) -> bool {
        if !self.list.is_linked(id.0) || self.claimed.contains_key(&context) {
            return false;
        }
        self.list.unlink(id.0);
        self.claimed.insert(context, id.0);
        true
    }

    pub(super) fn take_claimed(&mut self, context: usize) -> Option<Unexpected<U>> {
        let id = self.claimed.remove(&context)?;
        self.list.remove(id)
    }

    /// Takes the source's messages out that will never be complete, claimed ones too.
    pub(super) fn fail_source(
        &mut self,
        source: u32,
        mut is_complete: impl FnMut(&U) -> bool,
    ) -> Vec<Unexpected<U>> {
        let mut is_lost =
            |message: &Unexpected<U>| message.envelope.source == source && !is_complete(&message.payload);
        let mut lost = self.list.remove_each(&mut is_lost);
        let list = &mut self.list;
        self.claimed.retain(|_, id| {
            let is_kept = !list.get(*id).is_some_and(&mut is_lost);
            if !is_kept {
                lost.extend(list.remove(*id));
            }
            is_kept
        });
        lost
    }
}
