//! Bytes that are copied during the call of the program.

#![expect(unsafe_code, reason = "the program's memory is passed as pointers")]

use super::super::{Buffer, Buffers};

/// Bytes to be sent: the program's, or a copy of them.
pub(super) struct Copied {
    pub(super) buffers: Buffers,
    /// What `buffers` are part of. It lives as long as they are used.
    pub(super) copy: Option<Box<[u8]>>,
}

impl Copied {
    pub(super) fn new(buffers: Buffers, is_copied: bool) -> Copied {
        if !is_copied {
            return Copied { buffers, copy: None };
        }
        let mut bytes = Vec::with_capacity(buffers.len());
        buffers.append_to(&mut bytes);
        let mut copy = bytes.into_boxed_slice();
        // SAFETY: the bytes stay where they are until the operation that holds the copy has ended; they are only read.
        let buffer = unsafe { Buffer::new(copy.as_mut_ptr(), copy.len()) };
        Copied { buffers: Buffers::One(buffer), copy: Some(copy) }
    }
}
