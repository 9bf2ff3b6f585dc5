//! A message in parts, put together.

use std::collections::TryReserveError;

use ucs::memory::{Buffer, BufferPool};

/// The bytes of a part, wherever they are.
pub(crate) trait Part {
    fn length(&self) -> usize;

    /// Copies them behind those of the vector.
    fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), TryReserveError>;
}

/// Why a part is not added.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    TooLong(TooLong),
    /// The system has no memory for it.
    NoMemory,
}

/// A message is longer than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    pub(crate) length: usize,
    /// Whether this is its length; more follows otherwise.
    pub(crate) is_all: bool,
}

/// The parts of one message so far. It takes the memory of what has arrived, not of what was announced: nothing is.
#[derive(Debug)]
pub(crate) struct Assembly {
    buffers: BufferPool,
    /// Once a part has arrived, until the last one has.
    bytes: Option<Vec<u8>>,
    /// Length of the message before.
    previous: usize,
}

impl Assembly {
    pub(crate) fn new(buffers: &BufferPool) -> Assembly {
        Assembly { buffers: buffers.clone(), bytes: None, previous: 0 }
    }

    /// Whether a part has arrived and the last one has not.
    pub(crate) fn is_begun(&self) -> bool {
        self.bytes.is_some()
    }

    /// The parts so far, which are given up here.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.bytes.take()
    }

    /// Adds a part.
    pub(crate) fn part(&mut self, part: &(impl Part + ?Sized), limit: usize) -> Result<(), Refused> {
        self.put_together(part, limit, false).map(|bytes| self.bytes = Some(bytes))
    }

    /// Adds the last part; returns the message.
    pub(crate) fn last(&mut self, part: &(impl Part + ?Sized), limit: usize) -> Result<Buffer, Refused> {
        let bytes = self.put_together(part, limit, true)?;
        self.previous = bytes.len();
        Ok(self.buffers.adopt(bytes))
    }

    /// What there is and a part. A message that gets no memory is never completed.
    fn put_together(
        &mut self,
        part: &(impl Part + ?Sized),
        limit: usize,
        is_last: bool,
    ) -> Result<Vec<u8>, Refused> {
        let length = self.bytes.as_ref().map_or(0, |bytes| bytes.len());
        if part.length() > limit - length.min(limit) {
            let length = length.saturating_add(part.length());
            return Err(Refused::TooLong(TooLong { length, is_all: is_last }));
        }
        let mut bytes = match self.bytes.take() {
            Some(bytes) => bytes,
            None => self.begin(part.length()).ok_or(Refused::NoMemory)?,
        };
        part.append_to(&mut bytes).map_err(|_| Refused::NoMemory)?;
        Ok(bytes)
    }

    /// Memory for a message of at least this length: as a rule it is as long as the one before.
    fn begin(&self, length: usize) -> Option<Vec<u8>> {
        let expected = self.previous.clamp(length, BufferPool::LARGEST.max(length));
        self.buffers.try_take(expected).or_else(|_| self.buffers.try_take(length)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Part for [u8] {
        fn length(&self) -> usize {
            self.len()
        }

        fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), TryReserveError> {
            bytes.extend_from_slice(self);
            Ok(())
        }
    }

    #[test]
    fn parts_become_a_message_and_the_next_one_begins_empty() {
        let mut assembly = Assembly::new(&BufferPool::default());
        assert!(!assembly.is_begun());
        assembly.part(&b"one "[..], 100).unwrap();
        assert!(assembly.is_begun());
        assert_eq!(**assembly.last(&b"two"[..], 100).unwrap(), *b"one two");
        assert!(!assembly.is_begun());
        assert_eq!(**assembly.last(&b"three"[..], 5).unwrap(), *b"three");
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_at_the_byte() {
        let mut assembly = Assembly::new(&BufferPool::default());
        assembly.part(&[0; 10][..], 10).unwrap();
        let refused = |is_all| Refused::TooLong(TooLong { length: 11, is_all });
        assert_eq!(assembly.part(&[0; 1][..], 10), Err(refused(false)));
        assert_eq!(assembly.last(&[0; 1][..], 10).err(), Some(refused(true)));
        assert_eq!(assembly.last(&[][..], 10).unwrap().len(), 10);
    }

    #[test]
    fn a_message_begins_with_the_memory_that_the_one_before_took() {
        let pool = BufferPool::default();
        let mut assembly = Assembly::new(&pool);
        let mut assemble = |length: usize| {
            let mut parts = vec![3; length];
            let last = parts.split_off(length - 10);
            for part in parts.chunks(4000) {
                assembly.part(part, usize::MAX).unwrap();
            }
            assembly.last(&last[..], usize::MAX).unwrap()
        };
        let first = assemble(50_000);
        let place = first.as_ptr().addr();
        drop(first);
        let second = assemble(40_000);
        assert_eq!((second.as_ptr().addr(), &second[..]), (place, &[3; 40_000][..]));
        let third = assemble(30_000);
        assert!(third.len() == 30_000 && third.capacity() == 65_536, "it did not grow: {}", third.capacity());
        drop((second, third));
        // What is reserved ahead of what arrives is bounded.
        assert_eq!(assemble(3 * BufferPool::LARGEST).len(), 3 * BufferPool::LARGEST);
        assembly.part(&b"few"[..], usize::MAX).unwrap();
        assert_eq!(assembly.last(&b""[..], usize::MAX).unwrap().capacity(), BufferPool::LARGEST);
    }
}
