//! What progress has to look at besides datagrams, in one byte.
//!
//! For: the core. Stands on nothing. A message leaves the rest of its work behind, so that the application's answer goes first; if the
//! next message is there already by then, it may go ahead as well, but not for ever.

/// Nothing, the rest of some messages, or anything else, which does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attention(u8);

impl Attention {
    pub(super) const NOTHING: Attention = Attention(0);
    /// Something that does not wait.
    pub(crate) const NOW: Attention = Attention(0x80);
    /// The rest of so many messages that no further one goes ahead: a bit of each.
    const MOST: u8 = 0x7f;

    /// Whether there is nothing.
    #[inline(always)]
    pub(crate) fn is_nothing(self) -> bool {
        self == Attention::NOTHING
    }

    /// Whether a message may go ahead of it.
    #[inline(always)]
    pub(crate) fn can_wait(self) -> bool {
        self.0 < Attention::MOST
    }

    /// Adds another.
    #[inline(always)]
    pub(crate) fn add(&mut self, other: Attention) {
        self.0 |= other.0;
    }

    /// Adds the rest of a message.
    #[inline(always)]
    pub(crate) fn leave(&mut self) {
        self.0 |= self.0 << 1 | 1;
    }

    /// Whether the rest of messages was left, which is seen to now.
    pub(crate) fn take_rest(&mut self) -> bool {
        let is_left = self.has_rest();
        self.0 &= Attention::NOW.0;
        is_left
    }

    /// Whether the rest of messages was left.
    pub(crate) fn has_rest(self) -> bool {
        self.0 & !Attention::NOW.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::Attention;

    #[test]
    fn seven_messages_go_ahead_and_no_more() {
        let mut attention = Attention::NOTHING;
        assert!(attention.can_wait() && attention.is_nothing());
        for _ in 0..7 {
            assert!(attention.can_wait());
            attention.leave();
            assert!(!attention.is_nothing());
        }
        assert!(!attention.can_wait());
        // As handlers do that call progress, which calls handlers, and so on.
        (0..1000).for_each(|_| attention.leave());
        assert!(!attention.can_wait());
        assert!(attention.take_rest());
        assert!(!attention.take_rest());
    }

    #[test]
    fn what_does_not_wait_stays_until_it_was_seen_to() {
        let mut attention = Attention::NOW;
        attention.leave();
        assert!(!attention.can_wait() && attention.take_rest());
        assert_eq!(attention, Attention::NOW);
        let mut attention = Attention::NOTHING;
        attention.leave();
        assert!(attention.can_wait() && attention.has_rest());
        attention.add(Attention::NOW);
        assert!(!attention.can_wait());
    }
}
