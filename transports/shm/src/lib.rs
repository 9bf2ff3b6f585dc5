//! Shared memory: the transports `posix`, `sysv` and `cma` for processes of one machine.
//!
//! Messages go through two rings for each pair of interfaces. Remote memory is mapped if possible, otherwise copied by the kernel if
//! that is permitted, and otherwise accessed by the peer on request through the ring. `docs/shm.md` describes the transports.
//!
//! From the bottom up: `proto` (formats and rings) and `io` (memory, sockets, the kernel's copies), `link` (one connection to a peer), the
//! interface (`iface`; `peers`, `listen` and `progress` are its methods), endpoints (`ep`) and the traits of the SDK (`transport`).

mod config;
mod ep;
#[cfg(all(feature = "testing", not(loom)))]
mod fuzz;
#[cfg(all(feature = "testing", not(loom)))]
mod hostile;
mod iface;
mod io;
mod link;
mod listen;
mod md;
mod peers;
mod progress;
mod proto;
#[cfg(test)]
#[path = "../../../ucs/testing/skip.rs"]
mod skip;
mod transport;

/// For the tests and fuzz targets of this project. No version promises anything about it.
#[cfg(all(feature = "testing", not(loom)))]
#[doc(hidden)]
pub mod testing {
    pub use crate::fuzz::{fuzz_address, fuzz_control, fuzz_ring};
    pub use crate::hostile::{
        Heard, Intruder, Lair, knock, message, with_key, with_other_user, with_own_process,
    };
}

uct_plugin::define_plugin! {
    name: "shm",
    config: [config::ShmConfig, config::PosixConfig, config::SysvConfig, config::CmaConfig],
    components: [
        md::ShmComponent<md::Posix> => [transport::ShmTransport<md::Posix>],
        md::ShmComponent<md::Sysv> => [transport::ShmTransport<md::Sysv>],
        md::ShmComponent<md::Cma> => [transport::ShmTransport<md::Cma>],
    ],
}
