//! `uct_perftest` as its users start it.

#[path = "../support/mod.rs"]
mod support;

mod attach;
mod completions;
mod files;
mod loopback;
mod two_processes;
