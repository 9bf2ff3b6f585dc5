//! The packets that were sent and not yet fetched back, each at the place of its number.
//!
//! Built on `psn`. A number's place is its low bits, so that neither sending nor an acknowledgement searches or wraps.

use super::super::psn::Psn;
use super::super::time::Stamp;

/// Room of a sender for consecutive packets; grows with its window, and then no more.
#[derive(Debug)]
pub(super) struct Slots<S> {
    /// A power of two of them, or none yet.
    places: Vec<Slot<S>>,
}

#[derive(Debug)]
pub(super) struct Slot<S> {
    /// `None`: the header is all of the packet, or there is none here.
    pub(super) packet: Option<S>,
    pub(super) sent_at: Stamp,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) state: State,
    pub(super) resent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Sent,
    Arrived,
    Lost,
}

/// Places that a sender begins with.
const FIRST: usize = 16;

impl<S> Slots<S> {
    pub(super) const fn new() -> Slots<S> {
        Slots { places: Vec::new() }
    }

    /// The packet of this number, which is one of those in here.
    #[inline]
    pub(super) fn get(&self, psn: Psn) -> Option<&Slot<S>> {
        self.places.get(place(psn, self.places.len()))
    }

    /// As [`Slots::get`], to be changed.
    #[inline]
    pub(super) fn get_mut(&mut self, psn: Psn) -> Option<&mut Slot<S>> {
        let count = self.places.len();
        self.places.get_mut(place(psn, count))
    }

    /// Puts the packet with the number `psn` behind those from `oldest` on.
    #[inline]
    pub(super) fn put(&mut self, oldest: Psn, psn: Psn, slot: Slot<S>) {
        if psn.ahead_of(oldest) as usize >= self.places.len() {
            self.grow(oldest, psn);
        }
        if let Some(place) = self.get_mut(psn) {
            *place = slot;
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, oldest: Psn, end: Psn) {
        let count = (self.places.len() * 2).max(FIRST);
        let mut places: Vec<Slot<S>> = std::iter::repeat_with(Slot::empty).take(count).collect();
        for psn in oldest.until(end) {
            if let Some(slot) = self.get_mut(psn) {
                places[place(psn, count)] = std::mem::replace(slot, Slot::empty());
            }
        }
        self.places = places;
    }
}

/// Where a number's packet is, of so many places.
#[inline]
fn place(psn: Psn, count: usize) -> usize {
    psn.0 as usize & count.wrapping_sub(1)
}

impl<S> Slot<S> {
    /// A packet that was just sent.
    #[inline]
    pub(super) fn sent(now: Stamp, kind: u8, flags: u8, packet: Option<S>) -> Slot<S> {
        Slot { packet, sent_at: now, kind, flags, state: State::Sent, resent: false }
    }

    fn empty() -> Slot<S> {
        Slot::sent(Stamp::default(), 0, 0, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: u32) -> Slot<u32> {
        Slot::sent(Stamp::default(), 0, 0, Some(number))
    }

    #[test]
    fn packets_keep_their_places_while_the_room_grows_across_the_wrap() {
        let oldest = Psn(u32::MAX - 5);
        let mut slots = Slots::new();
        for count in 0..100 {
            slots.put(oldest, oldest.plus(count), slot(count));
        }
        for count in 0..100 {
            assert_eq!(slots.get(oldest.plus(count)).and_then(|slot| slot.packet), Some(count));
        }
    }

    #[test]
    fn room_is_used_again() {
        let mut slots = Slots::new();
        for number in 0..1000u32 {
            let oldest = Psn(number.saturating_sub(FIRST as u32 - 1));
            slots.put(oldest, Psn(number), slot(number));
            let taken = slots.get_mut(oldest).and_then(|slot| slot.packet);
            assert_eq!(taken, Some(oldest.0));
        }
        assert_eq!(slots.places.len(), FIRST);
    }

    #[test]
    fn there_is_nothing_where_nothing_was_sent() {
        assert!(Slots::<u32>::new().get(Psn(3)).is_none());
    }
}
