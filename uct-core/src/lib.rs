//! Loads transports, selects among them, and drives them.
//!
//! Used by applications and communication libraries; `uct-net` adds connections by address. Built on `ucs` and, at the boundary to the
//! transports, on `uct-abi`.
//!
//! A [`Context`] reads the configuration, loads transports and lists their devices. A [`Worker`] drives the interfaces of one thread. An [`Iface`] is
//! one transport on one device. An [`Ep`] sends to one peer. Data move by active messages ([`Ep::am_short`],
//! [`Ep::am_bcopy`], [`Ep::am_zcopy`]), put, get and atomics. [`Worker::progress`] receives, completes operations and sends queued data.
//! [`select::Selector`] chooses the interface with the lowest estimated cost.
//!
//! ```
//! use std::{cell::Cell, rc::Rc};
//! use uct_core::{AmId, Context, Worker};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const HELLO: AmId = AmId::new(0).unwrap();
//! let context = Context::builder().build()?;
//! let worker = Worker::new(&context)?;
//! let iface = worker.open("self", "memory")?;
//!
//! let received = Rc::new(Cell::new(0));
//! let seen = Rc::clone(&received);
//! iface.set_am_handler(HELLO, move |message| seen.set(message.len()));
//!
//! let ep = iface.connect(&iface.address()?)?;
//! ep.am_short(HELLO, 0x2a, b"hello")?;
//! assert_eq!(received.get(), 8 + 5);
//! # Ok(())
//! # }
//! ```
//!
//! - **Threads.** `Context` and [`MemoryDomain`] may be used by any thread. `Worker`, `Iface`, `Ep`, [`Memory`] and [`Completion`] belong to one
//!   thread; a [`WorkerHandle`] wakes a worker from others.
//! - **Blocking.** Operations of an endpoint do not block, except [`Ep::get_short`] over transports that wait for the peer. Building a
//!   context, opening interfaces, [`Ep::connect_to_ep`], allocating and registering memory make system calls and may block. `wait` and `retry`
//!   block up to the limit that they are given.
//! - **Errors.** Operations return an [`Error`], which is a status. [`Error::NO_RESOURCE`] means that nothing happened: make progress and try
//!   again. Errors of set-up ([`ContextError`], [`OpenError`], [`Refused`]) contain the reason as text. docs/errors.md lists causes and remedies.
//! - **Units.** Lengths are bytes, costs seconds, bandwidths bytes per second.
//!
//! The vocabulary and the semantics are those of UCX's UCT (`uct/api/uct.h`). Where this crate guarantees more, its documentation states it.

mod built_in;

#[doc(inline)]
pub use uct_host::*;
