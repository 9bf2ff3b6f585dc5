//! The asynchronous context: file descriptors and timers that are served whether or not the application calls
//! progress.
//!
//! For accepting connections, retransmission timers, port events. Built on `event_set`, `clock` and `sync`.
//! Workers own one and transports register their handlers in it.
//!
//! # Modes
//!
//! | mode | handlers run in |
//! |---|---|
//! | [`Mode::Thread`] | a thread of the context, from the first registration on |
//! | [`Mode::Poll`] | the caller of [`poll`](AsyncHandle::poll), usually a worker's progress |
//!
//! A thread that waits in [`block`](AsyncHandle::block) spins for about a microsecond, then sleeps.
//!
//! UCX has another mode, in which a signal interrupts the application and the handler runs on its stack. It
//! is left out: a handler could then call only what is async-signal-safe, which excludes allocation, locks
//! and logging, hence nearly all of what handlers do; the signal number, its handler and the timers are
//! process-wide state that belongs to the application (the project promises to install none); system calls of
//! the application's other libraries would start to return `EINTR`; and a panic cannot be caught there. What
//! the mode saves, one thread, `Poll` saves too.
//!
//! # Handlers
//!
//! Handlers of one context never run at the same time, nor while a thread is between `block` and `unblock`.
//! What happens meanwhile is remembered once per handler, with all its events, and replayed by the thread
//! whose unblock is the last. Each handler is replayed at most once per unblock, so that a busy descriptor
//! cannot hold the caller for ever.
//!
//! A handler may add, modify and remove handlers, itself included, and may block and unblock. A closure that
//! panics is reported and removed; a panic in an `extern "C"` function aborts the process, as the language
//! has it.
//!
//! # Resolution
//!
//! In `Thread` mode: that of the kernel's timers, some tens of microseconds with the wake-up. In `Poll` mode, if
//! `poll` is called steadily: [`poll::CLOCK_INTERVAL`] for timers, and [`poll::FD_CHECK_INTERVAL`] more for
//! descriptors; at worst [`poll::MAX_STRIDE`] calls more when their rate drops suddenly.

mod block;
mod error;
mod handler;
mod pace;
pub mod poll;
mod registry;
mod shared;
mod slot;
mod thread;

#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Deadline;
use crate::event_set::Events;
use crate::memory::fork::ForkGuard;
use crate::pending_work::PendingWork;
use crate::status;

pub use error::AsyncError;
pub use handler::{HandlerId, RawHandler, Schedule};
pub use slot::SHUTDOWN_LIMIT;

use handler::Callback;
use shared::Shared;

/// How handlers are run; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A thread runs handlers.
    Thread,
    /// `poll` runs handlers.
    Poll,
}

/// The owner of an asynchronous context. Everything it can do is on [`AsyncHandle`], to which it
/// dereferences.
///
/// Dropping it removes all handlers and ends the thread, waiting [`SHUTDOWN_LIMIT`] at most; a handler that
/// has not returned by then is reported and left to itself. Handles that remain return
/// [`AsyncError::Closed`]. In a child of a fork dropping it does nothing: thread and handlers are the parent's.
#[derive(Debug)]
pub struct AsyncContext {
    handle: AsyncHandle,
    fork: ForkGuard,
}

/// A reference to an asynchronous context, for any thread. Handlers may keep one.
#[derive(Clone)]
pub struct AsyncHandle {
    shared: Arc<Shared>,
}

/// While it lives, no handler runs, except on this thread by the unblock that ends it.
#[must_use = "handlers run again as soon as the guard is dropped"]
#[derive(Debug)]
pub struct BlockGuard<'context> {
    handle: &'context AsyncHandle,
    /// The thread that blocked has to unblock.
    not_send: PhantomData<*const ()>,
}

impl AsyncContext {
    /// A context without handlers. It has no thread and no descriptor until something is registered.
    pub fn new(mode: Mode) -> AsyncContext {
        AsyncContext::with_pending_work(mode, PendingWork::new())
    }

    /// As [`AsyncContext::new`]; in [`Mode::Poll`] its bit in `pending_work` is set as long as handlers are registered.
    pub fn with_pending_work(mode: Mode, pending_work: PendingWork) -> AsyncContext {
        AsyncContext {
            handle: AsyncHandle { shared: Arc::new(Shared::new(mode, pending_work, thread::serve)) },
            fork: ForkGuard::new(),
        }
    }
}

impl Deref for AsyncContext {
    type Target = AsyncHandle;

    fn deref(&self) -> &AsyncHandle {
        &self.handle
    }
}

impl Drop for AsyncContext {
    fn drop(&mut self) {
        if self.fork.check().is_ok() {
            self.handle.shared.close();
        }
    }
}

impl AsyncHandle {
    /// How this context runs its handlers.
    pub fn mode(&self) -> Mode {
        self.shared.mode()
    }

    /// Calls `handler` when one of `events` happens on `fd`, for as long as that state lasts.
    ///
    /// `events` are [`Events::READ`] and [`Events::WRITE`]; [`Events::ERROR`] is reported in any case, so a
    /// handler that sees it removes itself or drains the error. The caller keeps the descriptor, and
    /// removes the handler before closing it.
    pub fn add_fd(
        &self,
        fd: impl AsFd,
        events: Events,
        handler: impl FnMut(HandlerId, Events) + Send + 'static,
    ) -> Result<HandlerId, AsyncError> {
        self.shared.add_fd(fd.as_fd().as_raw_fd(), events, Callback::closure(handler))
    }

    /// Calls `handler` at the times of `schedule`, with [`Events::TIMER`].
    ///
    /// A periodic timer that comes late makes up for nothing: periods that have passed are one call. A timer
    /// that runs once stays registered and idle afterwards, until it is removed or set again by
    /// [`modify_timer`](Self::modify_timer).
    pub fn add_timer(
        &self,
        schedule: Schedule,
        handler: impl FnMut(HandlerId, Events) + Send + 'static,
    ) -> Result<HandlerId, AsyncError> {
        self.shared.add_timer(schedule, Callback::closure(handler))
    }

    /// As [`add_fd`](Self::add_fd), with a C function.
    ///
    /// # Safety
    /// Until the handler has been removed, it may be called with its argument from the context's thread (or
    /// from `poll` and `unblock`), so the argument must be valid for that. The function must not unwind.
    pub unsafe fn add_fd_raw(
        &self,
        fd: impl AsRawFd,
        events: Events,
        handler: RawHandler,
    ) -> Result<HandlerId, AsyncError> {
        // SAFETY: the caller promises what `Callback::raw` asks for, until removal, after which nothing is
        // called.
        let callback = unsafe { Callback::raw(handler) };
        self.shared.add_fd(fd.as_raw_fd(), events, callback)
    }

    /// As [`add_timer`](Self::add_timer), with a C function.
    ///
    /// # Safety
    /// As for [`add_fd_raw`](Self::add_fd_raw).
    pub unsafe fn add_timer_raw(
        &self,
        schedule: Schedule,
        handler: RawHandler,
    ) -> Result<HandlerId, AsyncError> {
        // SAFETY: the caller promises what `Callback::raw` asks for, until removal, after which nothing is
        // called.
        let callback = unsafe { Callback::raw(handler) };
        self.shared.add_timer(schedule, callback)
    }

    /// Changes what a descriptor's handler waits for. Events that are no longer wanted are not delivered any
    /// more, even if they have happened already. No events at all leaves [`Events::ERROR`].
    pub fn modify_fd(&self, id: HandlerId, events: Events) -> Result<(), AsyncError> {
        self.shared.modify_fd(id, events)
    }

    /// Starts a timer anew, from now. A call that is due and has not been made is forgotten.
    pub fn modify_timer(&self, id: HandlerId, schedule: Schedule) -> Result<(), AsyncError> {
        self.shared.modify_timer(id, schedule)
    }

    /// Removes a handler. Once this returns, the handler does not run and will not run again, and its closure
    /// has been dropped.
    ///
    /// If another thread is running it at the moment, this waits until it has returned, for as long as it
    /// takes: do not hold a lock that the handler wants. From inside the handler itself it does not wait, and
    /// the closure is dropped when it returns.
    pub fn remove(&self, id: HandlerId) -> Result<(), AsyncError> {
        self.shared.remove(id)
    }

    /// Keeps handlers from running until the guard is dropped. Recursive. Waits for a handler or a blocked
    /// section of another thread to end, so handlers and blocked sections have to be short.
    #[inline]
    pub fn block(&self) -> BlockGuard<'_> {
        self.block_raw();
        BlockGuard { handle: self, not_send: PhantomData }
    }

    /// As [`block`](Self::block), for callers that cannot keep a guard. To be matched by one
    /// [`unblock_raw`](Self::unblock_raw) on the same thread.
    #[inline]
    pub fn block_raw(&self) {
        self.shared.block();
    }

    /// Ends one [`block_raw`](Self::block_raw); the last one replays what was missed. On a thread that has
    /// not blocked it does nothing but log an error.
    #[inline]
    pub fn unblock_raw(&self) {
        self.shared.unblock();
    }

    /// Whether this thread is in a blocked section or in a handler.
    pub fn is_blocked_here(&self) -> bool {
        self.shared.is_blocked_here()
    }

    /// Runs what is due, in [`Mode::Poll`]; returns how many handlers ran. In [`Mode::Thread`] it does
    /// nothing.
    ///
    /// With nothing registered it is one relaxed load. Otherwise the clock is read every few calls, and the
    /// kernel is asked at most once per [`poll::FD_CHECK_INTERVAL`], and after an [`arm`](Self::arm). Inside a
    /// blocked section nothing runs; the unblock does it.
    #[inline]
    pub fn poll(&self) -> usize {
        self.shared.poll()
    }

    /// Counts one call of [`poll`](Self::poll), and returns true, if that call would check nothing. For a caller that has
    /// found [`WorkSource::Async`](crate::pending_work::WorkSource::Async) to be the only source of work: a load and a store in place of a call.
    #[inline]
    pub fn passes(&self) -> bool {
        self.shared.pace.passes()
    }

    /// When the next timer is due, in [`Mode::Poll`]; [`Deadline::NEVER`] without timers or in
    /// [`Mode::Thread`].
    pub fn next_deadline(&self) -> Deadline {
        self.shared.next_deadline()
    }

    /// A descriptor that is readable when [`poll`](Self::poll) has something to do, after an
    /// [`arm`](Self::arm). For [`Mode::Poll`]; [`Mode::Thread`] does not need it.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, AsyncError> {
        self.shared.event_fd()
    }

    /// Prepares to sleep on [`event_fd`](Self::event_fd): makes the next timer wake it, and the next
    /// [`poll`](Self::poll) check everything. Returns `BUSY` if a timer is due already; then poll first. In
    /// [`Mode::Thread`] it always succeeds.
    pub fn arm(&self) -> status::Result {
        self.shared.arm()
    }

    /// The number of registered handlers.
    pub fn handler_count(&self) -> usize {
        self.shared.handler_count()
    }
}

impl Drop for BlockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.handle.unblock_raw();
    }
}

impl fmt::Debug for AsyncHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncHandle")
            .field("mode", &self.mode())
            .field("handlers", &self.handler_count())
            .finish_non_exhaustive()
    }
}

/// A schedule's first moment, in ticks of the clock.
fn ticks_after(delay: Duration) -> u64 {
    Deadline::after(delay).ticks()
}
