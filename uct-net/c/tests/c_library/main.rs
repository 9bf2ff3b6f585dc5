//! The library as programs have it: its functions, its header and its file, and the examples in C between two
//! processes.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of C functions with valid pointers, one after the other"
)]

#[path = "../../../../ucs/testing/alone.rs"]
mod alone;
mod closing;
mod compiled;
mod copies;
mod examples;
mod forking;
mod handles;
mod layout;
mod memory;
mod messages;
mod program;
#[path = "../../../../ucs/testing/skip.rs"]
mod skip;
mod threads;
mod waiting;
