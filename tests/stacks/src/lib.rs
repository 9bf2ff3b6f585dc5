//! Programs of others over uct-net: hyper, axum, tonic, redis, TLS. The tests compare what comes back over sockets and over transports, the
//! program `traffic` compares how fast. What they need is used nowhere else.

#![forbid(unsafe_code)]

pub mod grpc;

/// The code of the page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/net-adapters.md")]
pub struct NetAdapters;

/// The code of the page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/metrics.md")]
pub struct Metrics;
