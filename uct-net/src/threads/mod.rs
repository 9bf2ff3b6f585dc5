//! The flavour whose handles are `Send + Sync`: the engine of `local` under a lock, used in place by any thread. A thread of
//! its own drives it while no other does.

mod confined;
mod connect;
mod connection;
mod core;
mod driver;
mod engine;
mod held;
mod jobs;
mod listen;
mod lock;
mod message;
mod net;
mod operation;
mod outside;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod within;

pub use connect::{Connect, Connecting};
pub use connection::{Close, Connection, Recv, Send};
pub use listen::{Accept, Incoming, Listener};
pub use message::Message;
pub use net::Net;
pub use operation::Operation;
pub use stream::Stream;
pub use streams::Streams;
pub use within::Within;
