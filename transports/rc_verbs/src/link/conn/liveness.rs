//! Looks at one peer.

use uct_plugin::Error;

use super::Conn;
use crate::proto::liveness::Schedule;

impl Conn {
    /// Looks at the peer, once a tick; an idle one is asked if `asks`.
    pub(crate) fn watch(&self, schedule: &Schedule, asks: bool) {
        if self.failure().is_some() || !self.queue.is_connected() {
            return;
        }
        if self.queue.is_quiet() {
            self.pulse.rest();
            if asks {
                self.post_nothing();
            }
            return;
        }
        if self.pulse.has_beaten(self.queue.last_ended()) {
            return;
        }
        // What was acknowledged without an announcement is told by one more request.
        if self.queue.has_unsignaled() {
            self.post_nothing();
        }
        if schedule.gives_up_after(self.pulse.stall()) {
            let seconds = self.shared.limits.peer_timeout.as_secs_f64();
            let reason = format!(
                "the peer has acknowledged nothing for {seconds} s: it is gone, or the link to it is"
            );
            self.fail(Error::ENDPOINT_TIMEOUT, &reason);
        }
    }
}
