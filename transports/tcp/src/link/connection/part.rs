//! Parts of frames that the SDK defines: vectors, requests with their data, responses.

use uct_plugin::Iov;
use uct_plugin::rma::{Answer, Payload, Request};

use crate::io::pieces::{Memory, Part};
use crate::proto::wire::{FRAME_HEADER, control, frame_header};

/// The heads of a request ahead of so many bytes of data.
pub(crate) struct RequestHeads<'a>(pub(crate) &'a Request, pub(crate) usize);

/// The data of a request.
pub(crate) struct Copied<P>(pub(crate) P);

// SAFETY: it copies.
unsafe impl<P: Payload> Part for Copied<P> {
    #[inline(always)]
    fn length(&self) -> usize {
        self.0.length()
    }

    #[inline(always)]
    unsafe fn write(&self, room: &mut [u8]) {
        // SAFETY: the room is as long by the caller's promise, and no part of the data, since it is nobody else's.
        unsafe { self.0.write(room.as_mut_ptr()) };
    }
}

impl<'a> From<&'a Answer<'_>> for Memory<'a> {
    #[inline(always)]
    fn from(answer: &'a Answer<'_>) -> Memory<'a> {
        let (start, length) = answer.data();
        // SAFETY: the answer holds what it is to send, and is borrowed for `'a`.
        unsafe { Memory::new(start, length) }
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
