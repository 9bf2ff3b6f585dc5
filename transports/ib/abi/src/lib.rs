//! The classic verbs ABI of libibverbs.so.1: structures, constants, and the table of functions.
//!
//! For `uct-ib`, which calls a verbs provider through a [`VerbsTable`], and for providers that fill one with functions of their own.
//! Built on `libloading`, and on `libc` for the types of locks. The names are C's and all of them are here.
//! The tests compare every size, offset and number with rdma-sys (`tests/witness.rs`), and the types of the functions with the
//! installed C header (`tests/functions.rs`).

mod constants;
mod extended;
pub mod library;
mod structures;
mod table;

pub use constants::*;
pub use extended::*;
pub use structures::*;
pub use table::VerbsTable;
