//! What both flavours have in common: what connecting and listening need, the futures of a connection's operations, their time limits, and
//! its stream.
//!
//! A flavour implements access to its connection, with a lock or without ([`Flavour`]); the rest is written once.

mod connect;
mod listen;
mod operations;
mod stream;
mod transfer;
mod within;

use std::fmt;
use std::ops::Deref;
use std::task::{Context, Poll};
use std::time::Duration;

pub use self::connect::Connect;
pub(crate) use self::connect::Settings;
pub use self::listen::Listen;
pub use self::operations::{Close, Recv, RecvInto, Send};
pub use self::stream::Stream;
pub use self::transfer::NewTransfer;
pub(crate) use self::transfer::{Plan, Transfers};
pub use self::within::{Timer, Within};
use crate::error::Result;
use crate::local::conn::Ticket;

/// A connection of either flavour, as its futures and its stream use it. What is pending has registered the caller.
pub trait Flavour: fmt::Debug + Unpin {
    /// A received message.
    type Message: Deref<Target = [u8]> + fmt::Debug + Unpin;
    /// A timer.
    type Timer: Timer;

    /// The peer's address, as text for humans.
    fn peer_name(&self) -> &str;

    /// A timer that ends after this time.
    fn timer(&self, time: Duration) -> Self::Timer;

    /// Whether the task may do an operation; it is woken again at once if others have their turn first.
    fn poll_turn(&self, context: &mut Context<'_>) -> Poll<()>;

    /// The next message.
    fn poll_message(&self, context: &mut Context<'_>) -> Poll<Result<Self::Message>>;

    /// The next message, copied; its length.
    fn poll_message_into(&self, target: &mut [u8], context: &mut Context<'_>) -> Poll<Result<usize>>;

    /// Nobody polls [`Flavour::poll_message_into`] any more.
    fn stop_receiving_into(&self);

    /// Sends a message if it can be sent at once; queues it if not, and returns where it is.
    fn begin_send(&self, message: &[u8]) -> Result<Option<Ticket>>;

    /// Whether a queued message has left.
    fn poll_left(&self, ticket: Ticket, context: &mut Context<'_>) -> Poll<Result>;

    /// Takes a queued message back, if nothing of it has left.
    fn withdraw(&self, ticket: Ticket);

    /// Sends the beginning of the bytes, as far as it can be sent at once. Pending if nothing can.
    fn poll_write(&self, bytes: &[u8], context: &mut Context<'_>) -> Poll<Result<usize>>;

    /// Whether all that is queued has left.
    fn poll_flushed(&self, context: &mut Context<'_>) -> Poll<Result>;

    /// As [`Flavour::poll_flushed`], after the end of this side's messages.
    fn poll_shutdown(&self, context: &mut Context<'_>) -> Poll<Result>;

    /// Whether the peer has all that was sent. The first poll ends the connection.
    fn poll_close(&self, is_first: bool, context: &mut Context<'_>) -> Poll<Result>;
}
