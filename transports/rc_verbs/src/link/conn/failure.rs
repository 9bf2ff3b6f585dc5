//! The failure of a connection. It is reported once, with a human-readable reason; then everything in flight completes with an
//! error, one request after another, as the device flushes it.

use uct_ib::WcStatus;
use uct_ib::verbs::Wc;
use uct_plugin::Error;

use super::Conn;

impl Conn {
    /// Fails it: nothing more is sent, and the first failure is reported to the error handler. From progress.
    #[cold]
    pub(crate) fn fail(&self, error: Error, reason: &str) {
        if !self.shut(error) {
            return;
        }
        self.shared.rx.close(&self.window);
        // Everything in flight completes as flushed; without this it might wait for a peer that is gone.
        if let Err(error) = self.qp.fail() {
            ucs::log::warn!(%error, "rc_verbs: a failed queue pair stays as it is");
        }
        let reason = format!("queue pair {:#x}: {reason}", self.qp.number());
        ucs::log::debug!(%error, %reason, "rc_verbs: endpoint failed");
        if self.queue.is_quiet() {
            self.fail_emulated(error);
        }
        self.shared.pending.schedule(&self.group);
        self.status.report(&self.shared.errors, &reason);
    }

    /// As [`Conn::fail`], where the device ends nothing any more: what is in flight completes with an error here.
    #[cold]
    pub(crate) fn lose(&self, error: Error, reason: &str) {
        self.fail(error, reason);
        if let Err(error) = self.qp.reset() {
            ucs::log::debug!(%error, "rc_verbs: a queue pair is not reset");
        }
        // SAFETY: what was posted has ended with the reset, or with the device, which does nothing for a queue pair that it cannot
        // reset any more.
        unsafe { self.end_all_badly(self.failure().unwrap_or(error)) };
    }

    /// The completion of a work request that failed.
    #[cold]
    pub(crate) fn failed_send(&self, wc: &Wc) {
        let status = wc.status();
        let error = match self.failure() {
            Some(error) => error,
            // The device gave up on the queue pair for another reason, which it reports as an event.
            None if status == WcStatus::FLUSHED => Error::CONNECTION_RESET,
            None => Error::from_status(status.status()),
        };
        self.fail(error, &format!("{status}, vendor error {:#x}", wc.vendor_error()));
        // SAFETY: as for one that ends well.
        unsafe { self.end_badly(wc.wr_id() as u32, error) };
        if self.queue.is_quiet() {
            self.fail_emulated(error);
        }
    }
}
