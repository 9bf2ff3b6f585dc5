//! Whether an endpoint has failed, and whether that was reported.
//!
//! For: transports whose endpoints can fail. A failure is reported once, from progress, and not after the endpoint was destroyed.

use std::cell::Cell;

use ucs::Error;

use crate::traits::{EpUser, ErrorHandler};

/// The failure of one endpoint. The endpoint holds it; what it sends through may refer to it, and outlive it.
pub struct EpStatus {
    user: EpUser,
    failure: Cell<Option<Error>>,
    /// It was reported, or the endpoint is being destroyed.
    is_silent: Cell<bool>,
}

impl EpStatus {
    /// Of an endpoint that has not failed.
    pub fn new(user: EpUser) -> EpStatus {
        EpStatus { user, failure: Cell::new(None), is_silent: Cell::new(false) }
    }

    /// The error that every operation returns since the endpoint has failed; `None` while it has not.
    #[inline(always)]
    pub fn failure(&self) -> Option<Error> {
        self.failure.get()
    }

    /// As [`EpStatus::failure`], for operations that begin with it.
    ///
    /// # Errors
    /// The failure.
    #[inline(always)]
    pub fn check(&self) -> Result<(), Error> {
        self.failure.get().map_or(Ok(()), Err)
    }

    /// Records a failure, unless there was one before; returns whether it is the first.
    pub fn fail(&self, error: Error) -> bool {
        let is_first = self.failure.get().is_none();
        if is_first {
            self.failure.set(Some(error));
        }
        is_first
    }

    /// Reports the failure to the application, once. The application may destroy the endpoint inside.
    pub fn report(&self, errors: &ErrorHandler, reason: &str) {
        if let Some(error) = self.failure.get()
            && !self.is_silent.replace(true)
        {
            errors.report(self.user, error, reason);
        }
    }

    /// The endpoint is being destroyed: nothing is reported any more.
    pub fn close(&self) {
        self.is_silent.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_void;
    use uct_abi::{UctStatus, UctStr};

    /// Keeps the status of each report in the list that the handler's argument is.
    unsafe extern "C" fn keep(list: *mut c_void, _: *mut c_void, status: UctStatus, _: UctStr) {
        // SAFETY: the test's own list, which outlives the handler.
        let list = unsafe { &*list.cast::<std::cell::RefCell<Vec<UctStatus>>>() };
        list.borrow_mut().push(status);
    }

    #[test]
    fn the_first_failure_counts_and_is_reported_once_and_not_after_the_end() {
        let list = std::cell::RefCell::new(Vec::<UctStatus>::new());
        // SAFETY: list and handler outlive the value.
        let errors = unsafe { ErrorHandler::new(keep, (&raw const list).cast_mut().cast()) };
        let status = EpStatus::new(EpUser(std::ptr::null_mut()));
        status.report(&errors, "nothing to tell");
        assert_eq!((status.failure(), status.check(), list.take()), (None, Ok(()), vec![]));
        assert!(status.fail(Error::CONNECTION_RESET));
        assert!(!status.fail(Error::CANCELED), "it has failed before");
        assert_eq!(status.check(), Err(Error::CONNECTION_RESET));
        status.report(&errors, "the peer is gone");
        status.report(&errors, "again");
        assert_eq!(list.take(), [Error::CONNECTION_RESET.status().raw()]);
        let status = EpStatus::new(EpUser(std::ptr::null_mut()));
        status.close();
        assert!(status.fail(Error::CANCELED));
        status.report(&errors, "nobody is concerned");
        assert_eq!(list.take(), []);
    }
}
