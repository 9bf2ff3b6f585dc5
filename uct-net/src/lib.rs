//! Listen, connect, send and receive by address: messages, remote memory and streams of bytes as futures, over the best
//! transport that both programs have.
//!
//! For: programs that want a connection and not the plumbing. Built on `uct-core`; [`local::Connection::endpoint`] leads there.
//! Two flavours: the handles of this module are `Send` and `Sync`, those of [`local`] are for one thread and cost less.
//!
//! ```
//! use std::{sync::mpsc, thread};
//! use uct_core::Context;
//! use uct_net::{NetOptions, Result, local::Net};
//!
//! # fn main() -> Result {
//! let (says, hears) = mpsc::channel();
//! let server = thread::spawn(move || -> Result {
//!     let net = Net::new(&Context::builder().build().unwrap(), NetOptions::default())?;
//!     net.block_on(async {
//!         let mut listener = net.listen("127.0.0.1:0").await?;
//!         says.send(listener.address()).unwrap();
//!         let connection = listener.accept().await?.accept().await?;
//!         let message = connection.recv().await?;
//!         connection.send(&message).await?;
//!         connection.close().await
//!     })
//! });
//!
//! let net = Net::new(&Context::builder().build().unwrap(), NetOptions::default())?;
//! net.block_on(async {
//!     let connection = net.connect(hears.recv().unwrap()).await?;
//!     println!("{}", connection.explanation());
//!     connection.send(b"hello").await?;
//!     assert_eq!(&*connection.recv().await?, b"hello");
//!     connection.close().await
//! })?;
//! server.join().unwrap()
//! # }
//! ```
//!
//! "Connected" means that a message has crossed both ways. What goes wrong says at which stage, with which peer, why, and what
//! to try ([`Error`]).

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
mod proto;
mod threads;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "hyper")]
pub use connector::UctConnector;

pub use error::{Error, Result, Stage};
pub use options::{NetOptions, Wait};
/// The version of rustls whose settings [`Tls`] takes.
#[cfg(feature = "tls")]
pub use rustls;
pub use threads::{
    Accept, Close, Connect, Connecting, Connection, Incoming, Listener, Memory, MemorySlice, Message, Net,
    Operation, Recv, RemoteMemory, Send, Stream, Streams, Within,
};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsPeer};

/// The code of the page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../docs/net.md")]
pub struct Page;

/// So does that of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
