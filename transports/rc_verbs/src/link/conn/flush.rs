//! Flush, fence, and the question whether the peer lives.
//!
//! All three are a matter of work requests that have ended, if need be behind one that does nothing, an RDMA write of no bytes.

use uct_ib::verbs::InlineWr;
use uct_plugin::{Completion, Error, Flush, Outcome, Result};

use super::Conn;
use crate::link::emulation::Emulated;
use crate::link::op::TxOp;

impl Conn {
    /// Posts a no-op, a write of no bytes with a completion; returns whether there was room.
    pub(crate) fn post_noop(&self) -> bool {
        if !self.has_own_room() {
            return false;
        }
        let (flags, unsignaled) = self.next_flags(true);
        // A device checks neither address nor key of a write without bytes.
        let request = InlineWr::rdma_write(self.next_id(), &[], 0, 0, flags);
        if let Err(error) = self.qp.post_inline(request) {
            if !error.is_full() {
                self.fail_later(Error::from_errno(error.0), error.to_string());
            }
            return false;
        }
        self.posted(unsignaled);
        self.queue.note_unawaited();
        true
    }

    /// Whether a completion of the last work request is sure to come; posts one that does nothing if need be.
    fn ensure_signaled(&self) -> Result {
        if !self.queue.has_unsignaled() || self.post_noop() { Ok(()) } else { Err(self.refusal()) }
    }

    pub(crate) fn flush_with(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        if flags.cancel {
            return self.cancel(completion);
        }
        if let Some(error) = self.failure() {
            // What the failure has ended is flushed.
            return if self.queue.is_quiet() { Err(error) } else { self.notify(completion) };
        }
        // Credit updates are the transport's own: a peer that has closed never answers them.
        if self.may_close() && self.group.is_empty() {
            return Ok(Outcome::Done);
        }
        if self.shared.pending.must_wait(&self.group) {
            return Err(Error::NO_RESOURCE);
        }
        if !self.emulated.borrow().is_empty() {
            if let Some(completion) = completion {
                self.emulated.borrow_mut().push_back(Emulated::Flush(completion));
            }
            return Ok(Outcome::InProgress);
        }
        // The acknowledgement of a reliable connection means that the peer's memory has the data, so a flush that waits
        // for the peer is the same.
        self.ensure_signaled()?;
        self.notify(completion)
    }

    /// Completes when everything in flight has ended.
    fn notify(&self, completion: Option<Completion>) -> Result<Outcome> {
        if let Some(completion) = completion {
            self.remember(self.queue.last(), TxOp::Notify(completion));
        }
        self.shared.tx_wanted.set(true);
        Ok(Outcome::InProgress)
    }

    /// Cancels everything in flight: the queue pair enters its error state, and all posted requests complete.
    fn cancel(&self, completion: Option<Completion>) -> Result<Outcome> {
        if self.shut(Error::CANCELED) {
            if let Err(error) = self.qp.fail() {
                ucs::log::warn!(%error, "rc_verbs: a flush could not cancel operations in flight");
            }
            self.shared.rx.close(&self.window);
        }
        // Emulated atomics without a request in flight are ended from progress.
        let has_emulated = !self.emulated.borrow().is_empty();
        if has_emulated {
            self.defer();
        }
        if self.queue.is_quiet() && !has_emulated {
            return Ok(Outcome::Done);
        }
        if self.queue.is_quiet() {
            if let Some(completion) = completion {
                self.emulated.borrow_mut().push_back(Emulated::Flush(completion));
            }
            return Ok(Outcome::InProgress);
        }
        self.notify(completion)
    }

    /// What comes after waits for what is ahead. Writes and messages are in order by themselves; reads and atomics are
    /// waited for here. (The device's own fence would do, but software RoCE hangs on it when a packet is sent again.)
    pub(crate) fn fence_here(&self) {
        if self.has_reads_under_way() && self.queue.fence() {
            self.announce_reads();
        }
    }

    fn has_reads_under_way(&self) -> bool {
        self.queue.has_reads() || !self.emulated.borrow().is_empty()
    }

    /// Requests a completion for the last read or atomic.
    pub(crate) fn announce_reads(&self) {
        if self.queue.has_unsignaled() && !self.post_noop() {
            self.defer();
        }
    }

    /// Lets the endpoint send again if what a fence waits for has ended.
    pub(crate) fn lift_fence(&self) {
        if self.queue.is_fenced() && !self.has_reads_under_way() {
            self.queue.lift_fence();
            self.shared.pending.schedule(&self.group);
        }
    }

    pub(crate) fn check_peer(&self, completion: Option<Completion>) -> Result<Outcome> {
        self.status.check()?;
        if !self.has_room() {
            return Err(self.refusal());
        }
        // Operations in flight serve as a probe.
        if completion.is_none() && !self.queue.is_quiet() {
            return Ok(Outcome::Done);
        }
        if !self.post_noop() {
            return Err(self.refusal());
        }
        match completion {
            Some(completion) => self.notify(Some(completion)),
            None => Ok(Outcome::Done),
        }
    }
}
