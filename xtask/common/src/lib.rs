//! What the commands of this workspace share: child processes, packages, the workspace itself, and why something failed.
//! Built on cargo; `cargo xtask` and the programs that it starts are built on it.
#![forbid(unsafe_code)]

#[cfg(test)]
#[path = "../../../ucs/testing/alone.rs"]
mod alone;
pub mod apt;
pub mod failure;
pub mod generated;
pub mod net;
pub mod process;
pub mod processor;
pub mod workspace;
