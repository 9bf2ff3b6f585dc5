//! Facts about the machine and the process, and thin helpers over system calls.
//!
//! Used by transports and selection, which must know where they run. Built on `rustix`, `libc`, `socket2`,
//! /proc and /sys. The core, the transports and the tools use it.

pub mod cpu;
pub mod descriptors;
pub mod host;
pub mod memory;
pub mod namespace;
pub mod net;
pub mod own_file;
pub mod pages;
pub mod peer;
pub mod process;
pub mod random;
pub mod socket;
pub mod trust;

mod error;
mod read;

pub use error::{RawErrno, SystemError};
