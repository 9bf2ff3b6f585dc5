//! What the connections and listeners of a connection manager share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ucs::event_set::EventFd;
use uct_ib::IbConfig;
use uct_plugin::{Error, Failure};

use crate::config::RdmacmConfig;
use crate::io::{self, Channel};
use crate::link::deadlines::Deadlines;
use crate::link::devices::Devices;
use crate::link::explain::refusal;
use crate::proto::refusal::{Refusal, Step};

/// The parts of a connection manager that its connections use.
pub(crate) struct Shared {
    pub(crate) config: RdmacmConfig,
    pub(crate) channel: Arc<Channel>,
    pub(crate) devices: Devices,
    pub(crate) deadlines: Deadlines,
    /// Connections with something to report.
    ready: RefCell<VecDeque<usize>>,
    /// Readable while there are some.
    pub(crate) wake: EventFd,
    /// Connections and listeners so far, which are known by these numbers.
    made: Cell<usize>,
}

impl Shared {
    pub(crate) fn open(config: RdmacmConfig, ib: IbConfig) -> Result<Shared, Failure> {
        if ib.is_software() {
            let reason = "rdmacm does not connect over the device in software (library = soft in [ib]): librdmacm knows devices of the kernel \
                          alone → exchange the addresses of endpoints by other means, or set library in [ib] (UCT_IB_LIBRARY) to auto";
            return Err(Failure::new(Error::UNSUPPORTED, reason));
        }
        let table = io::load().map_err(|error| Failure::new(Error::UNSUPPORTED, error.to_string()))?;
        let channel = Channel::new(table).map_err(|error| failure(refusal(&error, Step::Open, "")))?;
        let system = |error: ucs::sys::SystemError| Failure::new((&error).into(), error.to_string());
        Ok(Shared {
            devices: Devices::new(ib, config.fork_init),
            channel,
            deadlines: Deadlines::new().map_err(system)?,
            ready: RefCell::default(),
            wake: EventFd::new().map_err(system)?,
            made: Cell::new(1),
            config,
        })
    }

    /// A number that no connection or listener has had.
    pub(crate) fn next_key(&self) -> usize {
        self.made.replace(self.made.get() + 1)
    }

    /// Something is to be reported of a connection.
    pub(crate) fn push_ready(&self, key: usize) {
        self.ready.borrow_mut().push_back(key);
        self.wake.signal();
    }

    pub(crate) fn pop_ready(&self) -> Option<usize> {
        let next = self.ready.borrow_mut().pop_front();
        if next.is_none() {
            self.wake.drain();
        }
        next
    }

    /// The limit of each stage, where the application gave none.
    pub(crate) fn timeout(&self) -> Duration {
        self.config.timeout.to_duration()
    }

    /// One attempt to resolve an address, in milliseconds.
    pub(crate) fn resolve_milliseconds(&self) -> i32 {
        let milliseconds = self.config.resolve_interval.to_duration().as_millis().clamp(1, 60_000);
        i32::try_from(milliseconds).unwrap_or(i32::MAX)
    }
}

/// A refusal as the boundary takes it.
pub(crate) fn failure(refusal: Refusal) -> Failure {
    Failure::new(refusal.status, refusal.words)
}
