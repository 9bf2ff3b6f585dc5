//! Attaching: another process of the same user reads what the workers, interfaces and endpoints of a running process have done.
//!
//! A process offers this if its key `attach` is on: one thread then serves a unix socket, and each worker collects its own report
//! inside progress. Without the key there is no thread and no socket. The counters are those that the host keeps anyway, so the data path is the same.
//! `uct_info --attach` calls [`read`]. A program gets the same reports of its own workers by [`crate::Context::report`].

#![forbid(unsafe_code)]

mod client;
mod error;
mod observed;
mod observers;
mod place;
mod reply;
mod server;
#[cfg(test)]
mod tests;
mod workers;

pub use client::read;
pub use error::AttachError;
pub(crate) use observed::{ObservedEp, ObservedEps};
pub(crate) use observers::Observers;
pub use reply::{IfaceReport, LatencyReport, Sent, Snapshot, TransportCounter, WorkerReport, WorkerState};
pub(crate) use workers::Offer;
