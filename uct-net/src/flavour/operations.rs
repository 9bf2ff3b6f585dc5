//! Sending, receiving and closing, as futures.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::Flavour;
use super::within::Within;
use crate::error::{Result, Stage};
use crate::local::conn::Ticket;

/// A message that is being sent. Dropping this withdraws a message of which nothing has been sent; otherwise it is sent completely.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Send<'a, C: Flavour> {
    connection: &'a C,
    step: Step<'a>,
}

enum Step<'a> {
    New(&'a [u8]),
    Queued(Ticket),
    Done,
}

impl<'a, C: Flavour> Send<'a, C> {
    pub(crate) fn new(connection: &'a C, message: &'a [u8]) -> Send<'a, C> {
        Send { connection, step: Step::New(message) }
    }

    /// A message that has begun; `None` if it has left already.
    pub(crate) fn begun(connection: &'a C, queued: Option<Ticket>) -> Send<'a, C> {
        Send { connection, step: queued.map_or(Step::Done, Step::Queued) }
    }

    /// With a time limit. A message of which nothing has been sent by then is withdrawn.
    pub fn within(self, limit: Duration) -> Within<Send<'a, C>, C::Timer> {
        let connection = self.connection;
        Within::new(self, connection, limit, Stage::Connected)
    }
}

impl<C: Flavour> Future for Send<'_, C> {
    type Output = Result;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result> {
        if let Step::New(message) = self.step {
            let queued = self.connection.begin_send(message)?;
            self.step = queued.map_or(Step::Done, Step::Queued);
            // Behind it: a message that is polled after this one must not overtake it.
            ready!(self.connection.poll_turn(context));
        }
        if let Step::Queued(ticket) = self.step {
            ready!(self.connection.poll_left(ticket, context))?;
            self.step = Step::Done;
        }
        Poll::Ready(Ok(()))
    }
}

impl<C: Flavour> Drop for Send<'_, C> {
    fn drop(&mut self) {
        if let Step::Queued(ticket) = self.step {
            self.connection.withdraw(ticket);
        }
    }
}

impl<C: Flavour> fmt::Debug for Send<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Send").field("connection", self.connection).finish_non_exhaustive()
    }
}

/// The next message. Dropping this loses no message.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Recv<'a, C: Flavour> {
    connection: &'a C,
}

impl<'a, C: Flavour> Recv<'a, C> {
    pub(crate) fn new(connection: &'a C) -> Recv<'a, C> {
        Recv { connection }
    }

    /// With a time limit.
    pub fn within(self, limit: Duration) -> Within<Recv<'a, C>, C::Timer> {
        let connection = self.connection;
        Within::new(self, connection, limit, Stage::Connected)
    }
}

impl<C: Flavour> Future for Recv<'_, C> {
    type Output = Result<C::Message>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<C::Message>> {
        ready!(self.connection.poll_turn(context));
        self.connection.poll_message(context)
    }
}

/// The next message, in memory of the application. Dropping this loses no message.
#[must_use = "futures do nothing unless they are awaited"]
pub struct RecvInto<'a, C: Flavour> {
    connection: &'a C,
    target: &'a mut [u8],
    is_begun: bool,
}

impl<'a, C: Flavour> RecvInto<'a, C> {
    pub(crate) fn new(connection: &'a C, target: &'a mut [u8]) -> RecvInto<'a, C> {
        RecvInto { connection, target, is_begun: false }
    }

    /// With a time limit.
    pub fn within(self, limit: Duration) -> Within<RecvInto<'a, C>, C::Timer> {
        let connection = self.connection;
        Within::new(self, connection, limit, Stage::Connected)
    }
}

impl<C: Flavour> Future for RecvInto<'_, C> {
    type Output = Result<usize>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<usize>> {
        ready!(self.connection.poll_turn(context));
        self.is_begun = true;
        let RecvInto { connection, target, .. } = &mut *self;
        connection.poll_message_into(target, context)
    }
}

impl<C: Flavour> Drop for RecvInto<'_, C> {
    fn drop(&mut self) {
        if self.is_begun {
            self.connection.stop_receiving_into();
        }
    }
}

impl<C: Flavour> fmt::Debug for RecvInto<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvInto").field("connection", self.connection).finish_non_exhaustive()
    }
}

/// The end of a connection. After the first poll the connection is closed, even if this is dropped.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Close<'a, C: Flavour> {
    connection: &'a C,
    is_begun: bool,
}

impl<'a, C: Flavour> Close<'a, C> {
    pub(crate) fn new(connection: &'a C) -> Close<'a, C> {
        Close { connection, is_begun: false }
    }

    /// With a time limit. The connection is closed in any case. After the limit it is unknown what the peer has received.
    pub fn within(self, limit: Duration) -> Within<Close<'a, C>, C::Timer> {
        let connection = self.connection;
        Within::new(self, connection, limit, Stage::Close)
    }
}

impl<C: Flavour> Future for Close<'_, C> {
    type Output = Result;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result> {
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        self.connection.poll_close(is_first, context)
    }
}
