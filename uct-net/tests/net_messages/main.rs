//! Connections that are there: messages, streams and remote memory, in both flavours and in executors.

#[path = "../support/mod.rs"]
mod support;

mod allocations;
mod contracts;
mod direct;
mod dropped;
mod fairness;
mod idle;
#[cfg(feature = "async-io")]
mod in_async_io;
#[cfg(feature = "tokio")]
mod in_tokio;
mod large;
#[cfg(feature = "tokio")]
mod local_in_tokio;
mod memory_ends;
mod memory_of_the_net;
mod messages;
mod outside_progress;
mod protocols;
mod reports;
mod threads;
mod threads_memory;
mod transfers;
