//! A listener as the streams of its callers.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use super::connection::{Connection, Stream};
use super::listen::Listener;

/// Accepts every caller of a listener. Up to 128 connections are opened at once, so a slow caller does not delay others. If more callers come
/// than that, the oldest one whose connection is not open yet gives way, of the source with the most of them, as
/// [`crate::NetOptions::max_half_open`] describes.
pub struct Streams {
    listener: Listener,
}

impl Listener {
    /// Accepts every caller, and returns a stream of bytes for each.
    pub fn into_streams(self) -> Streams {
        Streams { listener: self }
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
        match self.listener.poll_open(context) {
            Poll::Ready(Ok(connection)) => Poll::Ready(Connection::into_stream(connection)),
            Poll::Ready(Err(error)) => {
                ucs::log::warn!("{} accepts no more connections: {error}", self.listener.address());
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("address", &self.address()).finish_non_exhaustive()
    }
}
