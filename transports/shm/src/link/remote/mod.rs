//! Memory of other processes: registrations, keys, and the three paths to it.
//!
//! Used by memory domains and endpoints. Built on segments, `cma` and the ring. Memory that the transport allocated is mapped by the peer
//! and accessed with loads, stores and atomics. Other memory is copied by the kernel if a probe has succeeded (`cma`). All other operations
//! are carried out by the peer, on request through the ring (emulated).
//!
//! Every path checks bounds and rights at the initiator, and that the registration is live: its number is in a table that the owner shares
//! read-only, and is cleared when the registration ends.

mod announce;
mod cache;
mod key;
mod lent;
mod registry;

pub(crate) use announce::{Announced, Words};
pub(crate) use cache::SegmentCache;
pub(crate) use key::{PACKED_LENGTH, PeerView, Reach, Rkey, is_written, pack};
pub(crate) use lent::{Lent, Populating};
pub(crate) use registry::{Allocated, Memh, registry};
