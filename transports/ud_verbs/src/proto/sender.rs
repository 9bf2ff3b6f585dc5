//! The sending half of a connection: what is outstanding, what may be sent, what must be sent again.
//!
//! Built on `slots`, `psn`, `time`, `congestion` and `round_trip`; the [connection](super::connection) is built on it.
//! Losses are found by time of sending, as RFC 8985 does: a packet is lost when one sent after it has arrived and
//! it has been out for a round trip and the extent of reordering that has been seen. Silence alone proves no loss: a PING
//! is sent, and the reply to it counts as the arrival of a packet. So silence of a slow network leads to a PING and not to
//! the retransmission of everything.

use super::congestion::Congestion;
use super::control::{Ack, Bitmap, Invitation};
use super::psn::Psn;
use super::round_trip::RoundTrip;
use super::settings::Settings;
use super::time::Stamp;

mod slots;

use slots::{Slot, Slots, State};

/// The sending half of a connection. `S` is the transport's handle of a packet that may have to be sent again.
#[derive(Debug)]
pub(super) struct Sender<S> {
    next: Psn,
    /// Packets may be sent up to here; never ahead of `next` while the connection is not open.
    limit: Psn,
    /// The first packet that the peer has not acknowledged.
    unacknowledged: Psn,
    /// From here on packets request an acknowledgement.
    request_ack_at: Psn,
    /// The first packet in `slots`: those before `unacknowledged` wait for the transport to fetch them.
    released: Psn,
    slots: Slots<S>,
    open: bool,
    /// Nothing may be sent until [`Sender::resume`].
    is_paused: bool,
    in_recovery: bool,
    recovery_end: Psn,
    /// Outstanding packets that have arrived out of order.
    arrived: u32,
    /// Outstanding packets that wait to be sent again.
    lost: u32,
    congestion: Congestion,
    pub(super) round_trip: RoundTrip,
    /// Of the packets known to have arrived, the one that was sent last.
    newest: Newest,
    reordering: Reordering,
    last_ping: Ping,
}

/// The last PING, which the peer's response has to match.
#[derive(Clone, Copy, Debug, Default)]
struct Ping {
    /// 0 before the first.
    time: u32,
    unacknowledged: Psn,
}

#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    sent_at: Stamp,
    psn: Psn,
    /// Nanoseconds until the response arrived.
    trip: u64,
}

/// Observed reordering in the network.
#[derive(Clone, Copy, Debug, Default)]
struct Reordering {
    seen: bool,
    /// Quarters of the shortest round trip to wait beyond the first.
    extra_quarters: u8,
    highest_arrived: Psn,
    /// Something has been sent again since the peer's count of duplicates moved.
    has_resent: bool,
    peer_duplicates: u32,
}

/// A packet to be sent again; [`Sender::packet`] has its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resend {
    pub(super) psn: Psn,
    pub(super) kind: u8,
    pub(super) flags: u8,
}

/// What was new in an ACK beyond its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Packets have arrived behind a missing one.
    pub(super) arrived: bool,
    /// It is the response to a PING.
    pub(super) echoed: bool,
}

/// The peer acknowledges what was never sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bogus;

impl<S> Sender<S> {
    /// A sender that may not send yet.
    pub(super) fn new(settings: &Settings) -> Sender<S> {
        Sender {
            next: Psn(0),
            limit: Psn(0),
            unacknowledged: Psn(0),
            request_ack_at: Psn(0),
            released: Psn(0),
            slots: Slots::new(),
            open: false,
            is_paused: false,
            in_recovery: false,
            recovery_end: Psn(0),
            arrived: 0,
            lost: 0,
            congestion: Congestion::new(settings.window_initial, settings.window_min, settings.window_max),
            round_trip: RoundTrip::default(),
            newest: Newest::default(),
            reordering: Reordering::default(),
            last_ping: Ping::default(),
        }
    }

    /// Opens the sender as the peer permits.
    pub(super) fn open(&mut self, peer: Invitation, settings: &Settings) {
        let maximum = settings.window_max.min(u32::from(peer.window));
        let initial = settings.window_initial.min(u32::from(peer.first_window));
        self.congestion = Congestion::new(initial, settings.window_min.min(initial), maximum);
        let first = peer.first_psn;
        (self.next, self.unacknowledged, self.released, self.request_ack_at) = (first, first, first, first);
        (self.newest.psn, self.reordering.highest_arrived, self.recovery_end) = (first, first, first);
        self.open = true;
        self.update_limit();
    }

    /// Lets no further packet be sent.
    pub(super) fn close(&mut self) {
        self.open = false;
        self.limit = self.next;
    }

    /// Whether all has been acknowledged, and the next packet is to wait because the peer requests it.
    #[inline]
    pub(super) fn should_pause(&self) -> bool {
        self.congestion.pace() != 0 && self.outstanding() == 0
    }

    /// The peer requests pauses of so many round trips between packets, or for none any more.
    pub(super) fn set_pace(&mut self, pace: u32) {
        self.congestion.set_pace(pace);
        self.update_limit();
    }

    /// Lets no packet be sent for now; returns for how many nanoseconds.
    pub(super) fn pause(&mut self) -> u64 {
        self.is_paused = true;
        self.update_limit();
        u64::from(self.congestion.pace()) * self.round_trip.smoothed().unwrap_or(0)
    }

    /// Ends a pause; returns whether there was one.
    pub(super) fn resume(&mut self) -> bool {
        let was_paused = std::mem::take(&mut self.is_paused);
        self.update_limit();
        was_paused
    }

    /// The sequence number of the next packet.
    #[inline]
    pub(super) fn next(&self) -> Psn {
        self.next
    }

    /// The first packet that is not acknowledged.
    #[inline]
    pub(super) fn unacknowledged(&self) -> Psn {
        self.unacknowledged
    }

    /// Packets that have been sent and not acknowledged.
    #[inline]
    pub(super) fn outstanding(&self) -> u32 {
        self.next.ahead_of(self.unacknowledged)
    }

    /// Packets that may be in flight.
    #[inline]
    pub(super) fn window(&self) -> u32 {
        self.congestion.window()
    }

    /// Whether the window has room.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        self.next.is_before(self.limit)
    }

    /// Whether the next packet should request an acknowledgement.
    #[inline]
    pub(super) fn should_request_ack(&self) -> bool {
        !self.next.is_before(self.request_ack_at)
    }

    /// Takes the next packet, which has been sent, over.
    #[inline]
    pub(super) fn sent(&mut self, now: Stamp, kind: u8, flags: u8, packet: Option<S>) {
        if self.should_request_ack() {
            self.request_ack_at = self.next.plus(self.congestion.window() / 4 + 1);
        }
        let psn = self.next;
        self.next = psn.plus(1);
        self.slots.put(self.released, psn, Slot::sent(now, kind, flags, packet));
    }

    /// A packet that the peer has acknowledged, oldest first. The outer `Option` ends the queue.
    #[inline]
    pub(super) fn pop_acknowledged(&mut self) -> Option<Option<S>> {
        if self.released == self.unacknowledged {
            return None;
        }
        let packet = self.slots.get_mut(self.released)?.packet.take();
        self.released = self.released.plus(1);
        Some(packet)
    }

    /// Whether [`Sender::pop_acknowledged`] has something.
    #[inline]
    pub(super) fn has_acknowledged(&self) -> bool {
        self.released != self.unacknowledged
    }

    /// A packet of those still outstanding when the connection has ended, oldest first.
    pub(super) fn abandon(&mut self) -> Option<Option<S>> {
        self.close();
        if self.released == self.next {
            return None;
        }
        let packet = self.slots.get_mut(self.released)?.packet.take();
        self.released = self.released.plus(1);
        if self.unacknowledged.is_before(self.released) {
            self.unacknowledged = self.released;
        }
        (self.arrived, self.lost) = (0, 0);
        Some(packet)
    }

    /// Whether an acknowledgement is of something outstanding.
    #[inline]
    pub(super) fn is_ack_in_range(&self, ack: Psn) -> bool {
        ack.ahead_of(self.unacknowledged) <= self.outstanding()
    }

    /// What has been outstanding longest; nothing if what is acknowledged has not been fetched, or if that packet is its
    /// header.
    #[inline(always)]
    pub(super) fn oldest(&self) -> Option<&S> {
        let is_there = !self.has_acknowledged() && self.outstanding() != 0;
        if is_there { self.slots.get(self.unacknowledged)?.packet.as_ref() } else { None }
    }

    /// The peer has all packets before `ack`. `delay` is how long it held this back, if it reports that.
    /// Returns how many packets this acknowledges.
    #[inline]
    pub(super) fn on_ack(&mut self, now: Stamp, ack: Psn, delay: Option<u64>) -> Result<u32, Bogus> {
        let count = ack.ahead_of(self.unacknowledged);
        let outstanding = self.outstanding();
        if count > outstanding {
            return if ack.is_before(self.unacknowledged) { Ok(0) } else { Err(Bogus) };
        }
        if count == 0 {
            return Ok(0);
        }
        if self.arrived | self.lost != 0 {
            self.account_for(count);
        }
        let last = ack.plus(u32::MAX);
        let Some(slot) = self.slots.get(last) else { return Err(Bogus) };
        let (sent_at, resent) = (slot.sent_at, slot.resent);
        let trip = now.since(sent_at);
        match delay {
            _ if resent => {}
            Some(delay) => self.round_trip.sample(trip.saturating_sub(delay)),
            None => self.round_trip.sample_at_most(trip),
        }
        if !resent || self.is_plausible(trip) {
            self.note_arrival(sent_at, last, trip);
        }
        self.unacknowledged = ack;
        if self.in_recovery && !ack.is_before(self.recovery_end) {
            self.in_recovery = false;
        }
        let was_limited = outstanding * 2 >= self.congestion.window();
        if was_limited && (!self.in_recovery || self.congestion.is_slow_start()) {
            self.congestion.grow(count);
        }
        self.request_ack_at = ack.plus(self.congestion.window() / 2);
        self.update_limit();
        Ok(count)
    }

    /// Records that a PING is sent now; returns the time in it.
    pub(super) fn ping(&mut self, now: Stamp) -> u32 {
        let time = now.to_wire();
        if time != self.last_ping.time {
            self.last_ping = Ping { time, unacknowledged: self.unacknowledged };
        }
        time
    }

    /// Whether the peer's response to the last PING contradicts earlier ones, or what was sent. One
    /// such packet may be a late or a damaged one; a response to a PING cannot be late.
    pub(super) fn is_contradiction(&self, ack: Psn, contents: &Ack) -> bool {
        let takes_back = ack.is_before(self.last_ping.unacknowledged);
        let end_of_arrived = contents.bitmap.iter().last().map_or(ack, |bit| ack.plus(bit + 2));
        let was_never_sent = self.next.is_before(end_of_arrived);
        contents.echo != 0 && contents.echo == self.last_ping.time && (takes_back || was_never_sent)
    }

    /// Handles the contents of an ACK beyond its header, which was handled before: packets that arrived out of order, and the
    /// time of a PING of this side.
    pub(super) fn on_gaps(&mut self, now: Stamp, ack: Psn, contents: &Ack) -> Result<News, Bogus> {
        self.update_duplicates(contents.duplicates);
        if ack != self.unacknowledged {
            return Ok(News::default());
        }
        let first = ack.plus(1);
        let beyond = |bit: u32| bit + 1 >= self.outstanding();
        if contents.bitmap.iter().last().is_some_and(beyond) {
            return Err(Bogus);
        }
        let before = self.arrived;
        self.mark_arrived(now, first, contents.bitmap);
        let echo = Stamp::from_wire(contents.echo);
        if let Some(pinged_at) = echo {
            // All that was sent before the PING should have arrived before it.
            let trip = now.since(pinged_at);
            self.round_trip.sample(trip.saturating_sub(contents.delay));
            self.note_arrival(pinged_at, ack, trip);
        }
        self.update_limit();
        Ok(News { arrived: self.arrived != before, echoed: echo.is_some() })
    }

    fn mark_arrived(&mut self, now: Stamp, first: Psn, bitmap: Bitmap) {
        for psn in bitmap.iter().map(|bit| first.plus(bit)) {
            let Some(slot) = self.slots.get_mut(psn) else { return };
            match slot.state {
                State::Arrived => continue,
                State::Lost => self.lost -= 1,
                State::Sent => {}
            }
            slot.state = State::Arrived;
            self.arrived += 1;
            let (sent_at, resent) = (slot.sent_at, slot.resent);
            self.note_order(psn, resent);
            let trip = now.since(sent_at);
            if !resent || self.is_plausible(trip) {
                self.note_arrival(sent_at, psn, trip);
            }
        }
    }

    /// Accounts for the oldest `count` packets, which are acknowledged, while some are not plainly outstanding.
    fn account_for(&mut self, count: u32) {
        for psn in self.unacknowledged.until(self.unacknowledged.plus(count)) {
            let Some(slot) = self.slots.get(psn) else { return };
            let (state, resent) = (slot.state, slot.resent);
            match state {
                State::Arrived => {
                    self.arrived -= 1;
                    continue;
                }
                State::Lost => self.lost -= 1,
                State::Sent => {}
            }
            self.note_order(psn, resent);
        }
    }

    /// A packet that was sent once and arrives after a later one was overtaken by it.
    fn note_order(&mut self, psn: Psn, resent: bool) {
        if psn.is_before(self.reordering.highest_arrived) {
            self.reordering.seen |= !resent;
        } else {
            self.reordering.highest_arrived = psn;
        }
    }

    /// Whether a packet that was sent twice can have arrived so soon the second time; if not, the first copy has.
    fn is_plausible(&self, trip: u64) -> bool {
        trip * 2 >= self.round_trip.smoothed().unwrap_or(0)
    }

    #[inline]
    fn note_arrival(&mut self, sent_at: Stamp, psn: Psn, trip: u64) {
        if !sent_at.is_before(self.newest.sent_at) {
            self.newest = Newest { sent_at, psn, trip };
        }
    }

    /// A duplicate after something was sent again: it need not have been, the network only reorders.
    fn update_duplicates(&mut self, duplicates: u32) {
        if duplicates == self.reordering.peer_duplicates {
            return;
        }
        self.reordering.peer_duplicates = duplicates;
        if std::mem::take(&mut self.reordering.has_resent) {
            self.reordering.seen = true;
            self.reordering.extra_quarters = self.reordering.extra_quarters.saturating_add(1);
        }
    }

    /// Whether some packets are not plainly outstanding, so that [`Sender::detect_losses`] has packets to check.
    #[inline]
    pub(super) fn is_disturbed(&self) -> bool {
        self.arrived | self.lost != 0 || self.in_recovery
    }

    /// Checks for packets that should have arrived by now; returns after how many nanoseconds to check again, if at all.
    pub(super) fn detect_losses(&mut self, now: Stamp) -> Option<u64> {
        let allowed = self.newest.trip + self.reorder_allowance();
        let mut again: Option<u64> = None;
        let mut found = 0;
        for psn in self.unacknowledged.until(self.next) {
            let Some(slot) = self.slots.get_mut(psn) else { break };
            let is_older = slot.sent_at.is_before(self.newest.sent_at)
                || slot.sent_at == self.newest.sent_at && psn.is_before(self.newest.psn);
            if slot.state != State::Sent || !is_older {
                continue;
            }
            let out_for = now.since(slot.sent_at);
            if out_for >= allowed {
                slot.state = State::Lost;
                found += 1;
            } else {
                let rest = allowed - out_for;
                again = Some(again.map_or(rest, |other| other.min(rest)));
            }
        }
        if found != 0 {
            self.lost += found;
            if !self.in_recovery {
                self.congestion.on_loss();
                self.enter_recovery();
            }
        }
        self.update_limit();
        again
    }

    /// Nanoseconds that a packet may come late because another overtook it.
    fn reorder_allowance(&self) -> u64 {
        if !self.reordering.seen && (self.in_recovery || self.arrived >= 3) {
            return 0;
        }
        let quarters = u64::from(self.reordering.extra_quarters) + 1;
        let longest = self.round_trip.smoothed().unwrap_or(0);
        (self.round_trip.minimum() / 4 * quarters).min(longest)
    }

    fn enter_recovery(&mut self) {
        self.in_recovery = true;
        self.recovery_end = self.next;
    }

    /// Several times in a row no acknowledgement came in time: the network cannot carry what is sent.
    pub(super) fn on_silence(&mut self) {
        if self.outstanding() != 0 {
            self.congestion.on_timeout();
            // What turns out lost is part of this, and not a reason to halve the window again.
            self.enter_recovery();
            self.update_limit();
        }
    }

    /// Takes the only outstanding packet for lost, if the peer has too little room for all that is sent to it; returns whether it did. To
    /// send it again costs the peer no more than a PING.
    pub(super) fn presume_lost(&mut self) -> bool {
        if self.congestion.pace() == 0 || self.outstanding() != 1 {
            return false;
        }
        if let Some(slot) = self.slots.get_mut(self.unacknowledged)
            && slot.state == State::Sent
        {
            slot.state = State::Lost;
            self.lost = 1;
            self.enter_recovery();
            self.update_limit();
        }
        true
    }

    /// Whether [`Sender::resend`] has something.
    pub(super) fn may_resend(&self) -> bool {
        self.lost != 0 && self.in_flight() < self.congestion.window()
    }

    /// The oldest packet that is lost, if the window admits it; counted as sent.
    pub(super) fn resend(&mut self, now: Stamp) -> Option<Resend> {
        if !self.may_resend() {
            return None;
        }
        let lost = |psn: &Psn| self.slots.get(*psn).is_some_and(|slot| slot.state == State::Lost);
        let psn = self.unacknowledged.until(self.next).find(lost)?;
        let slot = self.slots.get_mut(psn)?;
        slot.state = State::Sent;
        slot.resent = true;
        slot.sent_at = now;
        self.lost -= 1;
        self.reordering.has_resent = true;
        Some(Resend { psn, kind: slot.kind, flags: slot.flags })
    }

    /// What a packet consists of beyond its header, if there is more.
    pub(super) fn packet(&mut self, psn: Psn) -> Option<&mut S> {
        self.slots.get_mut(psn)?.packet.as_mut()
    }

    fn in_flight(&self) -> u32 {
        self.outstanding() - self.arrived - self.lost
    }

    #[inline]
    fn update_limit(&mut self) {
        if !self.open || self.is_paused {
            self.limit = self.next;
            return;
        }
        let outstanding = self.outstanding();
        let in_flight = outstanding - self.arrived - self.lost;
        let by_congestion = self.congestion.window().saturating_sub(in_flight + self.lost);
        let by_window = self.congestion.maximum().saturating_sub(outstanding);
        self.limit = self.next.plus(by_congestion.min(by_window));
    }
}

#[cfg(test)]
mod tests;
