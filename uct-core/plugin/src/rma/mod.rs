//! Put, get and atomics by messages: for transports whose wire carries bytes only and whose target side is software.
//!
//! For transports that emulate remote memory access. Built on `memory` (registrations and keys) and on a
//! channel of the transport's that delivers frames in order, each once. The transport alone knows how to send a frame.
//!
//! Both sides of a connection have an [`Initiator`] and a [`Target`]:
//!
//! ```text
//! operation → Initiator::request → Request::write → (the wire) → Target::serve → Answer → (the wire) → Initiator::answer
//!             Initiator::posted                                  Target::acknowledge
//! ```
//!
//! A request takes the next sequence number and counts as posted once it was passed to [`Initiator::posted`]; one that could not be
//! sent is dropped, and the number goes to the next. The target carries requests out in order. It responds to every get, fetching
//! atomic and error, and acknowledges the rest in one go, when the transport calls for it: a response to request *n* means that
//! all up to *n* were carried out. Each access is checked against a live registration, its key, its bounds and its rights, and an
//! access that fails the check touches nothing.
//!
//! # What the transport provides
//!
//! - It serves a request only when it can queue a response of [`Limits::get_segment`] bytes. An initiator never requests more than
//!   [`Limits::get_bytes`] at a time, so a target that can queue that much never has to stop receiving: no deadlock.
//! - It calls [`Initiator::pump`] after responses, which requests the rest of large gets.
//! - It calls [`Initiator::fail`] when the connection has failed, [`Initiator::cancel`] to give up for one endpoint.

mod access;
mod driver;
mod initiator;
mod operation;
mod target;
pub mod wire;

#[cfg(test)]
mod tests;

pub use crate::traits::RemoteAccess;
pub use access::{ByRegion, ByTransport};
pub use driver::{ByRequests, Payload, RemoteLimits, Requests};
pub use initiator::{Arriving, Initiator, Limits};
pub use operation::{Destination, Notify, Operation, Waiter};
pub use target::{Answer, Target};
pub use wire::{
    MAX_REQUEST, Malformed, Opcode, REQUEST_HEADER, RESPONSE_HEADER, Request, Response, ResponseKind,
};
