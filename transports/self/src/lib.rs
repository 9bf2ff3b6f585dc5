//! The `self` transport: a process talks to itself, through the same calls as to any other peer.
//!
//! For loopback, and as the smallest complete example of a transport. Built on `uct-plugin`. A message is delivered
//! before the call that sends it returns; put, get and atomics touch the memory at once.

mod addr;
mod config;
mod ep;
mod iface;
mod md;
mod transport;

uct_plugin::define_plugin! {
    name: "self",
    config: [config::SelfConfig],
    components: [md::SelfComponent => [transport::SelfTransport]],
}
