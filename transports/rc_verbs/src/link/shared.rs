//! What all connections of an interface share: limits, queues, pools, and the agenda of its progress.

use std::cell::Cell;

use uct_ib::verbs::Sge;
use uct_plugin::traits::ErrorHandler;
use uct_plugin::{Completion, PendingQueue, Unpack, completion};

use super::agenda::Agenda;
use super::receiving::Receiving;
use crate::io::buffer::{Buffers, ReadBuffer, SmallBuffer};
use crate::io::completions::Completions;
use crate::io::limits::Limits;

/// What all connections share. It outlives their queue pairs.
pub(crate) struct Shared {
    pub(crate) completions: Completions,
    /// Completions that the send queue's completion queue has room for.
    pub(crate) cq_available: Cell<u32>,
    /// A send completion is awaited: every progress polls the send queue.
    pub(crate) tx_wanted: Cell<bool>,
    pub(crate) agenda: Agenda,
    pub(crate) limits: Limits,
    pub(crate) rx: Receiving,
    pub(crate) pending: PendingQueue,
    pub(crate) buffers: Buffers,
    /// Destination of results that are not read, and its buffer, until the interface closes.
    pub(crate) sink: Sge,
    pub(crate) sink_buffer: Cell<Option<SmallBuffer>>,
    /// Explicit credit updates.
    pub(crate) credit_updates: Cell<u64>,
    /// Bytes of reads in flight.
    pub(crate) read_bytes: Cell<u64>,
    pub(crate) errors: ErrorHandler,
    /// Makes packet numbers hard to guess.
    pub(crate) salt: u32,
    /// Contents of the result buffer of an atomic until the device writes it: a value that cannot be guessed.
    pub(crate) mark: u64,
}

impl Shared {
    /// Delivers the result of a read. A separate function, because only this keeps values across a call.
    ///
    /// # Safety
    /// The read has ended.
    #[inline(never)]
    pub(crate) unsafe fn hand_over(&self, buffer: ReadBuffer, unpack: Unpack, done: Option<Completion>) {
        self.reads_end(buffer.length());
        // SAFETY: the caller's promise.
        unpack.read(unsafe { buffer.bytes() });
        self.buffers.put_message(buffer.into_buffer());
        completion::complete(done, Ok(()));
    }

    /// A read has ended.
    #[inline]
    pub(crate) fn reads_end(&self, length: usize) {
        self.read_bytes.set(self.read_bytes.get() - length as u64);
    }
}
