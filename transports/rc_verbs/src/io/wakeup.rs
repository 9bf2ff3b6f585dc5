//! What wakes a sleeper: one descriptor for the completion channels of both queues.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use ucs::event_set::{EventSet, Events};
use uct_ib::verbs::{CompChannel, Context};
use uct_plugin::{Error, Failure, Result};

/// What wakes a sleeper.
pub(crate) struct Wakeup {
    set: EventSet,
    pub(crate) rx: Arc<CompChannel>,
    pub(crate) tx: Arc<CompChannel>,
}

impl Wakeup {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Wakeup, Failure> {
        let system = |error: ucs::sys::SystemError| Failure::new(Error::IO_ERROR, error.to_string());
        let rx = CompChannel::new(context)?;
        let tx = CompChannel::new(context)?;
        let set = EventSet::new().map_err(system)?;
        set.add(rx.fd(), Events::READ, 0).map_err(system)?;
        set.add(tx.fd(), Events::READ, 1).map_err(system)?;
        Ok(Wakeup { set, rx, tx })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }
}
