//! The failure of an endpoint, and its report to the application.

use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;

use ucs::Error;

use crate::worker::WorkerInner;

/// Why an endpoint failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpFailure {
    /// The status that its operations return from now on.
    pub error: Error,
    /// The transport's reason: which peer, what happened.
    pub reason: String,
}

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
    subject: String,
    failure: OnceCell<EpFailure>,
    handler: RefCell<Handler>,
}

enum Handler {
    Application(OnFailure),
    /// There is no handler: the failure is logged.
    Nobody,
    /// The endpoint is closed: the failure is ignored.
    Closed,
}

impl EpRecord {
    /// `subject` names the endpoint's interface in the log.
    pub(crate) fn new(
        worker: &Rc<WorkerInner>,
        subject: String,
        on_failure: Option<OnFailure>,
    ) -> Rc<EpRecord> {
        Rc::new(EpRecord {
            worker: Rc::clone(worker),
            subject,
            failure: OnceCell::new(),
            handler: RefCell::new(on_failure.map_or(Handler::Nobody, Handler::Application)),
        })
    }

    /// Records a failure and reports it, once.
    pub(crate) fn fail(&self, error: Error, reason: &str) {
        let failure = EpFailure { error, reason: reason.to_owned() };
        if self.failure.set(failure.clone()).is_err() {
            return;
        }
        let handler = self.handler.replace(Handler::Closed);
        match handler {
            Handler::Application(handler) => self.worker.call_application(|| handler(failure)),
            Handler::Nobody => tracing::error!(iface = self.subject, "an endpoint failed: {failure}"),
            Handler::Closed => {}
        }
    }

    pub(crate) fn failure(&self) -> Option<&EpFailure> {
        self.failure.get()
    }

    /// The endpoint is closed: later failures are ignored.
    pub(crate) fn forget_handler(&self) {
        drop(self.handler.replace(Handler::Closed));
    }
}
