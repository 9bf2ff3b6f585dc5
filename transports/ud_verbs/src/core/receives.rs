//! The receive buffers: how many the device has, and how it gets them.
//!
//! For: progress, and the core's own. Stands on the core's queue and pool.

use super::{BATCH, Core};
use crate::pool::Arrival;

/// Receive buffers for those who are no peers yet, and for what has no place in a window.
const SPARE: u32 = 256;

impl Core {
    /// Takes a receive buffer back.
    #[inline(always)]
    pub(crate) fn recycle(&mut self, arrival: Arrival) {
        self.receives.put(arrival);
    }

    /// Takes back a message that a handler kept.
    ///
    /// # Safety
    /// As [`crate::pool::ReceivePool::kept`].
    pub(crate) unsafe fn release(&mut self, message: *mut u8) {
        // SAFETY: the caller's promise.
        if let Some(arrival) = unsafe { self.receives.kept(message) } {
            self.receives.put(arrival);
        }
    }

    /// Gives the device receive buffers, if at least `least` are missing.
    #[inline(always)]
    pub(crate) fn fill(&mut self, least: u32) {
        let wanted = self.wanted();
        if wanted.saturating_sub(self.posted) >= least {
            self.fill_up(wanted);
        }
    }

    /// Receive buffers that the device should have.
    #[inline(always)]
    fn wanted(&self) -> u32 {
        enough(self.table.len(), self.window).min(self.queue.receive_depth())
    }

    fn fill_up(&mut self, wanted: u32) {
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
            // stopped, and nobody else has them.
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

/// Receive buffers for all that so many peers may have under way, each of them up to `window` datagrams. More would do harm:
/// the fewer there are, the sooner a buffer is used again, and is still near the processor.
#[inline(always)]
fn enough(peers: usize, window: u32) -> u32 {
    u32::try_from(peers).unwrap_or(u32::MAX).saturating_mul(window).saturating_add(SPARE)
}

#[cfg(test)]
mod tests {
    use super::{SPARE, enough};

    #[test]
    fn every_peer_finds_room_for_its_window_and_newcomers_for_their_greeting() {
        assert_eq!(enough(0, 256), SPARE);
        for (peers, window) in [(1, 256), (3, 16), (300, 256)] {
            assert!(enough(peers, window) > peers as u32 * window, "{peers} peers, {window} each");
        }
        assert_eq!(enough(usize::MAX, 256), u32::MAX);
    }
}
