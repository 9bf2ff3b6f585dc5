//! What a domain has carried.

/// Counts of a domain since it was opened, of operations that this side has begun and messages that have come to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Messages sent, and their bytes.
    pub sent: (u64, u64),
    /// Messages that have come, announced ones too, and their bytes, whatever part of them a receive takes.
    pub received: (u64, u64),
    /// Writes to regions of peers.
    pub writes: u64,
    /// Reads from them.
    pub reads: u64,
    /// Atomic operations on them.
    pub atomics: u64,
    /// Bytes of these three.
    pub moved: u64,
}

impl Totals {
    #[inline]
    pub(super) fn sent(&mut self, length: usize) {
        self.sent.0 += 1;
        self.sent.1 += length as u64;
    }

    #[inline]
    pub(super) fn received(&mut self, length: u64) {
        self.received.0 += 1;
        // Of an announced message it is the peer's word.
        self.received.1 = self.received.1.wrapping_add(length);
    }
}
