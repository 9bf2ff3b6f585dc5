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

    /// The time, which is read unless that was done in this progress.
    #[inline]
    pub(crate) fn refresh(&mut self) -> Time {
        if !self.is_fresh {
            self.read();
        }
        self.now
    }

    /// A progress begins or ends: whatever follows may come much later.
    #[inline]
    pub(crate) fn expire(&mut self) {
        self.is_fresh = false;
    }
}
