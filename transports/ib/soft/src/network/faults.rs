//! What goes wrong on a link, from a seed.
//!
//! For links.

use fastrand::Rng;

use crate::engine::Nanos;

/// How often what goes wrong, each as a share of the packets, 0.0 to 1.0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Packets that do not arrive.
    pub loss: f64,
    /// Packets that arrive twice.
    pub duplicate: f64,
    /// Packets that arrive later than those behind them.
    pub reorder: f64,
    /// Packets with a bit that has changed.
    pub corrupt: f64,
    /// How much longer every packet takes: at least, and at most.
    pub delay: (Nanos, Nanos),
}

/// What becomes of one packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// How often it arrives, and which of these are late.
    pub copies: Vec<Copy>,
}

/// One arrival of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Whether it is late.
    pub is_late: bool,
    /// How much longer it takes, late or not.
    pub delay: Nanos,
    /// The bit that has changed, by a number to be taken modulo the packet's bits.
    pub damage: Option<usize>,
}

/// Decides for packets, one after the other: the same seed, the same fates.
#[derive(Debug)]
pub struct Faults {
    rates: Rates,
    random: Rng,
}

impl Faults {
    /// Faults of these rates.
    pub fn new(rates: Rates, seed: u64) -> Faults {
        Faults { rates, random: Rng::with_seed(seed) }
    }

    /// What becomes of the next packet.
    pub fn fate(&mut self) -> Fate {
        let mut happens = |rate: f64| rate > 0.0 && self.random.f64() < rate;
        let copies =
            if happens(self.rates.loss) { 0 } else { 1 + usize::from(happens(self.rates.duplicate)) };
        let fates: Vec<(bool, bool)> =
            (0..copies).map(|_| (happens(self.rates.reorder), happens(self.rates.corrupt))).collect();
        let (random, (shortest, longest)) = (&mut self.random, self.rates.delay);
        let copy = |(is_late, is_damaged): (bool, bool)| Copy {
            is_late,
            delay: if shortest < longest { random.u64(shortest..=longest) } else { shortest },
            damage: is_damaged.then(|| random.usize(..)),
        };
        Fate { copies: fates.into_iter().map(copy).collect() }
    }
}

/// Changes a bit of a packet.
pub fn damage(packet: &mut [u8], bit: usize) {
    let bits = packet.len() * 8;
    if bits > 0 {
        let bit = bit % bits;
        packet[bit / 8] ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_changes_the_bit_that_was_drawn_and_no_other() {
        for bit in 0..48 {
            let mut packet = [0x5a; 3];
            damage(&mut packet, bit);
            let changed = packet.map(|byte| byte ^ 0x5a);
            assert_eq!(changed.map(u8::count_ones).iter().sum::<u32>(), 1);
            assert_eq!(changed[bit / 8 % 3], 1 << (bit % 8), "bit {bit}");
        }
        damage(&mut [], 7);
    }

    #[test]
    fn a_rate_of_one_is_every_packet_and_a_rate_of_zero_none() {
        let none = Faults::new(Rates { delay: (5, 5), ..Rates::default() }, 1).fate();
        assert_eq!(none.copies, [Copy { is_late: false, delay: 5, damage: None }]);
        let rates = Rates { duplicate: 1.0, reorder: 1.0, corrupt: 1.0, delay: (2, 4), ..Rates::default() };
        let mut faults = Faults::new(rates, 1);
        let mut delays = [0; 5];
        for _ in 0..100 {
            let copies = faults.fate().copies;
            assert!(copies.len() == 2 && copies.iter().all(|copy| copy.is_late && copy.damage.is_some()));
            copies.iter().for_each(|copy| delays[copy.delay as usize] += 1);
        }
        assert!(delays[..2] == [0, 0] && delays[2..].iter().all(|count| *count > 0), "{delays:?}");
        assert_eq!(Faults::new(Rates { loss: 1.0, ..rates }, 1).fate(), Fate::default());
    }
}
