//! What connections to peers are made of, and what all of an interface share. Built on `proto` and `io`; it knows neither the
//! interface nor its endpoints.

pub(crate) mod core;
pub(crate) mod failure;
pub(crate) mod lock;
pub(crate) mod paths;
pub(crate) mod shared;
pub(crate) mod timers;
