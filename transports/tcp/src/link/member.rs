//! What a connection knows of an endpoint that uses it: its number, and how to report to the application that it has failed.

use std::cell::Cell;

use ucs::Error;
use uct_plugin::traits::{EpUser, ErrorHandler};

/// An endpoint as its connection sees it. The endpoint holds it, a connection refers to it weakly.
pub(crate) struct Member {
    user: EpUser,
    owner: u32,
    reported: Cell<bool>,
}

impl Member {
    /// That of an endpoint with this number among those of its interface.
    pub(crate) fn new(user: EpUser, owner: u32) -> Member {
        Member { user, owner, reported: Cell::new(false) }
    }

    /// Its number among those of the interface.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    /// Reports to the application that the endpoint has failed, once.
    pub(crate) fn report(&self, errors: &ErrorHandler, error: Error, reason: &str) {
        if !self.reported.replace(true) {
            errors.report(self.user, error, reason);
        }
    }

    /// Nothing is reported any more: the endpoint is being destroyed.
    pub(crate) fn silence(&self) {
        self.reported.set(true);
    }
}
