//! Looks at the peers, once a tick of the worker's timer.
//!
//! For: progress. Built on `proto::liveness` and on work requests that end.

use uct_plugin::Error;

use crate::iface::RcIface;

impl RcIface {
    /// Looks at every endpoint, once a tick.
    #[cold]
    pub(crate) fn watch_peers(&self) {
        // What has ended and was not looked at, because nobody called progress, must not count as a stall.
        self.work_off();
        while self.poll_tx() > 0 {}
        let schedule = self.schedule;
        let tick = self.ticks.get().wrapping_add(1);
        self.ticks.set(tick);
        let is_question_time = schedule.asks_at(tick);
        for ep in self.eps.all() {
            if ep.failure().is_some() || !ep.queue.is_connected() {
                continue;
            }
            if ep.queue.is_quiet() {
                ep.pulse.rest();
                if is_question_time {
                    ep.post_nothing();
                }
                continue;
            }
            if ep.pulse.has_beaten(ep.queue.last_ended()) {
                continue;
            }
            // What was acknowledged without an announcement is told by one more request.
            if ep.queue.has_unsignaled() {
                ep.post_nothing();
            }
            if schedule.gives_up_after(ep.pulse.stall()) {
                let seconds = self.shared.limits.peer_timeout.as_secs_f64();
                let reason = format!(
                    "the peer has acknowledged nothing for {seconds} s: it is gone, or the link to it is"
                );
                ep.fail(Error::ENDPOINT_TIMEOUT, &reason);
            }
        }
    }

    /// Whether a sleeper must be woken for a look.
    pub(crate) fn has_something_to_watch(&self) -> bool {
        let asks = self.schedule.asks();
        self.eps.all().iter().any(|ep| ep.queue.is_connected() && (asks || !ep.queue.is_quiet()))
    }
}
