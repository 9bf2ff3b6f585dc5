//! Descriptors that become readable on demand: from another thread, or at a moment.
//!
//! For waking a sleeper in an event set. Built on eventfd and timerfd. The async context and workers stand
//! on it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::of_parent;
use crate::memory::fork::ForkGuard;
use crate::sys::SystemError;

/// A flag with a descriptor: readable from a [`signal`](EventFd::signal) until a [`drain`](EventFd::drain).
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
    fork: ForkGuard,
}

impl EventFd {
    /// A flag that is down. Fails when the process or the system is out of descriptors.
    pub fn new() -> Result<EventFd, SystemError> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| EventFd { fd, fork: ForkGuard::new() })
            .map_err(|errno| SystemError::new("create an event descriptor", errno).of_call("eventfd2"))
    }

    /// Raises the flag, from any thread, without blocking. Raising it again changes nothing.
    pub fn signal(&self) {
        if self.fork.check().is_err() {
            return;
        }
        // The one possible failure is a counter at its end, and then the flag is up.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Lowers the flag; returns whether it was up. Does not block.
    pub fn drain(&self) -> bool {
        self.fork.check().is_ok() && drain(self.fd.as_fd())
    }
}

/// A timer with a descriptor: readable from the moment it is due until a [`drain`](TimerFd::drain).
#[derive(Debug)]
pub struct TimerFd {
    fd: OwnedFd,
    fork: ForkGuard,
}

impl TimerFd {
    /// A timer that is not set. Fails when the process or the system is out of descriptors.
    pub fn new() -> Result<TimerFd, SystemError> {
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map(|fd| TimerFd { fd, fork: ForkGuard::new() })
            .map_err(|errno| SystemError::new("create a timer descriptor", errno).of_call("timerfd_create"))
    }

    /// Makes the timer due once, `delay` from now; a zero delay is due at once. Replaces an earlier setting.
    pub fn set(&self, delay: Duration) -> Result<(), SystemError> {
        // The kernel takes a zero value for "switch off".
        self.program(delay.max(Duration::from_nanos(1)))
    }

    /// Switches the timer off and forgets that it was due.
    pub fn clear(&self) -> Result<(), SystemError> {
        self.program(Duration::ZERO)
    }

    /// Forgets that the timer was due; returns whether it was. Does not block.
    pub fn drain(&self) -> bool {
        self.fork.check().is_ok() && drain(self.fd.as_fd())
    }

    fn program(&self, value: Duration) -> Result<(), SystemError> {
        self.fork.check().map_err(|forked| of_parent("set a timer descriptor", forked))?;
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let tv_sec = i64::try_from(value.as_secs()).unwrap_or(i64::MAX);
        let value = Timespec { tv_sec, tv_nsec: value.subsec_nanos().into() };
        let setting = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &setting)
            .map(drop)
            .map_err(|errno| SystemError::new("set a timer descriptor", errno))
    }
}

fn drain(fd: BorrowedFd<'_>) -> bool {
    let mut count = [0; 8];
    loop {
        match rustix::io::read(fd, &mut count) {
            Err(Errno::INTR) => {}
            answer => return answer.is_ok(),
        }
    }
}

macro_rules! has_descriptor {
    ($type:ty) => {
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.fd.as_fd()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.fd.as_raw_fd()
            }
        }
    };
}

has_descriptor!(EventFd);
has_descriptor!(TimerFd);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event_set::{EventBuffer, EventSet, Events};

    fn readable(fd: impl AsFd, timeout: Duration) -> bool {
        let set = EventSet::new().unwrap();
        set.add(fd, Events::READ, 0).unwrap();
        set.wait(&mut EventBuffer::<1>::new(), Some(timeout)).unwrap().len() == 1
    }

    #[test]
    fn a_signal_from_another_thread_wakes_a_waiter_and_drain_ends_it() {
        let event = EventFd::new().unwrap();
        assert!(!readable(&event, Duration::ZERO));
        std::thread::scope(|scope| {
            scope.spawn(|| event.signal());
            assert!(readable(&event, Duration::from_secs(10)));
        });
        event.signal();
        assert!(event.drain());
        assert!(!event.drain());
        assert!(!readable(&event, Duration::ZERO));
    }

    #[test]
    fn a_timer_is_due_after_its_delay_and_not_after_clear() {
        let timer = TimerFd::new().unwrap();
        timer.set(Duration::ZERO).unwrap();
        assert!(readable(&timer, Duration::from_secs(10)));
        assert!(timer.drain());
        timer.set(Duration::from_millis(5)).unwrap();
        timer.clear().unwrap();
        assert!(!readable(&timer, Duration::from_millis(20)));
        timer.set(Duration::MAX).unwrap();
        assert!(!timer.drain());
    }
}
