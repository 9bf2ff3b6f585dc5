//! Packet sequence numbers: 24 bits that wrap around.
//!
//! For queue pairs. Two numbers compare by their distance, which is less than half of the range
//! (InfiniBand Architecture Specification, 9.7.2).

use std::fmt;

/// How many there are.
const RANGE: u32 = 1 << 24;

/// A packet sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// The number of these lower 24 bits.
    pub const fn new(number: u32) -> Psn {
        Psn(number % RANGE)
    }

    /// Its value, below 2^24.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number that is so many packets later.
    pub const fn plus(self, packets: u32) -> Psn {
        Psn(self.0.wrapping_add(packets) % RANGE)
    }

    /// The number that is one packet earlier.
    pub const fn previous(self) -> Psn {
        Psn(self.0.wrapping_sub(1) % RANGE)
    }

    /// How many packets it is later than `other`: negative if it is earlier. Within half of the range.
    pub const fn since(self, other: Psn) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn {:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_hold_across_the_wrap() {
        let last = Psn::new(RANGE - 1);
        assert_eq!(last.plus(1), Psn::new(0));
        assert_eq!(Psn::new(0).previous(), last);
        assert_eq!(last.plus(5).since(last), 5);
        assert_eq!(last.since(last.plus(5)), -5);
        assert_eq!(Psn::new(RANGE / 2 - 1).since(Psn::new(0)), (RANGE / 2 - 1) as i32);
    }
}
