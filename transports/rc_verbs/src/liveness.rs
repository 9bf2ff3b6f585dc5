//! Whether peers live: nothing acknowledged for too long is a dead peer.
//!
//! For: progress, which looks at every tick of the worker's timer. Stands on work requests that end. The device's own retry
//! count does not do: software RoCE counts losses of packets against it although others get through, and takes the
//! largest count for ever; so the device tries for as long as it likes, and the time is kept here.

use std::time::Duration;

use ucs::units::Time;
use uct_plugin::Error;

use crate::config::RcConfig;
use crate::iface::RcIface;

/// Looks in the time after which a peer is dead.
const LOOKS: u8 = 4;

/// How often to look, and what to look for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// Between two looks; `None` never looks.
    pub(crate) tick: Option<Duration>,
    /// Ticks between two questions to idle peers; 0 never asks.
    keepalive: u32,
    /// Whether to give peers up.
    gives_up: bool,
}

impl Schedule {
    pub(crate) fn new(config: &RcConfig) -> Schedule {
        let usable = |time: Time| !time.is_inf() && time.seconds() > 0.0;
        let (timeout, keepalive) = (config.peer_timeout, config.keepalive_interval);
        let tick = match (usable(timeout), usable(keepalive)) {
            (true, _) => timeout.seconds() / f64::from(LOOKS),
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
}

impl RcIface {
    /// Looks at every endpoint, once a tick.
    #[cold]
    pub(crate) fn watch_peers(&self) {
        // What has ended and was not looked at, because nobody called progress, must not count as a stall.
        self.work_off();
        while self.poll_tx() > 0 {}
        let schedule = self.limits.schedule;
        let tick = self.ticks.get().wrapping_add(1);
        self.ticks.set(tick);
        let is_question_time = schedule.keepalive > 0 && tick.is_multiple_of(schedule.keepalive);
        for ep in self.eps.all() {
            if ep.failure().is_some() || !ep.is_connected() {
                continue;
            }
            if ep.is_quiet() {
                ep.stalls.set(0);
                if is_question_time {
                    ep.post_nothing();
                }
                continue;
            }
            if ep.last_ended.replace(ep.ended.get()) != ep.ended.get() {
                ep.stalls.set(0);
                continue;
            }
            // What was acknowledged without an announcement is told by one more request.
            if ep.unsignaled.get() > 0 {
                ep.post_nothing();
            }
            ep.stalls.set(ep.stalls.get().saturating_add(1));
            if schedule.gives_up && ep.stalls.get() > LOOKS {
                let seconds = self.limits.peer_timeout.as_secs_f64();
                let reason = format!(
                    "the peer has acknowledged nothing for {seconds} s: it is gone, or the link to it is"
                );
                self.fail(&ep, Error::ENDPOINT_TIMEOUT, &reason);
            }
        }
    }

    /// Whether a sleeper must be woken for a look.
    pub(crate) fn has_something_to_watch(&self) -> bool {
        let asks = self.limits.schedule.keepalive > 0;
        self.eps.all().iter().any(|ep| ep.is_connected() && (asks || !ep.is_quiet()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ucs::config::Defaults;

    fn schedule(timeout: f64, keepalive: f64) -> Schedule {
        let mut config = RcConfig::from_settings(&Defaults).unwrap();
        config.peer_timeout = Time::from_seconds(timeout);
        config.keepalive_interval = Time::from_seconds(keepalive);
        Schedule::new(&config)
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
}
