//! A limit on the time of an operation.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::confined::Confined;
use super::engine::Engine;
use super::outside::Signals;
use crate::error::{Error, Result, Stage};
use crate::local::reactor::Sleep;

/// A time that ends, by the engine's timers.
pub(super) struct Limit {
    sleep: Confined<RefCell<Sleep>>,
    signal: Signals,
}

impl Limit {
    pub(super) fn new(engine: &Arc<Engine>, time: Duration) -> Limit {
        let sleep = engine.enter(|entered| {
            let sleep = RefCell::new(entered.net().reactor.sleep(time));
            entered.returns();
            entered.confine(sleep)
        });
        Limit { sleep, signal: Signals::default() }
    }

    pub(super) fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let waker = self.signal.waker(self.sleep.engine().outside(), context.waker());
        let waker = &waker;
        self.sleep.with(|entered, sleep| {
            let is_over = sleep.borrow_mut().poll_due(&mut Context::from_waker(waker));
            if is_over.is_pending() {
                entered.rest();
            }
            is_over
        })
    }
}

/// An operation with a limit: see for instance [`super::Recv::within`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Within<F> {
    operation: F,
    limit: Limit,
    time: Duration,
    stage: Stage,
    peer: String,
}

impl<F> Within<F> {
    pub(super) fn new(
        operation: F,
        time: Duration,
        engine: &Arc<Engine>,
        stage: Stage,
        peer: &str,
    ) -> Within<F> {
        Within { operation, limit: Limit::new(engine, time), time, stage, peer: peer.to_owned() }
    }
}

impl<T, F: Future<Output = Result<T>> + Unpin> Future for Within<F> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Poll::Ready(outcome) = Pin::new(&mut self.operation).poll(context) {
            return Poll::Ready(outcome);
        }
        self.limit.poll_over(context).map(|()| {
            let reason = format!("not within {:?}", self.time);
            Err(Error::new(self.stage, &*self.peer, ucs::Error::TIMED_OUT, reason))
        })
    }
}

impl<F> fmt::Debug for Within<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").field("peer", &self.peer).field("limit", &self.time).finish_non_exhaustive()
    }
}
