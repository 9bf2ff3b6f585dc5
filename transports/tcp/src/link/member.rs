//! What a connection knows of an endpoint that uses it: its number, and how to report to the application that it has failed.

use uct_plugin::EpStatus;

/// An endpoint as its connection sees it. The endpoint holds it, a connection refers to it weakly.
pub(crate) struct Member {
    /// Its number among those of its interface.
    pub(crate) owner: u32,
    pub(crate) status: EpStatus,
}
