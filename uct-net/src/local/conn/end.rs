//! Ending: in order, by this side's or the peer's will, and by a failure.

use std::rc::Rc;
use std::task::{Context, Poll};

use ucs::Error as Status;
use ucs::memory::fork::Forked;
use uct_host::{EpFailure, Flush, Posted};

use super::Conn;
use super::spans::Spans;
use super::state::{Fin, closed};
use crate::error::{Error, Stage};
use crate::proto::envelope::Kind;

/// Longest reason that is sent to, or taken from, a peer.
pub(super) const MAX_REASON: usize = 64;

impl Conn {
    /// This side sends no more, and does not read either if `deaf`. What is queued goes out first.
    pub(crate) fn end(self: &Rc<Conn>, deaf: bool) {
        if let Err(forked) = self.agenda.check_fork() {
            return self.leave_to_parent(forked);
        }
        let is_first = {
            let mut state = self.state.borrow_mut();
            if state.fin.wanted.is_some_and(|already| already || !deaf) {
                return;
            }
            // A second Fin means that this side does not read any more.
            state.fin.is_sent = false;
            state.fin.is_acknowledged = false;
            state.fin.wanted.replace(deaf).is_none()
        };
        if is_first {
            self.note_end();
        }
        self.pump();
    }

    /// Whether the peer has all that was sent and knows that nothing follows; registers the caller if not.
    pub(crate) fn poll_ended(&self, context: &Context<'_>) -> Poll<Result<(), Error>> {
        let mut state = self.state.borrow_mut();
        if state.lost_from.is_some() {
            return Poll::Ready(Err(state.why_lost(&self.peer)));
        }
        if state.has_ended() {
            return Poll::Ready(Ok(()));
        }
        state.check()?;
        state.writers.add(context);
        Poll::Pending
    }

    /// Whether nothing is left to do for a connection without a handle.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.borrow();
        let has_ended = (state.failure.is_some() || state.has_ended()) && state.control.is_empty();
        drop(state);
        if self.lane.get().is_none_or(|lane| lane.ep.failure().is_some()) {
            return true;
        }
        has_ended && self.is_flushed()
    }

    /// Whether the transport has nothing left that it needs progress for.
    fn is_flushed(&self) -> bool {
        let flushed = self.lane.get().map(|lane| lane.ep.flush(Flush::empty(), None));
        !matches!(flushed, Some(Ok(Posted::InProgress) | Err(Status::NO_RESOURCE)))
    }

    /// Whether all that was handed over has left this side.
    pub(crate) fn has_all_left(&self) -> bool {
        let state = self.state.borrow();
        let is_queued = !state.outgoing.is_empty() || !state.control.is_empty();
        drop(state);
        !is_queued && self.is_flushed()
    }

    /// Why it ended, once it has; registers the caller if not.
    pub(crate) fn poll_closed(&self, context: &Context<'_>) -> Poll<Error> {
        let mut state = self.state.borrow_mut();
        if let Some(failure) = &state.failure {
            return Poll::Ready(failure.clone());
        }
        if state.fin.has_come && state.fin.is_deaf {
            return Poll::Ready(closed(&self.peer));
        }
        state.readers.add(context);
        Poll::Pending
    }

    /// Fails in a child of a fork: what has arrived, and what waits to be sent, is the parent's.
    pub(crate) fn leave_to_parent(&self, forked: Forked) {
        let Ok(mut state) = self.state.try_borrow_mut() else { return };
        state.received.clear();
        state.shared.clear();
        state.notices.clear();
        state.control.clear();
        state.lose();
        state.fin = Fin::default();
        state.failure = Some(Error::forked(Stage::Connected, &*self.peer, forked));
        let wakers = state.take_waiting();
        drop(state);
        wakers.wake_later(&self.agenda);
        self.agenda.wake_later(self.room.borrow_mut().drain());
    }

    /// Aborts the connection: sends the reason to the peer if there is room.
    pub(crate) fn abort(self: &Rc<Conn>, reason: &str) {
        if let Err(forked) = self.agenda.check_fork() {
            return self.leave_to_parent(forked);
        }
        let shown = &reason.as_bytes()[..reason.len().min(MAX_REASON)];
        {
            let mut state = self.state.borrow_mut();
            state.lose();
            state.control.clear();
            state.control.push_back((Kind::Abort, shown.to_vec()));
        }
        self.pump();
        self.fail(Error::new(
            Stage::Close,
            &*self.peer,
            Status::CANCELED,
            format!("aborted by this side: {reason}"),
        ));
    }

    /// The transport reports that the peer cannot be reached any more.
    pub(crate) fn lane_failed(&self, failure: &EpFailure) {
        self.lost(failure.error, failure.to_string());
    }

    /// The peer is gone. One that has closed may go.
    pub(crate) fn lost(&self, status: Status, reason: String) {
        if self.state.borrow().fin.is_deaf {
            return;
        }
        let error = || Error::new(Stage::Connected, &*self.peer, status, reason);
        self.fail(self.broken_lane.get().cloned().unwrap_or_else(error));
    }

    /// The transport is about to notice that its lane has failed, and not why.
    #[cfg(feature = "tls")]
    pub(crate) fn note_broken_lane(&self, reason: Error) {
        let _ = self.broken_lane.set(reason);
    }

    pub(super) fn fail_by_status(&self, status: Status) -> Error {
        if let Err(forked) = self.agenda.check_fork() {
            self.leave_to_parent(forked);
            return Error::forked(Stage::Connected, &*self.peer, forked);
        }
        let failure = self.lane.get().and_then(|lane| lane.ep.failure());
        let reason = failure.map_or_else(|| status.to_string(), ToString::to_string);
        let error = || Error::new(Stage::Connected, &*self.peer, status, reason);
        let error = self.broken_lane.get().cloned().unwrap_or_else(error);
        self.fail(error.clone());
        error
    }

    /// Keeps the spans until the end, or closes them if it has failed already.
    pub(crate) fn keep_spans(&self, spans: Spans) {
        let failure = self.state.borrow().failure.clone();
        match failure {
            Some(failure) => spans.note_end(failure),
            None => drop(self.spans.replace(Some(spans))),
        }
    }

    /// Reports to subscribers which side ends the connection.
    fn note_end(&self) {
        let by = if self.state.borrow().fin.has_come { "the peer" } else { "this side" };
        if let Some(spans) = &*self.spans.borrow() {
            spans.note_end(format_args!("closed by {by}"));
        }
    }

    /// Reports to subscribers that the connection has failed.
    pub(super) fn close_spans(&self, failure: &Error) {
        if let Some(spans) = self.spans.take() {
            spans.note_end(failure);
        }
    }

    /// Fails; the first failure holds. May be called inside a transport.
    pub(super) fn fail(&self, error: Error) {
        let is_noted = {
            let state = self.state.borrow();
            state.fin.wanted.is_some() && state.has_ended()
        };
        if is_noted {
            // The peer has all of it and hangs up: the reason is the end that was noted.
            drop(self.spans.take());
        } else {
            self.close_spans(&error);
        }
        let wakers = {
            let mut state = self.state.borrow_mut();
            state.failure.get_or_insert(error);
            state.take_waiting()
        };
        if self.has_moves() || self.sink.get().is_some() {
            self.become_due();
        }
        wakers.wake_later(&self.agenda);
        self.agenda.wake_later(self.room.borrow_mut().drain());
    }
}
