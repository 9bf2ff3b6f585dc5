//! The interface's timer: the next deadline, and when connections are checked.

use std::cell::Cell;

use ucs::clock::Deadline;
use ucs::event_set::TimerFd;
use ucs::sys::SystemError;
use ucs::units::Time;

/// One descriptor for all that waits.
pub(crate) struct Timers {
    descriptor: TimerFd,
    next_tick: Cell<Deadline>,
    next_check: Cell<Deadline>,
    interval: Time,
    timeout: Time,
}

impl Timers {
    /// With `keepalive_interval` and `keepalive_timeout`.
    pub(crate) fn new(interval: Time, timeout: Time) -> Result<Timers, SystemError> {
        let timers = Timers {
            descriptor: TimerFd::new()?,
            next_tick: Cell::new(Deadline::NEVER),
            next_check: Cell::new(Deadline::NEVER),
            interval,
            timeout,
        };
        timers.schedule_check();
        Ok(timers)
    }

    pub(crate) fn descriptor(&self) -> &TimerFd {
        &self.descriptor
    }

    /// Has the timer wake progress by then.
    pub(crate) fn want_tick(&self, at: Deadline) {
        if at == Deadline::NEVER || at >= self.next_tick.get() {
            return;
        }
        match self.descriptor.set(at.remaining()) {
            Ok(()) => self.next_tick.set(at),
            Err(error) => ucs::log::error!("{error}"),
        }
    }

    pub(crate) fn drain(&self) {
        self.descriptor.drain();
        self.next_tick.set(Deadline::NEVER);
    }

    /// When connections are checked next.
    pub(crate) fn next_check(&self) -> Deadline {
        self.next_check.get()
    }

    pub(crate) fn schedule_check(&self) {
        let next = if self.interval.is_inf() {
            Deadline::NEVER
        } else {
            Deadline::after(self.interval.to_duration())
        };
        self.next_check.set(next);
    }

    /// When connections are checked next, for a new one.
    pub(crate) fn keepalive_tick(&self) -> Deadline {
        if self.next_check.get().expired() {
            self.schedule_check();
        }
        self.next_check.get()
    }

    /// How many checks a peer may leave unanswered.
    pub(crate) fn most_silent_ticks(&self) -> u32 {
        let interval = self.interval.seconds().max(1e-3);
        (self.timeout.seconds() / interval).ceil().clamp(1.0, f64::from(u32::MAX)) as u32
    }
}
