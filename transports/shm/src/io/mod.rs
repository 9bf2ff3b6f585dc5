//! Shared memory, the sockets over which it gets from one process to another, and the kernel's copies between processes.
//!
//! Built on `rustix` and `libc`. A segment has no name that could stay behind: memfd and unlinked files live as long as a process
//! holds them, a System V segment is marked for removal as soon as it is attached. Descriptors travel over a unix socket, which
//! also reports the peer's death.

pub mod cma;
mod mapping;
mod segment;
pub mod socket;

pub use mapping::Mapping;
pub use segment::{Origin, Segment, Source, Trust, accept, attach_sysv};
