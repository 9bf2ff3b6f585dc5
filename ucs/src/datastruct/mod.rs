//! Data structures of the data path: pools, progress callbacks, fair queues.
//!
//! Used by interfaces and workers. Built on [`crate::sync`]. Each of `uct-core`, `uct-plugin` and the
//! transports uses some of them. None allocates, locks or logs where data move.

pub mod arbiter;
pub mod callbackq;
pub mod mpool;
