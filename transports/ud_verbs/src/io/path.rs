//! Where a datagram goes to.
//!
//! Built on `uct_ib::verbs`.

use std::sync::Arc;

use uct_ib::verbs::Ah;

/// The way to a peer's queue pair.
pub(crate) struct Path {
    pub(crate) ah: Arc<Ah>,
    pub(crate) qp: u32,
}
