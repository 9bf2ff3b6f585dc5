//! Attaching: another process of the same user reads what the workers, interfaces and endpoints of a running process have done.
//!
//! A process offers this if its key `attach` is on: one thread then serves a unix socket, and each worker collects its own report
//! inside progress. Without the key there is no thread and no socket. The counters are those that the host keeps anyway, so the data path is the same.
//! `uct_info --attach` calls [`read`], and [`list`] without a process. A program gets the same reports of its own workers by [`crate::Context::report`].

#![forbid(unsafe_code)]

mod client;
mod connections;
mod error;
mod list;
mod observed;
mod observers;
mod place;
mod reply;
mod server;
#[cfg(test)]
mod tests;
mod workers;

pub use client::read;
pub use connections::Connections;
pub use error::AttachError;
pub use list::{Attachable, list};
pub(crate) use observed::{ObservedEp, ObservedEps};
pub(crate) use observers::Observers;
pub use reply::{
    ConnectionReport, IfaceReport, LatencyReport, Sent, Snapshot, TransferReport, TransportCounter,
    WorkerReport, WorkerState,
};
pub(crate) use workers::Offer;
