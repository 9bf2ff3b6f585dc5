//! The receive buffers: how many the device has, and how it gets them.
//!
//! Built on the core's queue and pool.

use super::{BATCH, Core};
use crate::io::receives::Arrival;

/// Receive buffers beyond those that the peers need: for newcomers' handshakes, and for what has no place in a window.
#[derive(Clone, Copy)]
pub(super) struct Spare {
    buffers: u32,
    /// Number of peers at the last check.
    peers: usize,
}

impl Spare {
    /// While peers come, and none are known: many may come at once.
    const MOST: u32 = 256;
    const LEAST: u32 = 32;
    /// Decreases by so many whenever buffers are posted and there are no new peers.
    const STEP: u32 = 4;

    pub(super) const NEW: Spare = Spare { buffers: Spare::MOST, peers: 0 };

    /// Follows how many peers there are.
    fn adapt(&mut self, peers: usize) {
        self.buffers = match peers > self.peers {
            true => Spare::MOST,
            false => (self.buffers - Spare::STEP).max(Spare::LEAST),
        };
        self.peers = peers;
    }
}

impl Core {
    /// Takes a receive buffer back.
    #[inline]
    pub(crate) fn recycle(&mut self, arrival: Arrival) {
        self.receives.put(arrival);
    }

    /// Takes back a message that a handler retained.
    ///
    /// # Safety
    /// As [`crate::io::receives::ReceivePool::retained`].
    pub(crate) unsafe fn release(&mut self, message: *mut u8) {
        // SAFETY: the caller's promise.
        if let Some(arrival) = unsafe { self.receives.retained(message) } {
            self.receives.put(arrival);
        }
    }

    /// Gives the device receive buffers, if at least `least` are missing.
    #[inline]
    pub(crate) fn fill(&mut self, least: u32) {
        let wanted = self.wanted();
        if wanted.saturating_sub(self.posted) >= least {
            self.fill_up();
        }
    }

    /// Receive buffers that the device should have: as many as peers can fill before they are acknowledged. More would do harm: the
    /// fewer there are, the sooner a buffer is used again, and is still near the processor.
    #[inline]
    fn wanted(&self) -> u32 {
        (self.table.room() + self.spare.buffers).min(self.queue.receive_depth())
    }

    fn fill_up(&mut self) {
        self.spare.adapt(self.table.len());
        let wanted = self.wanted();
        while self.posted < wanted && self.queue.broken.is_none() {
            let room = (wanted - self.posted).min(BATCH) as usize;
            let Some(first) = self.receives.take() else { return };
            let mut posts = [first; BATCH as usize];
            let mut count = 1;
            while count < room {
                let Some(slot) = self.receives.take() else { break };
                posts[count] = slot;
                count += 1;
            }
            // SAFETY: the buffers are out of the pool until their completions come (`poll_device`) or the queue pair is
            // stopped, and nothing else uses them.
            let taken = unsafe { self.queue.post_receives(&posts[..count]) };
            self.posted += taken as u32;
            for slot in &posts[taken..count] {
                // SAFETY: just taken, and refused by the device.
                unsafe { self.receives.put_slot(*slot) };
            }
            if taken < count || count < room {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Spare;

    #[test]
    fn there_is_room_for_newcomers_while_they_come() {
        let mut spare = Spare::NEW;
        spare.adapt(1);
        assert_eq!(spare.buffers, Spare::MOST);
        for _ in 0..100 {
            spare.adapt(1);
        }
        assert_eq!(spare.buffers, Spare::LEAST);
        spare.adapt(0);
        assert_eq!(spare.buffers, Spare::LEAST, "a peer that has gone leaves room");
        spare.adapt(1);
        assert_eq!(spare.buffers, Spare::MOST);
    }
}
