//! What both sides of puts, gets and atomics by messages agree on: kinds of messages, limits.
//!
//! Built on `uct_plugin::rma`, which numbers, checks and carries out, and on the reliability of messages.

use uct_plugin::rma::{Initiator, Limits, REQUEST_HEADER, RESPONSE_HEADER};

/// Message kinds, above the ids of active messages.
pub(crate) const REQUEST: u8 = 32;
/// The kind of a response.
pub(crate) const RESPONSE: u8 = 33;

/// Bytes of a put beyond its data.
pub(crate) const PUT_HEADER: usize = REQUEST_HEADER;
/// Bytes of the response to a get beyond the data.
pub(crate) const GET_HEADER: usize = RESPONSE_HEADER;

/// Most entries of the vector of a put or get.
pub(crate) const MAX_IOV: usize = 16;

/// A connection has one endpoint on this side.
pub(crate) const OWNER: u32 = 0;

/// Responses of full size that may be outstanding.
const GET_SEGMENTS: usize = 16;

/// An initiator for messages of `message` bytes and so many operations.
pub(crate) fn initiator(message: usize, operations: usize) -> Initiator {
    let get_segment = message - GET_HEADER;
    Initiator::new(Limits { operations, get_segment, get_bytes: GET_SEGMENTS * get_segment })
}
