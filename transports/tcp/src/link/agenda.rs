//! What progress is to do: connections to flush, operations to end, moments to wait for.

use std::rc::Rc;

use ucs::Error;
use ucs::clock::Deadline;
use ucs::datastruct::slot_map::SlotId;
use uct_plugin::Completion;

use crate::iface::TcpIface;
use crate::link::connection::Conn;

impl TcpIface {
    pub(crate) fn note_dirty(&self, id: SlotId) {
        self.dirty.borrow_mut().push(id);
        self.note_busy();
    }

    pub(crate) fn next_dirty(&self) -> Option<SlotId> {
        self.dirty.borrow_mut().pop()
    }

    pub(crate) fn note_broken(&self, id: SlotId) {
        self.broken.borrow_mut().push(id);
        self.note_busy();
    }

    pub(crate) fn next_broken(&self) -> Option<SlotId> {
        self.broken.borrow_mut().pop()
    }

    /// Has progress queue a frame, since this is not the place for it.
    pub(crate) fn owe_later(&self, id: SlotId, frame: Vec<u8>) {
        self.owed.borrow_mut().push_back((id, frame));
        self.note_busy();
    }

    /// The oldest one: frames of a connection leave in the order in which they came up.
    pub(crate) fn next_owed(&self) -> Option<(SlotId, Vec<u8>)> {
        self.owed.borrow_mut().pop_front()
    }

    pub(crate) fn note_hungry(&self, id: SlotId) {
        self.hungry.borrow_mut().push_back(id);
        self.note_busy();
    }

    /// Connections whose requests are to be served.
    pub(crate) fn hungry(&self) -> usize {
        self.hungry.borrow().len()
    }

    pub(crate) fn next_hungry(&self) -> Option<SlotId> {
        self.hungry.borrow_mut().pop_front()
    }

    pub(crate) fn next_ended(&self) -> Option<Completion> {
        self.ended.borrow_mut().pop_front()
    }

    /// Has progress fail a connection, since this is not the place for it.
    pub(crate) fn fail_later(&self, conn: &Rc<Conn>, error: Error, reason: String) {
        self.failing.borrow_mut().push_back((Rc::clone(conn), error, reason));
        self.note_busy();
    }

    pub(crate) fn next_failing(&self) -> Option<(Rc<Conn>, Error, String)> {
        self.failing.borrow_mut().pop_front()
    }

    pub(crate) fn note_failure(&self, words: String) {
        self.failed.set(self.failed.get() + 1);
        *self.last_failure.borrow_mut() = words;
    }

    /// Why the last connection failed.
    #[cfg(test)]
    pub(crate) fn last_failure(&self) -> String {
        self.last_failure.borrow().clone()
    }

    pub(crate) fn count_dropped(&self) {
        self.dropped.set(self.dropped.get() + 1);
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.serving.get()
    }

    pub(crate) fn set_serving(&self, serving: bool) {
        self.serving.set(serving);
    }

    /// Ends the interface's flushes once nothing is outstanding.
    pub(crate) fn end_flushes(&self) {
        if self.flushes.borrow().is_empty() {
            return;
        }
        if self.all_conns().iter().any(|conn| conn.has_unfinished()) {
            return;
        }
        for completion in self.flushes.take() {
            completion.complete(Ok(()));
        }
    }

    pub(crate) fn has_flushes(&self) -> bool {
        !self.flushes.borrow().is_empty()
    }
}

/// Time.
impl TcpIface {
    /// Has the timer wake progress by then.
    pub(crate) fn want_tick(&self, at: Deadline) {
        if at == Deadline::NEVER || at >= self.next_tick.get() {
            return;
        }
        match self.timer.set(at.remaining()) {
            Ok(()) => self.next_tick.set(at),
            Err(error) => tracing::error!("{error}"),
        }
    }

    pub(crate) fn drain_timer(&self) {
        self.timer.drain();
        self.next_tick.set(Deadline::NEVER);
    }

    /// When connections are looked at next.
    pub(crate) fn next_look(&self) -> Deadline {
        self.next_look.get()
    }

    pub(crate) fn schedule_look(&self) {
        let interval = self.config.keepalive_interval;
        let next = if interval.is_inf() { Deadline::NEVER } else { Deadline::after(interval.to_duration()) };
        self.next_look.set(next);
    }

    /// When connections are looked at next, for one that is new.
    pub(crate) fn keepalive_tick(&self) -> Deadline {
        if self.next_look.get().expired() {
            self.schedule_look();
        }
        self.next_look.get()
    }

    /// How many looks a peer may leave unanswered.
    pub(crate) fn most_silent_ticks(&self) -> u32 {
        let interval = self.config.keepalive_interval.seconds().max(1e-3);
        let timeout = self.config.keepalive_timeout.seconds();
        (timeout / interval).ceil().clamp(1.0, f64::from(u32::MAX)) as u32
    }
}
