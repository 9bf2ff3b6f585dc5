//! The flavour for one thread: no lock, and no object is `Send`. Each thread that uses it makes a [`Net`] of its own.

mod accepted;
mod agenda;
mod announced;
#[cfg(feature = "async-io")]
mod async_io;
mod bytes;
mod channel;
mod cm;
pub(crate) mod conn;
pub(crate) mod connect;
pub(crate) mod connection;
mod crowd;
#[cfg(any(feature = "async-io", feature = "tokio"))]
mod event_loop;
mod handshake;
mod handshake_link;
pub(crate) mod lane;
pub(crate) mod listen;
pub(crate) mod memory;
pub(crate) mod message;
pub(crate) mod net;
mod path;
#[cfg(feature = "tls")]
mod peer_loss;
#[cfg(feature = "tls")]
mod pumps;
pub(crate) mod reactor;
mod remote;
mod remote_memory;
#[cfg(feature = "tls")]
mod secure;
#[cfg(feature = "tls")]
mod session;
mod socket;
pub(crate) mod span;
mod standing;
mod strays;
#[cfg(feature = "tokio")]
mod tokio;
mod trace;
pub(crate) mod transfer;
#[cfg(feature = "tls")]
mod wrapped;

pub use conn::delivery::{Credit, Fragment, Sink};
pub use connect::Connect;
pub use connection::{Close, Connection, Explanation, Recv, RecvInto, Send, Started, Stream, Within};
pub use lane::{AM_ID, InPlace};
pub use listen::{Incoming, Listen, Listener};
pub use message::Message;
pub use net::Net;
pub use remote_memory::RemoteMemory;
pub use transfer::{Cancel, NewTransfer, Transfer};
