//! What travels with every message: the 32 bits of immediate data.
//!
//! The payload itself has no header of the transport.
//!
//! | bits | what |
//! |---|---|
//! | 0..5 | active message id |
//! | 5..8 | kind: 0 an active message, 1 nothing but a grant, which is not 0 |
//! | 8..16 | zero |
//! | 16..31 | messages that the peer may send more |
//! | 31 | the sender was blocked since its last message, because it had no credits |

/// In the upper half: the sender was held up.
pub(crate) const BLOCKED: u16 = 1 << 15;
/// Most messages that one word can grant.
pub(crate) const MAX_GRANT: u16 = BLOCKED - 1;

/// Immediate data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Immediate(pub(crate) u32);

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// An active message of this id.
    Active(u8),
    /// A grant by itself.
    Grant,
    /// Nothing that this version sends.
    Unknown,
}

impl Immediate {
    /// An active message with credits, with [`BLOCKED`] or not.
    #[inline]
    pub(crate) const fn active(id: u8, grant: u16) -> Self {
        Self((id as u32 & 31) | (grant as u32) << 16)
    }

    /// A grant by itself, with [`BLOCKED`] or not.
    pub(crate) const fn grant(grant: u16) -> Self {
        Self(1 << 5 | (grant as u32) << 16)
    }

    /// Whether it changes how much either side may send.
    #[inline]
    pub(crate) const fn has_grant(self) -> bool {
        self.0 >> 16 != 0
    }

    /// What the message is.
    #[inline]
    pub(crate) const fn message(self) -> Message {
        match self.0 & 0xffe0 {
            0 => Message::Active((self.0 & 31) as u8),
            0x20 if self.0 & 31 == 0 && self.granted() != 0 => Message::Grant,
            _ => Message::Unknown,
        }
    }

    /// Credits for the receiver of this message.
    #[inline]
    pub(crate) const fn granted(self) -> u32 {
        self.0 >> 16 & MAX_GRANT as u32
    }

    /// The credits of a sender that had `before`. No window is larger than [`MAX_GRANT`]: `None` if the peer
    /// granted more than that.
    #[inline]
    pub(crate) const fn credits(self, before: u32) -> Option<u32> {
        let credits = before + self.granted();
        if credits <= MAX_GRANT as u32 { Some(credits) } else { None }
    }

    /// Whether the sender was blocked for want of credits.
    pub(crate) const fn was_blocked(self) -> bool {
        self.0 >> 16 & BLOCKED as u32 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn every_word_is_understood_or_refused(word in any::<u32>()) {
            let immediate = Immediate(word);
            match immediate.message() {
                Message::Active(id) => prop_assert_eq!(Immediate::active(id, (word >> 16) as u16), immediate),
                Message::Grant => prop_assert_eq!(Immediate::grant((word >> 16) as u16), immediate),
                Message::Unknown => {}
            }
        }

        #[test]
        fn credits_never_exceed_the_largest_window(words in prop::collection::vec(any::<u32>(), 0..50)) {
            let mut credits = 0;
            for word in words {
                match Immediate(word).credits(credits) {
                    Some(more) => prop_assert!(more >= credits && more <= MAX_GRANT.into()),
                    None => prop_assert!(credits + Immediate(word).granted() > MAX_GRANT.into()),
                }
                credits = Immediate(word).credits(credits).unwrap_or(0);
            }
        }
    }

    #[test]
    fn id_and_grant_do_not_mix() {
        let immediate = Immediate::active(31, 65535);
        assert_eq!((immediate.message(), immediate.granted()), (Message::Active(31), 32767));
        assert!(immediate.was_blocked() && immediate.has_grant());
        let immediate = Immediate::active(0, MAX_GRANT);
        assert_eq!((immediate.granted(), immediate.was_blocked()), (32767, false));
        assert!(!Immediate::active(31, 0).has_grant());
        assert_eq!(Immediate::grant(7).message(), Message::Grant);
        assert_eq!(Immediate::grant(BLOCKED).message(), Message::Unknown, "a grant of nothing");
        assert_eq!(Immediate(0x100).message(), Message::Unknown);
    }
}
