//! What connections to peers are made of, and what all of an interface share. Built on `proto` and `io`; it knows neither the
//! interface nor its endpoints.

pub(crate) mod conn;
pub(crate) mod core;
pub(crate) mod emulation;
pub(crate) mod failure;
pub(crate) mod flushes;
pub(crate) mod lock;
pub(crate) mod paths;
pub(crate) mod shared;
pub(crate) mod table;
pub(crate) mod targets;
pub(crate) mod timers;
