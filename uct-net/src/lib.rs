//! Connections by address: messages, remote memory and streams of bytes as futures, over the fastest transport that both programs
//! can use.
//!
//! Used by applications. Built on `uct-host`, the inside of `uct-core`, whose operations are available through [`local::Connection::endpoint`].
//! There are two flavours with the same calls: the handles of this module are `Send` and `Sync`, those of [`local`] belong to one thread and
//! need no lock.
//!
//! ```
//! use std::{sync::mpsc, thread};
//! use uct_core::Context;
//! use uct_net::{NetOptions, Result, local::Net};
//!
//! # fn main() -> Result {
//! let (address, listening) = mpsc::channel();
//! let server = thread::spawn(move || -> Result {
//!     let net = Net::new(&Context::builder().build().unwrap(), NetOptions::default())?;
//!     net.block_on(async {
//!         let mut listener = net.listen("127.0.0.1:0").await?;
//!         address.send(listener.address()).unwrap();
//!         let connection = listener.accept().await?.accept().await?;
//!         let message = connection.recv().await?;
//!         connection.send(&message).await?;
//!         connection.close().await
//!     })
//! });
//!
//! let net = Net::new(&Context::builder().build().unwrap(), NetOptions::default())?;
//! net.block_on(async {
//!     let connection = net.connect(listening.recv().unwrap()).await?;
//!     println!("{}", connection.explanation());
//!     connection.send(b"hello").await?;
//!     assert_eq!(&*connection.recv().await?, b"hello");
//!     connection.close().await
//! })?;
//! server.join().unwrap()
//! # }
//! ```
//!
//! A connection is returned after a message has crossed it in both directions. An [`Error`] contains the stage, the peer, the status, the
//! reason and often a remedy.
//!
//! - **Blocking.** Only `Net::new`, `Net::block_on`, dropping the last handle of a `Net`, `Net::allocate` and `Connection::allocate` block. Everything else
//!   is a future, and has a limit of time only where one is given (`within`) or documented.
//! - **Progress.** The handles of this module are driven by the thread that uses one, otherwise by a thread of the [`Net`]. Those of
//!   [`local`] are driven by [`local::Net::block_on`] (with feature `tokio` also `run_until`, with `async-io` `run_in_async_io`) and by nothing else.
//! - **Units.** Lengths and offsets are bytes.
//!
//! | feature | adds |
//! |---|---|
//! | `built-in`, a default | the transports that are linked in by the defaults of `uct-core` |
//! | `tokio` | tokio's `AsyncRead` and `AsyncWrite` for streams, `Net::in_tokio`, `local::Net::run_until` |
//! | `async-io` | `local::Net::run_in_async_io`, for smol and other executors with async-io's event loop |
//! | `futures-io` | the traits of `futures-io` for streams |
//! | `hyper` | `UctConnector`, for clients of hyper and tonic |
//! | `axum` | [`Streams`] as a listener of axum |
//! | `tls` | `Tls`, for the handshake of connections |

#![deny(unsafe_code)]

#[cfg(feature = "tokio")]
mod async_fd;
#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "hyper")]
mod connector;
mod error;
mod flavour;
mod io_traits;
pub mod local;
mod options;
mod polling;
mod proto;
pub mod protocol;
mod threads;
#[cfg(feature = "tls")]
mod tls;
mod transfer;
mod wake;

// Links its transports into the program.
#[cfg(feature = "built-in")]
use uct_core as _;

#[cfg(feature = "hyper")]
pub use connector::UctConnector;

pub use error::{Error, Result, Stage};
/// `Connect`, `Listen` and `NewTransfer` of both flavours, by what they belong to.
pub use flavour::{Connect as ConnectOf, Listen as ListenOf, NewTransfer as NewTransferOf};
pub use options::{NetOptions, Wait};
/// The version of rustls whose settings [`Tls`] takes.
#[cfg(feature = "tls")]
pub use rustls;
pub use threads::{
    Accept, Cancel, Close, Connect, Connecting, Connection, Incoming, Listen, Listener, Memory, MemorySlice,
    Message, Net, NewTransfer, Operation, Recv, RecvInto, RemoteMemory, Send, Stream, Streams, Transfer,
    Within,
};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsPeer};
pub use transfer::{BadBlocks, Block, Blocks, Moved, Receipt, Stride};

/// For the tests and fuzz targets of this project. No version promises anything about it.
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing {
    pub use crate::proto::fuzz::{fuzz_frame, fuzz_lane_address};
}

/// The code of the page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../docs/net.md")]
pub struct Page;

/// So does that of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
