//! When progress is to do more than to look at one word.
//!
//! For: progress, and whatever leaves work to it: endpoints, channels. Stands on nothing.

use std::cell::Cell;
use std::rc::Rc;

/// Why progress has more to do than to look at one slot.
pub(crate) mod flag {
    /// A channel asks to be looked at.
    pub(crate) const ALARM: u8 = 1;
    /// Several rings are polled.
    pub(crate) const SEVERAL_ACTIVE: u8 = 2;
    /// Requests are pending.
    pub(crate) const PENDING: u8 = 4;
    /// Somebody waits for a flush of the interface.
    pub(crate) const FLUSH: u8 = 8;
    /// A channel waits for room at its peer, which makes no noise.
    pub(crate) const ROOM: u8 = 16;
}

/// What is asked for, as [`flag`]s. Shared by the interface and its channels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags(Rc<Cell<u8>>);

impl Flags {
    /// Raises flags: progress notices them at its next look around, a few calls later.
    pub(crate) fn raise(&self, flags: u8) {
        self.0.set(self.0.get() | flags);
    }

    fn lower(&self, flags: u8) {
        self.0.set(self.0.get() & !flags);
    }

    fn has(&self, flags: u8) -> bool {
        self.0.get() & flags != 0
    }
}

/// When progress looks further than at one word. The interface's own.
///
/// Progress counts down, and looks around at zero. What makes it do so at the next call sets the count to one: so a look at
/// nothing tests one number for all reasons.
#[derive(Debug)]
pub(crate) struct Attention {
    /// Calls until work.
    countdown: Cell<u32>,
    /// What the count started from.
    from: Cell<u32>,
    flags: Flags,
}

impl Attention {
    /// Has progress work at its first call.
    pub(crate) fn new() -> Attention {
        Attention { countdown: Cell::new(1), from: Cell::new(1), flags: Flags::default() }
    }

    /// The flags, for a channel.
    pub(crate) fn flags(&self) -> Flags {
        self.flags.clone()
    }

    /// Raises flags, which has progress work at its next call.
    pub(crate) fn raise(&self, flags: u8) {
        self.flags.raise(flags);
        self.hasten();
    }

    /// Has progress look around at its next call.
    pub(crate) fn hasten(&self) {
        self.look_within(1);
    }

    /// Has progress look around within so many calls, at least one.
    #[inline(always)]
    pub(crate) fn look_within(&self, calls: u32) {
        let left = self.countdown.get();
        if left > calls {
            // As if the count had started later, so that what has passed stays known.
            self.from.set(self.from.get() - (left - calls));
            self.countdown.set(calls);
        }
    }

    /// Lowers flags.
    pub(crate) fn lower(&self, flags: u8) {
        self.flags.lower(flags);
    }

    /// Whether any of these flags is raised.
    #[inline(always)]
    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags.has(flags)
    }

    /// Counts a call; answers whether it is to work.
    #[inline(always)]
    pub(crate) fn count_down(&self) -> bool {
        self.countdown.set(self.countdown.get() - 1);
        self.countdown.get() == 0
    }

    /// Calls until work.
    #[inline(always)]
    pub(crate) fn left(&self) -> u32 {
        self.countdown.get()
    }

    /// Calls that have passed since the count started.
    #[inline(always)]
    pub(crate) fn passed(&self) -> u32 {
        self.from.get() - self.countdown.get()
    }

    /// As if progress had been called so often more without anything to do, but for a last call.
    ///
    /// Messages of a burst count as calls do: their handlers take time, and what comes over sockets, such as the news of a
    /// peer's death, is not to wait for a thousand bursts.
    #[inline(always)]
    pub(crate) fn skip(&self, calls: u32) {
        let left = self.countdown.get();
        if calls < left {
            self.countdown.set(left - calls);
        } else {
            // As if the count had started earlier, so that all of them have passed.
            self.from.set(self.from.get() + (calls + 1 - left));
            self.countdown.set(1);
        }
    }

    /// Has progress work after so many calls, at least one.
    #[inline(always)]
    pub(crate) fn start(&self, calls: u32) {
        self.from.set(calls);
        self.countdown.set(calls);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_skipped_has_passed_and_what_was_hastened_has_not() {
        let attention = Attention::new();
        for (calls, left) in [(0, 9), (3, 6), (8, 1), (9, 1), (500, 1)] {
            attention.start(10);
            assert!(!attention.count_down());
            attention.skip(calls);
            assert_eq!((attention.left(), attention.passed()), (left, 1 + calls));
        }
        attention.start(10);
        assert!(!attention.count_down());
        attention.raise(flag::ALARM);
        assert_eq!(attention.passed(), 1);
        assert!(attention.count_down() && attention.passed() == 2 && attention.has(flag::ALARM));
    }
}
