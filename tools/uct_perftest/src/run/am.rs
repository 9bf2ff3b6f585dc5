//! Active messages: latency in turns; bandwidth and rate one way.

use uct_core::{Ep, Result as UctResult, SendFlags};
use uct_tools_common::Failure;

use super::connect::{CONFIRMATION, CONTROL, DATA, send_header};
use super::record::Recorder;
use super::side::{Role, Side};
use crate::kind::Layout;
use crate::plan::{Case, HEADER};

impl Side {
    pub(super) fn am(&self, case: &Case, count: u64, recorder: &mut Recorder<'_>) -> Result<(), Failure> {
        let (driver, ep) = (&self.driver, &self.driver.ep);
        let payload = &self.buffers.payload[..case.size];
        match case.layout {
            Layout::Short => {
                self.am_course(count, recorder, |number| driver.post(|| ep.am_short(DATA, number, payload)))
            }
            Layout::Bcopy => {
                self.am_course(count, recorder, |number| driver.post(|| bcopy(ep, number, payload)).map(drop))
            }
            Layout::Zcopy => {
                let source = self.source_slice(case.size)?;
                self.am_course(count, recorder, |number| {
                    let completion = self.ring.take(driver)?;
                    let header = number.to_ne_bytes();
                    driver
                        .post(|| ep.am_zcopy(DATA, &header, &source, SendFlags::empty(), completion))
                        .map(drop)
                })
            }
        }
    }

    #[inline(always)]
    fn am_course(
        &self,
        count: u64,
        recorder: &mut Recorder<'_>,
        post: impl FnMut(u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.plan.test.is_ping_pong() {
            let inbox = &*self.inbox;
            return self.ping_pong(count, recorder, post, |number| inbox.data.get() >= number);
        }
        self.stream(count, recorder, post)
    }

    /// The active side sends all, and is done when the other one says that all have come.
    #[inline(always)]
    fn stream(
        &self,
        count: u64,
        recorder: &mut Recorder<'_>,
        mut post: impl FnMut(u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (driver, inbox, phase) = (&self.driver, &*self.inbox, self.phase.get());
        let first = self.sequence.get() + 1;
        let last = self.sequence.get() + count;
        self.sequence.set(last);
        let window = u64::from(self.plan.window);
        match self.role {
            Role::Passive => return self.receive_all(last, window),
            Role::Active if window > 0 => {
                for number in first..=last {
                    if number > inbox.confirmed.get() + window {
                        driver.wait(|| number <= inbox.confirmed.get() + window)?;
                    }
                    post(number)?;
                    recorder.tick();
                }
            }
            Role::Active | Role::Alone => {
                for number in first..=last {
                    post(number)?;
                    recorder.tick();
                }
            }
        }
        self.ring.drain(driver)?;
        match self.role {
            Role::Alone => driver.wait(|| inbox.data.get() >= last),
            _ => driver.wait(|| inbox.control.get() >= phase),
        }
    }

    fn receive_all(&self, last: u64, window: u64) -> Result<(), Failure> {
        let (driver, inbox) = (&self.driver, &*self.inbox);
        let mut confirmed = inbox.confirmed.get();
        while inbox.data.get() < last {
            let seen = inbox.data.get();
            driver.wait(|| inbox.data.get() > seen)?;
            if window > 0 && inbox.data.get() - confirmed >= window / 2 {
                confirmed = inbox.data.get();
                send_header(driver, CONFIRMATION, confirmed)?;
            }
        }
        send_header(driver, CONTROL, self.phase.get())
    }
}

#[inline(always)]
fn bcopy(ep: &Ep, number: u64, payload: &[u8]) -> UctResult<usize> {
    ep.am_bcopy(DATA, SendFlags::empty(), |buffer| {
        let (header, rest) = buffer.split_at_mut(HEADER);
        header.copy_from_slice(&number.to_ne_bytes());
        rest[..payload.len()].copy_from_slice(payload);
        HEADER + payload.len()
    })
}
