//! Checks whether one peer is alive.

use uct_plugin::Error;

use super::Conn;
use crate::proto::liveness::Schedule;

impl Conn {
    /// Checks the peer once a tick; an idle one is probed if `probes` is set.
    pub(crate) fn watch(&self, schedule: &Schedule, probes: bool) {
        if self.failure().is_some() || !self.queue.is_connected() {
            return;
        }
        if self.queue.is_quiet() {
            self.pulse.rest();
            if probes {
                self.post_noop();
            }
            return;
        }
        if self.pulse.has_beaten(self.queue.last_ended()) {
            return;
        }
        // Acknowledgements of unsignaled requests become visible with one more request.
        if self.queue.has_unsignaled() {
            self.post_noop();
        }
        if schedule.gives_up_after(self.pulse.stall()) {
            let seconds = self.shared.limits.peer_timeout.as_secs_f64();
            let reason = format!(
                "the peer has acknowledged nothing for {seconds} s: its process has ended, or the link is down"
            );
            self.fail(Error::ENDPOINT_TIMEOUT, &reason);
        }
    }
}
