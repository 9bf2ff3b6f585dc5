//! Loads transports, selects among them, and drives them.
//!
//! Used by applications and communication libraries; `uct-net` adds connections by address. Built on `ucs` and, at the boundary to the
//! transports, on `uct-abi`.
//!
//! A [`Context`] reads the configuration, loads transports and lists their devices. A [`Worker`] drives the interfaces of one thread. An [`Iface`] is
//! one transport on one device. An [`Ep`] sends to one peer. Data move by active messages ([`Ep::am_short`],
//! [`Ep::am_bcopy`], [`Ep::am_zcopy`]), put, get and atomics. [`Worker::progress`] receives, completes operations and sends queued data.
//! [`select::Selector`] chooses the interface with the lowest estimated cost.
//!
//! ```
//! use std::{cell::Cell, rc::Rc};
//! use uct_core::{AmId, Context, Worker};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const HELLO: AmId = AmId::new(0).unwrap();
//! let context = Context::builder().build()?;
//! let worker = Worker::new(&context)?;
//! let iface = worker.open("self", "memory")?;
//!
//! let received = Rc::new(Cell::new(0));
//! let seen = Rc::clone(&received);
//! iface.set_am_handler(HELLO, move |message| seen.set(message.len()));
//!
//! let ep = iface.connect(&iface.address()?)?;
//! ep.am_short(HELLO, 0x2a, b"hello")?;
//! assert_eq!(received.get(), 8 + 5);
//! # Ok(())
//! # }
//! ```
//!
//! - **Threads.** `Context` and [`MemoryDomain`] may be used by any thread. `Worker`, `Iface`, `Ep`, [`Memory`] and [`Completion`] belong to one
//!   thread; a [`WorkerHandle`] wakes a worker from others.
//! - **Blocking.** Operations of an endpoint do not block, except [`Ep::get_short`] over transports that wait for the peer. Building a
//!   context, opening interfaces, [`Ep::connect_to_ep`], allocating and registering memory make system calls and may block. `wait` and `retry`
//!   block up to the limit that they are given.
//! - **Errors.** Operations return an [`Error`], which is a status. [`Error::NO_RESOURCE`] means that nothing happened: make progress and try
//!   again. Errors of set-up ([`ContextError`], [`OpenError`], [`Refused`]) contain the reason as text. docs/errors.md lists causes and remedies.
//! - **Units.** Lengths are bytes, costs seconds, bandwidths bytes per second.
//!
//! The vocabulary and the semantics are those of UCX's UCT (`uct/api/uct.h`). Where this crate guarantees more, its documentation states it.

mod address;
mod am;
pub mod attach;
mod attr;
mod builtin;
pub mod cm;
mod completion;
mod config;
mod context;
mod engine;
mod ep;
mod error;
mod host;
mod iface;
mod latency;
pub mod loader;
mod log;
mod md;
mod misspelt;
#[cfg(test)]
#[path = "../../ucs/testing/property.rs"]
mod property;
mod reason;
mod resource;
pub mod select;
#[cfg(test)]
#[path = "../../ucs/testing/skip.rs"]
mod skip;
mod stats;
mod worker;

pub use address::{AddressError, IfaceAddress};
pub use am::{AmId, AmMessage, KeptMessage};
pub use attr::{
    AtomicOp, AtomicOps, Capabilities, Events, Figure, IfaceAttr, MdAttr, MdFlags, OpLimits, Origin,
};
pub use completion::{Completion, Fetched, Posted};
pub use config::{CoreConfig, Fallback};
pub use context::{Absent, Context, ContextBuilder, Discovery};
pub use ep::{Ep, EpFailure, Flush, Pending, SendFlags, SocketSide};
pub use error::{ContextError, OpenError, Refused, split_remedy};
pub use iface::{Iface, IfaceOptions};
pub use latency::Latency;
pub use md::{
    Access, Memory, MemoryDomain, MemoryKind, MemorySlice, MultiDomainMemory, PackedKeys, RegisteredPool,
    RemoteKey,
};
pub use resource::{DeviceKind, Resource};
pub use stats::{Count, Counters};
pub use ucs::{Error, Result, Status, clock, config as configuration, sys as system, units};
pub use worker::{Worker, WorkerHandle};

/// Major and minor version of the plugin boundary. A plugin of another major version is refused.
pub const ABI_VERSION: (u32, u32) = (uct_abi::UCT_ABI_MAJOR, uct_abi::UCT_ABI_MINOR);
