//! Values of an interface that no peer can compute: keys, identity, and proofs of address.
//!
//! Built on nothing else. A pseudo-random function with a 128-bit key (SipHash-2-4): its outputs reveal nothing of each other,
//! so the identity, which is public, reveals no key.

use super::header::Key;
use super::origin::{Origin, Pairing};
use super::psn::Psn;
use super::time::Time;

/// The secret of one interface.
pub(super) struct Secret {
    key: [u64; 2],
    /// Numbers drawn so far.
    drawn: u64,
}

/// What an output is for: outputs for different purposes are unrelated.
#[derive(Clone, Copy)]
enum Purpose {
    Draw = 1,
    FirstPsn,
    Cookie,
}

/// A cookie is good for at least one period, and at most two: 17 to 34 seconds.
const PERIOD_SHIFT: u32 = 34;

impl Secret {
    /// The secret that follows from a seed; as hard to guess as that is.
    pub(super) fn new(seed: u128) -> Secret {
        Secret { key: [seed as u64, (seed >> 64) as u64], drawn: 0 }
    }

    /// The next of a sequence of numbers that cannot be predicted.
    pub(super) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.output(&[Purpose::Draw as u64, self.drawn])
    }

    /// The first sequence number of the packets to the connection with this key.
    pub(super) fn first_psn(&self, key: Key) -> Psn {
        Psn(self.output(&[Purpose::FirstPsn as u64, key.word()]) as u32)
    }

    /// What an interface has to send back to show that it receives at `pairing.origin`, for a connection that it names `key`.
    pub(super) fn cookie(&self, now: Time, pairing: &Pairing, key: Key) -> u64 {
        self.cookie_of(now.as_nanos() >> PERIOD_SHIFT, pairing, key)
    }

    /// Whether this is a cookie for that, from this period or the one before.
    pub(super) fn is_cookie(&self, now: Time, pairing: &Pairing, key: Key, cookie: u64) -> bool {
        let period = now.as_nanos() >> PERIOD_SHIFT;
        let mut periods = [period, period.saturating_sub(1)].into_iter();
        periods.any(|period| self.cookie_of(period, pairing, key) == cookie)
    }

    fn cookie_of(&self, period: u64, pairing: &Pairing, key: Key) -> u64 {
        let Origin { port, qp } = pairing.origin;
        let port = u128::from_le_bytes(port);
        let numbers = u64::from(qp) << 32 | u64::from(pairing.ordinal);
        let purpose = Purpose::Cookie as u64;
        self.output(&[
            purpose,
            period,
            port as u64,
            (port >> 64) as u64,
            numbers,
            pairing.identity,
            key.word(),
        ])
    }

    fn output(&self, words: &[u64]) -> u64 {
        let mut state = Sip::new(self.key);
        words.iter().for_each(|word| state.absorb(*word));
        state.finish(words.len() as u64 * 8)
    }
}

/// The state of SipHash-2-4, over whole words.
struct Sip([u64; 4]);

impl Sip {
    fn new([low, high]: [u64; 2]) -> Sip {
        Sip([
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ])
    }

    fn round(&mut self) {
        let [a, b, c, d] = &mut self.0;
        *a = a.wrapping_add(*b);
        *c = c.wrapping_add(*d);
        *b = b.rotate_left(13) ^ *a;
        *d = d.rotate_left(16) ^ *c;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*b);
        *a = a.wrapping_add(*d);
        *b = b.rotate_left(17) ^ *c;
        *d = d.rotate_left(21) ^ *a;
        *c = c.rotate_left(32);
    }

    fn absorb(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    fn finish(mut self, bytes: u64) -> u64 {
        self.absorb(bytes << 56);
        self.0[2] ^= 0xff;
        (0..4).for_each(|_| self.round());
        let [a, b, c, d] = self.0;
        a ^ b ^ c ^ d
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::origin::Origin;
    use proptest::prelude::*;

    #[test]
    fn the_function_is_siphash() {
        // The reference's vector of 8 bytes 0..=7 under the key 0..=15.
        let seed = u128::from_le_bytes(std::array::from_fn(|index| index as u8));
        let secret = Secret::new(seed);
        let word = u64::from_le_bytes(std::array::from_fn(|index| index as u8));
        assert_eq!(secret.output(&[word]).to_le_bytes(), [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]);
        assert_eq!(secret.output(&[]).to_le_bytes(), [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72]);
    }

    fn pairing(port: u128, qp: u32, identity: u64, ordinal: u32) -> Pairing {
        Pairing { identity, origin: Origin { port: port.to_le_bytes(), qp }, ordinal }
    }

    proptest! {
        #![proptest_config(crate::property::config())]

        #[test]
        fn a_cookie_is_good_for_one_request_of_one_origin_and_for_a_time(
            seed in any::<u128>(), port in any::<u128>(), qp in any::<u32>(), identity in any::<u64>(),
            ordinal in any::<u32>(), at in 0u64..1 << 50, later in 0u64..1 << 36, bit in 0..5usize,
        ) {
            let secret = Secret::new(seed);
            let (request, now) = (pairing(port, qp, identity, ordinal), Time::from_nanos(at));
            let key = Key::from_parts(qp ^ 77, ordinal as u16);
            let cookie = secret.cookie(now, &request, key);
            let is_in_time = ((at + later) >> PERIOD_SHIFT) - (at >> PERIOD_SHIFT) <= 1;
            prop_assert_eq!(secret.is_cookie(now.plus(later), &request, key, cookie), is_in_time);
            let other = match bit {
                0 => pairing(port ^ 1, qp, identity, ordinal),
                1 => pairing(port ^ 1 << 100, qp, identity, ordinal),
                2 => pairing(port, qp ^ 1, identity, ordinal),
                3 => pairing(port, qp, identity ^ 1, ordinal),
                _ => pairing(port, qp, identity, ordinal ^ 1),
            };
            prop_assert!(!secret.is_cookie(now, &other, key, cookie));
            prop_assert!(!secret.is_cookie(now, &request, Key::from_parts(qp ^ 76, ordinal as u16), cookie));
            prop_assert!(!Secret::new(seed ^ 1).is_cookie(now, &request, key, cookie));
        }
    }
}
