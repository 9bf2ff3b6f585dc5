//! Whether a peer lives: nothing acknowledged for too long is a dead peer. How often peers are checked, and what follows.
//!
//! The device's own retry count does not do: software RoCE counts losses of packets against it although others get through, and takes
//! the largest count for ever; so the device tries for as long as it likes, and the time is kept here.

use std::cell::Cell;
use std::time::Duration;

use ucs::units::Time;

/// Checks in the time after which a peer is dead.
const CHECKS: u8 = 4;

/// How often peers are checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// Between two checks; `None`: none.
    pub(crate) tick: Option<Duration>,
    /// Ticks between two probes of idle peers; 0 never.
    keepalive: u32,
    /// Whether to give peers up.
    gives_up: bool,
}

impl Schedule {
    /// For peers that are dead after `timeout`, and are probed every `keepalive` while idle.
    pub(crate) fn new(timeout: Time, keepalive: Time) -> Schedule {
        let usable = |time: Time| !time.is_inf() && time.seconds() > 0.0;
        let tick = match (usable(timeout), usable(keepalive)) {
            (true, _) => timeout.seconds() / f64::from(CHECKS),
            (false, true) => keepalive.seconds(),
            (false, false) => return Schedule { tick: None, keepalive: 0, gives_up: false },
        };
        let tick = tick.max(1e-3);
        Schedule {
            tick: Some(Duration::from_secs_f64(tick)),
            keepalive: if usable(keepalive) {
                ((keepalive.seconds() / tick).round() as u32).max(1)
            } else {
                0
            },
            gives_up: usable(timeout),
        }
    }

    /// Whether idle peers are probed at this tick.
    pub(crate) fn probes_at(&self, tick: u32) -> bool {
        self.probes() && tick.is_multiple_of(self.keepalive)
    }

    /// Whether idle peers are probed at all.
    pub(crate) fn probes(&self) -> bool {
        self.keepalive > 0
    }

    /// Whether a peer that has acknowledged nothing at so many checks in a row is dead.
    pub(crate) fn gives_up_after(&self, stalls: u8) -> bool {
        self.gives_up && stalls > CHECKS
    }
}

/// How long one peer has acknowledged nothing.
#[derive(Default)]
pub(crate) struct Pulse {
    /// The last work request that had ended at the last check, and checks since at which none had.
    last_ended: Cell<u32>,
    stalls: Cell<u8>,
}

impl Pulse {
    /// Nothing is in flight.
    pub(crate) fn rest(&self) {
        self.stalls.set(0);
    }

    /// Whether anything has ended since the last check, by the number of the last that has.
    pub(crate) fn has_beaten(&self, ended: u32) -> bool {
        let has = self.last_ended.replace(ended) != ended;
        if has {
            self.stalls.set(0);
        }
        has
    }

    /// Counts a check at which nothing had ended; returns how many there were in a row.
    pub(crate) fn stall(&self) -> u8 {
        self.stalls.set(self.stalls.get().saturating_add(1));
        self.stalls.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(timeout: f64, keepalive: f64) -> Schedule {
        Schedule::new(Time::from_seconds(timeout), Time::from_seconds(keepalive))
    }

    #[test]
    fn the_timer_serves_both_the_timeout_and_the_questions() {
        let tick = |milliseconds| Some(Duration::from_millis(milliseconds));
        assert_eq!(schedule(2.0, 5.0), Schedule { tick: tick(500), keepalive: 10, gives_up: true });
        assert_eq!(schedule(2.0, f64::INFINITY), Schedule { tick: tick(500), keepalive: 0, gives_up: true });
        assert_eq!(
            schedule(f64::INFINITY, 5.0),
            Schedule { tick: tick(5000), keepalive: 1, gives_up: false }
        );
        assert_eq!(schedule(f64::INFINITY, 0.0), Schedule { tick: None, keepalive: 0, gives_up: false });
        assert_eq!(schedule(1e-9, 5.0).tick, tick(1));
    }

    #[test]
    fn a_peer_is_dead_after_some_looks_without_an_end() {
        let (schedule, pulse) = (schedule(2.0, 5.0), Pulse::default());
        assert!(pulse.has_beaten(7));
        for _ in 0..CHECKS {
            assert!(!pulse.has_beaten(7));
            assert!(!schedule.gives_up_after(pulse.stall()));
        }
        assert!(schedule.gives_up_after(pulse.stall()));
        assert!(pulse.has_beaten(8));
        assert_eq!(pulse.stall(), 1);
        pulse.rest();
        assert_eq!(pulse.stall(), 1);
    }
}
