//! Fair service of queued work: elements wait in groups, an arbiter serves its groups in turn.
//!
//! For pending queues (one [`Arbiter`] per interface, one [`ArbiterGroup`] per endpoint, one [`ArbiterElement`] in each
//! pending request). No dependencies. Every transport that can run out of resources uses it.
//!
//! Everything is intrusive: queueing, scheduling and dispatching allocate nothing and take constant time.
//!
//! # Rules of ownership
//!
//! - An element is *queued* from its push until the moment its callback is called, by [`Arbiter::dispatch`] or a purge,
//!   and again if that callback asks to keep it. While queued it is neither moved nor written to.
//!   Its owner may free or reuse it from inside the callback that then returns [`ArbiterResult::Remove`].
//! - A group stays where it is while it holds elements or is scheduled. It may be freed from inside a dispatch
//!   callback, also its own; dropping it takes it off its arbiter and releases the elements that it still holds.
//!   It must not be freed from inside a purge of it.
//! - All of it belongs to one thread.

mod group;
mod in_flight;
mod link;
mod purge;

use std::fmt;
use std::ptr::NonNull;

pub use group::{ArbiterElement, ArbiterGroup};

use group::Placeholder;
use in_flight::InFlight;
use link::{Link, List};

/// What a dispatch callback decided about its element and its group.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArbiterResult {
    /// Done with the element: take it out and continue with the next one of the group, or with the next group once the
    /// batch is full. The element is no longer queued when the callback is called, so the callback may have freed it.
    Remove,
    /// Keep the element and continue with the next group; this group comes again in the same dispatch.
    NextGroup,
    /// Keep the element and take the group off the arbiter until it is scheduled again.
    Deschedule,
    /// Keep the element; the group comes again in the next dispatch, not in this one.
    Reschedule,
    /// Keep the element and end this dispatch; the next one begins with this group.
    Stop,
}

/// Serves the groups scheduled on it, in turn.
///
/// One machine word; it may be moved at any time. Dropping it takes all groups off it.
pub struct Arbiter {
    /// Its sentinel is a box of its own.
    scheduled: List,
}

impl Arbiter {
    /// An arbiter with nothing scheduled.
    pub fn new() -> Arbiter {
        let sentinel = NonNull::from(Box::leak(Box::new(Link::new())));
        // SAFETY: the sentinel lives until this arbiter is dropped, which empties the list first.
        Arbiter { scheduled: unsafe { List::new(sentinel) } }
    }

    /// Whether no group is scheduled: two loads.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.scheduled.is_empty()
    }

    /// Puts a group behind all others. Does nothing if the group is empty or scheduled already, here or elsewhere.
    ///
    /// # Safety
    ///
    /// `group` points to a valid group that stays where it is until it is off the arbiter (see the module). It is the
    /// pointer that callbacks get, so it may be used for as much around the group as they want to reach from it.
    #[inline]
    pub unsafe fn schedule(&self, group: NonNull<ArbiterGroup>) {
        // SAFETY: the caller vouches for the group.
        let is_idle = unsafe { group.as_ref() }.is_idle();
        if is_idle {
            // SAFETY: the link is the group's first field, the caller pins the group, and it is in no list.
            unsafe { self.scheduled.push_back(group.cast::<Link>()) };
        }
    }

    /// Calls `callback` with elements of the scheduled groups until none is left or the callback returns stop: at most
    /// `per_group` (0 counts as 1) of a group in its turn, then the next group. It does not end as long as the callback
    /// keeps returning [`ArbiterResult::NextGroup`].
    ///
    /// While the callback runs, its element is not queued and its group not scheduled, though the group counts as not
    /// empty. The callback may push to any group, schedule and purge any group, free any group, and dispatch again. If it
    /// schedules its own group and then removes the element or deschedules, that scheduling stands; otherwise the
    /// answer decides.
    #[inline]
    pub fn dispatch<F>(&self, per_group: u32, callback: F)
    where
        F: FnMut(&Arbiter, NonNull<ArbiterGroup>, NonNull<ArbiterElement>) -> ArbiterResult,
    {
        if !self.is_empty() {
            self.dispatch_nonempty(per_group.max(1), callback);
        }
    }

    #[inline(never)]
    fn dispatch_nonempty<F>(&self, per_group: u32, mut callback: F)
    where
        F: FnMut(&Arbiter, NonNull<ArbiterGroup>, NonNull<ArbiterElement>) -> ArbiterResult,
    {
        let sentinel = Link::new();
        // SAFETY: the sentinel stays on this stack frame longer than `later`, which empties the list when dropped.
        let groups = unsafe { List::new(NonNull::from(&sentinel)) };
        let later = Later { groups, arbiter: self };
        while let Some(link) = self.scheduled.pop_front() {
            match self.turn(link.cast::<ArbiterGroup>(), per_group, &mut callback) {
                Turn::Over => {}
                // SAFETY: the caller that scheduled the group has pinned it, and its turn left it alive and in no list.
                Turn::Back => unsafe { self.scheduled.push_back(link) },
                // SAFETY: as above.
                Turn::Later => unsafe { later.groups.push_back(link) },
                Turn::Stop => {
                    // SAFETY: as above.
                    unsafe { self.scheduled.push_front(link) };
                    break;
                }
            }
        }
    }

    /// Serves one group, which is in no list.
    fn turn<F>(&self, group: NonNull<ArbiterGroup>, per_group: u32, callback: &mut F) -> Turn
    where
        F: FnMut(&Arbiter, NonNull<ArbiterGroup>, NonNull<ArbiterElement>) -> ArbiterResult,
    {
        for _ in 0..per_group {
            let placeholder = Placeholder::element();
            // SAFETY: the group was scheduled, so it is valid and pinned, and it is not gone (see below).
            let Some(in_flight) = (unsafe { InFlight::begin(group, &placeholder) }) else {
                return Turn::Over;
            };
            let result = callback(self, group, in_flight.element);
            if in_flight.group_is_gone() {
                return Turn::Over;
            }
            // SAFETY: it is not gone.
            let this = unsafe { group.as_ref() };
            if result == ArbiterResult::Remove {
                drop(in_flight);
            } else {
                in_flight.keep();
            }
            if this.is_empty() {
                this.deschedule();
                return Turn::Over;
            }
            let turn = match result {
                ArbiterResult::Remove if this.is_scheduled() => Turn::Over,
                ArbiterResult::Remove => continue,
                ArbiterResult::Deschedule => Turn::Over,
                ArbiterResult::NextGroup => Turn::Back,
                ArbiterResult::Reschedule => Turn::Later,
                ArbiterResult::Stop => Turn::Stop,
            };
            if !matches!(turn, Turn::Over) {
                this.deschedule();
            }
            return turn;
        }
        Turn::Back
    }
}

impl Default for Arbiter {
    fn default() -> Arbiter {
        Arbiter::new()
    }
}

impl Drop for Arbiter {
    fn drop(&mut self) {
        let mut groups = 0;
        while self.scheduled.pop_front().is_some() {
            groups += 1;
        }
        if groups > 0 {
            crate::log::warn!(
                groups,
                "an arbiter was dropped with groups scheduled on it; they are taken off"
            );
        }
        // SAFETY: `new` made the sentinel as a box, and nothing is linked to it any more.
        drop(unsafe { Box::from_raw(self.scheduled.sentinel().as_ptr()) });
    }
}

impl fmt::Debug for Arbiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arbiter").field("is_empty", &self.is_empty()).finish()
    }
}

/// What becomes of a group after its turn.
enum Turn {
    /// Nothing: it is empty, gone, descheduled, or scheduled by its callback.
    Over,
    /// It goes behind the others.
    Back,
    /// It comes back in the next dispatch.
    Later,
    /// It is the first of the next dispatch, and this one ends.
    Stop,
}

/// The groups that come back in the next dispatch; dropping it schedules them, also if a callback panics.
struct Later<'a> {
    groups: List,
    arbiter: &'a Arbiter,
}

impl Drop for Later<'_> {
    fn drop(&mut self) {
        self.groups.append_to(self.arbiter.scheduled);
    }
}
