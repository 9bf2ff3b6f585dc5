//! The completion queues of an interface, and completions that were taken out of them ahead of time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uct_ib::verbs::{Cq, Wc, WcBuffer};
use uct_plugin::{Error, Result};

/// Completions taken in one go.
pub(crate) const BATCH: usize = 16;

/// Completions of receives and of sends.
pub(crate) struct Completions {
    pub(crate) rx_cq: Arc<Cq>,
    pub(crate) tx_cq: Arc<Cq>,
    /// Taken out of the queues and not handled yet: those of sends, and one of a receive.
    backlog: RefCell<VecDeque<Wc>>,
    stashed: Cell<Option<Wc>>,
}

impl Completions {
    pub(crate) fn new(rx_cq: Arc<Cq>, tx_cq: Arc<Cq>) -> Completions {
        Completions { rx_cq, tx_cq, backlog: RefCell::default(), stashed: Cell::new(None) }
    }

    /// Takes one completion out of each queue and keeps it; returns whether there was any.
    pub(crate) fn stash(&self) -> bool {
        let mut buffer = WcBuffer::<1>::new();
        let received = self.rx_cq.poll(&mut buffer).ok().and_then(|completions| completions.first().copied());
        let sent = self.tx_cq.poll(&mut buffer).ok().and_then(|completions| completions.first().copied());
        let any = received.is_some() || sent.is_some();
        self.stashed.set(received);
        self.backlog.borrow_mut().extend(sent);
        any
    }

    /// The completion of a receive that was kept.
    pub(crate) fn take_received(&self) -> Option<Wc> {
        self.stashed.take()
    }

    /// The oldest completion of a send that was kept.
    pub(crate) fn take_sent(&self) -> Option<Wc> {
        self.backlog.borrow_mut().pop_front()
    }

    /// Waits for a completion of a send that `ends` accepts; keeps all.
    pub(crate) fn wait_for(&self, longest: Duration, ends: impl Fn(&Wc) -> bool) -> Result {
        let deadline = Instant::now() + longest;
        let mut buffer = WcBuffer::<BATCH>::new();
        loop {
            let completions = self.tx_cq.poll(&mut buffer).map_err(|_| Error::IO_ERROR)?;
            let ended = completions
                .iter()
                .find(|wc| ends(wc))
                .map(|wc| if wc.is_ok() { Ok(()) } else { Err(Error::from_status(wc.status().status())) });
            self.backlog.borrow_mut().extend(completions.iter().copied());
            match ended {
                Some(result) => return result,
                None if Instant::now() > deadline => return Err(Error::TIMED_OUT),
                None => std::hint::spin_loop(),
            }
        }
    }
}
