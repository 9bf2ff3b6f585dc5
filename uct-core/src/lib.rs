//! Discovers, loads, selects and drives transports.

pub mod loader;
