//! Which parts of progress have work to do besides receiving.
//!
//! Used by progress, and by endpoints and channels, which leave work to it. Built on nothing.

use std::cell::Cell;
use std::rc::Rc;

/// Sources of work, as bits.
pub(crate) mod source {
    /// A channel has work: it is broken or closed, or can resume an operation.
    pub(crate) const CHANNEL: u8 = 1;
    /// More than one ring is active.
    pub(crate) const SEVERAL_ACTIVE: u8 = 2;
    /// Requests are pending.
    pub(crate) const PENDING: u8 = 4;
    /// A flush of the interface is in progress.
    pub(crate) const FLUSH: u8 = 8;
    /// A channel waits for room in the ring to its peer. The peer does not report it.
    pub(crate) const ROOM: u8 = 16;
}

/// Which [`source`]s have work. Shared by the interface and its channels. Progress does it when it takes its slow path the next time.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingWork(Rc<Cell<u8>>);

impl PendingWork {
    /// Adds work.
    pub(crate) fn raise(&self, sources: u8) {
        self.0.set(self.0.get() | sources);
    }

    /// Removes work that is done.
    pub(crate) fn lower(&self, sources: u8) {
        self.0.set(self.0.get() & !sources);
    }

    /// Whether any of these sources has work.
    pub(crate) fn has(&self, sources: u8) -> bool {
        self.0.get() & sources != 0
    }

    /// Whether there is no work.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.get() == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn work_stays_until_it_is_done_and_all_that_share_it_see_it() {
        let work = PendingWork::default();
        let shared = work.clone();
        assert!(work.is_empty() && !work.has(u8::MAX));
        shared.raise(source::CHANNEL);
        shared.raise(source::ROOM | source::FLUSH);
        assert!(!work.is_empty() && work.has(source::CHANNEL) && work.has(source::ROOM | source::PENDING));
        assert!(!work.has(source::PENDING | source::SEVERAL_ACTIVE));
        work.lower(source::CHANNEL | source::PENDING);
        assert!(!shared.has(source::CHANNEL) && shared.has(source::ROOM) && !shared.is_empty());
        work.lower(source::ROOM | source::FLUSH);
        assert!(shared.is_empty());
    }
}
