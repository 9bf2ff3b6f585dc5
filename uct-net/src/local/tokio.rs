//! Driving a [`Net`] inside a tokio runtime.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::event_loop::EventLoop;
use super::net::Net;
use crate::async_fd::Readable;

struct Tokio {
    watched: Readable,
    timer: Pin<Box<tokio::time::Sleep>>,
}

impl EventLoop for Tokio {
    fn poll_readable(&mut self, context: &mut Context<'_>) -> bool {
        self.watched.poll(context)
    }

    fn poll_timer(&mut self, at: Instant, context: &mut Context<'_>) -> bool {
        self.timer.as_mut().reset(at.into());
        self.timer.as_mut().poll(context) == Poll::Ready(())
    }
}

impl Net {
    /// Runs the future inside a task of a tokio runtime, and drives the network until it is ready. Other tasks of the same thread
    /// (`spawn_local`) may use the connections meanwhile. While nothing happens it waits as [`crate::NetOptions::wait`] specifies.
    ///
    /// # Errors
    /// The system has no descriptor left, or refuses to watch one.
    ///
    /// # Panics
    /// The runtime has no I/O driver or no timers: it was built without `enable_all`.
    pub async fn run_until<F: IntoFuture>(&self, future: F) -> io::Result<F::Output> {
        self.inner.check_fork().map_err(io::Error::other)?;
        let watched = Readable::new(self.inner.reactor.as_fd())?;
        let timer = Box::pin(tokio::time::sleep_until(Instant::now().into()));
        Ok(self.drive(Tokio { watched, timer }, future).await)
    }
}
