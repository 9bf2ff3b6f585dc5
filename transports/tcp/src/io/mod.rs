//! Sockets, devices and buffers. What is to be sent, and when, is decided elsewhere.

pub(crate) mod buffer;
pub(crate) mod device;
pub(crate) mod listener;
pub(crate) mod pieces;
pub(crate) mod socket;
