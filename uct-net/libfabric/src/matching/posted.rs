//! Posted receives in their order. A multi-receive stays until its buffer is used up.

use std::collections::VecDeque;

use super::filter::{Envelope, Filter};
use super::list::{Id, List};

/// Parts of a multi-receive's buffer begin at multiples of this.
const ALIGNMENT: u64 = 8;

/// A multi-receive whose buffer is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiId(Id);

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landing<R> {
    /// The receive that matched it.
    pub receive: R,
    /// The part of the buffer of a multi-receive. `None` is the whole buffer of a plain receive, which may be shorter than the message.
    pub part: Option<Part>,
}

/// A part of the buffer of a multi-receive, which a message fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The multi-receive, for [`Matching::finish`](super::Matching::finish).
    pub id: MultiId,
    /// Its begin in the buffer, in bytes.
    pub offset: u64,
    /// Its length in bytes. It is less than the message's where even the whole buffer is too small.
    pub length: u64,
}

/// Why a multi-receive matches no further message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its buffer is used up.
    Consumed,
    /// It was cancelled.
    Cancelled,
    /// It accepts messages of a failed source only.
    SourceFailed,
}

/// A multi-receive that ended: nothing is written to its buffer any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released<R> {
    /// The receive.
    pub receive: R,
    /// Why it ended.
    pub why: Why,
}

/// What became of a receive that is to be cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancel<R> {
    /// There is none: it has matched, or was never posted.
    NotFound,
    /// A receive of one message ended.
    Now(R),
    /// A multi-receive matches no further message. It is released: now, or when the messages are complete that fill parts of its buffer.
    Released,
}

/// A posted receive.
#[derive(Debug)]
struct Receive<R> {
    filter: Filter,
    handle: R,
    /// In a box, since most receives have none.
    multi: Option<Box<Multi>>,
}

/// The buffer of a multi-receive.
#[derive(Debug)]
struct Multi {
    capacity: u64,
    minimum: u64,
    used: u64,
    /// Parts that are not complete.
    filling: u32,
    /// Why it ended, where it is no longer in the list's order.
    why: Why,
}

impl Multi {
    /// The place of a message, unless it fits only into an unused buffer.
    fn place(&mut self, length: u64) -> Option<(u64, u64)> {
        let left = self.capacity - self.used;
        if length > left && self.used > 0 {
            return None;
        }
        let offset = self.used;
        let length = length.min(left);
        self.used = offset.saturating_add(length).saturating_add(ALIGNMENT - 1) & !(ALIGNMENT - 1);
        self.used = self.used.min(self.capacity);
        self.filling += 1;
        Some((offset, length))
    }

    fn is_used_up(&self) -> bool {
        let left = self.capacity - self.used;
        left == 0 || left < self.minimum
    }
}

/// The posted receives.
#[derive(Debug)]
pub(super) struct Posted<R> {
    list: List<Receive<R>>,
    /// Multi-receives that ended without a part in use.
    released: VecDeque<Released<R>>,
}

impl<R: Clone> Posted<R> {
    pub(super) const fn new() -> Posted<R> {
        Posted { list: List::new(), released: VecDeque::new() }
    }

    pub(super) fn append(&mut self, filter: Filter, handle: R) {
        self.list.append(Receive { filter, handle, multi: None });
    }

    pub(super) fn append_multi(&mut self, filter: Filter, handle: R, capacity: u64, minimum: u64) -> MultiId {
        let multi = Multi { capacity, minimum, used: 0, filling: 0, why: Why::Consumed };
        MultiId(self.list.append(Receive { filter, handle, multi: Some(Box::new(multi)) }))
    }

    /// Matches a message with the first receive that accepts it and has room.
    #[inline(always)]
    pub(super) fn arrive(&mut self, envelope: &Envelope) -> Option<Landing<R>> {
        loop {
            let (id, receive) = self.list.iter().find(|(_, receive)| receive.filter.accepts(envelope))?;
            if receive.multi.is_none() {
                let receive = self.list.remove(id)?.handle;
                return Some(Landing { receive, part: None });
            }
            // None where it has no room, and has ended.
            if let Some(landing) = self.land_in(MultiId(id), envelope) {
                return Some(landing);
            }
        }
    }

    /// Matches a message with this multi-receive, which accepts it. If it has no room for the message, it ends.
    pub(super) fn land_in(&mut self, id: MultiId, envelope: &Envelope) -> Option<Landing<R>> {
        let Receive { handle, multi, .. } = self.list.get_mut(id.0)?;
        let multi = multi.as_mut()?;
        let Some((offset, length)) = multi.place(envelope.length) else {
            self.end(id.0, Why::Consumed);
            return None;
        };
        let landing = Landing { receive: handle.clone(), part: Some(Part { id, offset, length }) };
        if multi.is_used_up() {
            self.list.unlink(id.0);
        }
        Some(landing)
    }

    /// Whether further messages may match.
    pub(super) fn is_posted(&self, id: MultiId) -> bool {
        self.list.is_linked(id.0)
    }

    /// A part of the buffer is complete.
    pub(super) fn finish(&mut self, id: MultiId) -> Option<Released<R>> {
        let multi = self.list.get_mut(id.0)?.multi.as_mut()?;
        multi.filling -= 1;
        let why = multi.why;
        if multi.filling > 0 || self.list.is_linked(id.0) {
            return None;
        }
        let receive = self.list.remove(id.0)?.handle;
        Some(Released { receive, why })
    }

    pub(super) fn next_released(&mut self) -> Option<Released<R>> {
        self.released.pop_front()
    }

    /// Cancels the first receive that `is_it` names.
    pub(super) fn cancel(&mut self, mut is_it: impl FnMut(&R) -> bool) -> Cancel<R> {
        let found = self.list.iter().find(|(_, receive)| is_it(&receive.handle));
        match found {
            None => Cancel::NotFound,
            Some((id, _)) => self.end(id, Why::Cancelled).map_or(Cancel::Released, Cancel::Now),
        }
    }

    /// Ends the receives that accept messages of this source only, and returns those of one message.
    pub(super) fn fail_source(&mut self, source: u32) -> Vec<R> {
        let of_source = self.list.iter().filter(|(_, receive)| receive.filter.source == Some(source));
        let ids: Vec<Id> = of_source.map(|(id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.end(id, Why::SourceFailed)).collect()
    }

    /// Has a receive match nothing any more. Returns one of one message; a multi-receive is released, now or with the last part of its buffer.
    fn end(&mut self, id: Id, why: Why) -> Option<R> {
        let is_multi = match &mut self.list.get_mut(id)?.multi {
            Some(multi) if multi.filling > 0 => {
                multi.why = why;
                self.list.unlink(id);
                return None;
            }
            multi => multi.is_some(),
        };
        let receive = self.list.remove(id)?.handle;
        if is_multi {
            self.released.push_back(Released { receive, why });
            return None;
        }
        Some(receive)
    }
}
