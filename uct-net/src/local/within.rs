//! A limit on the time of an operation.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::net::NetHandle;
use super::reactor::Sleep;
use crate::error::{Error, Result, Stage};

/// An operation with a limit: see for instance [`super::Recv::within`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Within<F> {
    operation: F,
    sleep: Sleep,
    limit: Duration,
    stage: Stage,
    peer: String,
}

impl<F> Within<F> {
    pub(crate) fn new(operation: F, limit: Duration, net: &NetHandle, stage: Stage, peer: &str) -> Within<F> {
        let sleep = net.reactor.sleep(limit);
        Within { operation, sleep, limit, stage, peer: peer.to_owned() }
    }
}

impl<T, F: Future<Output = Result<T>> + Unpin> Future for Within<F> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Poll::Ready(outcome) = Pin::new(&mut self.operation).poll(context) {
            return Poll::Ready(outcome);
        }
        self.sleep.poll_due(context).map(|()| {
            let reason = format!("not within {:?}", self.limit);
            Err(Error::new(self.stage, &*self.peer, ucs::Error::TIMED_OUT, reason))
        })
    }
}

impl<F> std::fmt::Debug for Within<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Within").field("peer", &self.peer).field("limit", &self.limit).finish_non_exhaustive()
    }
}
