//! Atomics on the peer's memory.

use uct_core::AtomicOp;
use uct_tools_common::Failure;

use super::record::Recorder;
use super::side::Side;
use crate::plan::Case;

impl Side {
    /// Adds 1 over and over. In the latency test the sides take turns and look at what they were added.
    pub(super) fn post_atomics(
        &self,
        case: &Case,
        count: u64,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Failure> {
        let (driver, ep) = (&self.driver, &self.driver.ep);
        let remote = self.remote()?;
        let (place, key) = (remote.address, &remote.key);
        let wide = case.size == size_of::<u64>();
        let post = |_number: u64| {
            if wide {
                driver.post(|| ep.atomic64_post(AtomicOp::Add, 1, place, key))
            } else {
                driver.post(|| ep.atomic32_post(AtomicOp::Add, 1, place, key))
            }
        };
        if !self.plan.test.is_ping_pong() {
            return self.one_sided(count, recorder, || post(0));
        }
        let (target, base) = self.target()?;
        let arrived = |number: u64| {
            let word = target.load_u64(base);
            if wide { word >= number } else { low_half(word) == number as u32 }
        };
        self.ping_pong(count, recorder, post, arrived)?;
        self.flush()
    }

    /// Fetches over and over.
    pub(super) fn fetch_atomics(
        &self,
        op: AtomicOp,
        case: &Case,
        count: u64,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), Failure> {
        let (driver, ep) = (&self.driver, &self.driver.ep);
        let remote = self.remote()?;
        let (place, key) = (remote.address, &remote.key);
        let wide = case.size == size_of::<u64>();
        match (op, wide) {
            (AtomicOp::Cswap, true) => self.get_course(count, recorder, move |completion| {
                driver.post(|| ep.atomic64_cswap(0, 1, place, key, completion)).map(drop)
            }),
            (AtomicOp::Cswap, false) => self.get_course(count, recorder, move |completion| {
                driver.post(|| ep.atomic32_cswap(0, 1, place, key, completion)).map(drop)
            }),
            (op, true) => self.get_course(count, recorder, move |completion| {
                driver.post(|| ep.atomic64_fetch(op, 1, place, key, completion)).map(drop)
            }),
            (op, false) => self.get_course(count, recorder, move |completion| {
                driver.post(|| ep.atomic32_fetch(op, 1, place, key, completion)).map(drop)
            }),
        }
    }
}

/// The 4 bytes at the lower address.
fn low_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}
