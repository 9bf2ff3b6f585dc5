//! The `ud_verbs` transport: reliable messages over the datagrams of InfiniBand and RoCE, one queue pair for all peers.
//!
//! Built on `uct-plugin` and on `uct-ib`, which loads libibverbs at run time. docs/ud_verbs.md is the page for users. The files from the
//! bottom up:
//!
//! - `proto`: the reliability, and the formats of what travels. Pure state.
//! - `io`: the queue pair, packets, receive buffers, registrations.
//! - `link`: a connection that this side owns (`link::conn`), the state that timers work on as well (`link::core`, behind `link::lock`), the
//!   target's side of put, get and atomics (`link::targets`), and what all connections share (`link::shared`).
//! - `config`, `md`, `iface` (the interface), `ep` (an endpoint), `progress`, `events` and `close` (what happens in an interface), `transport`
//!   (the SDK's view of it).

mod close;
mod config;
mod ep;
mod events;
mod iface;
mod io;
mod link;
mod md;
mod progress;
#[cfg(test)]
#[path = "../../../ucs/testing/property.rs"]
mod property;
mod proto;
mod transport;

/// For the tests and fuzz targets of this project. No version promises anything about it.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing {
    pub use crate::proto::addr::fuzz_address;
    pub use crate::proto::*;
}

uct_plugin::define_plugin! {
    name: "ud_verbs",
    config: [config::UdConfig, uct_ib::IbConfig],
    components: [md::UdComponent => [transport::UdTransport]],
}
