//! The foundation of the core and the transports; it contains nothing about transports.
//!
//! Used by `uct-core`, `uct-plugin` and every transport. Built on the operating system and a few small crates.
//! One module is one idea: status codes, units and configuration, data structures, the asynchronous context, admission,
//! system facts, the log bridge, text of peers.

pub mod admission;
pub mod async_context;
pub mod barrier;
pub mod clock;
pub mod config;
pub mod datastruct;
pub mod event_set;
pub mod log;
pub mod memory;
pub mod panic;
pub mod pending_work;
pub mod record;
mod sentence;
#[cfg(test)]
#[path = "../testing/skip.rs"]
mod skip;
pub mod stats;
pub mod status;
pub mod stride;
pub mod sync;
pub mod sys;
pub mod text;
pub mod units;

pub use status::{Error, Result, Status};
