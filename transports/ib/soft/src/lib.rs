//! A software verbs device as a library: RoCEv2 without hardware, root, kernel module or daemon.
//!
//! `engine` is the device without input and output; `network` carries its packets.

pub mod abi;
pub mod driver;
pub mod engine;
pub mod network;
mod settings;

pub use abi::table;
