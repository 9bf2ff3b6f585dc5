//! What carries packets between devices.

pub mod faults;
pub mod icrc;
pub mod sim;
pub mod slot;
pub mod udp;
