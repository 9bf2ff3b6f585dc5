//! Events of the device, and arming the descriptor that wakes a sleeper.

use uct_ib::verbs::AsyncEvent;
use uct_plugin::abi::{UCT_EVENT_RECV, UCT_EVENT_RECV_SIG, UCT_EVENT_SEND_COMP};
use uct_plugin::{Error, Result};

use crate::iface::RcIface;
use crate::io::completions::Completions;

impl RcIface {
    /// Arms the descriptor; see `Iface::arm`.
    pub(crate) fn arm_for(&self, events: u32) -> Result {
        if self.shared.agenda.has_work() || self.watches.mailbox.is_full() || !self.shared.pending.is_idle() {
            return Err(Error::BUSY);
        }
        // Notifications are read first: there may be a completion that was not polled yet.
        self.wakeup.rx.drain();
        self.wakeup.tx.drain();
        let io = |_| Error::IO_ERROR;
        // Credits make room for sends, and arrive in a solicited message.
        let receives = events & (UCT_EVENT_RECV | UCT_EVENT_RECV_SIG | UCT_EVENT_SEND_COMP);
        if receives != 0 {
            self.shared.completions.rx_cq.request_notify(events & UCT_EVENT_RECV == 0).map_err(io)?;
        }
        // Emulated atomics take their next step at a completion, whatever the caller sleeps for.
        let sends = events & UCT_EVENT_SEND_COMP != 0 || self.has_emulated();
        if sends {
            self.shared.completions.tx_cq.request_notify(false).map_err(io)?;
        }
        self.watches.mailbox.set_watched(self.has_something_to_watch());
        // What came before the queues were armed is not announced: it is taken out now, and kept for progress.
        if !self.shared.completions.stash() {
            return Ok(());
        }
        self.shared.agenda.add_work();
        Err(Error::BUSY)
    }

    fn has_emulated(&self) -> bool {
        self.conns.all().iter().any(|conn| !conn.emulated.borrow().is_empty())
    }

    /// Whether a sleeper must be woken for a look.
    pub(crate) fn has_something_to_watch(&self) -> bool {
        let probes = self.schedule.probes();
        !self.reaped.borrow().is_empty()
            || self
                .conns
                .all()
                .iter()
                .any(|conn| conn.queue.is_connected() && (probes || !conn.queue.is_quiet()))
    }

    /// Nothing on any connection will end any more.
    #[cold]
    pub(crate) fn lose_all(&self, reason: &str) {
        // What has ended already has ended well.
        self.end_stashed();
        while self.poll_tx() > 0 {}
        for conn in self.conns.all() {
            conn.lose(Error::IO_ERROR, reason);
        }
    }

    /// Handles asynchronous events of the device.
    #[cold]
    pub(crate) fn handle_event(&self, event: AsyncEvent) {
        let port = self.port.borrow().port.number;
        match event {
            AsyncEvent::QpFatal(number) | AsyncEvent::QpPeerError(number) => {
                if let Some(conn) = self.conns.find(number) {
                    // SAFETY: completions and events are handled by progress, and the table has just given it.
                    let conn = unsafe { self.during_progress(conn) };
                    let reason = match event {
                        AsyncEvent::QpFatal(_) => "the device reported a fatal error of the queue pair",
                        _ => "the peer sent an invalid request (wrong key, address or operation)",
                    };
                    conn.fail(Error::CONNECTION_RESET, reason);
                }
            }
            AsyncEvent::DeviceFatal => self.lose_all("the device failed or was removed"),
            AsyncEvent::CqError(cq) => {
                let Completions { rx_cq, tx_cq, .. } = &self.shared.completions;
                if [rx_cq, tx_cq].iter().any(|own| own.identity() == cq) {
                    self.lose_all("a completion queue of the interface failed");
                }
            }
            AsyncEvent::SrqError(srq) if srq == self.shared.rx.ring.srq.identity() => {
                for conn in self.conns.all() {
                    conn.fail(Error::IO_ERROR, "the receive queue of the interface failed");
                }
            }
            AsyncEvent::PortDown(number) if number == port => {
                ucs::log::warn!(device = %self.name, "rc_verbs: the port went down; connections wait for it to come back");
            }
            AsyncEvent::PortActive(number) | AsyncEvent::AddressChange(number) if number == port => {
                self.refresh_port();
            }
            _ => ucs::log::debug!(device = %self.name, ?event, "rc_verbs: event"),
        }
    }
}
