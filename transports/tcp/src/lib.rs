//! The `tcp` transport: one socket per pair of interfaces, over which all of their endpoints send.
//!
//! For processes on machines that share a network, and on one machine. Built on `uct-plugin` and on non-blocking sockets.
//! `docs/tcp.md` lists what it supports, `proto::wire` what crosses a socket. From the bottom up: `proto` and `io`, `link`, and the
//! interface (`iface`; `progress`, `listen` and `dial` are its methods), endpoints (`ep`) and what the host calls (`transport`).

mod cm;
mod config;
mod dial;
mod ep;
mod iface;
mod io;
mod link;
mod listen;
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
    pub use crate::proto::cm::fuzz_cm;
    pub use crate::proto::wire::fuzz_hello;
}

uct_plugin::define_plugin! {
    name: "tcp",
    config: [config::TcpConfig],
    components: [md::TcpComponent => [transport::TcpTransport] with cm::TcpCm],
}
