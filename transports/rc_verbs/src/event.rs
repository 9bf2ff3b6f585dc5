//! Sleeping and waking: what the asynchronous context has left, and arming the descriptor.
//!
//! For: the interface. Built on `io::wakeup` and `io::watches`.

use uct_plugin::abi::{UCT_EVENT_RECV, UCT_EVENT_RECV_SIG, UCT_EVENT_SEND_COMP};
use uct_plugin::{Error, Result};

use crate::iface::RcIface;

impl RcIface {
    /// Handles what the asynchronous context has left.
    #[cold]
    pub(crate) fn open_mail(&self) {
        let (events, is_tick) = self.watches.mailbox.take();
        for event in events {
            self.handle_event(event);
        }
        if is_tick {
            self.watch_peers();
        }
    }

    /// Arms the descriptor; see `Iface::arm`.
    pub(crate) fn arm_for(&self, events: u32) -> Result {
        if self.shared.agenda.is_asked() || self.watches.mailbox.is_full() || !self.shared.pending.is_idle() {
            return Err(Error::BUSY);
        }
        // What was announced is taken first; it may be a completion that nobody has seen.
        self.wakeup.rx.drain();
        self.wakeup.tx.drain();
        let io = |_| Error::IO_ERROR;
        // A grant makes room for sends, and comes as a solicited message.
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
        self.shared.agenda.ask();
        Err(Error::BUSY)
    }

    fn has_emulated(&self) -> bool {
        self.eps.all().iter().any(|ep| !ep.emulated.borrow().is_empty())
    }
}
