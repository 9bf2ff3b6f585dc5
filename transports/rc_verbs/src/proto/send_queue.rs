//! What one send queue has posted and may post: work requests by number, room, and credits for messages.
//!
//! Work requests end in the order in which they were posted, so the number of the last that has ended covers all ahead of it.

use std::cell::Cell;

use super::wire::Immediate;

/// Whether new work requests may be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gate {
    /// The peer's endpoint is not known yet.
    NotConnected,
    Open,
    /// A fence waits for reads and atomics; only what the connection posts on its own account goes through.
    Fenced,
    /// The connection has failed.
    Shut,
}

/// Number of consecutive unsignaled work requests, up to one that is about to be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unsignaled(u32);

impl Unsignaled {
    /// The next one is signaled.
    pub(crate) const NONE: Unsignaled = Unsignaled(0);
}

/// The counts of a send queue.
pub(crate) struct SendQueue {
    gate: Cell<Gate>,
    /// Work requests that fit.
    available: Cell<u32>,
    /// Messages that the peer still takes.
    credits: Cell<u32>,
    /// Number of the last work request posted, and of the last that ended.
    posted: Cell<u32>,
    ended: Cell<u32>,
    /// Work requests since the last that asked for a completion.
    unsignaled: Cell<u32>,
    /// The latest work requests that closing does not wait for: those behind the first number, up to the second.
    unawaited: Cell<(u32, u32)>,
    /// Number of the last work request that was a read or an atomic.
    last_read: Cell<u32>,
    /// Number of the last atomic that was posted behind nothing but atomics, where that matters.
    last_atomic: Cell<u32>,
}

impl SendQueue {
    /// A queue for so many work requests, which is not connected yet.
    pub(crate) fn new(length: u32) -> SendQueue {
        SendQueue {
            gate: Cell::new(Gate::NotConnected),
            available: Cell::new(length),
            credits: Cell::new(0),
            posted: Cell::new(0),
            ended: Cell::new(0),
            unsignaled: Cell::new(0),
            unawaited: Cell::default(),
            last_read: Cell::new(0),
            last_atomic: Cell::new(0),
        }
    }

    /// The peer is known, and takes so many messages to begin with.
    pub(crate) fn connect(&self, credits: u32) {
        self.credits.set(credits);
        self.gate.set(Gate::Open);
    }

    /// Lets nothing more be posted.
    pub(crate) fn shut(&self) {
        self.gate.set(Gate::Shut);
    }

    /// Whether the peer's endpoint is known, and the connection has not failed.
    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.gate.get(), Gate::Open | Gate::Fenced)
    }

    /// Whether neither the lack of a peer, nor a fence, nor a failure holds up new work requests.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.gate.get() == Gate::Open
    }

    /// Has new work requests wait until [`SendQueue::lift_fence`]; returns whether they did not already.
    pub(crate) fn fence(&self) -> bool {
        let is_open = self.is_open();
        if is_open {
            self.gate.set(Gate::Fenced);
        }
        is_open
    }

    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.gate.get() == Gate::Fenced
    }

    /// Lets new work requests be posted again, if a fence held them up.
    pub(crate) fn lift_fence(&self) {
        if self.is_fenced() {
            self.gate.set(Gate::Open);
        }
    }

    /// Work requests that fit.
    pub(crate) fn available(&self) -> u32 {
        self.available.get()
    }

    /// Whether a work request of the user's may be posted.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.is_open() && self.available.get() > 0
    }

    /// Whether a work request on the connection's own account may be posted, which a fence does not hold up.
    pub(crate) fn has_own_room(&self) -> bool {
        self.is_connected() && self.available.get() > 0
    }

    /// Messages that the peer still takes.
    #[inline]
    pub(crate) fn credits(&self) -> u32 {
        self.credits.get()
    }

    /// Adds the credits of a message; returns false if they exceed the largest window.
    #[inline]
    pub(crate) fn gain(&self, immediate: Immediate) -> bool {
        let credits = immediate.credits(self.credits.get());
        if let Some(credits) = credits {
            self.credits.set(credits);
        }
        credits.is_some()
    }

    /// A message was posted.
    #[inline]
    pub(crate) fn spend(&self) {
        self.credits.set(self.credits.get() - 1);
    }

    /// The next work request may go without a completion, unless it is one in `moderation` or takes the last room: so that there is
    /// always one to come when anything waits for room. For [`SendQueue::post`].
    #[inline]
    pub(crate) fn unsignaled(&self, moderation: u32) -> Option<Unsignaled> {
        let unsignaled = self.unsignaled.get() + 1;
        (unsignaled < moderation && self.available.get() > 1).then_some(Unsignaled(unsignaled))
    }

    /// Whether the last work requests are unsignaled.
    #[inline]
    pub(crate) fn has_unsignaled(&self) -> bool {
        self.unsignaled.get() > 0
    }

    /// Number of unsignaled work requests at the end.
    pub(crate) fn unsignaled_count(&self) -> u32 {
        self.unsignaled.get()
    }

    /// The number of the next work request.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.posted.get().wrapping_add(1)
    }

    /// The number of the last work request.
    #[inline]
    pub(crate) fn last(&self) -> u32 {
        self.posted.get()
    }

    /// Counts a work request that was just posted; returns its number.
    #[inline]
    pub(crate) fn post(&self, unsignaled: Unsignaled) -> u32 {
        let number = self.next();
        self.posted.set(number);
        self.available.set(self.available.get() - 1);
        self.unsignaled.set(unsignaled.0);
        number
    }

    /// The work request just posted was a read or an atomic, for which a fence waits.
    #[inline(always)]
    pub(crate) fn note_read(&self) {
        self.last_read.set(self.posted.get());
    }

    /// The work request just posted was an atomic.
    #[inline]
    pub(crate) fn note_atomic(&self) {
        self.last_atomic.set(self.posted.get());
    }

    /// The work request just posted carries nothing of the user's, so closing does not wait for it.
    pub(crate) fn note_unawaited(&self) {
        let number = self.posted.get();
        let ahead = number.wrapping_sub(1);
        let (from, to) = self.unawaited.get();
        self.unawaited.set((if to == ahead { from } else { ahead }, number));
    }

    /// Whether all work requests have ended but the latest that closing does not wait for.
    pub(crate) fn rest_is_unawaited(&self) -> bool {
        let (from, to) = self.unawaited.get();
        to == self.posted.get() && self.has_ended(from)
    }

    /// Work requests up to this number have ended; returns how many of them had not before.
    #[inline(always)]
    pub(crate) fn end_up_to(&self, number: u32) -> u32 {
        let ended = self.ended.get();
        let count = number.wrapping_sub(ended);
        // A number that is not in flight would be an error of the provider.
        if count > self.posted.get().wrapping_sub(ended) {
            return 0;
        }
        self.ended.set(number);
        self.available.set(self.available.get() + count);
        count
    }

    /// The number of the last work request that has ended.
    pub(crate) fn last_ended(&self) -> u32 {
        self.ended.get()
    }

    /// Whether the work request of this number has ended.
    pub(crate) fn has_ended(&self, number: u32) -> bool {
        self.ended.get().wrapping_sub(number).cast_signed() >= 0
    }

    /// Work requests that have not ended.
    pub(crate) fn under_way(&self) -> u32 {
        self.posted.get().wrapping_sub(self.ended.get())
    }

    /// Whether everything posted has ended.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.posted.get() == self.ended.get()
    }

    /// Whether nothing but atomics is in flight.
    #[inline]
    pub(crate) fn has_only_atomics(&self) -> bool {
        self.is_quiet() || self.last_atomic.get() == self.posted.get()
    }

    /// Whether a read or an atomic is in flight.
    pub(crate) fn has_reads(&self) -> bool {
        !self.has_ended(self.last_read.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected(length: u32) -> SendQueue {
        let queue = SendQueue::new(length);
        queue.connect(8);
        queue
    }

    #[test]
    fn nothing_may_be_posted_ahead_of_the_peer_or_behind_a_failure() {
        let queue = SendQueue::new(4);
        assert!(!queue.has_room() && !queue.has_own_room() && !queue.is_connected());
        assert!(!queue.fence(), "there is nothing to hold up");
        queue.connect(8);
        assert!(queue.has_room() && queue.is_connected());
        assert_eq!(queue.credits(), 8);
        assert!(queue.fence() && !queue.fence());
        queue.shut();
        queue.lift_fence();
        assert!(!queue.has_room() && !queue.has_own_room() && !queue.is_connected() && !queue.is_fenced());
    }

    #[test]
    fn a_fence_holds_up_the_user_alone() {
        let queue = connected(4);
        queue.post(Unsignaled::NONE);
        queue.note_read();
        assert!(queue.has_reads() && queue.fence());
        assert!(!queue.has_room() && queue.has_own_room() && queue.is_connected());
        assert_eq!(queue.end_up_to(1), 1);
        assert!(!queue.has_reads());
        queue.lift_fence();
        assert!(queue.has_room());
    }

    #[test]
    fn room_comes_back_with_the_end_of_what_took_it_and_once() {
        let queue = connected(4);
        queue.posted.set(u32::MAX - 1);
        queue.ended.set(u32::MAX - 1);
        let numbers: Vec<u32> = (0..4).map(|_| queue.post(Unsignaled::NONE)).collect();
        assert_eq!(numbers, [u32::MAX, 0, 1, 2]);
        assert!(!queue.has_room() && queue.under_way() == 4);
        assert_eq!((queue.end_up_to(0), queue.end_up_to(0), queue.available()), (2, 0, 2));
        assert_eq!(queue.end_up_to(3), 0, "it was not posted");
        assert!(queue.has_ended(u32::MAX) && queue.has_ended(0) && !queue.has_ended(1));
        assert_eq!((queue.end_up_to(2), queue.available()), (2, 4));
        assert!(queue.is_quiet());
    }

    #[test]
    fn one_in_so_many_and_the_last_that_fits_ask_for_a_completion() {
        let queue = connected(6);
        for count in 1..3 {
            assert_eq!(queue.unsignaled(3), Some(Unsignaled(count)));
            queue.post(Unsignaled(count));
            assert!(queue.has_unsignaled());
        }
        assert_eq!(queue.unsignaled(3), None);
        queue.post(Unsignaled::NONE);
        assert!(!queue.has_unsignaled());
        queue.post(queue.unsignaled(3).unwrap());
        queue.post(queue.unsignaled(3).unwrap());
        assert_eq!(queue.unsignaled(64), None, "the last room");
    }

    #[test]
    fn closing_waits_for_what_is_ahead_of_requests_of_its_own() {
        let queue = connected(8);
        queue.post(Unsignaled::NONE);
        queue.post(Unsignaled::NONE);
        queue.note_unawaited();
        queue.post(Unsignaled::NONE);
        queue.note_unawaited();
        assert!(!queue.rest_is_unawaited());
        queue.end_up_to(1);
        assert!(queue.rest_is_unawaited() && !queue.is_quiet());
        queue.post(Unsignaled::NONE);
        assert!(!queue.rest_is_unawaited());
    }

    #[test]
    fn only_atomics_are_under_way_until_something_else_is_posted() {
        let queue = connected(8);
        assert!(queue.has_only_atomics());
        queue.post(Unsignaled::NONE);
        queue.note_atomic();
        assert!(queue.has_only_atomics());
        queue.post(Unsignaled::NONE);
        assert!(!queue.has_only_atomics());
        queue.end_up_to(2);
        assert!(queue.has_only_atomics());
    }
}
