//! Descriptors that tokio's event loop watches, for the drivers of both flavours.

#![expect(unsafe_code, reason = "tokio takes a descriptor for as long as its owner lives, by promise")]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that the current runtime watches until it is readable.
pub(crate) struct Readable(AsyncFd<OwnedFd>);

impl Readable {
    /// Watches a duplicate of the descriptor.
    pub(crate) fn new(fd: BorrowedFd<'_>) -> io::Result<Readable> {
        let fd = fd.try_clone_to_owned()?;
        // SAFETY: an owned descriptor stays open, and the same, as long as its owner, which the result holds and does not give away.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Readable(watched))
    }

    /// Whether it has become readable since the last call that said so; has the task woken if not.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> bool {
        match self.0.poll_read_ready(context) {
            Poll::Ready(Ok(mut guard)) => {
                guard.clear_ready();
                true
            }
            // An error means that the runtime ends, and its tasks with it.
            Poll::Ready(Err(_)) | Poll::Pending => false,
        }
    }
}
