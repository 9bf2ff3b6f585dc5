//! Programs of others over uct-net: hyper, axum, tonic, redis, TLS. The tests of this crate are all that it has; what they need is
//! used nowhere else.

#![forbid(unsafe_code)]

/// The code of the page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/net-adapters.md")]
pub struct Page;
