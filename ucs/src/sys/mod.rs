//! Facts about the machine and the process, and thin helpers over system calls.
//!
//! For: transports and selection, which must know where they run. Stands on `rustix`, `libc`, `socket2`,
//! /proc and /sys. The core, the transports and the tools stand on it.

pub mod cpu;
pub mod host;
pub mod namespace;
pub mod net;
pub mod pages;
pub mod process;
pub mod random;
pub mod socket;
pub mod trust;

mod error;
mod read;

pub use error::{RawErrno, SystemError};
