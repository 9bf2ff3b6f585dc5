//! Connections to peers.
//!
//! Built on `proto` and `io`.

pub(crate) mod admission;
mod agenda;
pub(crate) mod announced;
pub(crate) mod connection;
pub(crate) mod member;
pub(crate) mod route;
mod shared;
mod table;
