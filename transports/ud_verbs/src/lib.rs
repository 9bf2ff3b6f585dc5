//! The `ud_verbs` transport.

pub mod protocol;

pub use protocol::fuzz_packets;
