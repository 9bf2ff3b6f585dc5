//! A connection as a stream of bytes.

use std::task::{Context, Poll, ready};

use ucs::memory::copy;

use super::Flavour;
use crate::error::Result;

/// Most messages without bytes that one poll skips: a peer may send them faster than they are skipped.
const MAX_EMPTY: usize = 64;

/// Bytes of a stream that count as one operation where others have their turn behind so many: a turn is a system call and more, and what a
/// short write costs is a fraction of that.
const SHARE: usize = 1024;
/// What a write or a message counts at least.
const LEAST: usize = 64;

/// A connection as a stream of bytes. Features `futures-io` and `tokio` add the traits `AsyncRead` and `AsyncWrite` of these crates. A poll
/// never blocks. Dropping the stream drops the connection.
#[derive(Debug)]
pub struct Stream<C: Flavour> {
    connection: C,
    /// What was received and not read yet, from `read` on.
    message: Option<C::Message>,
    read: usize,
    /// Bytes since the last operation was counted.
    uncounted: usize,
}

impl<C: Flavour> Stream<C> {
    pub(crate) fn new(connection: C) -> Stream<C> {
        Stream { connection, message: None, read: 0, uncounted: SHARE }
    }

    /// The connection that it uses.
    pub fn connection(&self) -> &C {
        &self.connection
    }

    /// Reads up to `buffer.len()` bytes, and returns how many. 0 is the end, if the buffer is not empty.
    pub fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize>> {
        let rest = ready!(self.poll_fill(context))?;
        let count = rest.len().min(buffer.len());
        copy(&mut buffer[..count], &rest[..count]);
        self.consume(count);
        Poll::Ready(Ok(count))
    }

    /// The bytes that were received and not read yet; empty at the end.
    pub fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<&[u8]>> {
        let mut left = MAX_EMPTY;
        while self.message.as_ref().is_none_or(|message| self.read == message.len()) {
            if self.message.take().is_some() {
                left -= 1;
            }
            if left == 0 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.poll_turn(context));
            match ready!(self.connection.poll_message(context)) {
                Ok(message) => {
                    self.count(message.len());
                    self.message = Some(message);
                }
                Err(error) if error.is_closed_by_peer() => return Poll::Ready(Ok(&[])),
                Err(error) => return Poll::Ready(Err(error)),
            }
            self.read = 0;
        }
        Poll::Ready(Ok(self.message.as_ref().map_or(&[], |message| &message[self.read..])))
    }

    /// Marks the first `count` bytes of [`Stream::poll_fill`] as read.
    pub fn consume(&mut self, count: usize) {
        self.read += count;
        if self.message.as_ref().is_some_and(|message| self.read >= message.len()) {
            self.message = None;
        }
    }

    /// Writes up to `bytes.len()` bytes, as many as the transport and the peer's window have room for, and returns how many.
    pub fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_turn(context));
        let written = self.connection.poll_write(bytes, context);
        if let Poll::Ready(Ok(count)) = written {
            self.count(count);
        }
        written
    }

    /// Done when the transport has everything that was written.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result> {
        self.connection.poll_flushed(context)
    }

    /// Ends the direction from this side to the peer, which reads what was written and then the end. Reading continues.
    pub fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<Result> {
        self.connection.poll_shutdown(context)
    }

    /// Whether it may go on, as [`Flavour::poll_turn`] of a connection's operations.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.uncounted >= SHARE {
            ready!(self.connection.poll_turn(context));
            self.uncounted = 0;
        }
        Poll::Ready(())
    }

    fn count(&mut self, bytes: usize) {
        self.uncounted += bytes.clamp(LEAST, SHARE);
    }
}
