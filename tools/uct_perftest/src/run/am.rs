//! Active messages: latency in turns; bandwidth and rate one way.

use uct_core::{Ep, Result as UctResult, SendFlags};
use uct_tools_common::Failure;

use super::connect::{CONFIRMATION, CONTROL, DATA, send_header};
use super::record::Recorder;
use super::side::{Role, Side};
use crate::kind::Layout;
use crate::plan::Case;

impl Side {
    pub(super) fn am(&self, case: &Case, count: u64, recorder: &mut Recorder<'_>) -> Result<(), Failure> {
        let (driver, ep) = (&self.driver, &self.driver.ep);
        let payload = &self.buffers.payload[..case.size];
        match case.layout {
            Layout::Short | Layout::Auto => {
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

    /// Counts what comes. What came while this side was not yet here, waiting for the word to begin, counts too: nobody would
    /// send more until it is confirmed.
    fn receive_all(&self, last: u64, window: u64) -> Result<(), Failure> {
        let (driver, inbox) = (&self.driver, &*self.inbox);
        let mut confirmed = 0;
        loop {
            let seen = inbox.data.get();
            if window > 0 && seen - confirmed >= window / 2 {
                confirmed = seen;
                send_header(driver, CONFIRMATION, confirmed)?;
            }
            if seen >= last {
                break;
            }
            driver.wait(|| inbox.data.get() > seen)?;
        }
        send_header(driver, CONTROL, self.phase.get())
    }
}

#[inline(always)]
fn bcopy(ep: &Ep, number: u64, payload: &[u8]) -> UctResult<usize> {
    ep.am_bcopy_iov(DATA, SendFlags::empty(), &[&number.to_ne_bytes(), payload])
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::super::connect::{CONFIRMATION, DATA, connect_pair};
    use super::super::side::Role;
    use crate::kind::{Layout, Test, Wait};
    use crate::peer::pair::{PATIENCE, peers};
    use crate::plan::{Case, Plan};

    #[test]
    fn messages_that_came_while_the_receiver_was_not_there_yet_are_confirmed() {
        const WINDOW: u32 = 4;
        const LAST: u64 = 10;
        let case = Case { size: 8, layout: Layout::Short, iterations: LAST, warmup: 0 };
        let plan =
            Plan { test: Test::AmMr, wait: Wait::Poll, window: WINDOW, outstanding: 1, cases: vec![case] };
        let (own, _other) = peers();
        let iface = own.iface().clone();
        let side = connect_pair(own, plan, Role::Passive, PATIENCE).unwrap();
        side.inbox.expected.set(crate::plan::HEADER + case.size);

        // The sender's part: a whole window ahead of the receiver, then what each confirmation allows.
        let sent = Rc::new(Cell::new(0));
        let (ep, counted) = (side.driver.ep.clone(), Rc::clone(&sent));
        let send_up_to = move |limit: u64| {
            while counted.get() < limit.min(LAST) {
                counted.set(counted.get() + 1);
                ep.am_short(DATA, counted.get(), &[1; 8]).unwrap();
            }
        };
        send_up_to(u64::from(WINDOW));
        iface.set_am_handler(CONFIRMATION, move |message| {
            send_up_to(message.header().unwrap() + u64::from(WINDOW));
        });
        assert_eq!(side.inbox.data.get(), u64::from(WINDOW), "all of the first window has come");

        side.receive_all(LAST, u64::from(WINDOW)).unwrap();
        assert_eq!((sent.get(), side.inbox.data.get()), (LAST, LAST));
    }
}
