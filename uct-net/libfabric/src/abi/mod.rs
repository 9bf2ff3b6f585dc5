//! The binary interface of libfabric: structures, tables of functions, and constants, declared without its headers.
//!
//! For the rest of this crate. Facts of `rdma/*.h`, written down anew; the names are C's, so that a manual page reads the same.
//! Structures that libfabric 2 made longer have the length of libfabric 1.17 here; tables tell theirs in `size`. Nothing is linked.
//! `tests/layout.rs` compares everything with the installed headers.

// The members mean what the manual pages of the same names say.
#![allow(missing_docs, non_camel_case_types)]

mod constants;
mod data_path;
mod info;
mod objects;
mod queues;
mod table;

pub use constants::*;
pub use data_path::*;
pub use info::*;
pub use objects::*;
pub use queues::*;
pub use table::Unsupported;
