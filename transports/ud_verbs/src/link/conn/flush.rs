//! Flushes: what has to be acknowledged before one ends.

use uct_plugin::{Completion, Error, Flush, Outcome, Result};

use super::{Conn, Mark, Wait};
use crate::link::core::Core;
use crate::link::emulation::OWNER;
use crate::proto::Phase;

impl Conn {
    /// Whether everything that was sent has taken effect, and been answered.
    fn is_flushed(&self) -> bool {
        let is_sent = |core: &mut Core| {
            // A new endpoint is flushed when it is connected.
            core.table.phase(self.connection) != Phase::Connecting
                && core.table.outstanding(self.connection) == 0
                && !core.has_zombies()
        };
        self.initiator.is_idle() && self.shared.enter().with(is_sent)
    }

    /// Where a flush that begins now ends.
    pub(crate) fn mark(&self) -> Mark {
        let place = self.shared.enter().with(|core| {
            let has_begun = core.table.phase(self.connection) != Phase::Connecting;
            has_begun.then(|| core.table.mark(self.connection))
        });
        (place, self.initiator.mark())
    }

    /// How such a flush has ended; `None` while it goes on.
    pub(crate) fn reached(&self, (place, number): Mark) -> Option<Result> {
        let is_sent = |core: &mut Core| {
            let is_there = match place {
                Some(place) => core.table.has_reached(self.connection, place),
                None => core.table.phase(self.connection) != Phase::Connecting,
            };
            is_there && !core.has_zombies()
        };
        if self.shared.enter().with(is_sent) { self.initiator.flushed(OWNER, number) } else { None }
    }

    /// Requests an acknowledgement of all that was sent, once.
    fn request_ack(&self) {
        let guard = self.shared.enter();
        let mark = guard.with(|core| core.table.mark(self.connection));
        if self.ack_requested_to.replace(Some(mark)) != Some(mark) {
            guard.with(|core| {
                core.table.request_ack(self.connection);
                core.transmit();
            });
        }
    }

    #[cold]
    pub(super) fn serve_waits(&self) {
        loop {
            let front = self.waits.borrow().front().map(|wait| wait.mark);
            let Some(result) = front.and_then(|mark| self.reached(mark)) else { break };
            let Some(wait) = self.waits.borrow_mut().pop_front() else { break };
            wait.completion.complete(result);
        }
        let is_alive = self.shared.enter().with(|core| {
            core.table.phase(self.connection) == Phase::Connected && !core.table.is_probing(self.connection)
        });
        if is_alive {
            let checks = std::mem::take(&mut *self.checks.borrow_mut());
            checks.into_iter().for_each(|check| check.complete(Ok(())));
        }
    }

    /// Ends when everything that was sent so far has been acknowledged, and answered.
    pub(crate) fn flush(&self, flags: Flush, completion: Option<Completion>) -> Result<Outcome> {
        if flags.cancel {
            self.abort();
            return Ok(Outcome::Done);
        }
        if self.is_over() {
            return Err(self.queued());
        }
        if self.shared.pending.must_wait(&self.pending) {
            return Err(Error::NO_RESOURCE);
        }
        if self.is_flushed() {
            return self.initiator.flush(OWNER, None);
        }
        if let Some(completion) = completion {
            self.waits.borrow_mut().push_back(Wait { mark: self.mark(), completion });
        }
        self.request_ack();
        Ok(Outcome::InProgress)
    }
}
