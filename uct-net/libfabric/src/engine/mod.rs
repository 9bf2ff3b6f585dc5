//! A domain, its endpoints and their peers over `uct-net`, in Rust's terms.
//!
//! Used by `objects` and `ops`, which translate libfabric's calls, and by `info` for limits. Built on `matching` and `wire`. Calls never block,
//! except where documented; all of them may be made by any thread.

mod addresses;
mod arithmetic;
mod bindings;
mod buffer;
mod counter;
mod domain;
mod endpoint;
mod errno;
pub mod flags;
mod inside;
mod not_opened;
mod operation;
mod queue;
mod region;
mod report;
mod settings;
#[cfg(test)]
mod tests;
mod waiter;

/// Most bytes of an operation with [`Mode::inject`].
pub const MAX_INJECT: usize = 4096;

pub use addresses::{AddressVector, NOT_AVAILABLE};
pub use bindings::{Bindings, Counters, EndpointOptions};
pub use buffer::{Buffer, Buffers, MAX_BUFFERS};
pub use counter::Counter;
pub use domain::Domain;
pub use endpoint::Endpoint;
pub use errno::Errno;
pub use inside::Totals;
pub use not_opened::NotOpened;
pub use operation::{
    Atomic, AtomicKind, DataType, Mode, Operation, Peek, PeekAction, Receive, Remote, Rma, Send, TagFilter,
};
pub use queue::{Entry, ErrorEntry, NotRead, Queue};
pub use region::{Access, Region};
