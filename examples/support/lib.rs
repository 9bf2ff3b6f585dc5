//! What the examples share: other processes to talk to, and the way to an endpoint that leads there.
//!
//! For the programs in this folder. Built on `uct-core` and the standard library. Each program starts the processes
//! that it talks to itself, so that one command shows all of it.

#![forbid(unsafe_code)]

mod connect;
mod peer;

pub use connect::{Connection, connect};
pub use peer::{Failure, LIMIT, Peer, two_processes, with_peers};

/// The code in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
