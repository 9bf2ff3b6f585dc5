//! Whether progress has work besides datagrams.
//!
//! What may have caused work is recorded here, and progress then finds out what it is. A progress without work
//! reads one byte.

/// Nothing, or perhaps something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingWork(bool);

impl PendingWork {
    pub(super) const SOME: PendingWork = PendingWork(true);

    /// Whether there is nothing to do.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        !self.0
    }

    /// There may be something to do.
    #[inline]
    pub(crate) fn add(&mut self) {
        self.0 = true;
    }

    /// It is known whether there is something to do.
    pub(super) fn set(&mut self, has_work: bool) {
        self.0 = has_work;
    }
}
