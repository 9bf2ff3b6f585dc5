//! Memory of other processes: which there is, how it is named, and the three paths to it.
//!
//! For: memory domains and endpoints. Stands on segments, cma and the ring. Memory that was allocated here is mapped by
//! the peer and used with loads, stores and atomics; other memory is copied by the kernel where a probe has shown that
//! it does (cma); what is left is carried out by the peer, on request through the ring (emulated).
//!
//! Every path checks bounds and permission on the initiator's side, and that the registration still lives: its number
//! stands in a table that the owner shares read-only, and is cleared when the registration ends.

mod announce;
mod key;
mod registry;

pub(crate) use announce::{Announced, Words};
pub(crate) use key::{Lent, PACKED_LENGTH, PeerView, Reach, Rkey, is_written, pack};
pub(crate) use registry::{Allocated, Memh, registry};
