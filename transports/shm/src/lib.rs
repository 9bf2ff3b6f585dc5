//! Shared memory: the transports `posix`, `sysv` and `cma` for processes of one machine.
//!
//! For: `uct-core`, which loads or links it. Stands on `uct-plugin` and `ucs`. Messages go through a ring per pair of
//! interfaces, remote memory is mapped where it can be, copied by the kernel where that is permitted, and otherwise
//! reached through the ring.

mod config;
mod door;
mod ep;
#[cfg(not(loom))]
mod fuzz;
#[cfg(not(loom))]
mod hostile;
mod iface;
mod io;
mod link;
mod md;
mod peers;
mod progress;
mod proto;

#[cfg(not(loom))]
pub use fuzz::{fuzz_address, fuzz_control, fuzz_ring};
#[cfg(not(loom))]
pub use hostile::{Heard, Intruder, Lair, knock, message, with_key, with_other_user, with_own_process};

uct_plugin::export_plugin! {
    name: "shm",
    entry: uct_plugin_shm,
    config: [config::ShmConfig, config::PosixConfig, config::SysvConfig, config::CmaConfig],
    components: [
        md::ShmComponent<md::Posix> => [iface::ShmTransport<md::Posix>],
        md::ShmComponent<md::Sysv> => [iface::ShmTransport<md::Sysv>],
        md::ShmComponent<md::Cma> => [iface::ShmTransport<md::Cma>],
    ],
}
