//! The receiving half of a connection: what comes next, what waits for it, what must be acknowledged.
//!
//! Built on `psn` and `control`'s bitmap; the [connection](super::connection) is built on it.

use std::collections::VecDeque;

use super::control::{Ack, Bitmap};
use super::header::WINDOW_STEP;
use super::psn::Psn;

/// What is to be done with a sequenced packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the next one.
    Next,
    /// It waits for others: to be passed to [`Receiver::hold`] with this distance.
    Ahead(u32),
    /// It has been here before.
    Duplicate,
    /// It is beyond the window.
    Beyond,
}

/// The receiving half of a connection. `R` is the transport's handle of a received packet.
#[derive(Debug)]
pub(super) struct Receiver<R> {
    next: Psn,
    /// Packets that the peer may have outstanding at most, and at first.
    window: u16,
    first_window: u16,
    /// Entry 0 is `next`, so it is empty until that arrives; no entries while nothing waits.
    held: VecDeque<Option<Held<R>>>,
    /// Packets taken in order and not yet acknowledged.
    unacknowledged: u32,
    /// An ACK is due, because of a gap or a duplicate, or because the peer requests one: the acknowledgement in a message does not suffice.
    needs_explicit_ack: bool,
    /// The largest window that the peer has advertised.
    advertised: u16,
    duplicates: u32,
    /// The time in the last PING that no ACK has sent back, or 0.
    echo: u32,
}

#[derive(Debug)]
struct Held<R> {
    kind: u8,
    packet: R,
}

impl<R> Receiver<R> {
    pub(super) fn new(first: Psn, window: u32) -> Receiver<R> {
        Receiver {
            next: first,
            window: window as u16,
            first_window: 0,
            held: VecDeque::new(),
            unacknowledged: 0,
            needs_explicit_ack: false,
            advertised: WINDOW_STEP as u16,
            duplicates: 0,
            echo: 0,
        }
    }

    /// The sequence number that comes next: all before it have arrived.
    #[inline]
    pub(super) fn next(&self) -> Psn {
        self.next
    }

    /// Whether `psn` is the next and nothing waits for it: the short way.
    #[inline]
    pub(super) fn is_plain_next(&self, psn: Psn) -> bool {
        psn == self.next && !self.has_held()
    }

    /// Counts the next packet as taken.
    #[inline]
    pub(super) fn take_next(&mut self) {
        self.next = self.next.plus(1);
        self.unacknowledged += 1;
    }

    /// Packets taken in order and not yet acknowledged.
    #[inline]
    pub(super) fn unacknowledged(&self) -> u32 {
        self.unacknowledged
    }

    /// Packets that there should be room for: twice the largest window that the peer has advertised, since that doubles in a round
    /// trip at most, but no more than it may have outstanding.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        (u32::from(self.advertised) * 2).min(u32::from(self.window))
    }

    /// Packets that the peer may have outstanding when the connection is new.
    pub(super) fn first_window(&self) -> u16 {
        self.first_window
    }

    /// Permits the peer so many when the connection is new.
    pub(super) fn permit_first(&mut self, packets: u16) {
        self.first_window = packets;
    }

    /// Takes over the window that a packet advertises; returns by how much [`Receiver::room`] has grown.
    #[inline]
    pub(super) fn on_window(&mut self, window: u16) -> u32 {
        if window <= self.advertised {
            return 0;
        }
        let before = self.room();
        self.advertised = window;
        self.room() - before
    }

    /// Whether `psn` may be the number that the peer's next packet will have: a full window may be in flight, and a FINISH, which
    /// does not wait for room in it.
    pub(super) fn may_be_next_of_peer(&self, psn: Psn) -> bool {
        psn.ahead_of(self.next) <= u32::from(self.window) + 1
    }

    /// Where `psn` belongs.
    pub(super) fn place(&mut self, psn: Psn) -> Place {
        if psn.is_before(self.next) {
            return self.duplicate();
        }
        let ahead = psn.ahead_of(self.next);
        if ahead >= u32::from(self.window) {
            return Place::Beyond;
        }
        if self.held.get(ahead as usize).is_some_and(Option::is_some) {
            return self.duplicate();
        }
        if ahead == 0 { Place::Next } else { Place::Ahead(ahead) }
    }

    fn duplicate(&mut self) -> Place {
        self.duplicates = self.duplicates.wrapping_add(1);
        self.needs_explicit_ack = true;
        Place::Duplicate
    }

    /// Keeps a packet that [`Receiver::place`] found ahead by `ahead`.
    pub(super) fn hold(&mut self, ahead: u32, kind: u8, packet: R) {
        let ahead = ahead as usize;
        if self.held.len() <= ahead {
            self.held.resize_with(ahead + 1, || None);
        }
        self.held[ahead] = Some(Held { kind, packet });
        self.needs_explicit_ack = true;
    }

    /// Counts the next packet as taken although others wait behind it.
    pub(super) fn take_next_before_held(&mut self) {
        self.take_next();
        self.held.pop_front();
        self.needs_explicit_ack |= self.has_held();
    }

    /// The packet that waited and is now the next, counted as taken.
    pub(super) fn pop_held(&mut self) -> Option<(u8, R)> {
        let held = self.held.front_mut()?.take()?;
        self.take_next_before_held();
        Some((held.kind, held.packet))
    }

    /// Whether packets wait for one ahead of them.
    pub(super) fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// A packet that waits, in no matter what order, when nothing will be delivered any more.
    pub(super) fn abandon(&mut self) -> Option<R> {
        while let Some(entry) = self.held.pop_front() {
            if let Some(held) = entry {
                return Some(held.packet);
            }
        }
        None
    }

    /// The peer requests an acknowledgement whether or not there is news.
    pub(super) fn require_ack(&mut self) {
        self.needs_explicit_ack = true;
    }

    /// The peer has sent a PING with a time of its own, which is sent back.
    pub(super) fn pinged(&mut self, time: u32) {
        self.echo = time;
        self.needs_explicit_ack = true;
    }

    /// Whether anything has arrived and was not acknowledged.
    pub(super) fn needs_ack(&self) -> bool {
        self.unacknowledged != 0 || self.needs_explicit_ack
    }

    /// A packet's header has acknowledged up to [`Receiver::next`].
    #[inline]
    pub(super) fn acknowledged_by_header(&mut self) {
        self.unacknowledged = 0;
    }

    /// The contents of an ACK `delay` ns after the last arrival, with this pace; it acknowledges everything.
    pub(super) fn ack_contents(&mut self, delay: u64, pace: u32) -> Ack {
        self.unacknowledged = 0;
        self.needs_explicit_ack = false;
        let echo = std::mem::take(&mut self.echo);
        Ack { delay, duplicates: self.duplicates, echo, pace, bitmap: self.bitmap() }
    }

    /// The packets beyond [`Receiver::next`] that have arrived.
    fn bitmap(&self) -> Bitmap {
        let mut bitmap = Bitmap::default();
        for (bit, _) in self.held.iter().skip(1).enumerate().filter(|(_, entry)| entry.is_some()) {
            bitmap.set(bit as u32);
        }
        bitmap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_in_order_whatever_the_order_they_came_in() {
        let first = Psn(u32::MAX - 1);
        let mut receiver = Receiver::new(first, 8);
        let mut out = Vec::new();
        for number in [2u32, 1, 3, 0, 5, 4] {
            match receiver.place(first.plus(number)) {
                Place::Next => {
                    receiver.take_next_before_held();
                    out.push(number);
                }
                Place::Ahead(ahead) => receiver.hold(ahead, 0, number),
                other => panic!("{number} was {other:?}"),
            }
            while let Some((_, number)) = receiver.pop_held() {
                out.push(number);
            }
        }
        assert_eq!(out, [0, 1, 2, 3, 4, 5]);
        assert!(!receiver.has_held());
        assert!(receiver.is_plain_next(first.plus(6)));
    }

    #[test]
    fn what_was_here_before_is_a_duplicate_and_is_reported_to_the_peer() {
        let mut receiver = Receiver::<()>::new(Psn(10), 8);
        assert_eq!(receiver.place(Psn(9)), Place::Duplicate);
        receiver.hold(3, 0, ());
        receiver.ack_contents(0, 0);
        assert_eq!(receiver.place(Psn(13)), Place::Duplicate);
        assert!(receiver.needs_ack());
        receiver.acknowledged_by_header();
        assert!(receiver.needs_ack(), "a header does not report duplicates");
        assert_eq!(receiver.ack_contents(0, 0).duplicates, 2);
        assert!(!receiver.needs_ack());
    }

    #[test]
    fn nothing_is_kept_beyond_the_window() {
        let mut receiver = Receiver::<()>::new(Psn(0), 4);
        assert_eq!(receiver.place(Psn(3)), Place::Ahead(3));
        assert_eq!(receiver.place(Psn(4)), Place::Beyond);
        assert_eq!(receiver.place(Psn(1 << 31)), Place::Duplicate, "half the circle away counts as behind");
    }

    #[test]
    fn the_peer_may_be_a_window_and_a_finish_ahead() {
        let receiver = Receiver::<()>::new(Psn(u32::MAX), 4);
        let numbers = [u32::MAX - 1, u32::MAX, 4, 5, 1 << 31];
        assert_eq!(
            numbers.map(|psn| receiver.may_be_next_of_peer(Psn(psn))),
            [false, true, true, false, false]
        );
    }

    #[test]
    fn the_bitmap_contains_what_is_there_after_the_first_missing_one() {
        let mut receiver = Receiver::new(Psn(0), 256);
        for ahead in [1, 3, 255] {
            receiver.hold(ahead, 0, ());
        }
        assert_eq!(receiver.bitmap().iter().collect::<Vec<_>>(), [0, 2, 254]);
    }

    #[test]
    fn there_is_room_for_twice_the_window_that_the_peer_has_advertised() {
        let mut receiver = Receiver::<()>::new(Psn(0), 256);
        assert_eq!(receiver.room(), 32);
        assert_eq!(receiver.on_window(16), 0);
        assert_eq!(receiver.on_window(48), 96 - 32);
        assert_eq!(receiver.on_window(32), 0, "never less than before");
        assert_eq!(receiver.on_window(256), 256 - 96, "no more than it may have outstanding");
        assert_eq!(receiver.room(), 256);
        assert_eq!(Receiver::<()>::new(Psn(0), 8).room(), 8);
    }
}
