//! The `ud_verbs` transport: reliable messages over the datagrams of InfiniBand and RoCE, one queue pair for all peers.
//!
//! For: many peers at little memory each. Stands on `uct-plugin` and `uct-ib`; [`proto`] is the reliability, without any
//! I/O. Put, get and atomics are carried out by the target's processor.

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
pub mod proto;
mod transport;

pub use proto::addr::fuzz_address;
pub use proto::fuzz_packets;

uct_plugin::export_plugin! {
    name: "ud_verbs",
    entry: uct_plugin_ud_verbs,
    config: [config::UdConfig],
    components: [md::UdComponent => [transport::UdTransport]],
}
