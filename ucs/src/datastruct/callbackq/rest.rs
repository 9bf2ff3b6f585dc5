//! Which callbacks rest, and when those are called.
//!
//! A worker with many interfaces open has traffic on one or two of them. To call the others each time would add their time to every
//! message, so a callback that does nothing for a [`TERM`] while others do something rests. A *check* is a dispatch that also calls resting
//! callbacks that are due; one that does something is called at each dispatch again. Silence changes nothing: what rests goes on resting, and
//! at first none does.
//!
//! The *check delay* is the longest time that a resting callback is not called: [`REST_PACE`] for each callback at rest, or less if
//! they take little time, and then the time until the next check. Checks are at most [`IDLE_INTERVAL`] dispatches apart. In a program
//! that dispatches slowly they are at most two times [`SLOW`] apart, or as far as its dispatches are, whichever is longer.
//! No dependencies. `fast` calls what is due.

use std::cell::Cell;
use std::time::Duration;

use super::FAST_SLOTS;

/// Most dispatches from one check to the next.
pub const IDLE_INTERVAL: u32 = 64;

/// After so many dispatches, counted at checks, the callbacks that have done nothing meanwhile begin to rest, if any other did something.
pub const TERM: u32 = 4096;

/// A resting callback is due at the latest after this time for each callback at rest.
pub const REST_PACE: Duration = Duration::from_micros(4);

/// If more time than this has passed since the last check, the next dispatch is one as well. Each check that comes earlier doubles the
/// interval, so a program that dispatches a few times in a row between pauses checks after each pause.
pub const SLOW: Duration = Duration::from_millis(1);

/// Resting callbacks that take little time get this part of the caller's time together.
const SHARE: u64 = 32;

const PACE_NANOSECONDS: u64 = REST_PACE.as_nanos() as u64;
const SLOW_NANOSECONDS: u64 = SLOW.as_nanos() as u64;

/// A set of slots: bit `i` for slot `i`.
pub(super) type Slots = u32;

const _: () = assert!(Slots::BITS as usize == FAST_SLOTS);

/// Reads nanoseconds.
pub(super) type Clock = fn() -> u64;

/// What is known of the slots.
pub(super) struct Rest {
    /// Those with a callback.
    filled: Cell<Slots>,
    /// Called at each dispatch; the other filled ones rest.
    awake: Cell<Slots>,
    /// Did something in this term. Not noted for one that is awake alone, except in checks: it stays awake in any case.
    busy: Cell<Slots>,
    /// Dispatches until the next check, which is the last of them.
    left: Cell<u32>,
    /// Dispatches from the last check to the next.
    interval: Cell<u32>,
    /// Dispatches in this term, up to the last check.
    term: Cell<u32>,
    checked_at: Cell<u64>,
    /// When a check calls a resting callback again; passed for those that began to rest since.
    due_at: [Cell<u64>; FAST_SLOTS],
    clock: Clock,
}

impl Rest {
    pub(super) fn new(clock: Clock) -> Rest {
        Rest {
            filled: Cell::new(0),
            awake: Cell::new(0),
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

    /// Counts a dispatch; returns whether it is a check. [`Rest::begin_check`] follows.
    #[inline]
    pub(super) fn count_dispatch(&self) -> bool {
        let left = self.left.get().wrapping_sub(1);
        self.left.set(left);
        left == 0
    }

    #[inline]
    pub(super) fn awake(&self) -> Slots {
        self.awake.get()
    }

    pub(super) fn resting(&self) -> Slots {
        self.filled.get() & !self.awake.get()
    }

    #[inline]
    pub(super) fn note_busy(&self, index: u32) {
        self.busy.set(self.busy.get() | 1 << index);
    }

    /// Ends all rest, because other slots are filled now, and begins a term.
    pub(super) fn fill(&self, filled: Slots) {
        self.filled.set(filled);
        self.awake.set(filled);
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

    /// A resting callback was called, and that took until `end`.
    pub(super) fn note_call(&self, index: u32, begin: u64, end: u64) {
        let pace = PACE_NANOSECONDS.min(end.saturating_sub(begin).saturating_mul(SHARE));
        self.due_at[index as usize].set(end + pace * u64::from(self.resting().count_ones()));
    }

    /// Ends a check: what did something is awake, and at the end of a term what did nothing rests. Returns whether any of that
    /// is a change.
    pub(super) fn end_check(&self) -> bool {
        let (before, busy) = (self.awake.get(), self.busy.get() & self.filled.get());
        if busy & !before != 0 && before.is_power_of_two() {
            // It may have been as busy as it can be.
            self.busy.set(busy | before);
        }
        self.awake.set(before | busy);
        if self.term.get() >= TERM {
            self.term.set(0);
            let busy = self.busy.replace(0) & self.filled.get();
            if busy != 0 {
                self.awake.set(busy);
            }
        }
        self.awake.get() != before
    }
}
