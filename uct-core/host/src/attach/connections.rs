//! Connections of a library above the workers, for their reports.

use super::reply::ConnectionReport;

/// What has connections over a worker: see [`crate::Worker::report_connections`].
pub trait Connections {
    /// What they have done so far. Called inside progress of the worker, by the thread that drives it.
    fn connections(&self) -> Vec<ConnectionReport>;
}
