//! The `rc_verbs` transport: reliable connections over InfiniBand and RoCE.
//!
//! Built on `uct-plugin` and on `uct-ib`, which loads libibverbs at run time. One queue pair an endpoint, one receive queue for all.
//! docs/rc_verbs.md is the page for users. The files from the bottom up:
//!
//! - `proto`: what travels, and what is counted: windows, credits, work requests. Pure state.
//! - `io`: queues, registered memory and descriptors.
//! - `link`: a connection (`link::conn`), the table of them, and what they share (`link::shared`).
//! - `config`, `limits`, `md`, `iface` (the interface), `ep` (an endpoint), `progress` and `events` (what happens when something has
//!   arrived), `transport` (the SDK's view of the interface).

mod config;
mod ep;
mod events;
mod iface;
mod io;
mod limits;
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
    pub use crate::link::rkey::fuzz_key;
    pub use crate::proto::addr::fuzz_address;
}

uct_plugin::define_plugin! {
    name: "rc_verbs",
    config: [config::RcConfig, uct_ib::IbConfig],
    components: [md::RcComponent => [transport::RcTransport]],
}
