//! A hierarchical timing wheel: which connections are to be examined, and when.
//!
//! Built on `time`; the [table](super::table) keeps one, and the [timers](super::timer) take out what is due. To set, move and remove an
//! entry takes constant time, whatever their number.
//!
//! Time is divided into ticks. A level has 64 slots: a slot of the lowest level is one tick, one of a higher level is as long as all slots of the
//! level below. Ticks are numbers of base 64, and an entry is in the level of the highest digit that differs from the present tick, in the
//! slot of its own digit there. So all entries of a level are due ahead of those of the levels above, and the first slot with entries is found
//! by its bit. Entries of a higher level are due when their slot begins: the caller examines them, and sets them again.

use super::time::Time;

/// A tick is so many nanoseconds, as a power of two: 4 µs.
const TICK_SHIFT: u32 = 12;
/// Bits of a digit.
const DIGIT: u32 = 6;
const SLOTS: u32 = 1 << DIGIT;
/// Levels for any time: one for each digit of a tick.
const LEVELS: usize = (u64::BITS + 1 - TICK_SHIFT).div_ceil(DIGIT) as usize;

/// Heads of lists: one for each slot, and one for entries that were taken out. The entries follow.
const DUE: u32 = LEVELS as u32 * SLOTS;
const FIRST_ENTRY: u32 = DUE + 1;

/// A place in a circular list; one that is in none refers to itself.
#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

/// Entries are small numbers, each of which is set for one time or for none.
pub(super) struct Wheel {
    /// The tick up to which all entries have been taken out.
    now: u64,
    earliest: Time,
    /// A bit for each slot, by level: without it the slot is empty.
    occupied: [u64; LEVELS],
    links: Vec<Link>,
}

impl Wheel {
    pub(super) fn new() -> Wheel {
        let links = (0..FIRST_ENTRY).map(Link::alone).collect();
        Wheel { now: 0, earliest: Time::NEVER, occupied: [0; LEVELS], links }
    }

    /// No entry is set for an earlier time; [`Time::NEVER`] if none is set.
    #[inline]
    pub(super) fn earliest(&self) -> Time {
        self.earliest
    }

    /// Sets an entry for a time, for none if that is [`Time::NEVER`], whatever it was set for.
    pub(super) fn set(&mut self, entry: u32, at: Time) {
        let link = FIRST_ENTRY + entry;
        for new in self.links.len() as u32..=link {
            self.links.push(Link::alone(new));
        }
        self.unlink(link);
        if at == Time::NEVER {
            return;
        }
        let tick = at.as_nanos().div_ceil(1 << TICK_SHIFT).max(self.now);
        let level = (tick ^ self.now).checked_ilog2().unwrap_or(0) / DIGIT;
        let digit = (tick >> (level * DIGIT)) as u32 % SLOTS;
        self.occupied[level as usize] |= 1 << digit;
        self.link_before(link, level * SLOTS + digit);
        self.earliest = self.earliest.min(time_of(tick));
    }

    /// Takes out the entries that are due, and any that are set for `now` or earlier, for [`Wheel::pop`].
    pub(super) fn advance(&mut self, now: Time) {
        self.take_until(now);
        self.now = self.now.max(now.as_nanos() >> TICK_SHIFT);
    }

    /// Takes out what will be due by then, and any entry that is set for an earlier time.
    pub(super) fn take_until(&mut self, end: Time) {
        while let Some((slot, start)) = self.first()
            && start <= end
        {
            while self.links[slot as usize].after != slot {
                self.take(slot);
            }
        }
    }

    /// Takes up to `most` entries out of the first slot. Returns the time at which it begins, and whether these were all.
    pub(super) fn take_first(&mut self, most: usize) -> Option<(Time, bool)> {
        let (slot, start) = self.first()?;
        let is_empty = |wheel: &Wheel| wheel.links[slot as usize].after == slot;
        for _ in 0..most {
            if !is_empty(self) {
                self.take(slot);
            }
        }
        Some((start, is_empty(self)))
    }

    /// The next of the entries that were taken out.
    pub(super) fn pop(&mut self) -> Option<u32> {
        let link = self.links[DUE as usize].after;
        if link == DUE {
            return None;
        }
        self.unlink(link);
        Some(link - FIRST_ENTRY)
    }

    /// Finds the earliest time anew; returns it. What was taken out and not set again is due now.
    pub(super) fn refresh(&mut self) -> Time {
        self.earliest = match self.links[DUE as usize].after {
            DUE => self.first().map_or(Time::NEVER, |(_, start)| start),
            _ => time_of(self.now),
        };
        self.earliest
    }

    /// The first slot with entries, and when it begins.
    fn first(&mut self) -> Option<(u32, Time)> {
        for level in 0..LEVELS as u32 {
            let occupied = &mut self.occupied[level as usize];
            while *occupied != 0 {
                let digit = occupied.trailing_zeros();
                let slot = level * SLOTS + digit;
                if self.links[slot as usize].after != slot {
                    let above = self.now >> (level * DIGIT) & !u64::from(SLOTS - 1);
                    return Some((slot, time_of((above | u64::from(digit)) << (level * DIGIT))));
                }
                *occupied &= *occupied - 1;
            }
        }
        None
    }

    /// Moves the first entry of a slot to those that were taken out.
    fn take(&mut self, slot: u32) {
        let link = self.links[slot as usize].after;
        self.unlink(link);
        self.link_before(link, DUE);
    }

    fn link_before(&mut self, link: u32, head: u32) {
        let before = self.links[head as usize].before;
        self.links[link as usize] = Link { before, after: head };
        self.links[before as usize].after = link;
        self.links[head as usize].before = link;
    }

    fn unlink(&mut self, link: u32) {
        let Link { before, after } = self.links[link as usize];
        self.links[before as usize].after = after;
        self.links[after as usize].before = before;
        self.links[link as usize] = Link::alone(link);
    }
}

impl Link {
    fn alone(link: u32) -> Link {
        Link { before: link, after: link }
    }
}

/// When a tick begins.
fn time_of(tick: u64) -> Time {
    Time::from_nanos(tick.saturating_mul(1 << TICK_SHIFT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Lets time pass, sets entries that are due early again, and returns those that are due.
    fn advance(wheel: &mut Wheel, set: &mut BTreeMap<u32, Time>, now: Time) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.advance(now);
        while let Some(entry) = wheel.pop() {
            match set[&entry] {
                at if at <= now => due.push(entry),
                at => wheel.set(entry, at),
            }
        }
        wheel.refresh();
        set.retain(|entry, _| !due.contains(entry));
        due
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn an_entry_is_due_at_its_time_and_at_most_a_tick_later(
            steps in prop::collection::vec((0u32..20, 0u32..45, any::<u64>()), 1..200),
        ) {
            let (mut wheel, mut set) = (Wheel::new(), BTreeMap::new());
            let mut now = Time::default();
            for (entry, bits, random) in steps {
                let wait = random & ((1 << bits) - 1);
                if entry < 12 {
                    let at = now.plus(wait);
                    wheel.set(entry, at);
                    set.insert(entry, at);
                } else if entry < 14 {
                    wheel.set(entry - 12, Time::NEVER);
                    set.remove(&(entry - 12));
                } else {
                    now = now.plus(wait);
                    advance(&mut wheel, &mut set, now);
                    for at in set.values() {
                        prop_assert!(now < at.plus(1 << TICK_SHIFT), "{at:?} is overdue at {now:?}");
                        prop_assert!(wheel.earliest() < at.plus(1 << TICK_SHIFT));
                    }
                    prop_assert_eq!(set.is_empty(), wheel.earliest() == Time::NEVER);
                }
            }
        }
    }

    #[test]
    fn an_entry_is_examined_once_a_level_and_not_otherwise() {
        let mut wheel = Wheel::new();
        let at = Time::from_nanos(20_000_000_000);
        (0..100_000).for_each(|entry| wheel.set(entry, at.plus(u64::from(entry) << 20)));
        let mut examined = 0;
        while wheel.earliest() < at.plus(1 << 20) {
            let now = wheel.earliest();
            wheel.advance(now);
            while let Some(entry) = wheel.pop() {
                examined += u32::from(entry == 0);
                let deadline = at.plus(u64::from(entry) << 20);
                wheel.set(entry, if deadline <= now { Time::NEVER } else { deadline });
            }
            wheel.refresh();
        }
        assert!((1..=4).contains(&examined), "{examined} times");
    }

    #[test]
    fn the_first_slot_is_taken_in_parts() {
        let mut wheel = Wheel::new();
        (0..5).for_each(|entry| wheel.set(entry, Time::from_nanos(1 << 40)));
        wheel.set(9, Time::from_nanos(1 << 50));
        assert_eq!(wheel.take_first(3).map(|(_, is_all)| is_all), Some(false));
        assert_eq!(std::iter::from_fn(|| wheel.pop()).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(wheel.take_first(3).map(|(_, is_all)| is_all), Some(true));
        assert_eq!(std::iter::from_fn(|| wheel.pop()).collect::<Vec<_>>(), [3, 4]);
        wheel.take_until(Time::from_nanos(1 << 50));
        assert_eq!((wheel.pop(), wheel.pop(), wheel.refresh()), (Some(9), None, Time::NEVER));
    }

    #[test]
    fn the_last_of_all_times_has_a_place() {
        let mut wheel = Wheel::new();
        wheel.set(0, Time::from_nanos(u64::MAX - 1));
        wheel.advance(Time::from_nanos(u64::MAX - 2));
        assert!(wheel.refresh() >= Time::from_nanos(u64::MAX - (1 << TICK_SHIFT)));
    }
}
