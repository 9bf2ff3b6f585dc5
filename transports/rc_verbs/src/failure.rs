//! The end of an endpoint: by failure, or because the host is done with it.
//!
//! For: progress and the endpoint. A failure is told once, with what the device said in words; then everything under way
//! comes back with an error, one request after another, as the device flushes it.

use uct_ib::WcStatus;
use uct_ib::verbs::{AsyncEvent, Wc};
use uct_plugin::Error;

use crate::ep::RcEp;
use crate::iface::RcIface;

impl RcIface {
    /// Has progress fail an endpoint.
    #[cold]
    pub(crate) fn fail_later(&self, ep: &RcEp, error: Error, reason: String) {
        self.failing.borrow_mut().push((ep.index, error, reason));
        self.state.ask();
    }

    /// Fails an endpoint: nothing more is sent, and its error handler is told if it is the first failure. From progress.
    #[cold]
    pub(crate) fn fail(&self, ep: &RcEp, error: Error, reason: &str) {
        if !ep.shut(error) {
            return;
        }
        self.forget_promises(ep);
        // Everything under way comes back as flushed; without this it might wait for a peer that is gone.
        if let Err(error) = ep.qp.fail() {
            tracing::warn!(%error, "rc_verbs: a failed queue pair stays as it is");
        }
        let reason = format!("queue pair {:#x}: {reason}", ep.qp.number());
        tracing::debug!(%error, %reason, "rc_verbs: endpoint failed");
        if ep.queue.is_quiet() {
            ep.fail_emulated(error);
        }
        self.pending.schedule(&ep.group);
        if !ep.is_destroyed() {
            self.errors.report(ep.user, error, &reason);
        }
    }

    /// The completion of a work request that failed.
    #[cold]
    pub(crate) fn failed_send(&self, ep: &RcEp, wc: &Wc) {
        let status = wc.status();
        let error = match ep.failure() {
            Some(error) => error,
            // The device gave up on the queue pair for another reason, which it tells as an event.
            None if status == WcStatus::FLUSHED => Error::CONNECTION_RESET,
            None => Error::from_status(status.status()),
        };
        self.fail(ep, error, &format!("{status}, vendor error {:#x}", wc.vendor_error()));
        // SAFETY: as for one that ends well.
        unsafe { ep.end_badly(wc.wr_id() as u32, error) };
        if ep.queue.is_quiet() {
            ep.fail_emulated(error);
        }
        self.feed();
    }

    /// Lets go of an endpoint that the host has destroyed, as soon as nothing is under way. Where progress is at work on it, it
    /// lives on until that is over.
    #[cold]
    pub(crate) fn bury(&self, ep: &RcEp) {
        if ep.failure().is_some() && ep.queue.is_quiet() {
            ep.fail_emulated(Error::CANCELED);
        }
        if !ep.emulated.borrow().is_empty() || !ep.queue.is_quiet() {
            // The last request must announce its end.
            if ep.failure().is_none() && ep.queue.has_unsignaled() && !ep.post_nothing() {
                self.defer(ep);
            }
            self.tx_wanted.set(true);
            return;
        }
        let Some(ep) = self.eps.remove(ep) else { return };
        self.rx.leave(&ep.window);
        if self.state.is_running() {
            self.buried.borrow_mut().push(ep);
            self.state.ask();
        }
    }

    /// The peer sends nothing any more, so its buffers are free for others.
    pub(crate) fn forget_promises(&self, ep: &RcEp) {
        self.rx.close(&ep.window);
    }

    /// Handles what the device tells on its own account.
    #[cold]
    pub(crate) fn handle_event(&self, event: AsyncEvent) {
        let port = self.port.borrow().port.number;
        match event {
            AsyncEvent::QpFatal(number) | AsyncEvent::QpPeerError(number) => {
                if let Some(ep) = self.eps.find(number) {
                    // SAFETY: completions and events are handled by progress, and the table has just given it.
                    let ep = unsafe { self.during_progress(ep) };
                    let reason = match event {
                        AsyncEvent::QpFatal(_) => "the device gave the connection up",
                        _ => "the peer asked for what it may not (wrong key, address or request)",
                    };
                    self.fail(ep, Error::CONNECTION_RESET, reason);
                }
            }
            AsyncEvent::DeviceFatal => {
                for ep in self.eps.all() {
                    self.fail(&ep, Error::IO_ERROR, "the device failed, or was taken out");
                }
            }
            AsyncEvent::CqError | AsyncEvent::SrqError => {
                for ep in self.eps.all() {
                    self.fail(&ep, Error::IO_ERROR, "a queue of the device failed");
                }
            }
            AsyncEvent::PortDown(number) if number == port => {
                tracing::warn!(device = %self.name, "rc_verbs: the port went down; connections wait for it to come back");
            }
            AsyncEvent::PortActive(number) | AsyncEvent::AddressChange(number) if number == port => {
                self.refresh_port();
            }
            _ => tracing::debug!(device = %self.name, ?event, "rc_verbs: event"),
        }
    }
}
