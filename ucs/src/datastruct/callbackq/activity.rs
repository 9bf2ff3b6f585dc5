//! Which callbacks are active, and when the idle ones are called.
//!
//! A worker with many interfaces open has traffic on one or two of them. To call the others each time would add their time to every
//! message, so a callback that does nothing for a [`TERM`] while others do something becomes *idle*. A *check* is a dispatch that also calls idle
//! callbacks that are due; one that does something is active again: each dispatch calls it. Silence changes nothing: what is idle stays idle, and
//! at first none does.
//!
//! The *check delay* is the longest time that an idle callback is not called: [`IDLE_PACE`] for each idle callback, or less if
//! they take little time, and then the time until the next check. Checks are at most [`IDLE_INTERVAL`] dispatches apart. In a program
//! that dispatches slowly they are at most two times [`SLOW`] apart, or as far as its dispatches are, whichever is longer.
//! No dependencies. `fast` calls what is due.

use std::cell::Cell;
use std::time::Duration;

use super::FAST_SLOTS;

/// Most dispatches from one check to the next.
pub const IDLE_INTERVAL: u32 = 64;

/// After so many dispatches, counted at checks, the callbacks that have done nothing meanwhile become idle, if any other did something.
pub const TERM: u32 = 4096;

/// An idle callback is due at the latest after this time for each idle callback.
pub const IDLE_PACE: Duration = Duration::from_micros(4);

/// If more time than this has passed since the last check, the next dispatch is one as well. Each check that comes earlier doubles the
/// interval, so a program that dispatches a few times in a row between pauses checks after each pause.
pub const SLOW: Duration = Duration::from_millis(1);

/// Idle callbacks that take little time get this part of the caller's time together.
const SHARE: u64 = 32;

const PACE_NANOSECONDS: u64 = IDLE_PACE.as_nanos() as u64;
const SLOW_NANOSECONDS: u64 = SLOW.as_nanos() as u64;

/// A set of slots: bit `i` for slot `i`.
pub(super) type Slots = u32;

const _: () = assert!(Slots::BITS as usize == FAST_SLOTS);

/// Reads nanoseconds.
pub(super) type Clock = fn() -> u64;

/// What is known of the slots.
pub(super) struct Activity {
    /// Those with a callback.
    filled: Cell<Slots>,
    /// Called at each dispatch; the other filled ones are idle.
    active: Cell<Slots>,
    /// Did something in this term. Not noted for one that is active alone, except in checks: it stays active in any case.
    busy: Cell<Slots>,
    /// Dispatches until the next check, which is the last of them.
    left: Cell<u32>,
    /// Dispatches from the last check to the next.
    interval: Cell<u32>,
    /// Dispatches in this term, up to the last check.
    term: Cell<u32>,
    checked_at: Cell<u64>,
    /// When a check calls an idle callback again; passed for those that became idle since.
    due_at: [Cell<u64>; FAST_SLOTS],
    clock: Clock,
}

impl Activity {
    pub(super) fn new(clock: Clock) -> Activity {
        Activity {
            filled: Cell::new(0),
            active: Cell::new(0),
            busy: Cell::new(0),
            left: Cell::new(1),
            interval: Cell::new(1),
            term: Cell::new(0),
            checked_at: Cell::new(0),
            due_at: [const { Cell::new(0) }; FAST_SLOTS],
            clock,
        }
    }

    pub(super) fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Counts a dispatch; returns whether it is a check. [`Activity::begin_check`] follows.
    #[inline]
    pub(super) fn count_dispatch(&self) -> bool {
        let left = self.left.get().wrapping_sub(1);
        self.left.set(left);
        left == 0
    }

    #[inline]
    pub(super) fn active(&self) -> Slots {
        self.active.get()
    }

    pub(super) fn idle(&self) -> Slots {
        self.filled.get() & !self.active.get()
    }

    #[inline]
    pub(super) fn note_busy(&self, index: u32) {
        self.busy.set(self.busy.get() | 1 << index);
    }

    /// Makes all active, because other slots are filled now, and begins a term.
    pub(super) fn fill(&self, filled: Slots) {
        self.filled.set(filled);
        self.active.set(filled);
        self.busy.set(0);
        self.term.set(0);
    }

    /// Makes the next dispatch a check that calls all.
    pub(super) fn check_all(&self) {
        self.due_at.iter().for_each(|due_at| due_at.set(0));
        self.interval.set(self.interval.get() - (self.left.get() - 1));
        self.left.set(1);
    }

    /// Begins a check, and sets the next one. Returns the time.
    pub(super) fn begin_check(&self) -> u64 {
        let (now, interval) = (self.now(), self.interval.get());
        self.term.set(self.term.get() + interval);
        let is_slow = now.saturating_sub(self.checked_at.replace(now)) > SLOW_NANOSECONDS;
        let next = if is_slow { 1 } else { (2 * interval).min(IDLE_INTERVAL) };
        self.interval.set(next);
        self.left.set(next);
        now
    }

    pub(super) fn is_due(&self, index: u32, now: u64) -> bool {
        self.due_at[index as usize].get() <= now
    }

    /// An idle callback was called, and that took until `end`.
    pub(super) fn note_call(&self, index: u32, begin: u64, end: u64) {
        let pace = PACE_NANOSECONDS.min(end.saturating_sub(begin).saturating_mul(SHARE));
        self.due_at[index as usize].set(end + pace * u64::from(self.idle().count_ones()));
    }

    /// Makes `which` active, for this term at least.
    pub(super) fn activate(&self, which: Slots) {
        let before = self.active.get();
        // One that was active alone may have been as busy as it can be.
        let unnoted = if before.is_power_of_two() { before } else { 0 };
        self.busy.set(self.busy.get() | which | unnoted);
        self.active.set(before | which);
    }

    /// Ends a check: what did something is active, and at the end of a term what did nothing is idle. Returns whether any of that
    /// is a change.
    pub(super) fn end_check(&self) -> bool {
        let before = self.active.get();
        let found = self.busy.get() & self.idle();
        if found != 0 {
            self.activate(found);
        }
        if self.term.get() >= TERM {
            self.term.set(0);
            let busy = self.busy.replace(0) & self.filled.get();
            if busy != 0 {
                self.active.set(busy);
            }
        }
        self.active.get() != before
    }
}
