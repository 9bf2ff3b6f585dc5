//! Put and get.
//!
//! In put's latency test the last byte of what is put says which turn it is, and the other side looks at it. Data end
//! on a multiple of 8, so that it can be looked at in one atomic load.

use std::cell::RefCell;
use std::rc::Rc;

use uct_core::{Completion, OpLimits};
use uct_tools_common::Failure;

use super::buffer::Buffer;
use super::record::Recorder;
use super::side::Side;
use crate::kind::Layout;
use crate::plan::Case;

const WORD: usize = size_of::<u64>();

/// Whether no buffer limits short operations, because remote memory is reached directly: a copy from or to a slice is one `memcpy`,
/// which is what UCX's callbacks do. A get of a slice would wait for the peer elsewhere.
fn is_direct(limits: &OpLimits) -> bool {
    limits.max_short > limits.max_bcopy
}

/// The last byte of message number so and so: never 0, never the one of the message before.
fn marker(number: u64) -> u8 {
    (number % 255) as u8 + 1
}

/// Marks the end of message number so and so: with a whole word if there is one. What loads the word to put it would wait
/// for a single byte to be out of the processor's store buffer.
fn mark(payload: &mut [u8], number: u64) {
    match payload.last_chunk_mut::<WORD>() {
        Some(word) => *word = [marker(number); WORD],
        None => payload.fill(marker(number)),
    }
}

impl Side {
    pub(super) fn put(&self, case: &Case, count: u64, recorder: &mut Recorder<'_>) -> Result<(), Failure> {
        let (driver, ep) = (&self.driver, &self.driver.ep);
        let remote = self.remote()?;
        let end = case.size.next_multiple_of(WORD);
        let (place, key) = (remote.address + (end - case.size) as u64, &remote.key);
        let mut payload = Buffer::new(case.size)?;
        let last = case.size - 1;
        match case.layout {
            Layout::Short | Layout::Auto => self.put_course(end, count, recorder, move |number| {
                mark(&mut payload, number);
                driver.post(|| ep.put_short(&payload, place, key))
            }),
            Layout::Bcopy if is_direct(&ep.iface().attributes().put) => {
                self.put_course(end, count, recorder, move |number| {
                    mark(&mut payload, number);
                    driver.post(|| ep.put_from(&payload, place, key))
                })
            }
            Layout::Bcopy => self.put_course(end, count, recorder, move |number| {
                mark(&mut payload, number);
                let pack = |buffer: &mut [u8]| {
                    buffer[..payload.len()].copy_from_slice(&payload);
                    payload.len()
                };
                driver.post(|| ep.put_bcopy(place, key, pack)).map(drop)
            }),
            Layout::Zcopy => {
                let slices = self.source_slice(case.size)?;
                let source = self.buffers.source.as_ref().ok_or("no memory was prepared for zero copy")?;
                let marks = self.plan.test.is_ping_pong();
                self.put_course(end, count, recorder, |number| {
                    let completion = self.ring.take(driver)?;
                    if marks {
                        source.write(last, &[marker(number)]);
                    }
                    driver.post(|| ep.put_zcopy(&slices, place, key, completion)).map(drop)
                })
            }
        }
    }

    #[inline(always)]
    fn put_course(
        &self,
        end: usize,
        count: u64,
        recorder: &mut Recorder<'_>,
        mut post: impl FnMut(u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if !self.plan.test.is_ping_pong() {
            let mut number = 0;
            return self.one_sided(count, recorder, || {
                number += 1;
                post(number)
            });
        }
        let (target, base) = self.target()?;
        let word = base + end - WORD;
        let arrived = |number| target.load_u64(word).to_ne_bytes()[WORD - 1] == marker(number);
        self.ping_pong(count, recorder, post, arrived)?;
        self.flush()
    }

    pub(super) fn get(&self, case: &Case, count: u64, recorder: &mut Recorder<'_>) -> Result<(), Failure> {
        let (driver, ep) = (&self.driver, &self.driver.ep);
        let remote = self.remote()?;
        let (place, key) = (remote.address, &remote.key);
        match case.layout {
            Layout::Short | Layout::Auto => {
                let mut buffer = Buffer::new(case.size)?;
                self.one_sided(count, recorder, || driver.post(|| ep.get_short(&mut buffer, place, key)))
            }
            Layout::Bcopy if is_direct(&ep.iface().attributes().get) => {
                let mut buffer = Buffer::new(case.size)?;
                self.one_sided(count, recorder, || driver.post(|| ep.get_short(&mut buffer, place, key)))
            }
            Layout::Bcopy => {
                let (buffer, size) = (Rc::new(RefCell::new(Buffer::new(case.size)?)), case.size);
                self.get_course(count, recorder, move |completion| {
                    let attempt = || {
                        let buffer = Rc::clone(&buffer);
                        let unpack =
                            move |data: &[u8]| buffer.borrow_mut()[..data.len()].copy_from_slice(data);
                        ep.get_bcopy(size, place, key, completion, unpack)
                    };
                    driver.post(attempt).map(drop)
                })
            }
            Layout::Zcopy => {
                let slices = &self.source_slice(case.size)?;
                self.get_course(count, recorder, move |completion| {
                    driver.post(|| ep.get_zcopy(slices, place, key, completion)).map(drop)
                })
            }
        }
    }

    /// As one-sided; with one operation outstanding at most, each ends before its time is taken.
    #[inline(always)]
    pub(super) fn get_course(
        &self,
        count: u64,
        recorder: &mut Recorder<'_>,
        mut operate: impl FnMut(&Completion) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (driver, ring) = (&self.driver, &self.ring);
        let only = ring.only();
        self.one_sided(count, recorder, || {
            let completion = match only {
                Some(completion) => completion,
                None => ring.take(driver)?,
            };
            operate(completion)?;
            if only.is_some() { driver.wait(|| completion.is_done()) } else { Ok(()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::marker;

    #[test]
    fn a_marker_is_never_zero_and_never_that_of_the_turn_before() {
        for number in 1..2000 {
            assert_ne!(marker(number), 0);
            assert_ne!(marker(number), marker(number + 1));
        }
    }
}
