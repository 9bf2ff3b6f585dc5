//! A network for several threads.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use uct_host::Context;

use super::engine::{Engine, Entered};
use super::limit::Limit;
use super::memory::Memory;
use crate::error::{Error, Result, Stage, THIS_PROCESS};
use crate::flavour::Timer;
use crate::options::NetOptions;

/// All permitted transports, open, and the connections over them. This handle and every object made with it are `Send` and `Sync`. Cheap to
/// clone.
///
/// Every thread that uses a handle makes progress in place, under one lock, which is held for short moments and never while code of
/// the application runs. When no thread does, the network's own thread (`uct-net`) waits for events. It therefore works with any executor. A waker is
/// called by the thread that finds the event.
///
/// If an open transport does not declare that any thread may use it, such as a plugin in C, the network's own thread carries out all
/// operations, and each is handed to that thread and back.
///
/// Dropping the last handle, connection or listener delivers what was sent last. This blocks for up to 3 s, except inside a waker that
/// the network's own thread calls.
#[derive(Clone)]
pub struct Net {
    pub(super) engine: Arc<Engine>,
}

impl Net {
    /// Opens every transport that the configuration permits, and starts the network's own thread. Blocks meanwhile.
    ///
    /// # Errors
    /// As [`crate::local::Net::new`]; the system refuses another thread.
    pub fn new(context: &Context, options: NetOptions) -> Result<Net> {
        Ok(Net { engine: Engine::start(context, options)? })
    }

    /// As [`Net::new`], driven by a task of the current tokio runtime in place of a thread: the runtime's threads receive
    /// and wake tasks, and its event loop waits for the transports. If the runtime ends while handles are left, a thread takes over.
    /// If an open transport does not declare that any thread may use it, there is a thread from the start.
    ///
    /// Dropping the last handle does not block: the task delivers what was sent last, for up to 1 s. If the runtime ends
    /// during that time, its end waits for the task.
    ///
    /// # Errors
    /// As [`Net::new`]; the calling thread has no current runtime.
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

    /// Allocates at least `length` zeroed bytes of memory that any connection of this net can share, put from, get into and send from, as
    /// [`crate::local::Net::allocate`]. Its pages are made present outside of the lock: other threads go on meanwhile.
    ///
    /// # Errors
    /// As [`crate::local::Net::allocate`].
    pub fn allocate(&self, length: usize) -> Result<Memory> {
        let allocate = |entered: &mut Entered<'_>| {
            let (memory, populates) = entered.net().allocate_absent(length)?;
            Ok::<_, Error>((Memory::new(entered, memory), populates))
        };
        let forked = |forked| Error::forked(Stage::Allocate, THIS_PROCESS, forked);
        Memory::populated(self.engine.enter(allocate).map_err(forked)??)
    }

    /// Ends after this time.
    pub async fn sleep(&self, time: Duration) {
        let mut limit = Limit::new(&self.engine, time);
        std::future::poll_fn(|context| limit.poll_due(context)).await;
    }

    /// The output of the future, or `None` if it is not ready within the limit; it is dropped then.
    pub async fn within<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut limit = Limit::new(&self.engine, limit);
        let mut future = pin!(future);
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => limit.poll_due(context).map(|()| None),
        })
        .await
    }

    /// Runs the future in this thread, and drives the network until it is ready. Blocks; while nothing happens it waits as
    /// [`NetOptions::wait`] specifies. Several threads may do this at once. While the future's own code runs, this thread drives nothing: move
    /// long computations to other threads.
    ///
    /// Calls may be as short as one message. While one follows the other within about 0.1 ms, the network's own thread leaves the engine to them. When
    /// they stop it takes over within 2 ms, or at once with [`Net::rest`].
    ///
    /// It never fails for want of descriptors. While the system has none for another thread in `block_on`, that thread looks every
    /// millisecond whether it was woken.
    pub fn block_on<F: IntoFuture>(&self, future: F) -> F::Output {
        self.engine.block_on(future.into_future())
    }

    /// Says that no call of [`Net::block_on`] follows for now, though futures wait: the network's own thread takes over at once. For an event loop that
    /// drives the network by short calls, and is about to sleep.
    pub fn rest(&self) {
        // In a child of a fork nothing is driven.
        let _ = self.engine.enter(|entered| entered.hand_over());
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").finish_non_exhaustive()
    }
}
