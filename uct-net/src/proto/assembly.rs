//! A message in parts, put together.

/// Why a part is not added.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The message is longer than it may be.
    TooLong,
    /// The system has no memory for it.
    NoMemory,
}

/// The parts of one message so far. It takes the memory of what has arrived, not of what was announced: nothing is.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    bytes: Vec<u8>,
    begun: bool,
}

impl Assembly {
    /// Whether a part has arrived and the last one has not.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Adds a part.
    pub(crate) fn part(&mut self, part: &[u8], limit: usize) -> Result<(), Refused> {
        if part.len() > limit - self.bytes.len().min(limit) {
            return Err(Refused::TooLong);
        }
        if self.bytes.try_reserve(part.len()).is_err() {
            // It is never completed.
            self.bytes = Vec::new();
            return Err(Refused::NoMemory);
        }
        self.begun = true;
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    /// Adds the last part; returns the message.
    pub(crate) fn last(&mut self, part: &[u8], limit: usize) -> Result<Vec<u8>, Refused> {
        self.part(part, limit)?;
        self.begun = false;
        Ok(std::mem::take(&mut self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_a_message_and_the_next_one_begins_empty() {
        let mut assembly = Assembly::default();
        assert!(!assembly.is_begun());
        assembly.part(b"one ", 100).unwrap();
        assert!(assembly.is_begun());
        assert_eq!(assembly.last(b"two", 100).unwrap(), b"one two");
        assert!(!assembly.is_begun());
        assert_eq!(assembly.last(b"three", 5).unwrap(), b"three");
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_at_the_byte() {
        let mut assembly = Assembly::default();
        assembly.part(&[0; 10], 10).unwrap();
        assert_eq!(assembly.part(&[0; 1], 10), Err(Refused::TooLong));
        assert_eq!(assembly.last(&[0; 1], 10), Err(Refused::TooLong));
        assert_eq!(assembly.last(&[], 10).unwrap().len(), 10);
    }
}
