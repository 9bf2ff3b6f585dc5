//! A listener as the streams of its callers.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::connection::{Connection, Stream};
use super::listen::Listener;
use super::operation::Operation;

/// Callers whose connections are being opened at once.
const MAX_OPENING: usize = 128;

/// Accepts every caller of a listener. Up to 128 connections are opened at once, so a slow caller does not delay others.
pub struct Streams {
    listener: Listener,
    opening: Vec<Operation<Connection>>,
}

impl Listener {
    /// Accepts every caller, and returns a stream of bytes for each.
    pub fn into_streams(self) -> Streams {
        Streams { listener: self, opening: Vec::new() }
    }
}

impl Streams {
    /// The address that it listens on, as [`Listener::address`].
    pub fn address(&self) -> &str {
        self.listener.address()
    }

    /// The stream of the next caller. A caller that fails to connect is skipped, with a line in the log at level debug. A future that is
    /// dropped loses no caller. Waits without a limit.
    pub async fn next(&mut self) -> Stream {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// As [`Streams::next`].
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Stream> {
        while self.opening.len() < MAX_OPENING {
            match self.listener.poll_accept(context) {
                Poll::Ready(Ok(incoming)) => self.opening.push(incoming.accept()),
                Poll::Ready(Err(error)) => {
                    ucs::log::warn!("{} accepts no more connections: {error}", self.listener.address());
                    break;
                }
                Poll::Pending => break,
            }
        }
        let was_full = self.opening.len() == MAX_OPENING;
        let mut at = 0;
        while let Some(opening) = self.opening.get_mut(at) {
            match Pin::new(opening).poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready(outcome) => {
                    drop(self.opening.swap_remove(at));
                    match outcome {
                        Ok(connection) => return Poll::Ready(connection.into_stream()),
                        Err(error) => ucs::log::debug!("a caller was dropped: {error}"),
                    }
                }
            }
        }
        if was_full && self.opening.len() < MAX_OPENING {
            // No task waits for the listener.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("address", &self.address()).finish_non_exhaustive()
    }
}
