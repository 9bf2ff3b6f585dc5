//! Parts of frames that the SDK defines: the heads of requests, and responses.

use uct_plugin::rma::{Answer, MAX_REQUEST, Payload, Request};

use crate::io::pieces::Memory;
use crate::proto::wire::{FRAME_HEADER, control, frame_header};

/// The head of a request's frame that has `data` bytes behind it, and how many of its bytes count.
pub(crate) fn request_head(request: &Request, data: usize) -> ([u8; FRAME_HEADER + MAX_REQUEST], usize) {
    let mut head = [0; FRAME_HEADER + MAX_REQUEST];
    let bytes = request.write(&mut head[FRAME_HEADER..]);
    head[..FRAME_HEADER].copy_from_slice(&frame_header(control::REQUEST, bytes + data).to_ne_bytes());
    (head, FRAME_HEADER + bytes)
}

impl<'a> From<&'a Answer<'_>> for Memory<'a> {
    #[inline(always)]
    fn from(answer: &'a Answer<'_>) -> Memory<'a> {
        let (start, length) = answer.data();
        // SAFETY: the response holds what it is to send, and is borrowed for `'a`.
        unsafe { Memory::new(start, length) }
    }
}

// SAFETY: it copies.
unsafe impl Payload for Memory<'_> {
    fn length(&self) -> usize {
        (*self).length()
    }

    unsafe fn write(&self, target: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { (*self).write(target) };
    }
}
