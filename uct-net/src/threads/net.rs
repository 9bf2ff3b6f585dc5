//! The network as several threads use it.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use uct_core::Context;

use super::connect::Connect;
use super::engine::Engine;
use super::limit::Limit;
use super::listen::Listener;
use super::operation::Operation;
use crate::error::Result;
use crate::flavour::Timer;
use crate::options::NetOptions;

/// All permitted transports, open, and the connections over them, for any thread: this and all that comes of it is `Send` and `Sync`.
/// Cheap to clone.
///
/// Every thread that uses a handle makes progress in place, under one lock, which is held for short moments and never while code of
/// the application runs. When no thread does, a thread of its own (`uct-net`) waits for events, so any runtime will do, and wakers
/// are called by whichever thread finds the event.
///
/// A transport that says nothing of threads, such as a plugin in C, is used by the engine's own thread alone: then all of the net's
/// transports are, and each operation costs a way to that thread and back.
///
/// When the last handle, connection and listener of it is dropped, what was sent last is delivered first: this blocks for up to
/// 3 s, unless a waker of the application that the engine's own thread called drops it.
#[derive(Clone)]
pub struct Net {
    engine: Arc<Engine>,
}

impl Net {
    /// Opens every transport that the configuration permits, and starts the thread.
    ///
    /// # Errors
    /// As [`crate::local::Net::new`]; the system has no thread left.
    pub fn new(context: &Context, options: NetOptions) -> Result<Net> {
        Ok(Net { engine: Engine::start(context, options)? })
    }

    /// As [`Net::new`], driven by a task of the current tokio runtime in place of a thread of its own: the runtime's workers receive
    /// and wake, and its event loop waits for the transports. If the runtime ends while handles are left, a thread takes over.
    /// Where a transport says nothing of threads, there is a thread from the start.
    ///
    /// Dropping the last handle does not block: the task delivers what was sent last, for up to 1 s. If the runtime ends
    /// meanwhile, that blocks for as long.
    ///
    /// # Errors
    /// As [`Net::new`]; there is no current runtime.
    ///
    /// # Panics
    /// The runtime has no I/O driver or no timers: it was built without `enable_all`.
    #[cfg(feature = "tokio")]
    pub fn in_tokio(context: &Context, options: NetOptions) -> Result<Net> {
        Ok(Net { engine: Engine::start_in_tokio(context, options)? })
    }

    #[cfg(test)]
    pub(super) fn over(engine: Arc<Engine>) -> Net {
        Net { engine }
    }

    /// Connects to a listener, as [`crate::local::Net::connect`].
    pub fn connect(&self, address: impl fmt::Display) -> Connect {
        Connect::new(&self.engine, address.to_string())
    }

    /// Listens at an address, as [`crate::local::Net::listen`].
    ///
    /// # Errors
    /// No such address, in use, or forbidden; the error says which and what to try.
    pub fn listen(&self, address: impl fmt::Display) -> Operation<Listener> {
        Listener::open(&self.engine, address.to_string())
    }

    /// Ends after that time.
    pub async fn sleep(&self, time: Duration) {
        let mut limit = Limit::new(&self.engine, time);
        std::future::poll_fn(|context| limit.poll_due(context)).await;
    }

    /// What the future returns, or `None` if that takes longer than the limit; then it is dropped.
    pub async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut limit = Limit::new(&self.engine, limit);
        let mut future = pin!(future);
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => limit.poll_due(context).map(|()| None),
        })
        .await
    }

    /// Drives everything until the future is ready, in this thread; several threads may do so at once. Sleeps while there is nothing
    /// to do, as [`NetOptions::wait`] says. Blocks. While code of the future itself runs, nothing else is driven: what computes for
    /// long belongs into another thread.
    ///
    /// # Panics
    /// The system has no descriptor left.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.engine.block_on(future)
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").finish_non_exhaustive()
    }
}
