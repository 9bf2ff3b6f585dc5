//! `--doctor`: what stands in the way. With a connection manager and an address it is the account of the connection manager (`cm`). Without
//! it is about this machine (`machine`): what keeps a transport from being used or being fast, and the remedy.

mod cgroup;
mod cm;
mod finding;
mod machine;
mod memory;
mod memory_limit;
mod network;
mod processors;
mod verbs;

pub(crate) use cm::Diagnosis;
pub(crate) use machine::Machine;
