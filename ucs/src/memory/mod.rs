//! Memory: kinds of it, ways to allocate it, advice about it, and what a fork does to it.
//!
//! Used by memory domains, pools that register their chunks, and objects that must not be used after a fork.
//! Built on `mmap`, `madvise` and the allocator. `uct-core` and transports use it.

pub mod accesses;
pub mod advice;
pub mod allocate;
pub mod fork;
pub mod mapped;
pub mod populate;

mod buffers;
mod copy;
mod kind;
mod small;
pub(crate) mod wiped;

pub use allocate::{Allocation, Method, allocate};
pub use buffers::{Buffer, BufferPool};
pub use copy::{copy, copy_raw, move_raw};
pub use kind::MemoryKind;
pub use small::{copy_few, copy_small, move_small};
