//! Connections to peers, and what all connections of an interface share.
//!
//! Built on `proto` and `io`. A connection knows neither the interface nor the endpoints: it is handed what it shares with its
//! siblings, and leaves to the agenda what concerns others.

pub(crate) mod agenda;
mod announced;
pub(crate) mod conn_id;
pub(crate) mod connection;
pub(crate) mod half_open;
pub(crate) mod member;
pub(crate) mod route;
pub(crate) mod shared;
pub(crate) mod table;
mod timers;
