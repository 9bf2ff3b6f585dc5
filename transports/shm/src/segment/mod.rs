//! Shared memory and how it gets from one process to another.
//!
//! For: channels (rings, bells), allocated memory. Stands on `rustix` and `libc`. A segment has no name that could stay
//! behind: memfd and unlinked files live as long as somebody holds them, a System V segment is marked for removal as
//! soon as it is attached. Descriptors travel over a unix socket, which also tells of the peer's death.

mod mapping;
pub mod socket;
mod source;

pub use mapping::Mapping;
pub use source::{Origin, Segment, Source, Trust, accept, attach_sysv};
