//! Driving a [`Net`] inside an executor that uses the event loop of async-io, as smol does.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use async_io::{Async, Timer};

use super::event_loop::EventLoop;
use super::net::Net;

struct AsyncIo {
    watched: Async<OwnedFd>,
    timer: Timer,
}

impl EventLoop for AsyncIo {
    fn poll_readable(&mut self, context: &mut Context<'_>) -> bool {
        self.watched.poll_readable(context).is_ready()
    }

    fn poll_timer(&mut self, at: Instant, context: &mut Context<'_>) -> bool {
        self.timer.set_at(at);
        matches!(Pin::new(&mut self.timer).poll(context), Poll::Ready(_))
    }
}

impl Net {
    /// Runs the future inside a task of an executor for one thread, and drives the network until it is ready; async-io's event loop
    /// waits for the transports. Other tasks of the same thread may use the connections meanwhile. While nothing happens it waits as
    /// [`crate::NetOptions::wait`] specifies.
    ///
    /// # Errors
    /// The system has no descriptor left, or refuses to watch one.
    ///
    /// # Panics
    /// async-io has no event loop yet, and the system has no descriptor or thread for it. An executor that uses async-io has made it before.
    pub async fn run_in_async_io<F: IntoFuture>(&self, future: F) -> io::Result<F::Output> {
        self.inner.check_fork().map_err(io::Error::other)?;
        let descriptor = self.inner.reactor.as_fd().try_clone_to_owned()?;
        let watched = Async::new_nonblocking(descriptor)?;
        Ok(self.drive(AsyncIo { watched, timer: Timer::never() }, future).await)
    }
}
