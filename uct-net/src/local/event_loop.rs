//! Driving a [`Net`] inside the event loop of a runtime: what all runtimes have in common.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::net::{Idle, Net, NetHandle};

/// What an event loop does for a net that sleeps.
pub(super) trait EventLoop {
    /// Whether the net's descriptor has become readable since the last call that returned true; has the task woken if not.
    fn poll_readable(&mut self, context: &mut Context<'_>) -> bool;

    /// Whether it is time; has the task woken then if not.
    fn poll_timer(&mut self, at: Instant, context: &mut Context<'_>) -> bool;
}

impl Net {
    /// Drives the network until the future is ready.
    pub(super) async fn drive<F: IntoFuture>(&self, mut events: impl EventLoop, future: F) -> F::Output {
        let net = self.inner.clone();
        let _ = net.check_fork();
        let _driver = Driver(&net);
        let mut future = pin!(future.into_future());
        let mut idle = Idle::new(net.wait.get());
        poll_fn(|context| {
            let mut is_busy = net.turn();
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                net.send_wrapped();
                return Poll::Ready(output);
            }
            is_busy |= net.turn();
            if is_busy {
                idle.is_busy(&net);
            }
            if is_busy || !idle.is_over(&net) || !sleep(&net, &mut events, context) {
                // Once more, after the other tasks of the thread have had their turn.
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await
    }
}

/// One that ends, or is dropped, leaves the net to the others that sleep.
struct Driver<'a>(&'a NetHandle);

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        // In a child of a fork they are the parent's.
        if self.0.check_fork().is_ok() {
            self.0.reactor.rouse();
        }
    }
}

/// Has `context` woken when there is something to do; false if there is already.
fn sleep(net: &NetHandle, events: &mut impl EventLoop, context: &mut Context<'_>) -> bool {
    // What is armed makes an edge with the next event, since all that was there is processed.
    if !net.prepare_to_sleep() || net.reactor.turn(Duration::ZERO).unwrap_or(false) {
        return false;
    }
    if events.poll_readable(context) {
        return false;
    }
    let limit = Some(net.longest_sleep()).filter(|limit| *limit < Duration::MAX);
    if let Some(next) = net.reactor.next_timer().into_iter().chain(limit).min()
        && events.poll_timer(Instant::now() + next, context)
    {
        return false;
    }
    net.reactor.sleeps(context.waker().clone());
    true
}
