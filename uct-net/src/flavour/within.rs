//! The time limit of an operation.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Flavour;
use crate::error::{Error, Result, Stage};

/// A timer.
pub trait Timer: Unpin {
    /// Whether it has ended; registers the caller if not.
    fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()>;
}

/// An operation with a time limit: see for example [`crate::Recv::within`]. After the limit it returns `TIMED_OUT`, and the connection continues.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Within<F, T> {
    operation: F,
    timer: T,
    limit: Duration,
    stage: Stage,
    peer: String,
}

impl<F, T: Timer> Within<F, T> {
    pub(super) fn new<C: Flavour<Timer = T>>(
        operation: F,
        connection: &C,
        limit: Duration,
        stage: Stage,
    ) -> Within<F, T> {
        let peer = connection.peer_name().to_owned();
        Within { operation, timer: connection.timer(limit), limit, stage, peer }
    }
}

impl<O, F: Future<Output = Result<O>> + Unpin, T: Timer> Future for Within<F, T> {
    type Output = Result<O>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<O>> {
        if let Poll::Ready(outcome) = Pin::new(&mut self.operation).poll(context) {
            return Poll::Ready(outcome);
        }
        self.timer.poll_due(context).map(|()| {
            let reason = format!("not within {:?}", self.limit);
            Err(Error::new(self.stage, &*self.peer, ucs::Error::TIMED_OUT, reason))
        })
    }
}

impl<F, T> fmt::Debug for Within<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").field("peer", &self.peer).field("limit", &self.limit).finish_non_exhaustive()
    }
}
