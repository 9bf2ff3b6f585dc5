//! The time that an interface goes by: read at most once in a progress.

use crate::proto::Time;

/// A time, and whether it was read in this progress.
#[derive(Default)]
pub(crate) struct Clock {
    now: Time,
    is_fresh: bool,
}

impl Clock {
    /// The time when it was last read.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Reads it.
    #[inline]
    pub(crate) fn read(&mut self) {
        self.is_fresh = true;
        self.now = Time::from_nanos(ucs::clock::now());
    }

    /// Reads it, unless that was done in this progress.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        if !self.is_fresh {
            self.read();
        }
    }

    /// A progress begins or ends: whatever follows may come much later.
    #[inline]
    pub(crate) fn expire(&mut self) {
        self.is_fresh = false;
    }
}
