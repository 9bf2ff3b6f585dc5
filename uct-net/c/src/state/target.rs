//! Memory of a program that a message is received into.

#![expect(unsafe_code, reason = "it is memory of the program")]

use super::Done;

/// Memory of the program that a message is received into.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    start: *mut u8,
    length: usize,
}

// SAFETY: it is plain memory, which `Target::new` was promised to be the library's, whichever thread writes it.
unsafe impl Send for Target {}

impl Target {
    /// # Safety
    /// The memory is valid for writes, and used by nobody else, until the operation has ended and the program has taken
    /// its event, or until the connection or the net is closed.
    pub unsafe fn new(start: *mut u8, length: usize) -> Target {
        Target { start, length }
    }

    /// The memory. The operation has not ended.
    pub fn bytes(&mut self) -> &mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        // SAFETY: the promise of `new`. There is one value of this for an operation that is used at a time: that of the
        // call, or later that of the future that serves the line.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }

    /// What an operation returns that has received so many bytes.
    pub fn filled(self, length: usize) -> Done {
        Done { length: length as u64, data: self.start.expose_provenance() as u64, result: 0 }
    }
}
