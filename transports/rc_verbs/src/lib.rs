//! The `rc_verbs` transport: reliable connections over InfiniBand and RoCE.
//!
//! For: hosts, as a plugin or linked in. Stands on `uct-plugin` and on `uct-ib`, which loads libibverbs at run time. One queue
//! pair an endpoint, one receive queue for all. `ep` says what can be sent, `rx` who may send how much, `progress` what
//! happens when it has arrived; docs/rc_verbs.md is the page for users.

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

pub use link::rkey::fuzz_key;
pub use proto::addr::fuzz_address;

uct_plugin::export_plugin! {
    name: "rc_verbs",
    entry: uct_plugin_rc_verbs,
    config: [config::RcConfig],
    components: [md::RcComponent => [transport::RcTransport]],
}
