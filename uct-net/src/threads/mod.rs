//! The flavour whose handles are `Send + Sync`: the engine of `local` under a lock, used in place by any thread. A thread of
//! its own drives it while no other does.

mod confined;
mod connect;
mod connection;
mod core;
mod doorbell;
mod driver;
mod engine;
mod held;
mod jobs;
mod limit;
mod listen;
mod lock;
mod memory;
mod message;
mod net;
mod operation;
mod outside;
mod polls;
pub(crate) mod protocol;
mod remote;
mod sleeper;
mod streams;
mod tasks;
#[cfg(test)]
mod tests;
#[cfg(feature = "tokio")]
mod tokio;
mod transfer;

pub use connect::{Connect, Connecting};
pub use connection::{Close, Connection, Recv, RecvInto, Send, Stream, Within};
pub use listen::{Accept, Incoming, Listen, Listener};
pub use memory::{Memory, MemorySlice};
pub use message::Message;
pub use net::Net;
pub use operation::Operation;
pub use remote::RemoteMemory;
pub use streams::Streams;
pub use transfer::{Cancel, NewTransfer, Transfer};
