//! Driving a [`Net`] inside a tokio runtime.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::net::{Idle, Net, NetHandle};
use crate::async_fd::Readable;

/// Has `context` woken when there is something to do; false if there is already.
fn sleep(
    net: &NetHandle,
    watched: &Readable,
    mut timer: Pin<&mut tokio::time::Sleep>,
    context: &mut Context<'_>,
) -> bool {
    // What is armed makes an edge with the next event, since all that was there is processed.
    if !net.prepare_to_sleep() || net.reactor.turn(Duration::ZERO).unwrap_or(false) {
        return false;
    }
    if watched.poll(context) {
        return false;
    }
    let limit = Some(net.longest_sleep()).filter(|limit| *limit < Duration::MAX);
    if let Some(next) = net.reactor.next_timer().into_iter().chain(limit).min() {
        timer.as_mut().reset((Instant::now() + next).into());
        if timer.poll(context).is_ready() {
            return false;
        }
    }
    net.reactor.sleeps(context.waker().clone());
    true
}

impl Net {
    /// Runs the future inside a task of a tokio runtime, and drives the network until it is ready. Other tasks of the same thread
    /// (`spawn_local`) may use the connections meanwhile. While nothing happens it waits as [`crate::NetOptions::wait`] specifies.
    ///
    /// # Errors
    /// The runtime cannot watch a descriptor: it has no I/O driver.
    pub async fn run_until<F: IntoFuture>(&self, future: F) -> io::Result<F::Output> {
        let net = self.inner.clone();
        let watched = Readable::new(net.reactor.as_fd())?;
        let mut future = pin!(future.into_future());
        let mut idle = Idle::new(net.wait.get());
        let mut timer = pin!(tokio::time::sleep_until(Instant::now().into()));
        let output = std::future::poll_fn(|context| {
            let mut is_busy = net.turn();
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                net.send_wrapped();
                return Poll::Ready(output);
            }
            is_busy |= net.turn();
            if is_busy {
                idle.reset();
            }
            if is_busy || !idle.is_over(&net) || !sleep(&net, &watched, timer.as_mut(), context) {
                // Once more, after the other tasks of the thread have had their turn.
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
        Ok(output)
    }
}
