//! The tables of single objects, for a host that makes such objects itself: around those of another plugin, say.
//!
//! For: `uct-compose`. A transport exports all of its tables with [`crate::define_plugin!`] and has no use for this. What the tables are
//! called with is a pointer from `Arc::into_raw` (a memory domain) or `Rc::into_raw` (interfaces and endpoints) of the type.

use uct_abi::{UctEpOps, UctIfaceOps, UctMdOps};

use crate::tables::{EpTables, IfaceTables, MdTables};
use crate::traits::{Endpoint, Iface, Md};

/// The calls of a memory domain.
pub fn md_ops<M: Md>() -> &'static UctMdOps {
    &MdTables::<M>::OPS
}

/// The calls of an interface.
pub fn iface_ops<I: Iface>() -> &'static UctIfaceOps {
    &IfaceTables::<I>::OPS
}

/// The calls of an endpoint.
pub fn ep_ops<E: Endpoint>() -> &'static UctEpOps {
    &EpTables::<E>::OPS
}
