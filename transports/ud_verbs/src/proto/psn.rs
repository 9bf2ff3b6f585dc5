//! Packet sequence numbers: 32 bits that wrap.
//!
//! Built on nothing else; the [sender](super::sender) and the [receiver](super::receiver) count with them.

/// A packet sequence number. Two of them are compared within half the circle, which the window keeps them in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Psn(pub u32);

impl Psn {
    /// The number `count` places further on.
    #[inline]
    pub fn plus(self, count: u32) -> Psn {
        Psn(self.0.wrapping_add(count))
    }

    /// How many places this number is ahead of `other`; meaningful when it is not behind.
    #[inline]
    pub fn ahead_of(self, other: Psn) -> u32 {
        self.0.wrapping_sub(other.0)
    }

    /// The numbers from this one on, ahead of `end`, which is not behind.
    pub(super) fn until(self, end: Psn) -> impl Iterator<Item = Psn> + use<> {
        (0..end.ahead_of(self)).map(move |count| self.plus(count))
    }

    /// Whether this number comes before `other`.
    #[inline]
    pub fn is_before(self, other: Psn) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }
}

#[cfg(test)]
mod tests {
    use super::Psn;

    #[test]
    fn order_holds_across_the_wrap() {
        let last = Psn(u32::MAX);
        let first = last.plus(1);
        assert_eq!(first, Psn(0));
        assert!(last.is_before(first));
        assert!(!first.is_before(last));
        assert!(!first.is_before(first));
        assert_eq!(first.plus(4).ahead_of(last), 5);
        assert!(last.until(first.plus(1)).eq([last, first]));
    }
}
