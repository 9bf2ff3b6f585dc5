//! What a frame is put together from.

use uct_plugin::Iov;
use uct_plugin::rma::{Answer, Request};

use crate::io::pieces::Memory;
use crate::proto::wire::{FRAME_HEADER, control, frame_header};

/// A part of a frame, which is written where the frame is sent from.
///
/// # Safety
/// `write` fills the room and calls neither the application nor a connection: the room may be the end of a connection's queue.
pub(crate) unsafe trait Part {
    /// Bytes.
    fn length(&self) -> usize;

    /// Writes the part.
    ///
    /// # Safety
    /// The room is [`Part::length`] bytes long.
    unsafe fn write(&self, room: &mut [u8]);
}

/// The heads of a request ahead of so many bytes of data.
pub(crate) struct RequestHeads<'a>(pub(crate) &'a Request, pub(crate) usize);

impl<'a> From<&'a Answer<'_>> for Memory<'a> {
    #[inline(always)]
    fn from(answer: &'a Answer<'_>) -> Memory<'a> {
        let (start, length) = answer.data();
        // SAFETY: the answer holds what it is to send, and is borrowed for `'a`.
        unsafe { Memory::new(start, length) }
    }
}

// SAFETY: it copies.
unsafe impl Part for Memory<'_> {
    #[inline(always)]
    fn length(&self) -> usize {
        Memory::length(*self)
    }

    #[inline(always)]
    unsafe fn write(&self, room: &mut [u8]) {
        // SAFETY: the caller's promise.
        unsafe { self.copy_into(room) };
    }
}

// SAFETY: it copies.
unsafe impl<const N: usize> Part for [u8; N] {
    #[inline(always)]
    fn length(&self) -> usize {
        N
    }

    #[inline(always)]
    unsafe fn write(&self, room: &mut [u8]) {
        room.copy_from_slice(self);
    }
}

// SAFETY: it copies.
unsafe impl Part for Iov<'_> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.total()
    }

    #[inline(always)]
    unsafe fn write(&self, room: &mut [u8]) {
        // SAFETY: the room is as long by the caller's promise, and no part of the vector, since it is nobody else's.
        unsafe { self.gather(room.as_mut_ptr()) };
    }
}

// SAFETY: it writes numbers.
unsafe impl Part for RequestHeads<'_> {
    #[inline(always)]
    fn length(&self) -> usize {
        FRAME_HEADER + self.0.frame_bytes()
    }

    #[inline(always)]
    unsafe fn write(&self, room: &mut [u8]) {
        let (frame, request) = room.split_at_mut(FRAME_HEADER);
        let header = frame_header(control::REQUEST, self.0.frame_bytes() + self.1);
        frame.copy_from_slice(&header.to_ne_bytes());
        self.0.write(request);
    }
}

// SAFETY: neither part does anything else.
unsafe impl<A: Part, B: Part> Part for (A, B) {
    #[inline(always)]
    fn length(&self) -> usize {
        self.0.length().saturating_add(self.1.length())
    }

    #[inline(always)]
    unsafe fn write(&self, room: &mut [u8]) {
        let (first, second) = room.split_at_mut(self.0.length());
        // SAFETY: split off at its length.
        unsafe { self.0.write(first) };
        // SAFETY: the caller's room is as long as both.
        unsafe { self.1.write(second) };
    }
}
