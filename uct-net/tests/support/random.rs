//! Futures that are dropped at random, by a seed.

use std::pin::pin;
use std::task::Poll;

/// What the future returns, or `None` if it is not ready after so many polls; then it is dropped.
pub async fn polled<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        context.waker().wake_by_ref();
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// A small generator of its own, so that a seed repeats a run.
pub struct Random(pub u64);

impl Random {
    /// A number below the limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
