//! Memory of this process that messages, puts and gets are copied from and to.

use std::ops::{Deref, DerefMut};

use rustix::param::page_size;
use uct_tools_common::Failure;

/// Bytes that the system has backed with memory; all 1. They begin at a page, as a domain's memory does, and the buffers of UCX's benchmark:
/// copies of 16 KiB to 128 KiB take an eighth longer from a place that is no multiple of 64.
pub(super) struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// # Errors
    /// There is not so much memory.
    pub(super) fn new(length: usize) -> Result<Buffer, Failure> {
        let failed = || format!("there is no memory for a message of {length} bytes; ask for less with -s");
        let mut memory: Vec<u8> = Vec::new();
        let room = length.checked_add(page_size()).ok_or_else(failed)?;
        memory.try_reserve_exact(room).map_err(|_| failed())?;
        let start = memory.as_ptr().align_offset(page_size());
        memory.resize(start + length, 1);
        Ok(Buffer { memory, start })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::Buffer;
    use rustix::param::page_size;

    #[test]
    fn a_buffer_begins_at_a_page_and_has_its_length() {
        for length in [0, 1, 4096, 70_000] {
            let buffer = Buffer::new(length).unwrap();
            assert_eq!((buffer.as_ptr().addr() % page_size(), buffer.len()), (0, length));
            assert!(buffer.iter().all(|&byte| byte == 1));
        }
        assert!(Buffer::new(usize::MAX).is_err());
        assert!(Buffer::new(isize::MAX as usize).is_err());
    }
}
