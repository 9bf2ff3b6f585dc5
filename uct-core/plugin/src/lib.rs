//! The safe side of the plugin boundary, for authors of transports.
//!
//! For every crate under `transports/`, and yours. Built on `uct-abi` (the tables) and `ucs`. The host, `uct-core`,
//! never appears here: the two meet only in `uct-abi`.
//!
//! A transport consists of five types and two macro calls: implement [`Component`], [`Md`], [`Transport`], [`Iface`] and
//! [`Endpoint`], then name them in [`define_plugin!`] and export the result with [`export_plugin!`]. Whatever an implementation leaves out returns
//! `UNSUPPORTED`; a panic inside it becomes a status and an error event, never an abort. `transports/README.md` walks
//! through it.

pub mod adapter;
pub mod am;
pub mod arrival;
pub mod atomic;
pub mod attr;
pub mod cm;
pub mod completion;
pub mod ep_status;
pub mod export;
pub mod failure;
pub mod flush;
mod guard;
pub mod host;
pub mod iov;
pub mod memory;
pub mod pack;
pub mod pending;
#[cfg(test)]
#[path = "../../../ucs/testing/property.rs"]
mod property;
pub mod rma;
pub mod settings;
mod tables;
pub mod traits;

pub use am::{AmHandlers, AmRun, Disposition};
pub use arrival::{AmPlacer, Arrival};
pub use atomic::{Atomic, OldValue, OldWord};
pub use attr::{AtomicOp, Device, DeviceKind, Flush, IfaceAttr, MdAttr, Scope};
pub use cm::{CmToken, ConnectionManager};
pub use completion::{Completion, Outcome};
pub use ep_status::EpStatus;
pub use failure::Failure;
pub use flush::FlushSet;
pub use guard::{Answer, or as guarded};
pub use host::{AsyncId, ProgressRequest, Worker};
pub use iov::Iov;
pub use memory::MemoryAccess;
pub use pack::{Pack, Unpack};
pub use pending::{Blocked, PendingGroup, PendingQueue};
pub use settings::Settings;
pub use traits::{Component, Endpoint, EpParams, Iface, IfaceParams, Md, PeerAddress, SocketSide, Transport};
pub use ucs::{Error, Result, Status};

/// The tables themselves, for what the safe side does not cover.
pub use uct_abi as abi;

#[doc(hidden)]
pub mod export_support {
    pub use crate::export::table;
    pub use crate::tables::{ComponentTables, TlTables};

    /// The calls of a connection manager.
    pub const fn cm_ops<C: crate::ConnectionManager>() -> &'static uct_abi::UctCmOps {
        &crate::tables::CmTables::<C>::OPS
    }
}
