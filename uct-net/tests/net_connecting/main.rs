//! Connections that are made and that end: by which addresses, on which hosts, with what error.

#[path = "../support/mod.rs"]
mod support;

mod black_hole;
mod connecting;
mod error_table;
mod fork;
mod hosts;
mod killed;
mod one_port;
mod sandboxes;
mod spans;
mod stopped_handshakes;
mod stopped_peers;
mod subscriber;
mod surroundings;
