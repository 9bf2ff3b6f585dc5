//! Protocols of libraries on the engine of a [`Net`](crate::Net): their state, used under its lock by any thread, and what they send and receive without
//! futures.
//!
//! Used by libraries that offer an interface of their own over connections of this crate, such as a provider of libfabric. Built on [`local`](crate::local), whose
//! objects such a protocol consists of. An application has [`Connection`](crate::Connection).
//!
//! - **State.** [`Installed`] makes a [`Protocol`] under the lock, has closures use it, and drops it under the lock.
//! - **Turns.** Each turn of the engine calls [`Protocol::turn`], in whichever thread makes the turn, and polls the futures of [`Engine::spawn`] that were
//!   woken: so a listener is accepted from, and peers are served, while the application computes. Since the net's own thread does this too, a
//!   descriptor that the protocol makes readable is enough for a program to wait on ([`Installed::rest`]).
//! - **Messages.** [`Connection::deliver_to`](crate::local::Connection::deliver_to) and [`Connection::try_send`](crate::local::Connection::try_send).
//! - **Remote memory.** [`Connection::in_place`](crate::local::Connection::in_place) and [`Connection::endpoint`](crate::local::Connection::endpoint).

pub use crate::local::{Credit, Fragment, InPlace, Sink};
pub use crate::threads::protocol::{Engine, Installed, Protocol};
pub use uct_host::Space;
