//! Shared memory: the transports `posix`, `sysv` and `cma` for processes of one machine.
//!
//! For: `uct-core`, which loads or links it. Stands on `uct-plugin` and `ucs`. Messages go through a ring per pair of
//! interfaces, remote memory is mapped where it can be, copied by the kernel where that is permitted, and otherwise
//! reached through the ring.

pub mod ring;
