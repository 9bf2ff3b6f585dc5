//! A software verbs device as a library: RoCEv2 without hardware, root, kernel module or daemon.
//!
//! `engine` is the device without input and output; `network` carries its packets.

pub mod abi;
pub mod driver;
pub mod engine;
#[cfg(feature = "testing")]
mod fuzz;
pub mod network;
mod script;
mod settings;

/// For the tests and fuzz targets of this project. No version promises anything about it.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing {
    pub use crate::fuzz::{fuzz_calls, fuzz_packets};
}

pub use abi::table;
