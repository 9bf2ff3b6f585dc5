//! Credits: how much one side of a connection may send before the other side has taken it.
//!
//! Counts are of bytes, ever, modulo 2³². A message costs its payload and [`OVERHEAD`], so that empty ones are bounded as well.
//! A count that is repeated or comes late does no harm: the furthest one holds.

/// What a message costs beside its payload: about what its place in the receiver's queue takes.
pub(crate) const OVERHEAD: u32 = 64;

/// Smallest and largest window: one full message of any lane, and what the counts can tell apart.
pub(crate) const MIN_WINDOW: u32 = 4096;
pub(crate) const MAX_WINDOW: u32 = 1 << 30;

/// What a message of so many bytes costs.
pub(crate) fn cost(payload: usize) -> u32 {
    u32::try_from(payload).unwrap_or(u32::MAX - OVERHEAD).saturating_add(OVERHEAD)
}

/// The sender's side.
#[derive(Debug)]
pub(crate) struct SendWindow {
    sent: u32,
    granted: u32,
    largest: u32,
}

impl SendWindow {
    /// `size` is what the receiver takes before it grants more.
    pub(crate) fn new(size: u32) -> SendWindow {
        SendWindow { sent: 0, granted: size, largest: size }
    }

    /// The largest payload that may be sent now; `None` if not even an empty one.
    pub(crate) fn room(&self) -> Option<usize> {
        self.granted.wrapping_sub(self.sent).checked_sub(OVERHEAD).map(|room| room as usize)
    }

    /// The largest payload that may ever be sent.
    pub(crate) fn longest(&self) -> usize {
        self.largest.saturating_sub(OVERHEAD) as usize
    }

    /// Counts a message that was sent.
    pub(crate) fn take(&mut self, payload: usize) {
        self.sent = self.sent.wrapping_add(cost(payload));
    }

    /// Takes back the count of a message that was not sent after all.
    pub(crate) fn give_back(&mut self, payload: usize) {
        self.sent = self.sent.wrapping_sub(cost(payload));
    }

    /// Takes note of what the receiver has granted. One that is behind is an old one; one that is further than the
    /// receiver's window permits is a mistake of the peer's, and answers false.
    pub(crate) fn grant(&mut self, granted: u32) -> bool {
        let ahead = granted.wrapping_sub(self.granted);
        if ahead > MAX_WINDOW {
            return true;
        }
        if granted.wrapping_sub(self.sent) > self.largest {
            return false;
        }
        self.granted = granted;
        true
    }
}

/// The receiver's side.
#[derive(Debug)]
pub(crate) struct ReceiveWindow {
    size: u32,
    received: u32,
    released: u32,
    /// The last value that was sent to the sender.
    granted: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(size: u32) -> ReceiveWindow {
        ReceiveWindow { size, received: 0, released: 0, granted: size }
    }

    /// Counts a message that arrived; false if the sender had no credit for it.
    pub(crate) fn receive(&mut self, payload: usize) -> bool {
        let received = self.received.wrapping_add(cost(payload));
        if cost(payload) > self.granted.wrapping_sub(self.received) {
            return false;
        }
        self.received = received;
        true
    }

    /// Whether so many bytes beside what is unread fit into the window.
    pub(crate) fn has_room(&self, payload: usize) -> bool {
        let unread = self.received.wrapping_sub(self.released);
        cost(payload) <= self.size.saturating_sub(unread)
    }

    /// Counts the cost of messages that the application has taken.
    pub(crate) fn release(&mut self, cost: u32) {
        self.released = self.released.wrapping_add(cost);
    }

    /// The value to send to the sender, with any message in that direction.
    pub(crate) fn offer(&self) -> u32 {
        self.released.wrapping_add(self.size)
    }

    /// The value that [`ReceiveWindow::offer`] returned is being sent.
    pub(crate) fn grant(&mut self, offered: u32) {
        self.granted = offered;
    }

    /// Whether an explicit credit update is due: the sender has used half of what it was granted.
    pub(crate) fn is_due(&self) -> bool {
        self.released.wrapping_add(self.size).wrapping_sub(self.granted) >= self.size / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn advertise(receiver: &mut ReceiveWindow) -> u32 {
        let offered = receiver.offer();
        receiver.grant(offered);
        offered
    }

    #[test]
    fn a_sender_stops_at_the_window_and_goes_on_with_credit() {
        let (mut sender, mut receiver) = (SendWindow::new(MIN_WINDOW), ReceiveWindow::new(MIN_WINDOW));
        let mut count = 0;
        while sender.room().is_some() {
            sender.take(0);
            assert!(receiver.receive(0));
            count += 1;
        }
        assert_eq!(count, MIN_WINDOW / OVERHEAD);
        assert!(!receiver.receive(0), "one that the sender had no credit for");
        assert!(!receiver.is_due());
        for _ in 0..count / 2 {
            receiver.release(cost(0));
        }
        assert!(receiver.is_due());
        assert!(sender.grant(advertise(&mut receiver)));
        assert!(!receiver.is_due());
        assert_eq!(sender.room(), Some((MIN_WINDOW / 2 - OVERHEAD) as usize));
    }

    #[test]
    fn a_grant_that_is_late_changes_nothing_and_one_beyond_the_window_is_a_mistake() {
        let mut sender = SendWindow::new(MIN_WINDOW);
        sender.take(100);
        assert!(sender.grant(MIN_WINDOW + 164));
        assert!(sender.grant(MIN_WINDOW), "an old one");
        assert_eq!(sender.room(), Some((MIN_WINDOW - OVERHEAD) as usize));
        assert!(!sender.grant(MIN_WINDOW + 165), "more than the window");
        assert!(!sender.grant(MIN_WINDOW * 3));
    }

    proptest! {
        /// Whatever the sizes and the order of taking and granting: what the sender has credit for the receiver takes, the queue
        /// stays below the window, and nothing is stuck once all is taken.
        #[test]
        fn both_sides_agree(
            window in MIN_WINDOW..100_000,
            start in any::<u32>(),
            steps in prop::collection::vec((0usize..6000, 0usize..4, any::<bool>()), 1..400),
        ) {
            let (mut sender, mut receiver) = (SendWindow::new(window), ReceiveWindow::new(window));
            // Counts wrap: begin anywhere.
            sender.sent = start;
            sender.granted = start.wrapping_add(window);
            receiver.received = start;
            receiver.released = start;
            receiver.granted = start.wrapping_add(window);
            let mut queue = std::collections::VecDeque::new();
            for (size, taken, is_reported) in steps {
                if sender.room().is_some_and(|room| size <= room) {
                    sender.take(size);
                    prop_assert!(receiver.receive(size));
                    queue.push_back(size);
                }
                let queued: u32 = queue.iter().map(|size| cost(*size)).sum();
                prop_assert!(queued <= window);
                for size in queue.drain(..taken.min(queue.len())) {
                    receiver.release(cost(size));
                }
                if is_reported || receiver.is_due() {
                    prop_assert!(sender.grant(advertise(&mut receiver)));
                }
            }
            for size in queue.drain(..) {
                receiver.release(cost(size));
            }
            prop_assert!(sender.grant(advertise(&mut receiver)));
            prop_assert_eq!(sender.room(), Some((window - OVERHEAD) as usize));
        }
    }
}
