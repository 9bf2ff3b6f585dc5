//! Metrics for Prometheus: a thread serves `GET /metrics` at the address of the key `prometheus`.
//!
//! Used by `Servers`. Built on `Workers`, which collects the same reports for `uct_info --attach`.

mod client;
mod http;
mod server;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use server::Server;
