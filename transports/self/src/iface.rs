//! The interface of `self`: buffers, and the way to the handlers.

use std::cell::Cell;
use std::ptr::NonNull;

use ucs::Error;
use ucs::event_set::EventFd;
use uct_plugin::memory::{Accessor, MessagePool};
use uct_plugin::{AmHandlers, Disposition, Result};

/// Bytes of a short message's header.
pub(crate) const WORD: usize = size_of::<u64>();

/// An interface of `self`.
pub(crate) struct SelfIface {
    pub(crate) seg_size: usize,
    pub(crate) buffers: MessagePool,
    /// Counts accesses to registered memory.
    pub(crate) accessor: Accessor,
    pub(crate) am: AmHandlers,
    pub(crate) number: u64,
    pub(crate) event: EventFd,
    /// A message that is delivered from the stack is in its handler.
    pub(crate) is_on_stack: Cell<bool>,
    /// A thread sleeps until a message comes.
    pub(crate) is_armed: Cell<bool>,
}

impl SelfIface {
    /// Largest payload of a short message.
    pub(crate) fn max_short(&self) -> usize {
        self.seg_size - WORD
    }

    /// Bytes of the largest header of a zero-copy message.
    pub(crate) fn max_hdr(&self) -> usize {
        self.seg_size.min(256)
    }

    /// Delivers the message that `fill` writes into a buffer, and wakes a sleeper; `fill` returns the length, as this does.
    #[inline]
    pub(crate) fn send(&self, id: u8, fill: impl FnOnce(NonNull<u8>) -> Result<usize>) -> Result<usize> {
        let buffer = self.buffers.get()?;
        let length = match fill(buffer) {
            Ok(length) => length,
            Err(error) => return Err(self.not_filled(buffer, error)),
        };
        if self.is_armed.get() {
            wake(&self.is_armed, &self.event);
        }
        // SAFETY: the message was just written into a buffer of the pool; the headroom lies ahead of it.
        if unsafe { self.am.deliver_desc(id, buffer.as_ptr(), length) } == Disposition::Consumed {
            // SAFETY: it came from this pool just now, and no handler has kept it.
            unsafe { self.buffers.put(buffer) };
        }
        Ok(length)
    }

    #[cold]
    #[inline(never)]
    fn not_filled(&self, buffer: NonNull<u8>, error: Error) -> Error {
        // SAFETY: it came from this pool just now, and nothing has it.
        unsafe { self.buffers.put(buffer) };
        error
    }

    /// Delivers a short message, which the handler copies if it keeps it, and wakes a sleeper.
    ///
    /// # Safety
    /// `length` bytes at `place` are readable, and nothing writes there until this returns.
    #[inline]
    pub(crate) unsafe fn deliver(&self, id: u8, place: NonNull<u8>, length: usize) {
        if self.is_armed.get() {
            wake(&self.is_armed, &self.event);
        }
        // SAFETY: the caller's promise.
        unsafe { self.am.deliver(id, place.as_ptr(), length) };
    }
}

/// By what it changes: with the interface the compiler computed its address ahead of each message, for this and for `not_filled`.
#[cold]
#[inline(never)]
fn wake(is_armed: &Cell<bool>, event: &EventFd) {
    is_armed.set(false);
    event.signal();
}
