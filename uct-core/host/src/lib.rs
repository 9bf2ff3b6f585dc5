//! The host of transports: loads them, selects among them, and drives them; it links none itself.
//!
//! `uct-core` re-exports all of it, with the transports of its features linked in. Applications use that crate; its documentation is the place to
//! begin. Built on `ucs` and, at the boundary to the transports, on `uct-abi`.
//!
//! A program that uses this crate alone finds the plugins that are files, and those that [`linked`] names.

mod address;
mod am;
pub mod attach;
mod attr;
pub mod cm;
mod completion;
mod config;
mod context;
mod device;
mod engine;
mod ep;
mod error;
mod host;
mod iface;
mod latency;
pub mod linked;
pub mod loader;
mod log;
mod md;
mod misspelt;
#[cfg(test)]
#[path = "../../../ucs/testing/property.rs"]
mod property;
#[doc(hidden)]
pub mod raw;
mod reason;
mod resource;
pub mod select;
#[cfg(test)]
#[path = "../../../ucs/testing/skip.rs"]
mod skip;
mod stats;
mod worker;

pub use address::{AddressError, IfaceAddress};
pub use am::{AmId, AmMessage, KeptMessage, Placer, Space};
pub use attr::{
    AtomicOp, AtomicOps, Capabilities, Events, Figure, IfaceAttr, MdAttr, MdFlags, OpLimits, Origin,
};
pub use completion::{Completion, Fetched, Posted};
pub use config::{CoreConfig, Fallback};
pub use context::{Absent, Context, ContextBuilder, Discovery};
pub use ep::{Batch, Block, Ep, EpFailure, Flush, Pending, SendFlags, SocketSide};
pub use error::{ContextError, OpenError, Refused, split_remedy};
pub use iface::{Iface, IfaceOptions};
pub use latency::Latency;
pub use md::{
    Access, Grant, Memory, MemoryDomain, MemoryKind, MemorySlice, MultiDomainMemory, PackedKeys,
    RegisteredPool, RemoteKey,
};
pub use resource::{DeviceKind, Resource};
pub use stats::{Count, Counters};
pub use ucs::memory::{Buffer, BufferPool};
pub use ucs::{Error, Result, Status, clock, config as configuration, sys as system, units};
pub use worker::{Worker, WorkerHandle};

/// Major and minor version of the plugin boundary. A plugin of another major version is refused.
pub const ABI_VERSION: (u32, u32) = (uct_abi::UCT_ABI_MAJOR, uct_abi::UCT_ABI_MINOR);
