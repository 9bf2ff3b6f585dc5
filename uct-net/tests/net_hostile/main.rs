//! Peers that do harm, hosts on the path that do, and more peers than there is room for.

#[path = "../support/mod.rs"]
mod support;

mod callers;
#[cfg(feature = "tls")]
mod path;
mod peers;
mod resources;
mod stalls;
mod storm;
