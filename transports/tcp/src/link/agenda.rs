//! What progress is to do, by the numbers of connections, and what it may do at this moment.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use ucs::Error;
use uct_plugin::{Completion, FlushSet};

use super::conn_id::ConnId;

/// Progress has more to do than to receive.
const BUSY: u8 = 1;
/// The application packs a message.
const PACKING: u8 = 2;
/// Handlers and completions are nested as deep as they may be.
const DEEPEST: u8 = 4;
/// Connections are over that the table still has.
const OVER: u8 = 8;
/// The next progress has something to send, this one not yet.
const LATER: u8 = 16;

/// How deep progress, handlers and completions may be nested, each called by the one around it: 16 handlers. One with the progress
/// around it takes a few kilobytes of stack.
const NESTING: u32 = 32;

/// Asks the host to call progress.
pub(crate) type RequestProgress = Box<dyn Fn()>;

/// Work that connections leave to progress. Whatever is noted makes it busy, and has the host call progress, which it does only now and
/// then for an interface without traffic.
pub(crate) struct Agenda {
    /// `BUSY`, `PACKING`, `DEEPEST`, `OVER`, `LATER`.
    state: Cell<u8>,
    request_progress: RequestProgress,
    /// Progress, handlers and completions that are running, one inside the other.
    depth: Cell<u32>,
    serving: Cell<bool>,
    dirty: RefCell<Vec<ConnId>>,
    pending: RefCell<VecDeque<ConnId>>,
    broken: RefCell<Vec<ConnId>>,
    failing: RefCell<VecDeque<(ConnId, Error, String)>>,
    /// Connections that are over and still in the table.
    over: RefCell<Vec<ConnId>>,
    ended: RefCell<VecDeque<Completion>>,
    /// Flushes of the interface, which end once no connection has anything outstanding.
    pub(crate) flushes: FlushSet<()>,
    /// Frames that connections queue as responses while a message is packed.
    responses: RefCell<VecDeque<(ConnId, Vec<u8>)>>,
}

impl Agenda {
    pub(crate) fn new(request_progress: RequestProgress) -> Agenda {
        Agenda {
            state: Cell::default(),
            request_progress,
            depth: Cell::default(),
            serving: Cell::default(),
            dirty: RefCell::default(),
            pending: RefCell::default(),
            broken: RefCell::default(),
            failing: RefCell::default(),
            over: RefCell::default(),
            ended: RefCell::default(),
            flushes: FlushSet::default(),
            responses: RefCell::default(),
        }
    }

    /// Something was sent. Progress finds the reply at once.
    #[inline]
    pub(crate) fn expect_reply(&self) {
        (self.request_progress)();
    }

    fn leave_to_progress(&self, when: u8) {
        let state = self.state.get();
        if state & (BUSY | LATER) == 0 {
            (self.request_progress)();
        }
        self.state.set(state | when);
    }
}

/// What may be done now.
impl Agenda {
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.state.get() != 0
    }

    /// The same without what is left to the next progress.
    #[inline]
    pub(crate) fn is_busy_now(&self) -> bool {
        self.state.get() & !LATER != 0
    }

    pub(crate) fn note_busy(&self) {
        self.leave_to_progress(BUSY);
    }

    pub(crate) fn clear_busy(&self) {
        self.state.set(self.state.get() & !(BUSY | LATER));
    }

    /// Whether the application packs a message at this moment. Nothing is received then, and no other message packed: either would
    /// be written over the one that is not finished.
    #[inline]
    pub(crate) fn is_packing(&self) -> bool {
        self.state.get() & PACKING != 0
    }

    #[inline]
    pub(super) fn begin_packing(&self) {
        self.state.set(self.state.get() | PACKING);
    }

    #[inline]
    pub(super) fn end_packing(&self) {
        self.state.set(self.state.get() & !PACKING);
    }

    /// Handlers run from here on.
    #[inline]
    pub(crate) fn enter(&self) {
        self.depth.set(self.depth.get() + 1);
    }

    #[inline]
    pub(crate) fn leave(&self) {
        self.depth.set(self.depth.get() - 1);
    }

    /// Whether a handler or a completion of this interface runs.
    #[inline]
    pub(crate) fn is_inside(&self) -> bool {
        self.depth.get() > 0
    }

    /// Runs `body` one level deeper. Progress inside the deepest one only sends.
    pub(crate) fn inside<T>(&self, body: impl FnOnce() -> T) -> T {
        let is_deepest = self.state.get() & DEEPEST;
        self.enter();
        if self.depth.get() >= NESTING {
            self.state.set(self.state.get() | DEEPEST);
        }
        let answer = body();
        self.leave();
        self.state.set((self.state.get() & !DEEPEST) | is_deepest);
        answer
    }

    /// Whether handlers are nested as deep as they may be.
    pub(crate) fn is_deepest(&self) -> bool {
        self.state.get() & DEEPEST != 0
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.serving.get()
    }

    pub(crate) fn set_serving(&self, serving: bool) {
        self.serving.set(serving);
    }
}

/// What is to be done.
impl Agenda {
    pub(crate) fn note_dirty(&self, id: ConnId) {
        self.dirty.borrow_mut().push(id);
        self.note_busy();
    }

    /// Has the next progress flush a connection.
    pub(crate) fn note_dirty_later(&self, id: ConnId) {
        self.dirty.borrow_mut().push(id);
        self.leave_to_progress(LATER);
    }

    pub(crate) fn next_dirty(&self) -> Option<ConnId> {
        self.dirty.borrow_mut().pop()
    }

    pub(crate) fn note_broken(&self, id: ConnId) {
        self.broken.borrow_mut().push(id);
        self.note_busy();
    }

    pub(crate) fn next_broken(&self) -> Option<ConnId> {
        self.broken.borrow_mut().pop()
    }

    /// Has progress queue a frame: nothing can be queued while a message is packed.
    pub(crate) fn queue_response_later(&self, id: ConnId, frame: Vec<u8>) {
        self.responses.borrow_mut().push_back((id, frame));
        self.note_busy();
    }

    /// The oldest one: frames of a connection are sent in the order in which they were queued.
    pub(crate) fn next_response(&self) -> Option<(ConnId, Vec<u8>)> {
        self.responses.borrow_mut().pop_front()
    }

    pub(crate) fn note_pending(&self, id: ConnId) {
        self.pending.borrow_mut().push_back(id);
        self.note_busy();
    }

    /// Connections with pending requests that can be served.
    pub(crate) fn pending_count(&self) -> usize {
        self.pending.borrow().len()
    }

    pub(crate) fn next_pending(&self) -> Option<ConnId> {
        self.pending.borrow_mut().pop_front()
    }

    /// Operations that have ended are put into the list that `collect` gets.
    pub(crate) fn collect_ended(&self, collect: impl FnOnce(&mut VecDeque<Completion>)) {
        let mut ended = self.ended.borrow_mut();
        collect(&mut ended);
        if !ended.is_empty() {
            self.note_busy();
        }
    }

    /// Whether operations have ended whose completions progress has not run yet.
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.borrow().is_empty()
    }

    pub(crate) fn next_ended(&self) -> Option<Completion> {
        self.ended.borrow_mut().pop_front()
    }

    /// Has progress fail a connection, since this is not the place for it.
    pub(crate) fn fail_later(&self, id: ConnId, error: Error, reason: String) {
        self.failing.borrow_mut().push_back((id, error, reason));
        self.note_busy();
    }

    pub(crate) fn next_failing(&self) -> Option<(ConnId, Error, String)> {
        self.failing.borrow_mut().pop_front()
    }

    /// A connection is over: the table is to forget it.
    pub(crate) fn note_over(&self, id: ConnId) {
        self.over.borrow_mut().push(id);
        self.leave_to_progress(OVER);
    }

    pub(crate) fn next_over(&self) -> Option<ConnId> {
        let next = self.over.borrow_mut().pop();
        if next.is_none() {
            self.state.set(self.state.get() & !OVER);
        }
        next
    }

    /// Something that flushes wait for may have ended.
    pub(crate) fn check_flushes(&self) {
        if !self.flushes.is_empty() {
            self.note_busy();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inside_is_within_a_handler_alone_and_deepest_at_the_bound_of_nesting() {
        let agenda = Agenda::new(Box::new(|| ()));
        assert!(!agenda.is_inside());
        agenda.inside(|| assert!(agenda.is_inside() && !agenda.is_deepest()));
        assert!(!agenda.is_inside());
        fn nested(agenda: &Agenda, levels: u32) -> bool {
            if levels == 0 { agenda.is_deepest() } else { agenda.inside(|| nested(agenda, levels - 1)) }
        }
        assert!(!nested(&agenda, NESTING - 1));
        assert!(nested(&agenda, NESTING));
        assert!(!agenda.is_deepest());
    }
}
