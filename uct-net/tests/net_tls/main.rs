//! TLS for the handshake, and around lanes.
#![cfg(feature = "tls")]

#[path = "../support/mod.rs"]
mod support;

mod handshake;
mod lane;
mod lane_ends;
mod memory;
