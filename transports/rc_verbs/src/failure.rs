//! The end of an endpoint: by failure, or because the host is done with it.
//!
//! For: progress and the endpoint. A failure is told once, with what the device said in words; then everything under way
//! comes back with an error, one request after another, as the device flushes it.

use uct_ib::WcStatus;
use uct_ib::verbs::{AsyncEvent, Wc};
use uct_plugin::Error;

use crate::iface::RcIface;
use crate::link::conn::Conn;

impl Conn {
    /// Fails it: nothing more is sent, and the error handler is told if it is the first failure. From progress.
    #[cold]
    pub(crate) fn fail(&self, error: Error, reason: &str) {
        if !self.shut(error) {
            return;
        }
        self.shared.rx.close(&self.window);
        // Everything under way comes back as flushed; without this it might wait for a peer that is gone.
        if let Err(error) = self.qp.fail() {
            tracing::warn!(%error, "rc_verbs: a failed queue pair stays as it is");
        }
        let reason = format!("queue pair {:#x}: {reason}", self.qp.number());
        tracing::debug!(%error, %reason, "rc_verbs: endpoint failed");
        if self.queue.is_quiet() {
            self.fail_emulated(error);
        }
        self.shared.pending.schedule(&self.group);
        if !self.is_destroyed() {
            self.shared.errors.report(self.user, error, &reason);
        }
    }

    /// The completion of a work request that failed.
    #[cold]
    pub(crate) fn failed_send(&self, wc: &Wc) {
        let status = wc.status();
        let error = match self.failure() {
            Some(error) => error,
            // The device gave up on the queue pair for another reason, which it tells as an event.
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

impl RcIface {
    /// Lets go of an endpoint that the host has destroyed, as soon as nothing is under way. Where progress is at work on it, it
    /// lives on until that is over.
    #[cold]
    pub(crate) fn bury(&self, ep: &Conn) {
        if ep.failure().is_some() && ep.queue.is_quiet() {
            ep.fail_emulated(Error::CANCELED);
        }
        if !ep.emulated.borrow().is_empty() || !ep.queue.is_quiet() {
            // The last request must announce its end.
            if ep.failure().is_none() && ep.queue.has_unsignaled() && !ep.post_nothing() {
                ep.defer();
            }
            self.shared.tx_wanted.set(true);
            return;
        }
        let Some(ep) = self.eps.remove(ep) else { return };
        self.shared.rx.leave(&ep.window);
        if self.shared.agenda.is_running() {
            self.buried.borrow_mut().push(ep);
            self.shared.agenda.ask();
        }
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
                    ep.fail(Error::CONNECTION_RESET, reason);
                }
            }
            AsyncEvent::DeviceFatal => {
                for ep in self.eps.all() {
                    ep.fail(Error::IO_ERROR, "the device failed, or was taken out");
                }
            }
            AsyncEvent::CqError | AsyncEvent::SrqError => {
                for ep in self.eps.all() {
                    ep.fail(Error::IO_ERROR, "a queue of the device failed");
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
