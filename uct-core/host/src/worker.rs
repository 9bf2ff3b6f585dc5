//! The worker, which drives the interfaces of one thread.

pub(crate) mod driven;
mod report;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use ucs::async_context::{AsyncContext, Mode};
use ucs::clock::Deadline;
use ucs::datastruct::callbackq::{CallbackId, CallbackQ, CallbackQHandle, OneshotKey};
use ucs::event_set::{EventBuffer, EventFd, EventSet, Events};
use ucs::memory::BufferPool;
use ucs::memory::fork::ForkGuard;
use ucs::pending_work::{PendingWork, WorkSource};
use ucs::{Error, Result};

use crate::attach::{Connections, IfaceReport, Offer};
use crate::config::AsyncMode;
use crate::context::Context;
use crate::engine::Engine;
use crate::error::{OpenError, Refused};

/// Drives the interfaces that one thread uses. Cheap to clone within the thread; another thread uses its own worker, or
/// a [`WorkerHandle`] to this one.
#[derive(Clone)]
pub struct Worker {
    pub(crate) inner: Rc<WorkerInner>,
    /// The worker's, cached.
    pending_work: PendingWork,
}

pub(crate) struct WorkerInner {
    queue: CallbackQ,
    /// How many calls of the application's code from inside a transport are running, one inside the other.
    depth: Cell<u32>,
    /// Whether work is deferred until no transport is on the stack; with the bit [`WorkSource::Owner`].
    has_deferred: Cell<bool>,
    /// The only word that progress checks before it calls the interfaces.
    pending_work: PendingWork,
    /// Objects that were closed from inside a transport. They are closed once no transport is on the stack.
    closing: RefCell<Vec<Closing>>,
    /// A panic of an application's callback, until the transport's frames have returned.
    panic: RefCell<Option<Box<dyn Any + Send>>>,
    /// For copies of received messages.
    pub(crate) buffers: BufferPool,
    pub(crate) engine: Engine,
    events: EventSet,
    async_watched: Cell<bool>,
    armed: RefCell<Vec<Weak<dyn Armed>>>,
    /// The handlers that every interface gets.
    everywhere: RefCell<Vec<(u8, Rc<dyn Install>)>>,
    pub(crate) context: Context,
    fork: ForkGuard,
    fork_reported: Cell<bool>,
    /// For each server of the context.
    offers: OnceCell<Vec<Offer>>,
    /// For its reports.
    connections: RefCell<Vec<Weak<dyn Connections>>>,
    /// Interfaces that were opened on it.
    pub(crate) opened: Cell<u64>,
}

/// Closes an object.
pub(crate) type Closing = Box<dyn FnOnce()>;

/// Numbers of the watches in the event set: the wake-up descriptor, an interface, the timers.
const WAKE: u64 = 0;
const IFACE: u64 = 1;
const TIMERS: u64 = 2;

/// So many calls of progress without an event make a worker idle that waits for something.
const IDLE_CALLS: u32 = 64;
/// Longest sleep of a worker that waits for room. Room may come without an event.
const NAP: Duration = Duration::from_micros(250);

/// An open interface, for a worker that is about to sleep.
pub(crate) trait Armed {
    /// Arms for all events of the interface.
    fn arm_all(&self) -> Result;

    /// The object itself, of whatever type.
    fn object(self: Rc<Self>) -> Rc<dyn Any>;

    /// What it has done so far; connection managers have no counters.
    fn report(&self) -> Option<IfaceReport> {
        None
    }
}

/// A handler of messages that every interface of a worker gets.
pub(crate) trait Install {
    /// Sets it for one interface; other objects it leaves alone.
    fn install(&self, object: Rc<dyn Any>);
}

/// The key of what other threads submit.
const SUBMITTED: OneshotKey = 0;

impl Worker {
    /// A worker without interfaces.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(context: &Context) -> Result<Worker, OpenError> {
        let system =
            |what| move |error: ucs::sys::SystemError| OpenError::System { what, error: error.to_string() };
        let wake = EventFd::new().map_err(system("create the wake-up descriptor of a worker"))?;
        let events = EventSet::new().map_err(system("create the event set of a worker"))?;
        events.add(&wake, Events::READ, WAKE).map_err(system("watch the wake-up descriptor of a worker"))?;
        let mode = match context.core_config().async_mode {
            AsyncMode::Poll => Mode::Poll,
            AsyncMode::Thread | AsyncMode::ThreadSpinlock | AsyncMode::ThreadMutex => Mode::Thread,
        };
        let pending_work = PendingWork::new();
        let queue = CallbackQ::with_pending_work(pending_work.clone());
        let inner = Rc::new(WorkerInner {
            engine: Engine {
                remote: queue.handle(),
                async_context: AsyncContext::with_pending_work(mode, pending_work.clone()),
                wake: Arc::new(wake),
            },
            queue,
            buffers: BufferPool::default(),
            depth: Cell::new(0),
            has_deferred: Cell::new(false),
            pending_work,
            closing: RefCell::default(),
            panic: RefCell::default(),
            events,
            async_watched: Cell::new(false),
            armed: RefCell::default(),
            everywhere: RefCell::default(),
            context: context.clone(),
            fork: ForkGuard::new(),
            fork_reported: Cell::new(false),
            offers: OnceCell::new(),
            connections: RefCell::default(),
            opened: Cell::new(0),
        });
        let worker = Worker::of(&inner);
        worker.offer();
        Ok(worker)
    }

    /// Another handle to it.
    pub(crate) fn of(inner: &Rc<WorkerInner>) -> Worker {
        Worker { inner: Rc::clone(inner), pending_work: inner.pending_work.clone() }
    }

    /// The context it was made from.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The memory that its interfaces copy received messages to. Bounded: it keeps up to [`BufferPool::MAX_SPARE`] bytes that are not in use.
    pub fn buffers(&self) -> &BufferPool {
        &self.inner.buffers
    }

    /// Makes progress on everything: receives, completions, pending requests, work of other threads. Never blocks.
    /// Returns how many events were handled; 0 means that there was nothing to do.
    ///
    /// Of several interfaces, one that has had no event in 4,096 calls while another had some is *idle*: it is polled now and then only, until it
    /// has an event again or its transport asks for it, as `tcp` does when it has something to send. So an interface that carries nothing costs nearly nothing. An event on an idle one is handled at
    /// most 4 µs later for each idle interface ([`IDLE_PACE`](ucs::datastruct::callbackq::IDLE_PACE)), and then at the next of the checks. These are at most 64 calls
    /// apart ([`IDLE_INTERVAL`](ucs::datastruct::callbackq::IDLE_INTERVAL)), and in a program that calls it rarely at most 2 ms or one call, whichever is longer; one
    /// that has called it without pauses and begins to call it rarely needs up to 64 calls once. The first call after [`Worker::arm`] or [`Worker::wait`] polls
    /// every interface. Opening or closing an interface makes all active; silence does not. What another transport than `tcp` leaves to progress, because there is no room
    /// yet or to connect, close or flush, waits for the next check, too.
    ///
    /// In a forked child it does nothing and logs that once: the worker belongs to the parent.
    ///
    /// Handlers and completions run inside this call. They may call anything, progress included; but an interface that is
    /// just delivering may leave its further messages to the outer call, at once or when calls are nested a few levels deep, so a
    /// handler that waits for one of them may wait for ever. No transport nests without a limit: a small stack is enough for a
    /// handler that calls progress for each message. (UCX forbids progress there altogether.) A panic of theirs is carried around the transport and resumed here, or by
    /// the next call if this one would return 0.
    #[inline]
    pub fn progress(&self) -> u32 {
        let worker = &*self.inner;
        if !self.pending_work.is_empty() && !worker.may_pass() {
            return self.progress_slow();
        }
        let count = worker.queue.dispatch_fast();
        // Without events, deferred work can wait for the next call.
        if count > 0 && worker.has_deferred.get() {
            worker.run_deferred();
        }
        count
    }

    /// Progress when there is pending work besides the interfaces, or the process has forked.
    #[inline(never)]
    fn progress_slow(&self) -> u32 {
        let worker = &*self.inner;
        if worker.fork.check().is_err() {
            worker.report_fork();
            return 0;
        }
        let in_progress = InProgress::begin(&self.inner);
        let count = worker.queue.dispatch().wrapping_add(worker.engine.async_context.poll() as u32);
        drop(in_progress);
        if worker.has_deferred.get() {
            worker.run_deferred();
        }
        count
    }

    /// Time without an event after which [`Completion::wait`](crate::Completion::wait) and [`Worker::retry`] sleep: 50 µs, two to three times
    /// what a wake-up costs. Longer than most round trips over `posix` and `tcp` take, so that these are polled for.
    pub const SPIN: Duration = Duration::from_micros(50);

    /// Calls [`Worker::progress`] until `done` returns true or `limit` is over, however much happens meanwhile; returns
    /// whether it was done. Never sleeps, but yields the processor after 64 calls without an event: `done` may depend on
    /// what is no event, such as memory that peers put to. [`Worker::wait_until`] sleeps.
    pub fn progress_until(&self, limit: Duration, done: impl FnMut() -> bool) -> bool {
        let give_way = |_| {
            // The peer may need this processor.
            std::thread::yield_now();
            Ok(())
        };
        self.until(limit, done, give_way).unwrap_or(false)
    }

    /// As [`Worker::progress_until`], but sleeps once there has been no event for `spin`, until the next event. A short `spin` saves processor
    /// time; a wake-up costs some microseconds, often 20 or more, so a `spin` of about that time costs at most twice what the better of
    /// polling and sleeping does. Zero sleeps as soon as there is nothing to do.
    ///
    /// `done` has to become true by an event of this worker, or another thread calls [`WorkerHandle::wake`] afterwards: nothing else ends
    /// the sleep before `limit`.
    ///
    /// # Errors
    /// As [`Worker::wait`].
    pub fn wait_until(&self, limit: Duration, spin: Duration, done: impl FnMut() -> bool) -> Result<bool> {
        self.wait_in_naps(limit, spin, Duration::MAX, done)
    }

    /// As [`Worker::wait_until`] with [`Worker::SPIN`]. Polls where an interface cannot wake the worker.
    pub(crate) fn wait_or_poll(&self, limit: Duration, done: impl FnMut() -> bool) -> bool {
        self.nap_or_poll(limit, Duration::MAX, done)
    }

    /// As [`Worker::wait_or_poll`], asleep for at most `nap` at a time.
    fn nap_or_poll(&self, limit: Duration, nap: Duration, mut done: impl FnMut() -> bool) -> bool {
        let end = Deadline::after(limit);
        let waited = self.wait_in_naps(limit, Worker::SPIN, nap, &mut done);
        waited.unwrap_or_else(|_| self.progress_until(end.remaining(), done))
    }

    /// As [`Worker::wait_until`], asleep for at most `nap` at a time.
    fn wait_in_naps(
        &self,
        limit: Duration,
        spin: Duration,
        nap: Duration,
        done: impl FnMut() -> bool,
    ) -> Result<bool> {
        let (end, mut spinning) = (Deadline::after(limit), Deadline::after(spin));
        let rest = |had_event| {
            if had_event {
                spinning = Deadline::after(spin);
            }
            if spinning.expired() {
                match self.arm() {
                    Ok(()) => return self.sleep(end.remaining().min(nap)).map(|_woken| ()),
                    // Also as long as a transport is on the stack.
                    Err(Error::BUSY) => {}
                    Err(error) => return Err(error),
                }
            }
            std::thread::yield_now();
            Ok(())
        };
        self.until(limit, done, rest)
    }

    /// Progress until `done` or `limit`. After [`IDLE_CALLS`] without an event it calls `idle` with whether there was one since the
    /// last time.
    fn until(
        &self,
        limit: Duration,
        mut done: impl FnMut() -> bool,
        mut idle: impl FnMut(bool) -> Result,
    ) -> Result<bool> {
        let deadline = Deadline::after(limit);
        let (mut calls, mut idle_calls, mut had_event) = (0u32, 0u32, true);
        while !done() {
            if self.progress() > 0 {
                (idle_calls, had_event) = (0, true);
            } else {
                idle_calls += 1;
            }
            calls = calls.wrapping_add(1);
            if calls.is_multiple_of(IDLE_CALLS) && deadline.expired() {
                return Ok(done());
            }
            if idle_calls >= IDLE_CALLS {
                idle(std::mem::take(&mut had_event))?;
                idle_calls = 0;
            }
        }
        Ok(true)
    }

    /// Tries an operation until it is not refused for want of room ([`Error::NO_RESOURCE`]), with progress in between. Blocks.
    /// Polls until there was no event for [`Worker::SPIN`]; then it sleeps for at most 250 µs at a time, because room may come
    /// without an event. For a notification instead, see [`crate::Ep::pending_add`].
    ///
    /// # Errors
    /// The operation's; [`Error::TIMED_OUT`] if there is no room for `limit`.
    pub fn retry<T>(&self, limit: Duration, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        let mut outcome = operation();
        if matches!(outcome, Err(Error::NO_RESOURCE)) {
            self.nap_or_poll(limit, NAP, || {
                outcome = operation();
                !matches!(outcome, Err(Error::NO_RESOURCE))
            });
        }
        outcome.map_err(|error| if error == Error::NO_RESOURCE { Error::TIMED_OUT } else { error })
    }

    /// A handle for other threads.
    pub fn handle(&self) -> WorkerHandle {
        WorkerHandle {
            worker: Rc::as_ptr(&self.inner).addr(),
            queue: self.inner.engine.remote.clone(),
            wake: Arc::clone(&self.inner.engine.wake),
        }
    }

    /// A descriptor that becomes readable when an armed worker has something to do; for an event loop of the
    /// application's own. See [`Worker::arm`].
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.events.as_fd()
    }

    /// Arms every interface, so that the next event makes [`Worker::event_fd`] readable. After success the next event is a new
    /// edge, so the descriptor may be in a set that reports changes only, as those of most runtimes do. Events are messages, completions,
    /// timers of transports, and work of other threads; an operation that is started after this call wakes the worker when it ends, too.
    ///
    /// # Errors
    /// [`Error::BUSY`] while events are unprocessed, a [`WorkerHandle::wake`] among them: call [`Worker::progress`] and arm
    /// again. [`Error::UNSUPPORTED`] if an interface cannot wake the worker. [`Error::INVALID_PARAM`] in a forked child.
    pub fn arm(&self) -> Result {
        let worker = &*self.inner;
        worker.fork.check()?;
        // The next progress is to find what woke the thread, or why an interface is not ready to sleep, on an idle interface too.
        worker.queue.check_all();
        // What was submitted before the flag went up is run by the progress that follows; what comes later raises it again.
        if worker.has_deferred.get() || worker.engine.wake.drain() {
            return Err(Error::BUSY);
        }
        worker.watch_async();
        worker.engine.async_context.arm()?;
        let armed: Vec<Rc<dyn Armed>> = worker.armed.borrow().iter().filter_map(Weak::upgrade).collect();
        for iface in armed {
            iface.arm_all()?;
        }
        // A transport may have moved its timers to when the sleeper has to be woken.
        worker.engine.async_context.arm()
    }

    /// Sleeps until there is something to do, another thread wakes the worker, or `limit` is over; returns whether
    /// there is something to do. Blocks. Call [`Worker::progress`] afterwards. If there is something to do already, it calls progress once
    /// instead of sleeping, and returns true: a program that only waits, again and again, makes progress as well.
    ///
    /// # Errors
    /// As [`Worker::arm`], except [`Error::BUSY`], for which it makes progress.
    pub fn wait(&self, limit: Duration) -> Result<bool> {
        match self.arm() {
            Ok(()) => self.sleep(limit),
            Err(Error::BUSY) => {
                self.progress();
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Sleeps, armed, until the next event or `limit`; returns whether there was one.
    fn sleep(&self, limit: Duration) -> Result<bool> {
        let mut buffer = EventBuffer::<16>::new();
        let events = self.inner.events.wait(&mut buffer, Some(limit)).map_err(Error::from)?;
        let mut woken = false;
        for event in events {
            woken = true;
            if event.data == WAKE {
                self.inner.engine.wake.drain();
            }
        }
        Ok(woken)
    }
}

impl WorkerInner {
    /// Refuses calls in a child of a fork: connections, queues and registrations belong to the parent.
    pub(crate) fn check_fork(
        &self,
        operation: &'static str,
        subject: impl FnOnce() -> String,
    ) -> Result<(), Refused> {
        self.fork.check().map_err(|forked| Refused {
            operation,
            subject: subject(),
            status: Error::from(forked),
            reason: forked.to_string(),
        })
    }

    /// As [`WorkerInner::check_fork`], for calls that return without words.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        Ok(self.fork.check()?)
    }

    /// Whether only the asynchronous context has work and need not run yet: a transport with handlers there has its bit set for as
    /// long as it is open. The process is not a child of a fork either, where the word would be wiped.
    #[inline]
    fn may_pass(&self) -> bool {
        self.pending_work.is_only(WorkSource::Async) && self.engine.async_context.passes()
    }

    /// Records that there is deferred work for the time when no transport is on the stack.
    fn note_deferred(&self) {
        self.has_deferred.set(true);
        self.pending_work.add(WorkSource::Owner);
    }

    #[cold]
    fn report_fork(&self) {
        if !self.fork_reported.replace(true) {
            ucs::log::error!(
                "a worker does nothing in a forked child: it belongs to the parent; make a new one"
            );
        }
    }

    /// Registers the progress of an interface.
    ///
    /// # Safety
    /// As `CallbackQ::add`.
    pub(crate) unsafe fn add_progress(
        &self,
        callback: uct_abi::UctProgress,
        argument: *mut std::ffi::c_void,
    ) -> CallbackId {
        // SAFETY: the caller's promise.
        unsafe { self.queue.add(callback, argument) }
    }

    /// Removes a progress callback at once; this thread only.
    pub(crate) fn remove_own_progress(&self, id: CallbackId) {
        self.queue.remove(id);
    }

    /// Arms `iface` together with the worker from now on, until it is dropped.
    pub(crate) fn add_armed(&self, iface: Weak<dyn Armed>) {
        let mut armed = self.armed.borrow_mut();
        armed.retain(|iface| iface.strong_count() > 0);
        armed.push(iface);
    }

    /// The open interfaces, and connection managers.
    pub(crate) fn objects(&self) -> Vec<Rc<dyn Any>> {
        self.armed.borrow().iter().filter_map(|armed| Some(armed.upgrade()?.object())).collect()
    }

    /// Keeps a handler of an id, or none, for interfaces that are opened later. Returns the one so far: to drop it may run other code.
    pub(crate) fn replace_handler(
        &self,
        id: u8,
        handler: Option<Rc<dyn Install>>,
    ) -> Option<Rc<dyn Install>> {
        let mut handlers = self.everywhere.borrow_mut();
        let index = handlers.iter().position(|(of, _)| *of == id);
        let so_far = index.map(|index| handlers.swap_remove(index).1);
        handlers.extend(handler.map(|handler| (id, handler)));
        so_far
    }

    /// Sets the handlers of the worker for an interface that has just been opened.
    pub(crate) fn install_handlers(&self, iface: &Rc<impl Any>) {
        self.everywhere.borrow().iter().for_each(|(_, handler)| handler.install(Rc::clone(iface) as _));
    }

    /// Wakes the sleeping worker when a descriptor becomes readable.
    pub(crate) fn watch(&self, fd: BorrowedFd<'_>) -> Result<(), ucs::sys::SystemError> {
        self.events.add(fd, Events::READ, IFACE)
    }

    /// Stops watching a descriptor that is about to be closed. A child shares the set with its parent, which keeps using it.
    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>) {
        if self.fork.check().is_ok() {
            let _ = self.events.remove(fd);
        }
    }

    /// Whether a transport is on the stack, that is one that has called the application's code.
    pub(crate) fn is_on_stack(&self) -> bool {
        self.depth.get() > 0
    }

    /// Runs `closing` now, or as soon as no transport is on the stack.
    pub(crate) fn close(&self, closing: Closing) {
        if self.fork.check().is_err() {
            // Closing would close the parent's connections under it.
            std::mem::forget(closing);
            return;
        }
        if !self.is_on_stack() {
            closing();
        } else {
            self.closing.borrow_mut().push(closing);
            self.note_deferred();
        }
    }

    /// Runs code of the application from inside a transport. Its panic is kept until the transport's frames are left.
    #[inline]
    pub(crate) fn call_application(&self, call: impl FnOnce()) {
        self.depth.set(self.depth.get() + 1);
        let outcome = catch_unwind(AssertUnwindSafe(call));
        self.depth.set(self.depth.get() - 1);
        if let Err(panic) = outcome {
            self.keep_panic(panic);
        }
    }

    /// As [`WorkerInner::call_application`], for code that does not panic.
    #[inline]
    pub(crate) fn call_binding<T>(&self, call: impl FnOnce() -> T) -> T {
        self.depth.set(self.depth.get() + 1);
        let answer = call();
        self.depth.set(self.depth.get() - 1);
        answer
    }

    /// Keeps a panic of the application's code until the transport's frames are left.
    #[cold]
    pub(crate) fn keep_panic(&self, panic: Box<dyn Any + Send>) {
        self.panic.borrow_mut().get_or_insert(panic);
        self.note_deferred();
    }

    /// Closes deferred objects and resumes a panic that was kept, if no transport is on the stack.
    #[cold]
    #[inline(never)]
    pub(crate) fn run_deferred(&self) {
        if self.is_on_stack() || !self.has_deferred.replace(false) {
            return;
        }
        self.pending_work.remove(WorkSource::Owner);
        self.close_all();
        let panic = self.panic.borrow_mut().take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Closes deferred objects. No transport is on the stack.
    fn close_all(&self) {
        loop {
            let closing = std::mem::take(&mut *self.closing.borrow_mut());
            if closing.is_empty() {
                return;
            }
            for close in closing {
                close();
            }
        }
    }

    fn watch_async(&self) {
        if !self.async_watched.get()
            && self.engine.async_context.handler_count() > 0
            && let Ok(fd) = self.engine.async_context.event_fd()
        {
            self.async_watched.set(self.events.add(fd, Events::READ, TIMERS).is_ok());
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // What waits to be closed holds the worker, and the program may never call progress again.
        if !self.inner.is_on_stack() && self.inner.fork.check().is_ok() {
            self.inner.close_all();
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("callbacks", &self.inner.queue.len()).finish_non_exhaustive()
    }
}

thread_local! {
    /// The workers whose progress this thread is in, for the work that other threads have submitted to them. Which thread drives a worker may
    /// change, where a library moves it.
    static IN_PROGRESS: RefCell<Vec<Weak<WorkerInner>>> = const { RefCell::new(Vec::new()) };
}

/// A progress of a worker that does what was submitted, until this is dropped.
struct InProgress;

impl InProgress {
    fn begin(worker: &Rc<WorkerInner>) -> InProgress {
        // While a thread ends, the list may be gone ahead of a worker.
        let _ = IN_PROGRESS.try_with(|workers| workers.borrow_mut().push(Rc::downgrade(worker)));
        InProgress
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let _ = IN_PROGRESS.try_with(|workers| workers.borrow_mut().pop());
    }
}

/// The worker that has an address, inside of its progress.
fn worker_at(address: usize) -> Option<Worker> {
    let find = |workers: &[Weak<WorkerInner>]| {
        workers.iter().find(|worker| worker.as_ptr().addr() == address)?.upgrade()
    };
    let found = IN_PROGRESS.try_with(|workers| find(&workers.borrow()));
    found.ok().flatten().map(|inner| Worker::of(&inner))
}

/// Submits work to a worker from other threads, and wakes it.
#[derive(Clone)]
pub struct WorkerHandle {
    /// The address of the worker, which no other one has while it takes work.
    worker: usize,
    queue: CallbackQHandle,
    wake: Arc<EventFd>,
}

impl WorkerHandle {
    /// Queues `work` for the next progress of the worker, which runs it in its thread and passes it the worker. Wakes the worker if it sleeps.
    /// Does not wait for the work. Objects that cannot be sent, such as interfaces and endpoints, the work can create with the
    /// worker, or take from a thread-local variable.
    ///
    /// # Errors
    /// [`Error::CANCELED`] if the worker has ended.
    pub fn submit(&self, work: impl FnOnce(&Worker) + Send + 'static) -> Result {
        let address = self.worker;
        let once = move || {
            if let Some(worker) = worker_at(address) {
                work(&worker);
            }
            1
        };
        self.queue.add_oneshot(SUBMITTED, once).map_err(|_closed| Error::CANCELED)?;
        self.wake();
        Ok(())
    }

    /// Wakes the worker if it sleeps in [`Worker::wait`] or on its event descriptor.
    pub fn wake(&self) {
        self.wake.signal();
    }
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerHandle")
    }
}
