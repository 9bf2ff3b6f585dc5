//! The failure of an endpoint, and its report to the application.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::rc::Rc;

use ucs::Error;

use crate::resource::Resource;
use crate::worker::WorkerInner;

/// Why an endpoint failed.
#[derive(Clone, PartialEq, Eq)]
pub struct EpFailure {
    /// The status that its operations return from now on.
    pub error: Error,
    /// The transport's reason: which peer, what happened.
    pub reason: String,
}

ucs::debug_as_display!(EpFailure);

impl fmt::Display for EpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reason.is_empty() {
            write!(f, "{}", self.error)
        } else {
            write!(f, "{} ({:?})", self.reason, self.error)
        }
    }
}

impl std::error::Error for EpFailure {}

/// Called once with the failure.
pub(crate) type OnFailure = Box<dyn FnOnce(EpFailure)>;

/// The host's record of an endpoint, which the transport passes to the error handler. It lives until the endpoint is destroyed.
pub(crate) struct EpRecord {
    worker: Rc<WorkerInner>,
    /// What its interface is open on, for the log.
    resource: Rc<Resource>,
    /// In a box, because most endpoints have none.
    failure: OnceCell<Box<EpFailure>>,
    handler: Cell<Handler>,
}

enum Handler {
    Application(OnFailure),
    /// There is no handler: the failure is logged, and at level debug if only the peer has ended.
    Missing,
    /// The endpoint is closed: the failure is ignored.
    Closed,
}

impl EpRecord {
    /// `resource` is what the endpoint's interface is open on.
    pub(crate) fn new(
        worker: &Rc<WorkerInner>,
        resource: &Rc<Resource>,
        on_failure: Option<OnFailure>,
    ) -> EpRecord {
        EpRecord {
            worker: Rc::clone(worker),
            resource: Rc::clone(resource),
            failure: OnceCell::new(),
            handler: Cell::new(on_failure.map_or(Handler::Missing, Handler::Application)),
        }
    }

    /// Records a failure and reports it, once.
    pub(crate) fn fail(&self, error: Error, reason: &str) {
        let failure = EpFailure { error, reason: reason.to_owned() };
        if self.failure.set(Box::new(failure.clone())).is_err() {
            return;
        }
        match self.handler.replace(Handler::Closed) {
            Handler::Application(handler) => self.worker.call_application(|| handler(failure)),
            // Peers end when they are done. Operations in flight and the next call return it.
            Handler::Missing if error == Error::CONNECTION_RESET => {
                ucs::log::debug!(iface = %self.resource, "the peer of an endpoint is gone: {failure}");
            }
            Handler::Missing => {
                ucs::log::error!(iface = %self.resource, "an endpoint failed: {failure}");
            }
            Handler::Closed => {}
        }
    }

    pub(crate) fn failure(&self) -> Option<&EpFailure> {
        self.failure.get().map(|failure| &**failure)
    }

    /// The endpoint is closed: later failures are ignored.
    pub(crate) fn forget_handler(&self) {
        drop(self.handler.replace(Handler::Closed));
    }
}
