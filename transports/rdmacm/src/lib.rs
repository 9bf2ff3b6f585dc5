//! The connection manager `rdmacm`: connections by address with librdmacm, which is loaded at run time.
//!
//! Built on `uct-plugin` and on `uct-ib`. docs/rdmacm.md is the page for users. The files from the bottom up:
//!
//! - `proto`: private data, the steps of a connection, and what refusals mean. Pure state.
//! - `io`: librdmacm's structures, functions, channels and identifiers.
//! - `link`: devices and their queue pairs, deadlines, refusals with what this machine has to do with them.
//! - `config`, `md`, `shared` (what connections share), `conn` (one side of a connection),
//!   `doctor` (what prevents a connection), `cm` (the connection manager).

mod cm;
mod config;
mod conn;
mod doctor;
mod io;
mod link;
mod md;
#[cfg(test)]
#[path = "../../../ucs/testing/property.rs"]
mod property;
mod proto;
mod shared;

/// For the tests and fuzz targets of this project. No version promises anything about it.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing {
    pub use crate::io::*;
    pub use crate::link::prepare;
    pub use crate::proto::private::fuzz_private;
    pub use crate::proto::refusal;
}

uct_plugin::define_plugin! {
    name: "rdmacm",
    config: [config::RdmacmConfig, uct_ib::IbConfig],
    components: [md::RdmacmComponent => [] with cm::RdmaCm],
}
