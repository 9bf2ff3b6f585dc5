//! The two courses that a phase can take: in turns, or one way.

use uct_core::{Error, Flush, Posted};
use uct_tools_common::Failure;

use super::connect::{CONTROL, send_header};
use super::record::Recorder;
use super::side::{Role, Side};

impl Side {
    /// Both sides take turns. `post` sends message number so and so; `arrived` tells whether that many have come. A
    /// side that is alone plays both parts.
    #[inline(always)]
    pub(super) fn ping_pong(
        &self,
        count: u64,
        recorder: &mut Recorder<'_>,
        mut post: impl FnMut(u64) -> Result<(), Failure>,
        arrived: impl Fn(u64) -> bool,
    ) -> Result<(), Failure> {
        let driver = &self.driver;
        let first = self.sequence.get() + 1;
        match self.role {
            Role::Active => {
                for number in first..first + count {
                    post(number)?;
                    driver.wait(|| arrived(number))?;
                    recorder.tick();
                }
                self.sequence.set(first + count - 1);
            }
            Role::Passive => {
                for number in first..first + count {
                    driver.wait(|| arrived(number))?;
                    post(number)?;
                }
                self.sequence.set(first + count - 1);
            }
            Role::Alone => {
                for turn in 0..count {
                    let ping = first + 2 * turn;
                    post(ping)?;
                    driver.wait(|| arrived(ping))?;
                    post(ping + 1)?;
                    driver.wait(|| arrived(ping + 1))?;
                    recorder.tick();
                }
                self.sequence.set(first + 2 * count - 1);
            }
        }
        self.ring.drain(driver)
    }

    /// The active side works on the peer's memory until all has taken effect there; the other one only moves on, or dozes
    /// where that memory is reached without it.
    #[inline(always)]
    pub(super) fn one_sided(
        &self,
        count: u64,
        recorder: &mut Recorder<'_>,
        mut operate: impl FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let phase = self.phase.get();
        if self.role == Role::Passive {
            let done = || self.inbox.control.get() >= phase;
            return if self.is_bystander.get() { self.driver.doze(done) } else { self.driver.wait(done) };
        }
        for _ in 0..count {
            operate()?;
            recorder.tick();
        }
        self.ring.drain(&self.driver)?;
        self.flush()?;
        if self.role == Role::Active {
            send_header(&self.driver, CONTROL, phase)?;
        }
        Ok(())
    }

    /// Waits until everything has taken effect at the peer.
    pub(super) fn flush(&self) -> Result<(), Failure> {
        let ep = &self.driver.ep;
        let mut outcome = Ok(());
        self.driver.wait(|| match ep.flush(Flush::REMOTE, None) {
            Ok(Posted::Done) => true,
            Ok(Posted::InProgress) | Err(Error::NO_RESOURCE) => false,
            Err(error) => {
                outcome = Err(format!("flush of {}: {error}", ep.iface().resource()));
                true
            }
        })?;
        outcome.map_err(Failure::from)
    }
}
